"""Stale handles in the messages of every library: each array that a message takes, and each that it writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recorded_cases import Case, of_libraries, values

import atomr_native as an
from atomr_native.libraries import LIBRARIES

pytestmark = pytest.mark.host_only

#: A message of each operation, by library and name.
CASES: dict[tuple[str, str], Case] = {
    (library, name): one for library, module in of_libraries().items() for name, one in module.CASES.items()
}
#: Methods that took a stale output, by library; `test_methods_with_outputs` counts them.
_TRIED: dict[str, set[str]] = {}


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System(isolation="thread", standby="off") as system:
        yield system.device("host")


def stale(device: an.Device, like: an.GpuRef) -> tuple[an.GpuRef, an.GpuRef]:
    """Return a stale array of a layout, and one of ones that has its slot now."""
    old = device.empty(like.shape, like.dtype)
    slot = old.allocation.slot
    old.free()
    for _ in range(3000):
        live = device.ones(like.shape, like.dtype)
        if live.allocation.slot == slot:
            return old, live
    pytest.fail("the slot was never used again")


def refuse(device: an.Device, like: an.GpuRef, call: Callable[[an.GpuRef], object]) -> None:
    old, live = stale(device, like)
    before = live.numpy().tobytes()
    with pytest.raises(an.GpuRefStale) as caught:
        call(old)
    assert caught.value.reason == "freed"
    assert live.numpy().tobytes() == before


@pytest.mark.parametrize(("library", "name"), CASES)
def test_inputs(device: an.Device, library: str, name: str) -> None:
    """Also when the structure of the call is known, which has its own way to the device."""
    one = CASES[library, name]
    kept = one.prepare(device)
    numbers = {number: several[0] for number, several in one.numbers}
    arrays = [device.put(values(array, i)) for i, array in enumerate(one.arrays.split())]
    for i, given in enumerate(arrays):
        for _ in range(2):

            def call(old: an.GpuRef, i: int = i) -> object:
                return one.call(device, kept, *arrays[:i], old, *arrays[i + 1 :], **numbers)

            refuse(device, given, call)
            one.call(device, kept, *arrays, **numbers)


class _Actor:
    """The actor of a library, each of whose results is then asked for in stale memory."""

    def __init__(self, device: an.Device, name: str) -> None:
        self._device, self._name, self._actor = device, name, getattr(device, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._actor(*args, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._actor, name)
        if not inspect.ismethod(method) or "out" not in inspect.signature(method).parameters:
            return method

        def call(*args: Any, **options: Any) -> Any:
            found = method(*args, **options)
            first = found[0] if isinstance(found, tuple) else found
            if isinstance(first, an.GpuRef):
                refuse(self._device, first, lambda old: method(*args, **{**options, "out": old}))
                _TRIED.setdefault(self._name, set()).add(name)
            return found

        return call


class _Device:
    def __init__(self, device: an.Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return _Actor(self._device, name) if name in LIBRARIES else getattr(self._device, name)


@pytest.mark.parametrize(("library", "name"), CASES)
def test_outputs(device: an.Device, library: str, name: str) -> None:
    one = CASES[library, name]
    arrays = [device.put(values(array, i)) for i, array in enumerate(one.arrays.split())]
    numbers = {number: several[0] for number, several in one.numbers}
    one.call(_Device(device), one.prepare(device), *arrays, **numbers)


def test_methods_with_outputs(device: an.Device) -> None:
    """Libraries whose methods take `out`, but for those of which no case makes an array of its own."""
    if not _TRIED:
        for library, name in CASES:
            test_outputs(device, library, name)
    lacking = {
        name
        for name in LIBRARIES
        if any(
            "out" in inspect.signature(method).parameters
            for _, method in inspect.getmembers(type(getattr(device, name, None)), inspect.isfunction)
        )
    } - set(_TRIED)
    assert not lacking, f"no case with an output of {sorted(lacking)}"


@pytest.mark.parametrize(("library", "name"), CASES)
def test_parameters_of_recorded_plans(device: an.Device, library: str, name: str) -> None:
    one = CASES[library, name]
    kept = one.prepare(device)
    arrays = [device.put(values(array, i)) for i, array in enumerate(one.arrays.split())]
    with device.record() as g:
        given = [g.operand(f"array{i}", array) for i, array in enumerate(arrays)]
        found = one.call(device, kept, *given, **{number: several[0] for number, several in one.numbers})
    for i, array in enumerate(arrays):

        def tell(old: an.GpuRef, i: int = i) -> None:
            g.plan.tell(*(old if j == i else other for j, other in enumerate(arrays)))

        refuse(device, array, tell)
    del found
