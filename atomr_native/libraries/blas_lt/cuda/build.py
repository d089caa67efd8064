"""Plans of matrix products on CUDA devices: choice, preparation and tuning of their parts."""

from __future__ import annotations

import logging
from typing import Any

from ...._lib import cublas, cublaslt
from ...._lib.cublas import Grouped
from ...._lib.cublaslt import Matmul
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....errors import LibraryError, Unsupported
from ....plans.spec import PlanSpec
from ..attributes import GroupedAttributes, MatmulAttributes
from .custom_epilogue import custom_program
from .grouped import GroupDescription, grouped_program
from .native import MatmulDescription
from .program import matmul_program
from .tuning import MatmulTuner

__all__ = ["build_grouped", "build_matmul"]

_log = logging.getLogger("atomr_native.worker")


class _Preparation:
    """Prepares the products of one plan by cuBLASLt, tuned where the plan asks for that."""

    def __init__(self, spec: PlanSpec[MatmulAttributes] | PlanSpec[GroupedAttributes], context: CudaContext) -> None:
        self.context = context
        self.version: int = cublaslt.load(library_file("cublasLt"))
        self.tuner = MatmulTuner(context.backend, self.version, dict(context.facts))
        self._spec = spec
        self._lines: list[tuple[Matmul, str]] = []

    def options(self) -> dict[str, Any]:
        """Return the options of every kind of program."""
        on_device = any(o.name.startswith("alpha") for o in self._spec.operands)
        return {
            "version": self.version,
            "prepare": self.prepare,
            "workspace_bytes": self.context.workspace_limit,
            "zero": self.context.backend.zeros() if on_device else 0,
        }

    def prepare(self, description: MatmulDescription) -> Matmul:
        """Prepare one product, with a tuned algorithm if there is one."""
        prepared = Matmul(self.context.backend, description)
        tune = self._spec.attributes.tune
        if not tune or description.pointers >= 0:
            return prepared
        measure = tune == "measure" and not self.context.deterministic
        best, line = self.tuner.tuned(description, prepared, measure=measure, progress=self.context.progress)
        if not line:
            return prepared
        try:
            tuned = Matmul(self.context.backend, best)
        except (Unsupported, LibraryError) as error:
            _log.warning("a tuned algorithm does not fit any more, the heuristic's is taken: %s", error)
            return prepared
        self._lines.append((tuned, line))
        return tuned

    def group(self, description: GroupDescription) -> Grouped:
        """Prepare the products of a group by cuBLAS."""
        cublas.load(library_file("cublas"))
        return Grouped(self.context.backend, description)

    def built(self, program: Any) -> Built:
        """Return the plan of a program; a single product runs without the sequence around it."""
        runs = [step.run for step in program.steps]
        tuning = "; ".join(line for prepared, line in self._lines if prepared in runs)
        run = runs[0] if len(runs) == 1 and isinstance(runs[0], Matmul) else program
        return Built(run, program.workspace, program.notes, tuning)


def build_matmul(spec: PlanSpec[MatmulAttributes], context: CudaContext) -> Built:
    """Build ``blas_lt.matmul``: one call of cuBLASLt where it has one, else a sequence of steps."""
    preparation = _Preparation(spec, context)
    if spec.attributes.custom is not None:
        custom = spec.attributes.custom
        return preparation.built(custom_program(spec, custom, context.target, **preparation.options()))
    measured = preparation.tuner.microseconds
    return preparation.built(matmul_program(spec, context.target, measured=measured, **preparation.options()))


def build_grouped(spec: PlanSpec[GroupedAttributes], context: CudaContext) -> Built:
    """Build ``blas_lt.grouped``: all products of a group as one message."""
    preparation = _Preparation(spec, context)
    program = grouped_program(spec, context.target, group=preparation.group, **preparation.options())
    return preparation.built(program)
