"""The kernels of a plan as a problem of the tuner: each is measured on scratch memory, with factors of 1."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from ...builders.cuda.trials import Trials, reach_of, tried
from ...builders.cuda.tuner import Candidate, Tuner
from ...dtypes import as_dtype
from ...plans.tuning import TuningStore, spec_digest

if TYPE_CHECKING:
    from ...builders.cuda.context import CudaContext
    from ...builders.cuda.target import KernelProgram
    from ...plans.spec import PlanSpec
    from .attributes import CompiledKernel, GemmAttributes

__all__ = ["Trial", "fastest"]

#: Version of CUTLASS; its kernels' code is a part of each result's key.
_VERSION: Final = 420

#: Makes the program of a kernel, whose scalars are 1.
Trial = Callable[["CompiledKernel"], "KernelProgram"]


class _Product(Trials):
    """A product whose kernel is chosen."""

    title = "a product by CUTLASS"

    def __init__(
        self, context: CudaContext, spec: PlanSpec[GemmAttributes], kernels: tuple[CompiledKernel, ...], trial: Trial
    ) -> None:
        super().__init__(context, [reach_of(operand) for operand in spec.operands])
        self._kernels, self._trial, self._operands = kernels, trial, spec.operands
        self.operation = spec.op
        plain = replace(spec, attributes=replace(spec.attributes, kernel=None, candidates=(), functions=()))
        codes = [[hashlib.sha256(one.code.data).hexdigest(), one.title] for one in kernels]
        self.digest = spec_digest([to_builtins(plain), codes])

    def _made(self, kernel: CompiledKernel) -> tuple[KernelProgram, Any]:
        program = self._trial(kernel)
        return program, self.context.backend.prepare(program)

    def tiles(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return numbers of ordinary size, and the ends of groups of equal size."""
        found = list(super().tiles())
        for place, one in enumerate(self._operands):
            if one.name == "offsets":
                (groups,), rows = one.shape, self._operands[0].shape[0]
                ends = np.arange(1, groups + 1) * rows // groups
                found[place] = ends.astype(as_dtype(one.dtype)).view(np.uint8)
        return found

    def accepts(self, choice: tuple[int, ...]) -> bool:
        """Whether numbers are a choice."""
        return len(choice) == 1 and 0 <= choice[0] < len(self._kernels)

    def candidates(self) -> list[Candidate]:
        """Return the kernels that compute the product, the heuristic's first."""
        found = []
        for place, kernel in enumerate(self._kernels):
            made = tried(partial(self._made, kernel))
            if made is not None:
                program, self.runs[(place,)] = made
                found.append(Candidate((place,), program.workspace, {"kernel": kernel.title}))
        return found


def fastest(
    context: CudaContext,
    spec: PlanSpec[GemmAttributes],
    kernels: tuple[CompiledKernel, ...],
    trial: Trial,
    store: TuningStore | None = None,
) -> tuple[CompiledKernel, str]:
    """Return the fastest kernel of a plan, and a line about it; measures up to some seconds, unless it is known.

    The first one without a line, if nothing can be measured.
    """
    problem: Any = _Product(context, spec, kernels, trial)
    tuner = Tuner(context.backend, "cutlass", _VERSION, dict(context.facts), store)
    found = tuner.known(problem) if context.deterministic else tuner.best(problem, context.progress)
    return (kernels[0], "") if found is None else (kernels[found.choice[0]], str(found))
