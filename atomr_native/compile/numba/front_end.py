"""Numba's front end: a kernel as Numba's own intermediate representation, with the types that Numba infers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from ..._lib.guard import shielded_service
from .api import (
    AnalysisPass,
    CUDACallConv,
    CUDACompiler,
    CUDAFlags,
    PassManager,
    PreLowerStripPhis,
    cuda_target,
    global_compiler_lock,
    numba_target_override,
    register_pass,
)
from .compiler import compiling_for, renewed

__all__ = ["HOST_CAPABILITY", "Typed", "typed", "typed_again"]

#: The capability for which kernels of the host device are typed.
HOST_CAPABILITY: Final = (9, 0)


@dataclass(frozen=True, slots=True)
class Typed:
    """A function with inferred types.

    Attributes
    ----------
    code : numba.cuda.core.ir.FunctionIR
    types : mapping of str to Numba type
        Of each variable.
    calls : mapping of expression to signature
        Types in which each expression takes its operands.
    result : Numba type
    capability : tuple of int
        For which it was compiled.
    """

    code: Any
    types: Mapping[str, Any]
    calls: Mapping[Any, Any]
    result: Any
    capability: tuple[int, int]


@register_pass(mutates_CFG=False, analysis_only=True)
class _Keep(AnalysisPass):  # type: ignore[misc]
    """Keep the typed representation, which later passes change."""

    _name = "atomr_keep_types"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.cr = state.atomr_typed = Typed(
            state.func_ir.copy(),
            dict(state.typemap),
            dict(state.calltypes),
            state.return_type,
            state.flags.compute_capability,
        )
        return False


class _FrontEnd(CUDACompiler):  # type: ignore[misc]
    """Numba's compiler for CUDA up to the inference of types."""

    lowers = False

    def define_pipelines(self) -> list[Any]:
        (whole,) = super().define_pipelines()
        passes = PassManager("atomr_front_end")
        for one, description in whole.passes:
            passes.add_pass(one, description)
            if one is PreLowerStripPhis:
                passes.add_pass(_Keep, "keep types")
                if not self.lowers:
                    break
        passes.finalize()
        return [passes]


class _Lowering(_FrontEnd):
    """The same, and then on to LLVM's representation, where Numba refuses what it has no code for."""

    lowers = True


@shielded_service  # an interrupt in its generators would leave Numba without its tables
def typed(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], *, lowers: bool = False
) -> Typed:
    """Return a kernel with types.  Takes about 20 ms, and needs no GPU.

    With `lowers` all that Numba refuses to compile is refused, and it takes about 50 ms more.

    Raises
    ------
    Exception
        Numba's, of many classes, if it refuses the function.
    """
    with global_compiler_lock, compiling_for(capability), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cuda_target.typing_context.refresh()
        cuda_target.target_context.refresh()
        return _run(renewed(function), arguments, capability, _Lowering if lowers else _FrontEnd)


@shielded_service
def typed_again(dispatcher: Any, arguments: Sequence[Any], capability: tuple[int, int]) -> Typed:
    """Return a device function that a typed function calls, with types."""
    with global_compiler_lock, compiling_for(capability), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _run(dispatcher.py_func, arguments, capability, _FrontEnd)


def _run(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], compiler: type[_FrontEnd]
) -> Typed:
    flags = CUDAFlags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.compute_capability = capability
    typing, target = cuda_target.typing_context, cuda_target.target_context
    with numba_target_override():
        pipeline = compiler(typing, target, None, tuple(arguments), None, flags, {}, CUDACallConv(target), {})
        pipeline.compile_extra(function)
    made: Typed = pipeline.state.atomr_typed
    return made
