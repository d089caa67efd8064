"""The one module that imports `numba.cuda`: what the others take of it, what a kernel is, and types.

Nothing here needs a GPU.  Importing it takes about 0.4 s, so that it is imported when the first kernel is made.
"""

from __future__ import annotations

import types as python_types
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from . import _kernel_debug
from .dtypes import as_dtype, dtype_name
from .errors import InvalidRequest, Unsupported

__all__ = [
    "CPUDispatcher",
    "CUDADispatcher",
    "ExternFunction",
    "FakeCUDAArray",
    "FakeCUDAKernel",
    "FakeWithinKernelCUDAArray",
    "HINT",
    "Intrinsic",
    "LinkableCode",
    "array_type",
    "cloudpickle",
    "compiler",
    "core_templates",
    "cuda",
    "cuda_target",
    "device_python",
    "device_signatures",
    "dispatcher",
    "get_cudalib",
    "inlined",
    "intrinsic",
    "is_dispatcher",
    "kernelapi",
    "libdevice",
    "llvm",
    "njit",
    "numba",
    "nvvm",
    "overload",
    "pointer_type",
    "python_function",
    "random",
    "record_array_type",
    "record_type",
    "scalar_type",
    "signatures",
    "simulator",
    "templates",
    "tuple_type",
    "types",
    "vectorize",
    "with_checks",
]

HINT: Final = "`pip install atomr-native[cu13]` (or [cu12], whichever CUDA the driver has) brings it"

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cloudpickle
        import numba
        from numba import cuda, njit, vectorize
        from numba.core.registry import CPUDispatcher
        from numba.core.typing import templates as core_templates
        from numba.cuda import compiler, dispatcher, libdevice, random, types
        from numba.cuda.cgutils import ir as llvm
        from numba.cuda.compiler import ExternFunction
        from numba.cuda.cudadrv import nvvm
        from numba.cuda.cudadrv.libs import get_cudalib
        from numba.cuda.cudadrv.linkable_code import LinkableCode
        from numba.cuda.descriptor import cuda_target
        from numba.cuda.dispatcher import CUDADispatcher
        from numba.cuda.extending import _Intrinsic as Intrinsic
        from numba.cuda.extending import intrinsic, overload
        from numba.cuda.np.numpy_support import from_dtype
        from numba.cuda.simulator import kernel as simulator
        from numba.cuda.simulator import kernelapi
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray
        from numba.cuda.simulator.kernel import FakeCUDAKernel
        from numba.cuda.typing import templates
except ImportError as error:
    raise Unsupported(
        f"Numba kernels need numba-cuda and cloudpickle, which cannot be imported ({error}); {HINT}"
    ) from None


def inlined(function: Any) -> Any:
    """Make a device function of a function; its code is put wherever it is called."""
    return cuda.jit(device=True, forceinline=True)(function)


def is_dispatcher(kernel: object) -> bool:
    """Whether an object is what ``@cuda.jit`` makes of a function."""
    return isinstance(kernel, CUDADispatcher | FakeCUDAKernel)


def python_function(kernel: object) -> python_types.FunctionType:
    """Return the Python function of a kernel: of a ``@cuda.jit`` dispatcher, or the function itself.

    Raises
    ------
    InvalidRequest
        For anything else, a device function among them.
    """
    if is_dispatcher(kernel):
        function = kernel.py_func  # type: ignore[attr-defined]
        device = getattr(kernel, "_device", False) or getattr(kernel, "targetoptions", {}).get("device", False)
        if device:
            raise InvalidRequest(
                f"{function.__name__} is a device function, which cannot be launched; call it in a kernel"
            )
        kernel = function
    if not isinstance(kernel, python_types.FunctionType):
        raise InvalidRequest(
            f"kernel is a {type(kernel).__name__}; allowed: a function decorated with numba.cuda.jit, or a plain one"
        )
    return kernel


def signatures(kernel: object) -> tuple[tuple[Any, ...], ...]:
    """Return the types of arguments that a kernel was decorated with; none if it takes any."""
    if not isinstance(kernel, CUDADispatcher) or kernel._can_compile:
        return ()
    return tuple(map(tuple, kernel.signatures))


def device_signatures(function: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the types of arguments, and of the result, that a device function was decorated with."""
    if isinstance(function, _Checked):
        return function.types
    if function._can_compile:
        return []
    return [(tuple(arguments), made.signature.return_type) for arguments, made in function.overloads.items()]


def array_type(dtype: np.dtype[Any], ndim: int, order: str) -> Any:
    """Return Numba's type of an array; `order` is ``"C"``, ``"F"`` or ``"A"`` (any strides).

    Raises
    ------
    Unsupported
        For a dtype that Numba has no arrays of.
    """
    name = dtype_name(as_dtype(dtype))
    if name == "bfloat16":
        element = types.bfloat16
    elif name.startswith("float8"):
        raise Unsupported(f"Numba has no arrays of {name}; pass ref.view('uint8') and convert in the kernel")
    else:
        element = from_dtype(dtype)
    return types.Array(element, ndim, order)


def _is_device_function(value: object) -> bool:
    """Whether a kernel can call a value: a device function, or one for processors, which Numba takes as well."""
    return isinstance(value, CUDADispatcher | CPUDispatcher)


class _Checked(CUDADispatcher):  # type: ignore[misc]
    """A checked device function, with the signatures of the one that it stands for, and a report."""

    def __init__(self, old: Any, function: python_types.FunctionType, report: Any) -> None:
        super().__init__(function, {**cuda.jit(device=True)(function).targetoptions})
        fixed = device_signatures(old) if isinstance(old, CUDADispatcher) else []
        self.types = [((*arguments, report), result) for arguments, result in fixed]


def with_checks(
    function: python_types.FunctionType, types_: Sequence[Any]
) -> tuple[python_types.FunctionType, tuple[str, ...]]:
    """Return a kernel whose indices are checked, for these argument types; see `_kernel_debug.instrument`."""
    from ._kernel_checks import check, note

    def device_function(old: Any, function: python_types.FunctionType) -> Any:
        return _Checked(old, function, array_type(np.dtype(np.int64), 1, "C"))

    axes = [t.ndim if isinstance(t, types.Array) else None for t in types_]
    return _kernel_debug.instrument(
        function, axes, _kernel_debug.Names(cuda, random, _is_device_function, device_function, check, note)
    )


def scalar_type(name: str) -> Any:
    """Return Numba's type of a scalar by NumPy's name, such as ``"int64"``."""
    return from_dtype(np.dtype(name))


def record_array_type(dtype: np.dtype[Any], ndim: int) -> Any:
    """Return Numba's type of a contiguous array of structs."""
    return types.Array(from_dtype(dtype), ndim, "C")


def record_type(dtype: np.dtype[Any]) -> Any:
    """Return Numba's type of one struct; kernels take its address."""
    return from_dtype(dtype)


def pointer_type(name: str) -> Any:
    """Return Numba's type of a pointer to numbers, by NumPy's name for them."""
    return types.CPointer(scalar_type(name))


def tuple_type(members: Sequence[Any], named: type | None = None) -> Any:
    """Return Numba's type of a tuple; of a named one, by its class."""
    return types.BaseTuple.from_types(members, named)


def device_python(function: object) -> python_types.FunctionType:
    """Return the Python function of a device function, or the function itself.

    Raises
    ------
    InvalidRequest
        For anything else.
    """
    python = function.py_func if is_dispatcher(function) else function  # type: ignore[attr-defined]
    if not isinstance(python, python_types.FunctionType):
        raise InvalidRequest(
            f"function is a {type(function).__name__}; allowed: a function, or what numba.cuda.jit made"
        )
    return python
