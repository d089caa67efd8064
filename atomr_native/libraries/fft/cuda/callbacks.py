"""What cuFFT's kernels call: functions of the user's with the parameters of each message, and factors."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from ...._lib.cufft import CONSTANTS
from ....builders.cuda.codegen import alignment, kernels
from ....builders.cuda.cubin import OPTIONS
from ....builders.cuda.sequence import Source, Step
from ....builders.cuda.target import Argument, Launch, Target, number_of
from ....compile.nvrtc import compile_program
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..callbacks import symbol_of
from .linked import linked_symbol
from .sources import GLOBAL, callback_source
from .steps import Call

__all__ = ["Callback", "callbacks_of", "compiled", "finish_source", "parameter_step"]

#: The library's number of the kind, the symbol, and LTO-IR.
Callback = tuple[int, bytes, bytes]

_KINDS: Final = {"complex64": "COMPLEX", "complex128": "COMPLEX_DOUBLE", "float32": "REAL", "float64": "REAL_DOUBLE"}
_TYPES: Final = {"complex64": "float2", "complex128": "double2", "float32": "float", "float64": "double"}
_WARP: Final = 32


def callbacks_of(step: Call, spec: PlanSpec[Any], target: Target) -> tuple[Callback, ...]:
    """Return the functions that cuFFT calls in a step.  Waits for the compiler where it has a factor."""
    if not (step.callbacks or step.finishes or step.linked):
        return ()
    _linker()
    found = []
    for which in step.callbacks:
        dtype = step.dense(which)
        numba = dict(spec.attributes.callbacks).get(which)
        code = compiled(callback_source(spec, which), target) if numba is None else numba.data
        found.append((_kind(which, dtype), symbol_of(which).encode(), code))
    for function in step.linked:
        dtype = step.dense(function.which)
        symbol = linked_symbol(function.which).encode()
        found.append((_kind(function.which, dtype), symbol, compiled(function.code, target)))
    if step.finishes:
        found.append((_kind("store", step.target.dtype), b"atomr_fft_finish", compiled(finish_source(step), target)))
    return tuple(found)


def compiled(source: str, target: Target) -> bytes:
    """Return CUDA C++ as LTO-IR, without instructions that cuFFT's kernels may not have.  Waits for the compiler."""
    return compile_program(source, f"sm_{number_of(target.arch)}", options=OPTIONS, output="ltoir").code


def _kind(which: str, dtype: str) -> int:
    return CONSTANTS[f"CUFFT_CB_{'LD' if which == 'load' else 'ST'}_{_KINDS[dtype]}"]


@functools.cache
def _linker() -> None:
    """Open nvJitLink, which cuFFT looks for by its name only."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        load_nvidia_dynamic_lib("nvJitLink")
    except (DynamicLibNotFoundError, RuntimeError):  # cuFFT says that it is missing
        return


def finish_source(step: Call) -> str:
    """Return the function that multiplies by the factor, and conjugates: C++, and C for tests."""
    dtype, kind = step.target.dtype, _TYPES[step.target.dtype]
    single = dtype in ("complex64", "float32")
    scale = f"{np.float32(step.scale).item()!r}f" if single else f"{step.scale!r}"
    factor = f" * {scale}" if step.scale != 1 else ""
    sign = "-" if step.conjugated else ""
    change = f"value.x = value.x{factor}; value.y = {sign}value.y{factor};"
    change = change if dtype.startswith("complex") else f"value = value{factor};"
    return (
        f"{GLOBAL}\n"
        f"__device__ void atomr_fft_finish(void *data, unsigned long long at, {kind} value, void *info,\n"
        f"                                 void *shared) {{\n"
        f"{change}\n"
        f"{kind} *const out = ({kind} *)data; IN_GLOBAL(out);\n"
        f"out[at] = value;\n"
        f"}}\n"
    )


def parameter_step(spec: PlanSpec[Any], block: int, target: Target) -> Step:
    """Return the launch that leaves a message's addresses and numbers where the functions look for them."""
    n, scalars = len(spec.operands), spec.scalars
    pointers = [f"const char *p{i}" for i in range(n)]
    numbers = [f"{'long long' if kind == 'int64' else 'double'} v{j}" for j, kind in enumerate(scalars)]
    lines = [
        f"KERNEL parameters({', '.join(['u64 *block', *pointers, *numbers])}) {{",
        "AWAIT_LAUNCH();",
        "if (thread_index() == 0) {",
        *(f"block[{i}] = (u64)p{i};" for i in range(n)),
        *(f"(({'long long' if kind == 'int64' else 'double'} *)block)[{n + j}] = v{j};"
          for j, kind in enumerate(scalars)),
        "}",
        "}",
    ]  # fmt: skip
    arguments: list[Argument] = [("operand", i) for i in range(n + 1)]
    arguments += [("int64" if kind == "int64" else "float64", j) for j, kind in enumerate(scalars)]
    launch = Launch("parameters", (1, 1, 1), (_WARP, 1, 1), 0, tuple(arguments))
    how = spec.attributes
    whole = {0: how.aligned[0], n - 1: how.aligned[1]}
    sizes = [
        as_dtype(o.dtype).itemsize if whole.get(i) and o.dtype == "complex64" else alignment(o.dtype)
        for i, o in enumerate(spec.operands)
    ]
    run = kernels("\n".join(lines) + "\n", [launch], target, dtypes=(), alignments=[8, *sizes]).run
    sources: tuple[Source, ...] = (("constant", block), *(("operand", i) for i in range(n)))
    return Step(run, sources, tuple(("scalar", j) for j in range(len(scalars))))
