"""From a plan specification of ``solver.*`` to a sequence of kernels and calls of cuSOLVER and cuBLAS.

The libraries are column-major and overwrite what they factor.  So kernels first copy operands to where the result goes,
or to the message's scratch arrays, and turn them; then the libraries work in place; then kernels write NaN into the
results of matrices that failed.  The last step has the info numbers judged when the work is done: no lane waits.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from ...._lib import cublas, cusolver
from ...._lib.cusolver import CONSTANTS, Solver
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.sequence import Source
from ....plans.spec import PlanSpec
from ..attributes import SolverAttributes
from ..routes import POSITIVE, kind_of_failure
from ..spec import INDEFINITE, ROUTINES
from . import indefinite
from .kernels import MODES, TILE
from .native import SolverCall, TriangleCall
from .small.build import build_small
from .steps import BLOCKS, Matrix, Steps

__all__ = ["build_solver"]

_N, _T, _C = (CONSTANTS[f"CUBLAS_OP_{op}"] for op in "NTC")
_TYPES: Final = {"float32": "FLOAT", "float64": "DOUBLE", "complex64": "COMPLEX", "complex128": "DOUBLE_COMPLEX"}
#: Rows of a matrix from which on cuSOLVER factors the lower triangle, and the factor is flipped where the upper one is
#: wanted: by the upper one ``potrf`` took 2.1, 2.8 and 1.4 times as long on an H100, at 512, 2048 and 16384 rows.
_FLIPPED: Final = 32
_ONE: Final = struct.unpack("<Q", struct.pack("<d", 1.0))[0]


def build_solver(spec: PlanSpec[SolverAttributes], context: CudaContext) -> Built:
    """Build ``solver.*``: operands in the order of the request's lowering."""
    how = spec.attributes
    if 0 in how.batch:
        return Built("noop")
    if (
        how.route == "kernel"
        and how.assume not in INDEFINITE
        and all(0 not in operand.shape for operand in spec.operands)
    ):
        return build_small(spec, context)
    return _Builder(spec, context).build()


class _Builder(Steps):
    """The steps of one plan."""

    how: SolverAttributes

    def __init__(self, spec: PlanSpec[SolverAttributes], context: CudaContext) -> None:
        super().__init__(spec, context)
        self.routine = spec.op.removeprefix("solver.")
        self.positive = self.routine == "cholesky" or self.how.assume == POSITIVE
        self.indefinite = self.how.assume in INDEFINITE
        self.hermitian = self.how.assume == "hermitian" and self.how.dtype.startswith("complex")
        self.type = CONSTANTS[f"ATOMR_SOLVER_{_TYPES[self.how.dtype]}"]
        self.is_complex = self.how.dtype.startswith("complex")

    def own_axes(self, name: str) -> int:
        """Return how many axes of an operand are not those of batches."""
        if name in ("info", "log_out") or (name == "out" and "log_out" in self.at) or self.spec.op == "solver.det":
            return 2 if name in ("a", "factor") else 0
        if name in ("pivots", "pivots_out") or (self.how.vector and name in ("b", "out")):
            return 1
        return 2

    def build(self) -> Built:
        """Return the plan."""
        a = self.matrix("a")
        determinant = self.routine in ("det", "slogdet")
        nothing = math.prod(self.spec.operands[self.at["out"]].shape) == 0 or 0 in (a.rows, a.columns)
        if nothing and not determinant:
            return self._without_work()
        cublas.load(library_file("cublas"))
        cusolver.load(library_file("cusolver"))
        kind = "ANY"
        if self.routine == "cholesky":
            self._cholesky(a)
        elif self.routine == "lu_factor":
            self._lu_factor(a)
        elif self.routine == "ldl_factor":
            self._ldl_factor(a)
        elif self.routine == "ldl_solve":
            self._ldl_solve(a)
        elif self.routine in ("solve", "inv"):
            self._solve(a)
        elif determinant:
            self._determinant(a)
        elif self.routine == "lu_solve":
            self._lu_solve(a)
        elif self.routine == "cholesky_solve":
            self._cholesky_solve(a)
        else:
            self._triangular(a)
        if self.how.check and ROUTINES[self.routine].checks and not (determinant and not self.positive):
            kind = kind_of_failure(self.routine, self.how.assume)
        self.give_info()
        self.judge(kind)
        return self.built()

    def _without_work(self) -> Built:
        """Return the plan for empty results: there is nothing to write but info."""
        if "info" not in self.at:
            return Built("noop")
        self.launch("zeros", (self.operand("info"), self.new_info()), (0, self.count, *self.extents, 0, 0, 0, 0), 1)
        self.give_info()
        return self.built()

    # Copies before and after the libraries' work.

    def _place(self, *, turned: bool = False) -> Matrix:
        """Return where the libraries make the result: `out`, or the scratch array for it."""
        found = self.matrix("work" if "work" in self.at else "out")
        return found.turned() if turned else found

    def _finish(self, place: Matrix, *modes: str, guard: bool = True) -> None:
        """Make the result of what the libraries left: other modes than the guard change every element."""
        guards = (*(("guard",) if guard and self.info is not None else ()), *(("noted",) if self.notes else ()))
        if "work" in self.at:
            self.move(self.matrix("out"), place, *modes, *guards)
        elif modes:
            self.move(place, place, *modes, *guards)
        elif guards:
            self.move(place, place, *guards, "only_bad")

    def _copy(self, to: Matrix, of: Matrix, *modes: str) -> None:
        """Copy what is factored, and note NaN, over which the libraries' searches for pivots may pass."""
        self.new_notes()
        self.move(to, of, *modes, "note")

    def _right_side(self, *, conj: bool = False) -> Matrix:
        """Copy B, or ones for an inverse, to where X is made."""
        place = self._place()
        if "b" in self.at:
            self.move(place, self.matrix("b"), *(("conj",) if conj else ()))
        else:
            self.move(place, place, "eye")
        return place

    # The libraries' calls.

    def _many(self, square: bool = True) -> bool:
        return self.how.route == "batched" and square

    def _potrf(self, a: Matrix, *, lower: bool) -> None:
        self._call("POTRF", a, None, uplo=0 if lower else 1, many=self._many())

    def _getrf(self, a: Matrix) -> bool:
        """Factor in place; the pivots go to `self.pivots`.  Returns whether they have 64 bits."""
        many = self._many(a.rows == a.columns)
        self.pivots = self.take((4 if many else 8) * self.count * min(a.rows, a.columns))
        self._call("GETRF", a, None, many=many)
        return not many

    def _call(self, routine: str, a: Matrix, b: Matrix | None, *, uplo: int = 0, trans: int = 0, many: bool) -> None:
        """Add a call of a solver: operands A, info, and where they are needed B, pivots, scratch memory, addresses."""
        operands = [a.source, self.info or self.new_info()]
        where: dict[str, int] = {"a": 0, "info": 1}

        def add(name: str, source: Any) -> None:
            where[name] = len(operands)
            operands.append(source)

        if b is not None:
            add("b", b.source)
        if routine.startswith(("GET", "SYT")):
            add("pivots", self.pivots)
        other = a if b is None else b
        if many:
            add("pointers", self.addresses(a, other))
            self.note(f"{self.count} matri{'ces' if self.count > 1 else 'x'} in one call of {routine.lower()}Batched")
        elif self.count > 1:
            self.note(f"{self.count} calls of {routine.lower()}, one after the other")
        has_scratch = routine.endswith("F") and not many
        if has_scratch:
            where["scratch"] = len(operands)
        call = SolverCall(
            routine=CONSTANTS[f"ATOMR_SOLVER_{routine}"],
            type=self.type,
            uplo=uplo,
            trans=trans,
            m=a.rows,
            n=a.columns,
            k=b.columns if b is not None else 0,
            **where,
            step=(a.ld, other.ld),
            batch=self.count,
            jump=(a.jump, other.jump),
            n_operands=len(operands) + has_scratch,
        )
        native = Solver(self.context.backend, call)
        if has_scratch:
            operands.append(self.take(native.scratch_bytes))
        self.native(native, tuple(operands))

    def _trsm(self, a: Matrix, b: Matrix, *, lower: bool, trans: int, unit: bool = False) -> None:
        """Add a triangular solve, ``op(A) X = B``, in place of B."""
        many = self._many()
        call = TriangleCall(
            routine=CONSTANTS["ATOMR_BLAS_TRSM"],
            type=self.type,
            uplo=0 if lower else 1,
            trans_a=trans,
            diag=int(unit),
            m=b.rows,
            n=b.columns,
            step=(a.ld, b.ld, 0),
            batch=self.count,
            jump=(a.jump, b.jump, 0),
            pointers=2 if many else -1,
            n_operands=2 + many,
        )
        addresses = (self.addresses(a, b),) if many else ()
        native = cublas.Blas(self.context.backend, call)
        self.native(native, (a.source, b.source, *addresses), (("constant", _ONE),))

    # Routines.

    def _cholesky(self, a: Matrix) -> None:
        out = self.matrix("out")
        turned = "work" not in self.at and not out.is_column_major
        place, lower = self._place(turned=turned), self.how.lower != turned
        if not lower and not self._many() and place.rows >= _FLIPPED:
            self._cholesky_flipped(place, a if turned else a.turned(), conj=self.is_complex and not turned)
            return
        half = "lower" if lower else "upper"
        self._copy(place, a.turned() if turned else a, half)
        self._potrf(place, lower=lower)
        self._finish(place, half)

    def _cholesky_flipped(self, place: Matrix, of: Matrix, *, conj: bool) -> None:
        """Factor by the lower triangle, and have the factor in the upper one."""
        modes = ("conj",) if conj else ()
        self._copy(place, of, "lower", *modes)
        self._potrf(place, lower=True)
        bits = sum(MODES[mode] for mode in (*modes, "guard", "noted"))
        tiles = (-(-place.rows // TILE)) ** 2 * self.count
        self.launch(
            "flip", (place.source, self.info or place.source, self.notes or place.source),
            (place.rows, self.count, *self.extents, place.ld, *place.leads, bits), 0,
            grid=min(tiles, self.context.target.sm_count * BLOCKS),
        )  # fmt: skip
        if "work" in self.at:
            self.move(self.matrix("out"), place)

    def _lu_factor(self, a: Matrix) -> None:
        place = self._place()
        self._copy(place, a)
        wide = self._getrf(place)
        self._finish(place, guard=self.how.check)
        self.pivots_out(min(a.rows, a.columns), wide=wide)

    def _factor(self, a: Matrix) -> Matrix:
        """Copy A and factor it."""
        factor = self.matrix("factor")
        if self.indefinite:
            self._ldl(factor, a)
            return factor
        if not self.positive:
            self._copy(factor, a)
            self.wide = self._getrf(factor)
            return factor
        self._copy(factor, a, "lower" if self.how.lower else "upper")
        self._potrf(factor, lower=self.how.lower)
        return factor

    def _solve(self, a: Matrix) -> None:
        factor = self._factor(a)
        place = self._right_side()
        info = self.info
        if self.indefinite:
            self._ldl_apply(factor, place)
        elif self.positive:
            self._potrs(factor, place, lower=self.how.lower)
        else:
            self._getrs(factor, place, _N)
        self.info = info
        self._finish(place)

    # Matrices that may be indefinite: the factor is that of a lower triangle, whichever was read.

    def _ldl(self, place: Matrix, a: Matrix) -> None:
        """Copy A and factor it in place; `self.pivots` are of 32 bits, and the library's."""
        if self.how.lower:
            self._copy(place, a, "lower")
        else:
            self._copy(place, a.turned(), "lower", *(("conj",) if self.hermitian else ()))
        self.wide = False
        self.pivots = self.take(4 * self.count * a.rows)
        numbers: tuple[int, ...] = (a.rows, place.ld, place.jump // place.itemsize, self.count)
        if self.how.route == "loop":
            self._call("SYTRF", place, None, many=False)
            kernel = "ldl_info"
        else:
            self.note(f"{self.count} matrices in one kernel, a block of threads each")
            self.new_info()
            kernel = "ldl"
            numbers += (int(self.hermitian),)
        self.launch(
            kernel, (place.source, self.pivots, self.info or place.source), numbers, 0, grid=min(self.count, 65535),
            module=indefinite.source,
        )  # fmt: skip

    def _ldl_apply(self, factor: Matrix, place: Matrix) -> None:
        """Solve in place of B, by `self.pivots`, in a kernel: a solve of ``Xsytrs`` was wrong on an H100."""
        numbers = (
            factor.rows, factor.ld, factor.jump // factor.itemsize, place.columns, place.ld,
            place.jump // place.itemsize, self.count, int(self.hermitian),
        )  # fmt: skip
        self.launch(
            "ldl_solve", (factor.source, self.pivots, place.source), numbers, 0, grid=min(self.count, 65535),
            module=indefinite.source,
        )  # fmt: skip

    def _take_pivots(self, given: Source, n: int, step: int, leads: tuple[int, ...]) -> None:
        """Copy pivots to where the kernel wants them."""
        self.wide = False
        self.pivots = self.take(4 * n * self.count)
        self.launch(
            "ldl_pivots_in", (self.pivots, given), (n, self.count, *self.extents, step, *leads), n * self.count,
            module=indefinite.source,
        )  # fmt: skip

    def _ldl_factor(self, a: Matrix) -> None:
        place = self._place()
        self._ldl(place, a)
        self._finish(place, "lower", guard=self.how.check)
        out = self.spec.operands[self.at["pivots_out"]]
        step = out.strides[-1] // 4
        self.launch(
            "ldl_pivots",
            (self.operand("pivots_out"), self.pivots),
            (a.rows, self.count, *self.extents, step, *self.leads["pivots_out"]),
            a.rows * self.count,
            module=indefinite.source,
        )

    def _ldl_solve(self, a: Matrix) -> None:
        factor = self._given_factor(a, turns=False)
        given = self.spec.operands[self.at["pivots"]]
        self._take_pivots(self.operand("pivots"), a.rows, given.strides[-1] // 4, self.leads["pivots"])
        place = self._right_side()
        self._ldl_apply(factor, place)
        self.info = None  # that of a solve says nothing
        self._finish(place)

    def _potrs(self, factor: Matrix, place: Matrix, *, lower: bool) -> None:
        if not self._many():
            self.info = None  # the numbers of the factorisation stay
            self._call("POTRS", factor, place, uplo=0 if lower else 1, many=False)
            return
        for trans in (_N, _C) if lower else (_C, _N):
            self._trsm(factor, place, lower=lower, trans=trans)

    def _getrs(self, factor: Matrix, place: Matrix, trans: int) -> None:
        self.info = None
        self._call("GETRS", factor, place, trans=trans, many=self._many())

    def _determinant(self, a: Matrix) -> None:
        factor = self.matrix("factor")
        self.wide, self.pivots = True, factor.source
        if a.rows:
            self._factor(a)
        else:
            self.launch("zeros", (factor.source, self.new_info()), (0, self.count, *self.extents, 0, 0, 0, 0), 1)
        mode = (1 if self.positive else 0) + (2 if "log_out" in self.at else 0) + (4 if self.notes else 0)
        mode += (8 if self.indefinite and a.rows else 0) + (16 if self.hermitian else 0)
        logs = "log_out" if "log_out" in self.at else "out"
        self.launch(
            "determinant",
            (
                self.operand("out"), self.operand(logs), factor.source, self.pivots, self.info or factor.source,
                self.notes or factor.source,
            ),
            (
                int(self.wide), a.rows, self.count, *self.extents, *self.leads["out"], *self.leads[logs], factor.ld + 1,
                factor.jump // factor.itemsize, mode,
            ),
            self.count,
            grid=min(self.count, 65535),
        )  # fmt: skip

    def _given_factor(self, a: Matrix, *, turns: bool) -> Matrix:
        """Return a factor that the libraries can read: the caller's, turned if need be, or a copy."""
        if "factor" in self.at:
            self.move(self.matrix("factor"), a)
            return self.matrix("factor")
        return a.turned() if turns and not a.is_column_major else a

    def _cholesky_solve(self, a: Matrix) -> None:
        factor = self._given_factor(a, turns=True)
        turned = factor.source == a.source and not a.is_column_major
        # A turned factor is that of the conjugate of A.
        conj = ("conj",) if turned and self.is_complex else ()
        place = self._right_side(conj=bool(conj))
        self._potrs(factor, place, lower=self.how.lower != turned)
        self.info = None  # that of a solve says nothing
        self._finish(place, *conj)

    def _lu_solve(self, a: Matrix) -> None:
        factor = self._given_factor(a, turns=False)
        wide = not self._many()
        self.pivots_in(a.rows, wide=wide)
        conj = ("conj",) if self.how.conj and not self.how.trans and self.is_complex else ()
        place = self._right_side(conj=bool(conj))
        self._getrs(factor, place, (_C if self.how.conj else _T) if self.how.trans else _N)
        self.info = None
        self._finish(place, *conj)

    def _triangular(self, a: Matrix) -> None:
        factor = self._given_factor(a, turns=True)
        turned = factor.source == a.source and not a.is_column_major
        diagonal = 0 if self.how.unit else a.rows
        lead = self.leads["a"]
        self.launch(
            "zeros",
            (a.source, self.new_info()),
            (diagonal, self.count, *self.extents, a.row + a.column, *lead),
            self.count,
            grid=min(self.count, 65535),
        )
        info = self.info
        conjugates, transposes = self.how.conj and self.is_complex, self.how.trans != turned
        conj = ("conj",) if conjugates and not transposes else ()
        place = self._right_side(conj=bool(conj))
        trans = (_C if conjugates else _T) if transposes else _N
        self._trsm(factor, place, lower=self.how.lower != turned, trans=trans, unit=self.how.unit)
        self.info = info
        self._finish(place, *conj)
