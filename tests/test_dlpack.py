"""DLPack capsules and views of foreign arrays: layouts, dtypes, lifetimes, malformed input.

The ABI is checked against a second declaration of it, in ctypes, which makes and reads capsules too.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import enum
import gc
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomr_native._lib import dlpack
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, Unsupported
from atomr_native.interop import dlpack_device_of, export_capsule, view_as_numpy

# ------------------------------------------------------------------------------------------------
# The ABI once more
# ------------------------------------------------------------------------------------------------


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
new_capsule.restype = ctypes.py_object
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
capsule_pointer.restype = ctypes.c_void_p
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.argtypes = (ctypes.py_object,)
capsule_name.restype = ctypes.c_char_p


class Producer:
    """A foreign library: makes capsules by hand and counts the calls of its deleter."""

    def __init__(self, versioned: bool = True, **fields: Any) -> None:
        self.deleted = 0
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.memory = (ctypes.c_float * 64)(*range(64))
        self.managed = Versioned(major=1, minor=0) if versioned else Legacy()
        self.managed.deleter = DELETER(self._delete)
        tensor = self.managed.tensor
        tensor.data = ctypes.addressof(self.memory)
        tensor.device_type, tensor.device_id = 1, 0
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        self.set_dims((2, 3), (3, 1))
        for name, value in fields.items():
            setattr(self.managed if hasattr(self.managed, name) else tensor, name, value)

    def set_dims(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
        tensor = self.managed.tensor
        tensor.ndim = len(shape)
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = None
        if strides is not None:
            self.strides = (ctypes.c_int64 * max(len(strides), 1))(*strides)
            tensor.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def capsule(self) -> object:
        return new_capsule(ctypes.addressof(self.managed), self.name, None)


class Owner:
    """Memory that says when it goes away."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.address = values.__array_interface__["data"][0]

    def capsule(self, *, versioned: bool = True, **flags: bool) -> object:
        values = self.values
        strides = tuple(step // values.itemsize for step in values.strides)
        return dlpack.to_capsule(
            self,
            self.address,
            values.shape,
            strides,
            values.dtype,
            1,
            0,
            versioned=versioned,
            **flags,
        )


class Exported:
    """An array of ours, as its consumers see it."""

    def __init__(self, values: np.ndarray) -> None:
        self.owner = Owner(values)
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **arguments: Any) -> object:
        self.asked.append(arguments)
        values = self.owner.values
        return export_capsule(
            self.owner,
            self.owner.address,
            values.shape,
            values.strides,
            values.dtype,
            readonly=not values.flags.writeable,
            **arguments,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def owned(values: np.ndarray) -> tuple[Owner, weakref.ref[Owner]]:
    owner = Owner(values)
    return owner, weakref.ref(owner)


def numbers(dtype: np.dtype[Any] | str, shape: tuple[int, ...] = (4, 6)) -> np.ndarray:
    """Distinct values that every dtype but bool can hold."""
    count = int(np.prod(shape))
    return (np.arange(count) % 16).reshape(shape).astype(DTYPES[str(dtype)])


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.T,
    "slice": lambda x: x[1:, ::2],
    "reversed": lambda x: x[::-1, ::-1],
    "mixed": lambda x: x[::-2, 1:],
    "broadcast": lambda x: np.broadcast_to(x[0], (5, 6)),
    "scalar": lambda x: x[1, 2, ...],
    "empty": lambda x: x[:, :0],
    "one": lambda x: x[2:3, 1:2],
}

# ------------------------------------------------------------------------------------------------
# Round trips
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype: str, layout: str, versioned: bool) -> None:
    values = LAYOUTS[layout](numbers(dtype))
    imported = dlpack.from_capsule(Owner(values).capsule(versioned=versioned))
    assert (imported.device_type, imported.device_id) == (1, 0)
    assert imported.shape == values.shape
    assert imported.dtype == values.dtype
    assert not imported.readonly
    assert not imported.copied
    view = dlpack.as_numpy(imported)
    assert view.dtype == values.dtype
    assert view.shape == values.shape
    assert view.tobytes() == values.tobytes()
    assert view.flags.writeable
    if values.size:
        assert view.strides == imported.strides == values.strides
        address = values.__array_interface__["data"][0]
        assert view.__array_interface__["data"][0] == imported.address == address


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_round_trip_of_any_layout(data: st.DataObject) -> None:
    base = np.arange(5 * 6 * 7, dtype=np.int32).reshape(5, 6, 7)
    axes = data.draw(st.permutations(range(3)))
    index: list[Any] = []
    for length in (base.shape[axis] for axis in axes):
        bound = st.none() | st.integers(-length - 1, length + 1)
        step = st.integers(-3, 3).filter(bool)
        index.append(data.draw(st.builds(slice, bound, bound, step) | st.integers(0, length - 1)))
    values = base.transpose(axes)[(*index, ..., np.newaxis)]
    if data.draw(st.booleans()):
        values = np.broadcast_to(values, (2, *values.shape))
    view = view_as_numpy(Exported(values))
    np.testing.assert_array_equal(view, values)
    assert view.flags.writeable == values.flags.writeable
    assert values.size == 0 or np.may_share_memory(view, base)


def test_declarations_against_the_header(tmp_path: Path) -> None:
    """Every constant, size and offset of our .pxd, by a C compiler with PyTorch's copy of dlpack.h."""
    torch = pytest.importorskip("torch")
    compiler = shutil.which("gcc") or pytest.skip("gcc is not installed")
    header = Path(torch.__file__).parent / "include" / "ATen" / "dlpack.h"
    text = (Path(__file__).parents[1] / "cython" / "dlpack.pxd").read_text()
    text = text.split("cdef class")[0].replace(" noexcept nogil", "")
    lines = [f'#include "{header}"', "#include <stddef.h>"]
    for name, value in re.findall(r"^    (\w+) = (\d+)$", text, re.MULTILINE):
        if name != "DLPACK_MINOR_VERSION":  # theirs may be later
            lines.append(f'_Static_assert({name} == {value}, "{name}");')
    structs = re.findall(r"^(?:ctypedef|cdef) struct (\w+):\n((?:    .*\n)+)", text, re.MULTILINE)
    assert len(structs) == 6
    for name, body in structs:
        fields = [line.strip() for line in body.splitlines() if not line.strip().startswith("#")]
        ours = re.sub(r"\b(DL\w+)", r"Our\1", "; ".join(fields))
        ours = re.sub(r"(Our\w+) \*self", r"struct \1 *self", ours)
        lines.append(f"typedef struct Our{name} {{ {ours}; }} Our{name};")
        lines.append(f'_Static_assert(sizeof(Our{name}) == sizeof({name}), "{name}");')
        for field in fields:
            found = re.search(r"\(\*(\w+)\)|(\w+)$", field)
            assert found
            member = found[1] or found[2]
            for measure in ("offsetof({}, {})", "sizeof((({} *) 0)->{})"):
                same = f"{measure.format('Our' + name, member)} == {measure.format(name, member)}"
                lines.append(f'_Static_assert({same}, "{name}.{member}");')
    source = tmp_path / "check.c"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run([compiler, "-fsyntax-only", source], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(lines) > 90


@pytest.mark.parametrize("versioned", [False, True])
def test_abi_of_exports(versioned: bool) -> None:
    values = numbers("float32")[::2]
    owner = Owner(values)
    capsule = owner.capsule(versioned=versioned)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    assert capsule_name(capsule) == name
    managed = (Versioned if versioned else Legacy).from_address(capsule_pointer(capsule, name))
    if versioned:
        assert (managed.major, managed.minor, managed.flags) == (1, 0, 0)
    tensor = managed.tensor
    assert (tensor.data, tensor.byte_offset) == (owner.address, 0)
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (1, 0, 2)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert (tensor.shape[:2], tensor.strides[:2]) == ([2, 6], [12, 1])


@pytest.mark.parametrize(
    ("dtype", "code", "bits", "minor"),
    [
        ("int8", 0, 8, 0),
        ("uint64", 1, 64, 0),
        ("float16", 2, 16, 0),
        ("bfloat16", 4, 16, 0),
        ("complex128", 5, 128, 0),
        ("bool", 6, 8, 0),
        ("float8_e4m3fn", 10, 8, 1),
        ("float8_e5m2", 12, 8, 1),
    ],
)
def test_type_codes(dtype: str, code: int, bits: int, minor: int) -> None:
    capsule = Owner(numbers(dtype)).capsule(readonly=True, copied=True)
    managed = Versioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
    assert (managed.tensor.code, managed.tensor.bits, managed.tensor.lanes) == (code, bits, 1)
    assert (managed.major, managed.minor, managed.flags) == (1, minor, 3)
    imported = dlpack.from_capsule(capsule)
    assert imported.readonly
    assert imported.copied
    assert not dlpack.as_numpy(imported).flags.writeable


def test_empty_export_has_no_address() -> None:
    capsule = dlpack.to_capsule(None, 64, (0, 3), (3, 1), np.dtype("int8"), 1, 0, versioned=False)
    assert Legacy.from_address(capsule_pointer(capsule, b"dltensor")).tensor.data is None


def test_other_devices_pass_through_but_are_no_arrays() -> None:
    capsule = dlpack.to_capsule(None, 1 << 63, (4,), (1,), np.dtype("float32"), 2, 3, versioned=True)
    imported = dlpack.from_capsule(capsule)
    assert (imported.device_type, imported.device_id) == (2, 3)
    assert imported.address == 1 << 63
    with pytest.raises(Unsupported, match=r"\(2, 3\)"):
        dlpack.as_numpy(imported)


def test_import_of_foreign_capsules() -> None:
    for versioned in (False, True):
        producer = Producer(versioned, byte_offset=8)
        imported = dlpack.from_capsule(producer.capsule())
        view = dlpack.as_numpy(imported)
        np.testing.assert_array_equal(view, [[2, 3, 4], [5, 6, 7]])
        del imported
        assert producer.deleted == 0
        view[0, 0] = 50
        assert producer.memory[2] == 50
        rows = view[1:]
        del view
        assert producer.deleted == 0
        del rows
        assert producer.deleted == 1


def test_missing_strides_mean_row_major() -> None:
    producer = Producer(versioned=False)
    producer.set_dims((2, 3, 4), None)
    assert dlpack.from_capsule(producer.capsule()).strides == (48, 16, 4)


def test_missing_deleter_is_allowed() -> None:
    producer = Producer(deleter=DELETER())
    assert dlpack.as_numpy(dlpack.from_capsule(producer.capsule())).size == 6


def test_pinned_host_memory_is_host_memory() -> None:
    assert dlpack.as_numpy(dlpack.from_capsule(Producer(device_type=3).capsule())).size == 6


def test_imports_are_not_made_directly() -> None:
    with pytest.raises(TypeError, match="from_capsule"):
        dlpack.Imported()
    shown = repr(dlpack.from_capsule(Producer().capsule()))
    assert "shape=(2, 3)" in shown
    assert "float32" in shown


# ------------------------------------------------------------------------------------------------
# Bad input
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"major": 2}, Unsupported, r"DLPack 2\.0"),
        ({"major": 0}, InvalidRequest, r"version 0\.0"),
        ({"lanes": 4}, InvalidRequest, "4 lanes"),
        ({"lanes": 0}, InvalidRequest, "0 lanes"),
        ({"code": 17, "bits": 4}, InvalidRequest, "code 17 with 4 bits.*float8_e5m2"),
        ({"code": 2, "bits": 128}, InvalidRequest, "code 2 with 128 bits"),
        ({"ndim": -1}, InvalidRequest, "-1 dimensions"),
        ({"ndim": 65}, InvalidRequest, "65 dimensions"),
        ({"shape": None}, InvalidRequest, "no shape"),
        ({"data": None}, InvalidRequest, "no data"),
        ({"byte_offset": (1 << 64) - 8}, InvalidRequest, "address space"),
    ],
)
def test_malformed_capsules(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    producer = Producer(**fields)
    with pytest.raises(error, match=text):
        dlpack.from_capsule(producer.capsule())
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("shape", "strides", "text"),
    [
        ((2, -3), (3, 1), "negative length"),
        ((1 << 62, 1 << 62), (0, 0), r"2\*\*63"),
        ((0, 1 << 62, 1 << 62), (0, 0, 0), r"2\*\*63"),
        ((1 << 61,), (1,), r"2\*\*63"),
        ((2,), (1 << 62,), "address space"),
        ((3,), (-(1 << 60),), "address space"),
    ],
)
def test_impossible_layouts(shape: tuple[int, ...], strides: tuple[int, ...], text: str) -> None:
    producer = Producer()
    producer.set_dims(shape, strides)
    with pytest.raises(InvalidRequest, match=text):
        dlpack.from_capsule(producer.capsule())
    gc.collect()
    assert producer.deleted == 1


def test_what_is_no_capsule() -> None:
    for thing in (7, np.zeros(2), "dltensor"):
        with pytest.raises(InvalidRequest, match=type(thing).__name__):
            dlpack.from_capsule(thing)
    keep = ctypes.c_int(0)
    for name, text in ((b"arrow_array", "'arrow_array'"), (None, "no name")):
        with pytest.raises(InvalidRequest, match=text):
            dlpack.from_capsule(new_capsule(ctypes.addressof(keep), name, None))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": (2, -1)}, "negative"),
        ({"shape": (2,)}, "differ in length"),
        ({"shape": (1 << 64, 2)}, "64-bit"),
        ({"strides": (1.5, 1)}, "64-bit"),
        ({"shape": (1,) * 65, "strides": (1,) * 65}, "65 dimensions"),
        ({"dtype": np.dtype(object)}, "object"),
        ({"dtype": np.dtype("f4").newbyteorder()}, "f4"),
        ({"dtype": "float32"}, "'float32'"),
        ({"address": 0}, "address 0"),
        ({"address": -8}, "-8"),
        ({"device_id": 1 << 31}, "2147483648"),
    ],
)
def test_malformed_exports(changes: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {
        "address": 64,
        "shape": (2, 3),
        "strides": (3, 1),
        "dtype": np.dtype("float32"),
        "device_type": 1,
        "device_id": 0,
    }
    owner = type("Keeper", (), {})()
    before = sys.getrefcount(owner)
    with pytest.raises(InvalidRequest, match=text):
        dlpack.to_capsule(owner, **arguments | changes, versioned=True)
    assert sys.getrefcount(owner) == before


def test_array_at_checks_its_arguments() -> None:
    f4 = np.dtype("float32")
    with pytest.raises(InvalidRequest, match="differ in length"):
        dlpack.array_at(None, 64, (2,), (4, 4), f4)
    with pytest.raises(InvalidRequest, match="address 0"):
        dlpack.array_at(None, 0, (2,), (4,), f4)
    with pytest.raises(InvalidRequest, match="address space"):
        dlpack.array_at(None, 4, (3,), (-4,), f4)
    with pytest.raises(InvalidRequest, match="negative"):
        dlpack.array_at(None, 64, (-1,), (4,), f4)
    with pytest.raises(InvalidRequest, match="64-bit"):
        dlpack.array_at(None, 64, (2.0,), (4,), f4)


# ------------------------------------------------------------------------------------------------
# Lifetimes
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
def test_owner_lives_exactly_as_long_as_the_consumer(versioned: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    capsule = owner.capsule(versioned=versioned)
    del owner
    imported = dlpack.from_capsule(capsule)
    del capsule
    assert alive()
    view = dlpack.as_numpy(imported)
    del imported
    part = view[2:4]
    del view
    assert alive()
    np.testing.assert_array_equal(part, [2, 3])
    del part
    assert not alive()


@pytest.mark.parametrize("versioned", [False, True])
def test_unconsumed_capsule_frees_itself(versioned: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    capsule = owner.capsule(versioned=versioned)
    del owner
    assert alive()
    del capsule
    assert not alive()


@pytest.mark.parametrize("versioned", [False, True])
def test_second_consumption_is_refused(versioned: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    capsule = owner.capsule(versioned=versioned)
    del owner
    imported = dlpack.from_capsule(capsule)
    with pytest.raises(InvalidRequest, match="consumed before"):
        dlpack.from_capsule(capsule)
    del imported
    assert not alive()
    with pytest.raises(InvalidRequest, match="consumed before"):
        dlpack.from_capsule(capsule)


@pytest.mark.parametrize("consumed", [False, True])
def test_cycles_through_a_consumer_are_collected(consumed: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    ring: list[object] = [owner.capsule()]
    del owner
    if consumed:
        ring[0] = dlpack.as_numpy(dlpack.from_capsule(ring[0]))
    ring.append(ring)
    del ring
    assert alive()
    gc.collect()
    assert not alive()


def test_empty_views_keep_their_owner_too() -> None:
    owner, alive = owned(np.empty((0, 3)))
    view = dlpack.as_numpy(dlpack.from_capsule(owner.capsule()))
    del owner
    assert view.shape == (0, 3)
    assert alive()
    del view
    assert not alive()


def test_no_reference_is_lost_or_left() -> None:
    owner = Owner(np.arange(6.0))
    before = sys.getrefcount(owner)
    for _ in range(100):
        dlpack.as_numpy(dlpack.from_capsule(owner.capsule()))
        owner.capsule(versioned=False)
        np.from_dlpack(Exported(owner.values))
    assert sys.getrefcount(owner) == before


def test_pending_exception_survives_the_deleter() -> None:
    class Noisy(Owner):
        def __del__(self) -> None:
            with contextlib.suppress(RuntimeError):
                raise RuntimeError

    def fail() -> None:
        view = dlpack.as_numpy(dlpack.from_capsule(Noisy(np.arange(6.0)).capsule()))
        capsule = Noisy(np.arange(6.0)).capsule()
        raise KeyError(view.size, capsule is None)

    with pytest.raises(KeyError, match="6, False"):
        fail()


def test_threads_consume_their_own() -> None:
    alive: list[weakref.ref[Owner]] = []
    wrong: list[object] = []

    def work(seed: int) -> None:
        for turn in range(200):
            owner, ref = owned(np.full(8, seed * 1000 + turn))
            alive.append(ref)
            view = dlpack.as_numpy(dlpack.from_capsule(owner.capsule(versioned=bool(turn % 2))))
            del owner
            if not (view == seed * 1000 + turn).all():
                wrong.append(view)

    run_threads(8, work)
    assert not wrong
    assert not any(ref() for ref in alive)


def test_racing_threads_consume_once() -> None:
    for _ in range(50):
        owner, alive = owned(np.arange(4.0))
        capsule = owner.capsule()
        del owner
        won: list[object] = []
        lost: list[object] = []
        barrier = threading.Barrier(4)

        def race(_: int) -> None:
            barrier.wait()  # noqa: B023
            try:
                won.append(dlpack.from_capsule(capsule))  # noqa: B023
            except InvalidRequest as error:
                lost.append(str(error))  # noqa: B023

        run_threads(4, race)
        assert (len(won), len(lost)) == (1, 3)
        won.clear()
        assert not alive()


def test_deleter_may_be_called_without_the_lock() -> None:
    owner, alive = owned(np.arange(4.0))
    capsule = owner.capsule()
    del owner
    pointer = capsule_pointer(capsule, b"dltensor_versioned")
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
    used = b"used_dltensor_versioned"
    rename(capsule, used)
    managed = Versioned.from_address(pointer)

    def call(_: int) -> None:
        managed.deleter(pointer)  # ctypes lets go of the lock around the call

    run_threads(1, call)
    assert not alive()
    del capsule


def run_threads(count: int, target: Any) -> None:
    threads = [threading.Thread(target=target, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_interpreter_exit_with_everything_alive() -> None:
    script = """
        import builtins, sys, threading
        import numpy as np
        from atomr_native._lib import dlpack

        class Owner:
            def __init__(self):
                self.values = np.arange(4.0)
            def capsule(self, versioned):
                address = self.values.__array_interface__["data"][0]
                return dlpack.to_capsule(self, address, (4,), (1,), self.values.dtype, 1, 0,
                                         versioned=versioned)
            def __del__(self):
                if sys.is_finalizing():
                    print("owner touched while finalizing")

        builtins.kept = [Owner().capsule(True), Owner().capsule(False)]
        builtins.kept += [dlpack.from_capsule(Owner().capsule(True)),
                          dlpack.as_numpy(dlpack.from_capsule(Owner().capsule(False)))]
        local = threading.local()
        local.view = dlpack.as_numpy(dlpack.from_capsule(Owner().capsule(True)))
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("ready")
    """
    done = subprocess.run(
        [sys.executable, "-P", "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


# ------------------------------------------------------------------------------------------------
# Export by the rules of the array API
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not name.startswith(("bfloat", "float8"))])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_consumes(dtype: str, layout: str) -> None:
    values = LAYOUTS[layout](numbers(dtype))
    exported = Exported(values)
    view = np.from_dlpack(exported)
    np.testing.assert_array_equal(view, values)
    assert view.flags.writeable == values.flags.writeable
    assert values.size == 0 or np.may_share_memory(view, values)


def test_numpy_gets_a_copy_when_it_asks() -> None:
    exported = Exported(np.arange(6.0)[::-1])
    copy = np.from_dlpack(exported, copy=True)
    np.testing.assert_array_equal(copy, exported.owner.values)
    assert not np.may_share_memory(copy, exported.owner.values)
    assert copy.flags.writeable
    view = np.from_dlpack(exported, copy=False, device="cpu")
    assert np.may_share_memory(view, exported.owner.values)


def test_version_rules() -> None:
    exported = Exported(np.arange(3.0))
    for max_version, name in (
        (None, b"dltensor"),
        ((0, 8), b"dltensor"),
        ((1, 0), b"dltensor_versioned"),
        ((2, 5), b"dltensor_versioned"),
    ):
        assert capsule_name(exported.__dlpack__(max_version=max_version)) == name


def test_stream_and_device_rules() -> None:
    class Kind(enum.Enum):
        CPU = 1
        CUDA = 2

    exported = Exported(np.arange(3.0))
    with pytest.raises(InvalidRequest, match=r"stream must be None.*-1"):
        exported.__dlpack__(stream=-1)
    for device in ((1, 0), (Kind.CPU, 0), None):
        assert exported.__dlpack__(dl_device=device)
    for device in ((2, 0), (Kind.CUDA, 1), (1, 1)):
        with pytest.raises(BufferError, match="allowed: None and"):
            exported.__dlpack__(dl_device=device)
    for wrong in (1, (1,), ("cpu", 0), (1, 0, 0)):
        with pytest.raises(InvalidRequest, match="dl_device"):
            exported.__dlpack__(dl_device=wrong)
    for wrong in (1, "1.0", (1,), (1.0, 0)):
        with pytest.raises(InvalidRequest, match="max_version"):
            exported.__dlpack__(max_version=wrong)
    with pytest.raises(InvalidRequest, match="copy must be"):
        exported.__dlpack__(copy="yes")


def test_copies_own_themselves() -> None:
    exported = Exported(numbers("bfloat16").T)
    imported = dlpack.from_capsule(exported.__dlpack__(copy=True, max_version=(1, 0)))
    values = exported.owner.values
    alive = weakref.ref(exported.owner)
    del exported
    assert not alive()
    assert imported.copied
    view = dlpack.as_numpy(imported)
    assert view.flags.c_contiguous
    assert view.tobytes() == values.tobytes()


def test_readonly_memory_needs_a_versioned_capsule() -> None:
    values = np.arange(3.0)
    values.flags.writeable = False
    exported = Exported(values)
    with pytest.raises(BufferError, match="max_version"):
        exported.__dlpack__()
    assert exported.__dlpack__(copy=True)
    assert not np.from_dlpack(exported).flags.writeable


def test_strides_that_elements_cannot_express() -> None:
    values = np.zeros(4, dtype=[("a", "i2"), ("b", "f4")])["b"]
    values[:] = [1, 2, 3, 4]
    with pytest.raises(BufferError, match="copy=True"):
        Exported(values).__dlpack__()
    copy = dlpack.as_numpy(dlpack.from_capsule(Exported(values).__dlpack__(copy=True)))
    np.testing.assert_array_equal(copy, [1, 2, 3, 4])
    assert Exported(values[:1]).__dlpack__()
    assert Exported(values[:0]).__dlpack__()
    with pytest.raises(InvalidRequest, match="differ in length"):
        export_capsule(None, 64, (2,), (4, 4), np.dtype("f4"))


# ------------------------------------------------------------------------------------------------
# Views of anything
# ------------------------------------------------------------------------------------------------


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


# ------------------------------------------------------------------------------------------------
# PyTorch
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["rows", "columns", "slice", "broadcast", "scalar", "empty", "one"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_both_ways(dtype: str, layout: str) -> None:
    torch = pytest.importorskip("torch")
    values = LAYOUTS[layout](numbers(dtype).copy())
    exported = Exported(values)
    alive = weakref.ref(exported.owner)
    if values.flags.writeable:
        tensor = torch.from_dlpack(exported)
    else:  # PyTorch knows no read-only tensors, and takes them with a warning or not at all
        tensor = torch.from_dlpack(Exported(numbers(dtype)[0])).expand(5, 6)
    del exported
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tuple(tensor.shape) == values.shape
    view = view_as_numpy(tensor)
    assert view.dtype == values.dtype
    assert view.tobytes() == values.tobytes()
    assert values.size == 0 or view.__array_interface__["data"][0] == tensor.data_ptr()
    if values.flags.writeable:
        del tensor
        assert alive()
        del view
        assert not alive()


def test_torch_needs_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidRequest, match="detach"):
        view_as_numpy(torch.ones(3, requires_grad=True))
    with pytest.raises(InvalidRequest, match="meta"):
        view_as_numpy(torch.ones(3, device="meta"))
