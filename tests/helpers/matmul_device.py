"""Matmul requests of NumPy arrays, sent to a device and compared with float64."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from matmul_reference import check, reference

import atomr_native as an
from atomr_native.arrays.layout import layout_from
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import resolve_matmul

__all__ = ["put", "send"]


def put(device: an.Device, array: np.ndarray) -> an.GpuRef:
    """Return a handle with the array's very strides."""
    if array.size == 0 or array.flags.c_contiguous:
        return device.put(array)
    base = array if array.base is None else array.base
    offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    if not isinstance(base, np.ndarray) or not base.flags.c_contiguous or offset < 0:
        return device.put(array)
    whole = device.put(base.reshape(-1))
    return whole.view_as(layout_from(array.shape, array.strides, whole.layout.dtype_name), offset)


def send(device: an.Device, request: MatmulRequest, cuda_engine: str) -> an.Plan:
    """Send a request of NumPy arrays to a device, and compare every output with float64."""
    options = {f.name: getattr(request, f.name) for f in fields(request)}
    refs = {name: put(device, value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    want = reference(request, request.c.copy() if request.c is not None else None, gpu=cuda_engine == "gpu")
    result = device.blas_lt.matmul(refs.pop("a"), refs.pop("b"), **refs)
    made = result._asdict() if isinstance(result, tuple) else {"out": result}
    check({name: made[name].numpy() for name in want}, want, resolve_matmul(request).n)
    return device.blas_lt._calls.plans[-1]
