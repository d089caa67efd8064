"""DLPack declared once more, in ctypes, with a foreign library that makes and reads capsules, and arrays of ours."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from atomr_native._lib import dlpack
from atomr_native.dtypes import DTYPES
from atomr_native.interop.dlpack import export_capsule


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
