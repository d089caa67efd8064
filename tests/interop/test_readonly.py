"""Arrays of other libraries that may only be read: shared, and never written by a message."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from dlpack_abi import Owner

import atomr_native as an


class Legacy:
    """An array whose DLPack capsule has no version, as those of JAX."""

    def __init__(self, values: np.ndarray) -> None:
        self.owner = Owner(values)

    def __dlpack__(self, *, stream: object = None) -> object:
        return self.owner.capsule(versioned=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Versioned(Legacy):
    """An array that says that it may be written."""

    def __dlpack__(self, *, stream: object = None, max_version: object = None) -> object:
        return self.owner.capsule(versioned=True)


def of_package(package: str, name: str, base: type) -> type:
    return type(name, (base,), {"__module__": f"{package}.inner"})


@pytest.fixture(scope="module")
def local() -> Iterator[an.Device]:
    """Lend the host device of a System in thread placement."""
    with an.System(isolation="thread", standby="off") as system:
        yield system.device("host")


def frozen(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


READ_ONLY: dict[str, Callable[[np.ndarray], Any]] = {
    "legacy": Legacy, "numpy": frozen, "bytes": lambda values: values.tobytes(),
    "jax": of_package("jaxlib", "ArrayImpl", Versioned),
}  # fmt: skip
WRITABLE: dict[str, Callable[[np.ndarray], Any]] = {
    "versioned": Versioned, "numpy": lambda values: values, "torch": of_package("torch", "Tensor", Legacy),
    "parameter": type("Parameter", (of_package("torch", "Tensor", Legacy),), {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", READ_ONLY)
def test_what_may_not_be_written_is_shared_to_be_read(local: an.Device, kind: str) -> None:
    values = np.arange(8, dtype=np.uint8)
    before = values.copy()
    x = local.asarray(READ_ONLY[kind](values), copy=False)
    assert x.allocation.readonly
    other = local.zeros(8, "uint8")
    local.put(np.zeros(8, np.uint8))  # later ones of the layout are sent in another way
    plan = local.elementwise.plan("a + 1", a=other, out=local.empty(8, "uint8"))
    writes: list[Callable[[], object]] = [
        lambda: x.fill(1), lambda: x[2:].fill(1), lambda: local.put(np.zeros(8, np.uint8), out=x),
        lambda: local.copy(other, x), lambda: local.elementwise.run("a + 1", a=x, out=x),
        lambda: local.elementwise.run("a + 1", a=other, out=x), lambda: plan.tell(other, out=x.reshape(8)),
        lambda: pickle.loads(pickle.dumps(x)).fill(1), lambda: local.asarray(x).fill(1),
    ]  # fmt: skip
    for write in writes * 2:
        with pytest.raises(an.InvalidRequest, match=r"read-only.*copy=True"):
            write()
    assert local.elementwise.run("a + 1", a=x).numpy().tolist() == (before + 1).tolist()
    assert x.numpy().tolist() == values.tolist() == before.tolist()
    assert not x.__array__(copy=False).flags.writeable
    assert not np.from_dlpack(x).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()
    with x.lend() as lent:
        assert not lent.flags.writeable
    mine = local.asarray(READ_ONLY[kind](values), copy=True)
    assert mine.fill(3).numpy().tolist() == [3] * 8
    assert values.tolist() == before.tolist()


@pytest.mark.parametrize("kind", WRITABLE)
def test_what_may_be_written_is_written_in_place(local: an.Device, kind: str) -> None:
    values = np.arange(8.0)
    x = local.asarray(WRITABLE[kind](values), copy=False)
    assert not x.allocation.readonly
    x.fill(5).wait()
    assert values.tolist() == [5.0] * 8
    assert np.from_dlpack(x).flags.writeable


def test_one_memory_by_two_names(local: an.Device) -> None:
    """Each handle is as its array was, and messages with both are ordered."""
    values = np.zeros(8)
    view = values[:]
    view.flags.writeable = False
    reads, writes = local.asarray(view, copy=False), local.asarray(values, copy=False)
    writes.fill(4)
    assert reads.numpy().tolist() == [4] * 8
    with pytest.raises(an.InvalidRequest, match="read-only"):
        reads.fill(1)
    for _ in range(2):
        with pytest.raises(an.InvalidRequest, match="read-only"):
            local.elementwise.run("a + 1", a=writes, out=reads)
        local.elementwise.run("a + 1", a=reads, out=writes)
    local.elementwise.run("a + b", a=reads, b=reads[:], out=writes)
    assert reads.numpy().tolist() == [12] * 8
    local.elementwise.run("a + 2 * b", a=writes, b=writes[:], out=writes)
    local.elementwise.run("a + 2 * b", b=writes[:], a=writes, out=writes)
    assert reads.numpy().tolist() == [108] * 8


@pytest.mark.host_only
def test_exports_of_a_device_that_come_back(device: an.Device) -> None:
    """Memory of the device itself stays its own, whatever name it comes back by."""
    ref = device.put(np.arange(4.0))
    host = device.host_array(4, "float64")
    for own, back in ((np.from_dlpack(ref), ref), (host, None)):
        assert not device.asarray(own, copy=False).allocation.readonly
        seen = own[1:]
        seen.flags.writeable = False
        x = device.asarray(seen, copy=False)
        assert x.allocation.readonly
        assert back is None or x.allocation.slot == back.allocation.slot
        with pytest.raises(an.InvalidRequest, match="copy=True"):
            x.fill(1)
        with pytest.raises(an.InvalidRequest, match="own"):
            x.free()
        own[...] = 7
        assert x.numpy().tolist() == [7] * 3
    del own, seen, back
    kept = device.asarray(frozen(np.from_dlpack(ref)), copy=False)
    del ref
    others = [device.full(4, 1, "float64") for _ in range(50)]
    assert kept.numpy().tolist() == [7] * 4
    del others
