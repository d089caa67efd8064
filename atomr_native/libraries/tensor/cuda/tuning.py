"""Steps of expressions as problems of the tuner: routes, algorithms of cuBLASLt, and kernels of cuTENSOR.

Each candidate is the step as a sequence of its own, with the copies and kernels that this way needs.  It is measured on
scratch memory, without factors and C.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from msgspec import to_builtins

from ...._lib import cublaslt, cutensor
from ...._lib.cublaslt import Matmul
from ...._lib.cutensor import CONSTANTS
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.trials import Trials, reach_of, tried
from ....builders.cuda.tuner import Candidate, Tuner
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ....plans.tuning import TuningStore, spec_digest
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import EinsumAttributes
from ..types import EMULATED
from .choice import Choice
from .cutensor import COMPILED, WITHIN, open_library

__all__ = ["StepTuner"]

#: Changes with the kernels that this package generates.
_FORMAT: Final = 3
#: Multiplications above which a kernel of ours is not worth a measurement beside a product of a library.
_MOST: Final = 1 << 34
#: Algorithms of cuBLASLt, and kernels of cuTENSOR's algorithms, that are measured.
_LISTED: Final = 8
_KERNELS: Final = {"DEFAULT": 4, "DEFAULT_PATIENT": 1, "GETT": 4, "TGETT": 2, "TTGT": 2}
#: Those that are measured as the library chooses them with the workspace of the plan, too.
_WITHIN: Final = {"DEFAULT": 1, "GETT": 4}

#: Makes the program of a choice, with its bytes of workspace, and says which route it takes.
Trial = Callable[[Choice], tuple[Any, int, str]]


class _Step(Trials):
    """A step that is tuned."""

    title = "an operation on tensors"

    def __init__(self, context: CudaContext, spec: PlanSpec[Any], digest: str, products: int, trial: Trial) -> None:
        super().__init__(context, [reach_of(operand) for operand in spec.operands])
        self.spec = spec
        self._products, self._trial = products, trial
        self.operation = spec.op
        self.digest = digest
        self.end = math.inf

    def accepts(self, choice: tuple[int, ...]) -> bool:
        """Whether numbers are a choice."""
        return Choice.of(choice) is not None

    def candidates(self) -> list[Candidate]:
        """Return what the plan would do by itself, and then the other ways, until the time is up."""
        found = []
        for candidate in self._candidates():
            found.append(candidate)
            if time.monotonic() > self.end:
                break
        return found

    def _candidates(self) -> Iterator[Candidate]:
        how = self.spec.attributes
        first, _ = self._candidate(Choice(), {})
        if first is None:
            return
        yield first
        if not isinstance(how, EinsumAttributes):
            yield from self._taken(Choice("kernel"), {})
            yield from self._taken(Choice("cutensor", (CONSTANTS["CUTENSOR_ALGO_DEFAULT"], -1)), {})
            return
        routes = (how.route,) if how.route != "auto" else ("kernel", "blas_lt", "cutensor")
        for route in routes:
            if how.compute in EMULATED and route != "cutensor":
                continue
            if route == "kernel":
                if self._products <= _MOST:
                    yield from self._taken(Choice("kernel"), {})
            elif route == "blas_lt":
                yield from self._algorithms()
            elif not how.deterministic:
                yield from self._kernels()

    def _taken(self, choice: Choice, config: dict[str, Any]) -> Iterator[Candidate]:
        made, _ = self._candidate(choice, config)
        if made is not None:
            yield made

    def _algorithms(self) -> Iterator[Candidate]:
        """Yield the algorithms that cuBLASLt lists for the product of this step."""
        made, program = self._candidate(Choice("blas_lt"), {})
        if made is None or program is None:
            return
        yield made
        native = next(step.run for step in program.steps if isinstance(step.run, Matmul))
        limit = min(self.context.most, PREFERRED_WORKSPACE)
        for words, _, config in native.candidates(limit, _LISTED):
            yield from self._taken(Choice("blas_lt", words), config)

    def _kernels(self) -> Iterator[Candidate]:
        """Yield what cuTENSOR has: the best kernels of its model, of a more patient one, and of each algorithm.

        And the kernel that it compiles for the step, which takes seconds.
        """
        try:
            open_library()
        except Unsupported:
            return
        for name, kernels in _KERNELS.items():
            for rank in range(kernels):
                choice = Choice("cutensor", (CONSTANTS[f"CUTENSOR_ALGO_{name}"], rank))
                yield from self._taken(choice, {"algo": name.lower(), "kernel": rank})
        for name, kernels in _WITHIN.items():
            for rank in range(kernels):
                choice = Choice("cutensor", (CONSTANTS[f"CUTENSOR_ALGO_{name}"], rank, WITHIN))
                yield from self._taken(choice, {"algo": name.lower(), "kernel": rank, "workspace": "limited"})
        choice = Choice("cutensor", (CONSTANTS["CUTENSOR_ALGO_DEFAULT"], -1, COMPILED))
        yield from self._taken(choice, {"algo": "default", "kernel": "compiled"})

    def _made(self, choice: Choice) -> tuple[Any, int, str, Any]:
        program, workspace, taken = self._trial(choice)
        return program, workspace, taken, self.context.backend.prepare(program)

    def _candidate(self, choice: Choice, config: dict[str, Any]) -> tuple[Candidate | None, Any]:
        """Return a candidate that takes the route which it names, and its program; None where there is none."""
        made = tried(partial(self._made, choice))
        if made is None:
            return None, None
        program, workspace, taken, run = made
        if choice.route not in ("", taken):
            return None, None
        self.runs[choice.words] = run
        return Candidate(choice.words, workspace, {"route": taken, **config}), program


class StepTuner:
    """Chooses the way of a step by measuring all, or from what is known.

    Parameters
    ----------
    context : CudaContext
    spec : PlanSpec
        The step, see `choice.step_spec`; or another operation, without factors.
    products : int
        Its multiplications.
    trial : callable
        Makes the program of a choice.
    direct : bool
        Whether the step may write its result where the specification says, not to the workspace.
    store : TuningStore, optional
    """

    def __init__(
        self, context: CudaContext, spec: PlanSpec[Any], products: int, trial: Trial, *, direct: bool,
        store: TuningStore | None = None,
    ) -> None:  # fmt: skip
        versions = [cublaslt.load(library_file("cublasLt")), 0]
        try:
            open_library()
            versions[1] = cutensor.load()
        except Unsupported:
            pass  # the others compete without it
        limit = context.most
        digest = spec_digest([_FORMAT, versions, limit, direct, to_builtins(spec)])
        self._context = context
        self._problem = _Step(context, spec, digest, products, trial)
        self._tuner = Tuner(context.backend, "tensor", versions[0], dict(context.facts), store)

    def tuned(self, *, measure: bool, seconds: float = 0.0) -> tuple[Choice, str] | None:
        """Return the fastest way, and a line about it; None if it is not known.

        Measuring takes up to some seconds; with `seconds` no further way is tried after these.
        """
        self._problem.end = time.monotonic() + seconds if seconds else math.inf
        if measure and not self._context.deterministic:
            found = self._tuner.best(self._problem, self._context.progress)
        else:
            found = self._tuner.known(self._problem)
        choice = None if found is None else Choice.of(found.choice)
        return None if found is None or choice is None else (choice, str(found))
