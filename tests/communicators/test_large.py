"""Arrays of more than 2**31 elements: no count, offset or piece is cut to 32 bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from communicator_kinds import made_of, using

import atomr_native as an

SIZE = (1 << 31) + 1  # bytes


@pytest.fixture(
    scope="module", params=[pytest.param("host", marks=pytest.mark.slow), pytest.param("gpu", marks=pytest.mark.gpu)]
)
def pair(request: pytest.FixtureRequest) -> Iterator[an.Communicator]:
    with using(request, request.param), an.System(standby="off", timeout=120.0) as system:
        made = made_of(system, request.param, 0, 1)
        yield made
        made.close()


def check(ref: an.GpuRef, body: int, last: int) -> None:
    """Every element but the last is `body`."""
    assert (ref[:-1].min().item(), ref[:-1].max().item(), ref[-1:].item()) == (body, body, last)


def test_two_gibibytes_and_one(pair: an.Communicator) -> None:
    refs = [device.full(SIZE, rank + 1, "uint8") for rank, device in enumerate(pair.devices)]
    refs[1][-1:].fill(9)
    pair.all_reduce(refs, out=refs)
    for ref in refs:
        check(ref, 3, 10)
    refs[0].fill(7)
    refs[0][-1:].fill(8)
    pair.broadcast(refs[0], out=refs)
    check(refs[1], 7, 8)
    refs[1].fill(5)
    refs[1][-1:].fill(6)
    assert pair.send(refs[1], 0, refs[0]) is refs[0]
    check(refs[0], 5, 6)
