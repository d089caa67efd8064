"""The only module that imports `numba.cuda`: names for other modules, recognition of kernels, and types.

It needs no GPU. Its import takes about 0.4 s, so it is imported with the first kernel.
"""

from __future__ import annotations

import types as python_types
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._support.extras import how_to_install
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported

__all__ = [
    "AnalysisPass",
    "CPUDispatcher",
    "CUDACallConv",
    "CUDACompiler",
    "CUDADispatcher",
    "CUDAFlags",
    "Checked",
    "ExternFunction",
    "FakeCUDAArray",
    "FakeCUDAKernel",
    "FakeWithinKernelCUDAArray",
    "Intrinsic",
    "LinkableCode",
    "PassManager",
    "PreLowerStripPhis",
    "array_type",
    "compiler",
    "core_templates",
    "cuda",
    "cuda_target",
    "device_python",
    "device_signatures",
    "dispatcher",
    "get_cudalib",
    "global_compiler_lock",
    "inlined",
    "intrinsic",
    "is_device_function",
    "is_dispatcher",
    "kernelapi",
    "libdevice",
    "llvm",
    "njit",
    "numba",
    "numba_ir",
    "numba_target_override",
    "nvvm",
    "overload",
    "pointer_type",
    "python_function",
    "random",
    "record_array_type",
    "record_type",
    "register_pass",
    "scalar_type",
    "signatures",
    "simulator",
    "templates",
    "tuple_type",
    "types",
    "vectorize",
]

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import numba
        from numba import cuda, njit, vectorize
        from numba.core.registry import CPUDispatcher
        from numba.core.typing import templates as core_templates
        from numba.cuda import compiler, dispatcher, libdevice, random, types
        from numba.cuda.cgutils import ir as llvm
        from numba.cuda.compiler import CUDACompiler, ExternFunction
        from numba.cuda.core import ir as numba_ir
        from numba.cuda.core.callconv import CUDACallConv
        from numba.cuda.core.compiler_lock import global_compiler_lock
        from numba.cuda.core.compiler_machinery import AnalysisPass, PassManager, register_pass
        from numba.cuda.core.typed_passes import PreLowerStripPhis
        from numba.cuda.cudadrv import nvvm
        from numba.cuda.cudadrv.libs import get_cudalib
        from numba.cuda.cudadrv.linkable_code import LinkableCode
        from numba.cuda.descriptor import cuda_target
        from numba.cuda.dispatcher import CUDADispatcher
        from numba.cuda.extending import _Intrinsic as Intrinsic
        from numba.cuda.extending import intrinsic, overload
        from numba.cuda.flags import CUDAFlags
        from numba.cuda.np.numpy_support import from_dtype
        from numba.cuda.simulator import kernel as simulator
        from numba.cuda.simulator import kernelapi
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray
        from numba.cuda.simulator.kernel import FakeCUDAKernel
        from numba.cuda.typing import templates
        from numba.cuda.utils import numba_target_override
except ImportError as error:
    raise Unsupported(
        f"Numba kernels need numba-cuda, which cannot be imported ({error}); {how_to_install('kernels')}, "
        f"or for a GPU: {how_to_install('cu13', 'cu12')}"
    ) from None


def inlined(function: Any) -> Any:
    """Return an inlined device function."""
    return cuda.jit(device=True, forceinline=True)(function)


def is_dispatcher(kernel: object) -> bool:
    """Whether an object is a result of ``@cuda.jit``."""
    return isinstance(kernel, CUDADispatcher | FakeCUDAKernel)


def python_function(kernel: object) -> python_types.FunctionType:
    """Return the Python function of a kernel: of a ``@cuda.jit`` dispatcher, or the function itself.

    Raises
    ------
    InvalidRequest
        For anything else, including a device function.
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
    """Return the signatures that a kernel was decorated with; empty if it accepts any types."""
    if not isinstance(kernel, CUDADispatcher) or kernel._can_compile:
        return ()
    return tuple(map(tuple, kernel.signatures))


def device_signatures(function: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the argument and result types that a device function was decorated with."""
    if isinstance(function, Checked):
        return function.types
    if function._can_compile:
        return []
    return [(tuple(arguments), made.signature.return_type) for arguments, made in function.overloads.items()]


def array_type(dtype: np.dtype[Any], ndim: int, order: str) -> Any:
    """Return Numba's type of an array; `order` is ``"C"``, ``"F"`` or ``"A"`` (any strides).

    Raises
    ------
    Unsupported
        For a dtype without Numba arrays.
    """
    name = dtype_name(as_dtype(dtype))
    if name == "bfloat16":
        element = types.bfloat16
    elif name.startswith("float8"):
        raise Unsupported(f"Numba has no arrays of {name}; pass ref.view('uint8') and convert in the kernel")
    else:
        element = from_dtype(dtype)
    return types.Array(element, ndim, order)


def is_device_function(value: object) -> bool:
    """Whether a kernel can call a value: a device function, or a CPU function, which Numba accepts as well."""
    return isinstance(value, CUDADispatcher | CPUDispatcher)


class Checked(CUDADispatcher):  # type: ignore[misc]
    """A checked device function, with the signatures of its original plus a report."""

    def __init__(self, old: Any, function: python_types.FunctionType, report: Any) -> None:
        super().__init__(function, {**cuda.jit(device=True)(function).targetoptions})
        fixed = device_signatures(old) if isinstance(old, CUDADispatcher) else []
        self.types = [((*arguments, report), result) for arguments, result in fixed]


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
    """Return Numba's type of a tuple; of a named tuple, by its class."""
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
            f"function is a {type(function).__name__}; allowed: a function, or a result of numba.cuda.jit"
        )
    return python
