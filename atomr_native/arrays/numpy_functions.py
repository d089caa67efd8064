"""Functions of NumPy on handles: which of them `atomr_native.array_api` has, by what name, and with which arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .refusals import refused_function, refused_operand

if TYPE_CHECKING:
    from .owner import ArrayFunctions

__all__ = ["call_function", "call_ufunc"]

#: Universal functions whose name differs in the standard.
_UFUNCS: Final = {
    "absolute": "abs", "fabs": "abs", "power": "pow", "float_power": "", "invert": "bitwise_invert", "rint": "round",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "conjugate": "conj", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "true_divide": "divide",
}  # fmt: skip
#: Other functions, and their names in the standard.
_FUNCTIONS: Final = {
    **{name: name for name in (
        "sum", "prod", "mean", "min", "max", "argmin", "argmax", "any", "all", "where", "clip", "stack", "reshape",
        "squeeze", "expand_dims", "broadcast_to", "flip", "roll", "moveaxis", "tile", "repeat", "diff", "tensordot",
        "vecdot", "zeros_like", "ones_like", "full_like", "empty_like", "tril", "triu", "meshgrid", "astype", "round",
        "matrix_transpose", "unstack", "real", "imag", "broadcast_arrays", "take_along_axis", "count_nonzero",
        "result_type", "outer", "sort", "argsort", "searchsorted", "nonzero", "cumulative_sum", "cumulative_prod",
        "unique_all", "unique_counts", "unique_inverse", "unique_values",
    )},
    "concatenate": "concat", "amin": "min", "amax": "max", "cumsum": "cumulative_sum", "cumprod": "cumulative_prod",
    "permute_dims": "permute_dims", "take": "take_any", "transpose": "transposed", "copy": "copied",
}  # fmt: skip
#: Functions that read no elements.
_STRUCTURE: Final = {"shape": np.shape, "ndim": np.ndim, "size": np.size}


def call_ufunc(
    functions: ArrayFunctions, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Send a universal function to the device.

    Raises
    ------
    NoArrayOperator
        For what the device lacks, a method such as ``reduce``, options, and arrays that are not handles.
    """
    name = ufunc.__name__
    if method != "__call__":
        raise refused_function(f"np.{name}.{method}", "a.sum(), a.prod(), a.min(), a.max(), a.any(), a.all()")
    if options:
        raise refused_function(
            f"np.{name} with {', '.join(options)}=", "device.elementwise.run(program, out=..., a=...)"
        )
    found = functions.ufunc(_UFUNCS.get(name, name))
    if found is None:
        raise refused_function(f"np.{name}", "device.kernel(function), or a program of device.elementwise")
    for value in inputs:
        if isinstance(value, np.ndarray) or not functions.is_operand(value):
            raise refused_operand(f"np.{name}", value)
    return found(*inputs)


def call_function(
    functions: ArrayFunctions, func: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Send another function of NumPy to the device.

    Raises
    ------
    NoArrayOperator
        For what the device lacks, and arguments that its function does not take.
    """
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    if func.__module__ == "numpy" and func.__name__ in _STRUCTURE and len(args) == 1 and not options:
        return getattr(args[0], func.__name__)
    known = _FUNCTIONS.get(func.__name__) if func.__module__ == "numpy" else None
    if known is None:
        raise refused_function(name, "x.__array_namespace__() has the functions of the array API standard")
    found = getattr(functions, known)
    given = {key: value for key, value in options.items() if value is not np._NoValue}  # noqa: SLF001 - NumPy's default
    # A function of the standard takes by name what NumPy's takes by position, too.
    names = list(inspect.signature(func).parameters)
    positional = [
        p.name
        for p in inspect.signature(found).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(found).parameters.values())
    if not variadic and len(args) > len(positional):
        given = {**dict(zip(names[len(positional) :], args[len(positional) :], strict=False)), **given}
        args = args[: len(positional)]
    try:
        inspect.signature(found).bind(*args, **given)
    except TypeError as error:
        raise refused_function(f"{name} ({error})", f"the standard's {known}{inspect.signature(found)}") from None
    for value in args:
        if isinstance(value, np.ndarray):
            raise refused_operand(name, value)
    return found(*args, **given)
