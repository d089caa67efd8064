"""Arrays of other libraries as NumPy views: which protocols are understood, and what is refused."""

from __future__ import annotations

import array
import ctypes
import enum
import weakref
from pathlib import Path

import numpy as np
import pytest
from dlpack_abi import LAYOUTS, Exported, Owner, Producer, numbers

from atomr_native.arrays.views import dlpack_device_of, view_as_numpy
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, Unsupported


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_arrays_are_themselves(dtype: str, layout: str) -> None:
    values = LAYOUTS[layout](numbers(dtype))
    assert view_as_numpy(values) is values


def test_subclasses_become_plain_arrays(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(4,))
    view = view_as_numpy(mapped)
    assert type(view) is np.ndarray
    view[1] = 7
    assert mapped[1] == 7
    assert view_as_numpy(np.float32(2.5)) == 2.5


def test_buffers() -> None:
    memory = bytearray(8)
    view = view_as_numpy(memory)
    assert view.dtype == np.uint8
    view[3] = 9
    assert memory[3] == 9
    assert not view_as_numpy(b"abc").flags.writeable
    assert view_as_numpy(b"abc").tolist() == [97, 98, 99]
    assert view_as_numpy(array.array("d", [1, 2])).dtype == np.float64
    assert view_as_numpy(memoryview(np.arange(6).reshape(2, 3))[::-1]).tolist() == [
        [3, 4, 5],
        [0, 1, 2],
    ]
    assert view_as_numpy((ctypes.c_float * 3)(1, 2, 3)).tolist() == [1, 2, 3]


def test_array_interface_and_array() -> None:
    values = np.arange(12.0).reshape(3, 4)[::-1, ::2]

    class Interface:
        __array_interface__ = values.__array_interface__

    class Method:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return values

    assert np.may_share_memory(view_as_numpy(Interface()), values)
    np.testing.assert_array_equal(view_as_numpy(Interface()), values)
    np.testing.assert_array_equal(view_as_numpy(Method()), values)


def test_producers_from_before_dlpack_1() -> None:
    class Old:
        def __dlpack__(self, stream: object = None) -> object:
            return Owner(np.arange(3.0)).capsule(versioned=False)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    assert view_as_numpy(Old()).tolist() == [0, 1, 2]


def test_our_exports_come_back_as_views() -> None:
    exported = Exported(numbers("float8_e5m2"))
    view = view_as_numpy(exported)
    view[0, 0] = 12
    assert exported.owner.values[0, 0] == 12
    assert exported.asked == [{"max_version": (1, 1)}]
    alive = weakref.ref(exported.owner)
    del exported
    assert alive()
    del view
    assert not alive()


def device_of(device: object) -> object:
    class Elsewhere:
        def __dlpack__(self, **_: object) -> object:
            raise AssertionError("must not be asked for its memory")

        def __dlpack_device__(self) -> object:
            return device

    return Elsewhere()


def test_devices() -> None:
    class Kind(enum.IntEnum):
        CUDA = 2

    assert dlpack_device_of(np.zeros(2)) == (1, 0)
    assert dlpack_device_of(device_of((Kind.CUDA, np.int64(1)))) == (2, 1)
    assert dlpack_device_of(7) is None
    assert dlpack_device_of(np.ndarray) is None
    with pytest.raises(InvalidRequest, match="__dlpack_device__"):
        dlpack_device_of(device_of("cuda:0"))
    for device, text in (((2, 1), "CUDA device 1"), ((8, 0), "Metal"), ((99, 0), "unknown device")):
        with pytest.raises(Unsupported, match=rf"{text}.*host first"):
            view_as_numpy(device_of(device))


def test_capsule_that_belies_its_device() -> None:
    class Liar:
        def __dlpack__(self, **_: object) -> object:
            return Producer(device_type=2).capsule()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(Unsupported, match=r"\(2, 0\)"):
        view_as_numpy(Liar())


def test_cuda_arrays_without_dlpack() -> None:
    class Array:
        __cuda_array_interface__ = {"version": 3}  # noqa: RUF012

    with pytest.raises(Unsupported, match=r"CUDA device.*host first"):
        view_as_numpy(Array())


@pytest.mark.parametrize("thing", [None, 7, 1.5, "abc", [1, 2], {}, object(), np, np.ndarray, list])
def test_wrong_objects(thing: object) -> None:
    name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    with pytest.raises(InvalidRequest, match=name):
        view_as_numpy(thing)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.zeros(3, np.dtype("float32").newbyteorder()), "byte order"),
        (np.zeros(3, object), "object.*allowed: bool, int8"),
        (np.zeros(3, "U4"), "<U4"),
        (np.zeros(3, "M8[s]"), "datetime64"),
        (np.zeros(3, [("a", "i4")]), "allowed"),
        (np.zeros(3, np.longdouble), "allowed"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "mask"),
    ],
)
def test_arrays_that_no_device_holds(values: np.ndarray, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        view_as_numpy(values)


def test_refusal_of_a_producer_is_passed_on() -> None:
    class Refuses:
        def __dlpack__(self, **_: object) -> object:
            raise BufferError("needs a gradient")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(InvalidRequest, match=r"Refuses.*needs a gradient"):
        view_as_numpy(Refuses())

    class Broken:
        __array_interface__ = {"version": 3}  # noqa: RUF012

    with pytest.raises(InvalidRequest, match=r"Broken.*viewed"):
        view_as_numpy(Broken())
