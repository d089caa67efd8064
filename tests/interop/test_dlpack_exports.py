"""What consumers of DLPack may ask of an export: versions, streams, devices, copies, strides."""

from __future__ import annotations

import enum
import weakref

import numpy as np
import pytest
from dlpack_abi import LAYOUTS, Exported, capsule_name, numbers

from atomr_native._lib import dlpack
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest
from atomr_native.interop.dlpack import export_capsule


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
