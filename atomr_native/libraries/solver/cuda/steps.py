"""The parts of a solver's sequence: matrices as they lie, the kernels around the libraries' calls, the workspace."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ...._lib.cusolver import CONSTANTS, Verdict
from ....builders.blocks import fold_axes
from ....builders.context import Built
from ....builders.cuda.addresses import address_bytes, stepping_kernel
from ....builders.cuda.codegen import alignment, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.target import Argument, KernelProgram, Launch
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import as_dtype
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import DecompositionAttributes, EigenRangeAttributes, RefinementAttributes, SolverAttributes
from .kernels import AXES, MODES, THREADS, TILE, source
from .native import SolverVerdict

__all__ = ["BLOCKS", "Matrix", "Steps"]

#: Blocks of a kernel for each multiprocessor.
BLOCKS: Final = 32
#: Axes of batches of which errors name an index; what has more counts as one.
_BATCH_AXES: Final = 8

#: Modes of `move` that keep an element as it is, unless its matrix is bad or it is of the other triangle.
_UNCHANGED: Final = frozenset(("lower", "upper", "guard", "noted", "only_bad"))


@dataclass(frozen=True, slots=True)
class Matrix:
    """The matrices of an operand, as they lie.

    Attributes
    ----------
    source : Source
    rows, columns : int
    row, column : int
        Elements from one row, and column, to the next.
    leads : tuple of int
        Elements from one index of each folded axis of the batch to the next.
    jump : int
        Bytes from one matrix to the next, where they step evenly.
    itemsize : int
        Bytes of an element.
    """

    source: Source
    rows: int
    columns: int
    row: int
    column: int
    leads: tuple[int, ...]
    jump: int
    itemsize: int

    @property
    def is_column_major(self) -> bool:
        """Whether rows lie next to each other, and columns apart."""
        return (self.rows < 2 or self.row == 1) and (self.columns < 2 or self.column >= max(self.rows, 1))

    @property
    def ld(self) -> int:
        """The leading dimension of a column-major matrix."""
        return self.column if self.columns > 1 else max(self.rows, 1)

    def turned(self) -> Matrix:
        """Return the transposes."""
        return replace(self, rows=self.columns, columns=self.rows, row=self.column, column=self.row)


class Steps(ABC):
    """A sequence under construction.

    Parameters
    ----------
    spec : PlanSpec
    context : CudaContext

    Attributes
    ----------
    at : dict of str to int
        Operands by name.
    count : int
        Matrices of the batch.
    extents : tuple of int
        Extents of the last two of three folded axes, which is how kernels find a matrix.
    leads : dict of str to tuple of int
        Steps of each operand along the three axes, in elements.
    info : Source or None
        The info numbers of the last factorisation.
    notes : Source or None
        For each matrix of the batch whether a copy of it found what is no number.
    """

    def __init__(self, spec: PlanSpec[Any], context: CudaContext) -> None:
        self.spec, self.context = spec, context
        self.how: SolverAttributes | DecompositionAttributes | EigenRangeAttributes | RefinementAttributes
        self.how = spec.attributes
        self.at = {operand.name: i for i, operand in enumerate(spec.operands)}
        self.count = math.prod(self.how.batch)
        self.extents, self.leads = self._fold()
        self.info: Source | None = None
        self.notes: Source | None = None
        self.pivots: Source = ("workspace", 0)
        self.wide = True
        self._steps: list[Step] = []
        self._texts: list[str] = []
        self._taken = 0
        self._programs: dict[Callable[[str], str], KernelProgram] = {}

    @abstractmethod
    def own_axes(self, name: str) -> int:
        """Return how many axes of an operand are not those of batches."""

    def _fold(self) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
        steps = []
        for operand in self.spec.operands:
            rest, size = len(operand.shape) - self.own_axes(operand.name), as_dtype(operand.dtype).itemsize
            lead = zip(operand.shape[:rest], operand.strides[:rest], strict=True)
            own = (0 if n == 1 else s // size for n, s in lead)
            steps.append((*([0] * (len(self.how.batch) - rest)), *own))
        extents, folded = fold_axes(self.how.batch, tuple(steps))
        if len(extents) > AXES:
            raise Unsupported(
                f"{self.spec.op} of a batch {self.how.batch} whose axes fold to {len(extents)} in memory; on a GPU at "
                f"most {AXES}: copy operands into C order, broadcast ones included",
                rule="solver.batch_axes",
                lifted_by=("layout",),
            )
        ones = AXES - len(extents)
        padded_extents = (*([1] * ones), *extents)
        leads = {o.name: (*([0] * ones), *lead) for o, lead in zip(self.spec.operands, folded, strict=True)}
        return padded_extents[1:], leads

    @property
    def has_steps(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._steps)

    def operand(self, name: str) -> Source:
        """Return an operand of the message."""
        return ("operand", self.at[name])

    def matrix(self, name: str) -> Matrix:
        """Return the matrices of an operand; a vector is a matrix of one column."""
        given = self.spec.operands[self.at[name]]
        size = as_dtype(given.dtype).itemsize
        own = self.own_axes(name)
        rows, columns = given.shape[-own], given.shape[-1] if own == 2 else 1
        row, column = given.strides[-own] // size, given.strides[-1] // size if own == 2 else 0
        lead = self.leads[name]
        axes = [s for n, s in zip((2, *self.extents), lead, strict=True) if n > 1]
        jump = axes[-1] * size if self.count > 1 else 0
        return Matrix(self.operand(name), rows, columns, row, column, lead, jump, size)

    def take(self, nbytes: int) -> Source:
        """Return a part of the workspace."""
        part: Source = ("workspace", self._taken)
        self._taken += padded(max(nbytes, 1))
        limit = self.context.workspace_limit
        if self._taken > limit:
            raise beyond_limit(self.spec.op, self.spec.op, self._taken, limit)
        return part

    @property
    def room(self) -> int:
        """Bytes that may still be taken of the workspace."""
        return self.context.workspace_limit - self._taken

    def new_info(self) -> Source:
        """Return new info numbers, one for each matrix."""
        self.info = self.take(4 * self.count)
        return self.info

    def new_notes(self) -> None:
        """Add a kernel that clears new notes."""
        self.notes = self.take(4 * self.count)
        self.launch("clear", (self.notes,), (self.count,), self.count)

    def note(self, text: str) -> None:
        """Add a note."""
        if text not in self._texts:
            self._texts.append(text)

    def native(self, run: Any, operands: tuple[Source, ...], scalars: tuple[Source, ...] = ()) -> None:
        """Add a native run."""
        self._steps.append(Step(run, operands, scalars))

    def launch(
        self,
        name: str,
        operands: tuple[Source, ...],
        numbers: tuple[int, ...],
        total: int,
        *,
        grid: int = 0,
        module: Callable[[str], str] = source,
    ) -> None:
        """Add a kernel: pointers, then numbers; its grid is for `total` threads, unless `grid` blocks are given.

        `module` is the function that returns the kernels of a dtype.
        """
        target = self.context.target
        if module not in self._programs:
            built = kernels(module(self.how.dtype), [], target, dtypes=(self.how.dtype,), alignments=())
            self._programs[module] = cast("KernelProgram", built.run)
        blocks = grid or max(1, min(-(-total // THREADS), target.sm_count * BLOCKS))
        arguments: tuple[Argument, ...] = (
            *(("operand", i) for i in range(len(operands))),
            *(("uint64", number % 2**64) for number in numbers),
        )
        aligned = tuple(alignment(self.spec.operands[at].dtype) if kind == "operand" else 4 for kind, at in operands)
        made = Launch(name, (blocks, 1, 1), (THREADS, 1, 1), 0, arguments, overlaps=target.overlaps)
        self._steps.append(Step(replace(self._programs[module], launches=(made,), alignments=aligned), operands))

    def move(self, to: Matrix, of: Matrix, *modes: str) -> None:
        """Add a copy of matrices, changed as `modes` say."""
        rows, columns = to.rows, to.columns
        bits = sum(MODES[mode] for mode in modes)
        if to == of and _UNCHANGED.issuperset(modes):
            bits |= MODES["in_place"]
        if to.row > to.column and rows > 1 and columns > 1:  # threads go first along the axis that is dense in memory
            to, of, rows, columns = to.turned(), of.turned(), columns, rows
            halves = MODES["lower"] | MODES["upper"]
            if bits & halves:
                bits ^= halves
        large = min(rows, columns) >= TILE
        tiles = -(-rows // TILE) * -(-columns // TILE) * self.count
        few = self.context.target.sm_count if bits & MODES["only_bad"] else BLOCKS * self.context.target.sm_count
        self.launch(
            "tiles" if large else "move",
            (to.source, of.source, self.info or to.source, self.notes or to.source),
            (
                rows, columns, self.count, *self.extents, to.row, to.column, *to.leads, of.row, of.column, *of.leads,
                bits,
            ),
            rows * columns * self.count,
            grid=min(tiles, few) if large else 0,
        )  # fmt: skip

    def addresses(self, a: Matrix, b: Matrix) -> Source:
        """Add a kernel that writes the addresses of all matrices; return where they are."""
        found = self.take(2 * address_bytes(self.count))
        run = stepping_kernel([(a.jump,), (b.jump,)], (self.count,), self.context.target)
        self.native(run, (a.source, b.source, found))
        return found

    def pivots_out(self, n: int, *, wide: bool) -> None:
        """Add a copy of the library's pivots to the message's."""
        out = self.spec.operands[self.at["pivots_out"]]
        step = out.strides[-1] // as_dtype(out.dtype).itemsize
        self.launch(
            "pivots_out",
            (self.operand("pivots_out"), self.pivots),
            (int(wide), n, self.count, *self.extents, step, *self.leads["pivots_out"]),
            n * self.count,
        )

    def pivots_in(self, n: int, *, wide: bool) -> None:
        """Add a copy of the message's pivots as the library takes them."""
        given = self.spec.operands[self.at["pivots"]]
        self.pivots = self.take((8 if wide else 4) * n * self.count)
        step = given.strides[-1] // as_dtype(given.dtype).itemsize
        self.launch(
            "pivots_in",
            (self.pivots, self.operand("pivots")),
            (int(wide), n, self.count, *self.extents, step, *self.leads["pivots"]),
            n * self.count,
        )

    def judge(self, kind: str) -> None:
        """Have the info numbers judged; a plan whose routine has none has no such step."""
        if self.info is None:
            return
        self.launch("summary", (("info", 0), self.info), (self.count,), 1, grid=1)
        self.native(Verdict(self.context.backend, self.verdict_of(kind, "SUMMARY")), ())

    def verdict_of(self, kind: str, form: str) -> SolverVerdict:
        """Return what info numbers mean, and what words say of them, by the names of constants."""
        batch = self.how.batch if len(self.how.batch) <= _BATCH_AXES else (self.count,)
        return SolverVerdict(
            kind=CONSTANTS[f"ATOMR_SOLVER_{kind}"],
            axes=len(batch),
            extents=(*batch, *([1] * (_BATCH_AXES - len(batch)))),
            form=CONSTANTS[f"ATOMR_VERDICT_{form}"],
            operation=self.spec.op,
        )

    def give_info(self) -> None:
        """Add a copy of the info numbers to the message's, if it has them."""
        if "info" in self.at and self.info is not None:
            numbers = (self.count, *self.extents, *self.leads["info"])
            self.launch("infos", (self.operand("info"), self.info), numbers, self.count)

    def built(self) -> Built:
        """Return the plan."""
        notes = tuple(self._texts)
        program = SequenceProgram(tuple(self._steps), self._taken, notes)
        return Built(program, self._taken, notes)
