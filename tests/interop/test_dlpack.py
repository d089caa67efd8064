"""DLPack capsules: layouts and dtypes round trip, the ABI, malformed input.

The ABI is checked against a second declaration of it, in ctypes, which makes and reads capsules too.
"""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlpack_abi import (
    DELETER,
    LAYOUTS,
    Exported,
    Legacy,
    Owner,
    Producer,
    Versioned,
    capsule_name,
    capsule_pointer,
    new_capsule,
    numbers,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from atomr_native._lib import dlpack
from atomr_native.arrays.views import view_as_numpy
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, Unsupported


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype: str, layout: str, versioned: bool) -> None:
    values = LAYOUTS[layout](numbers(dtype))
    imported = dlpack.from_capsule(Owner(values).capsule(versioned=versioned))
    assert (imported.device_type, imported.device_id) == (1, 0)
    assert imported.shape == values.shape
    assert imported.dtype == values.dtype
    assert imported.versioned == versioned
    assert imported.readonly != versioned  # a legacy capsule cannot say that it may be written
    assert not imported.copied
    view = dlpack.as_numpy(imported)
    assert view.dtype == values.dtype
    assert view.shape == values.shape
    assert view.tobytes() == values.tobytes()
    assert view.flags.writeable == versioned
    assert dlpack.as_numpy(imported, readonly=False).flags.writeable
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
    text = (Path(__file__).parents[2] / "cython" / "runtime" / "dlpack.pxd").read_text()
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
        view = dlpack.as_numpy(imported, readonly=False)
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
