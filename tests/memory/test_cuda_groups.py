"""Durable groups on CUDA: what is copied, what a checksum finds, what recovery does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from codegen_engines import Engine, engines
from group_memory import Group
from msgspec.structs import replace
from placements import GPU

from atomr_native.errors import InvalidRequest
from atomr_native.libraries.memory.cuda import groups


@pytest.fixture(scope="module", params=["cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend each engine in turn."""
    with engines(request.param, tmp_path_factory) as found:
        yield found


@pytest.mark.parametrize("checked", [False, True])
def test_groups(engine: Engine, checked: bool) -> None:
    group = Group(engine, checked)
    group.fill(0)
    before = group.state()
    group.run("group.restore")  # nothing is committed yet
    assert group.state() == before
    assert group.recover() == {"sequence": 0, "tag": 0, "damaged": False}
    committed = group.fill(1)
    group.run("group.commit", 3, -5)
    assert list(group.words[:4]) == [3, 3, -5, -5]
    total = sum(groups.checksum(m.tobytes(), o) for m, o in zip(group.members, group.offsets, strict=True))
    assert int(group.words[4]) % 2**64 == (total % 2**64 if checked else 0)
    group.fill(2)
    group.run("group.restore")
    assert group.state() == committed
    group.fill(3)
    assert group.recover() == {"sequence": 3, "tag": -5, "damaged": False}
    assert group.state() == committed
    # A commit that was begun is made again from the members.
    later = group.fill(4)
    group.words[0], group.words[2] = 4, 9
    group.memory.bytes[group.shadow : group.shadow + 300] = 1
    assert group.recover() == {"sequence": 4, "tag": 9, "damaged": False}
    group.fill(5)
    assert group.recover()["sequence"] == 4
    assert group.state() == later
    # Damage: mended from members that are whole, else told.
    for at in (0, group.offsets[2] + 4096):
        group.memory.bytes[group.shadow + at] ^= 1
        assert not group.recover()["damaged"]
        assert (group.state() == later) is checked
        group.memory.bytes[group.shadow + at] ^= 0 if checked else 1
    group.memory.bytes[group.shadow + 700] ^= 1
    group.fill(6)
    assert group.recover()["damaged"] is checked


def test_groups_refuse_what_kernels_cannot_copy(engine: Engine) -> None:
    spec = Group(engine, False).spec("group.commit")
    offsets = (8, *spec.attributes.offsets[1:])
    with pytest.raises(InvalidRequest, match="multiples of 16"):
        engine.build(replace(spec, attributes=replace(spec.attributes, offsets=offsets)))
    first, second, *others = spec.operands
    with pytest.raises(InvalidRequest, match="C-contiguous"):
        engine.build(replace(spec, operands=(first, replace(second, strides=(2,)), *others)))
