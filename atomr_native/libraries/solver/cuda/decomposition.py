"""From a plan specification of an orthogonal decomposition to a sequence of kernels and calls of cuSOLVER.

A kernel first looks for what is not finite in A.  Such matrices become identities for the library, which is not made
for them, and NaN in the results.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from ...._lib import cusolver
from ...._lib.cusolver import CONSTANTS, Decomposition
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.sequence import Source
from ....dtypes import as_dtype
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..algorithms import AUTO, call_of
from ..attributes import DecompositionAttributes, EigenRangeAttributes
from .native import DecompositionCall
from .small.build import build_small
from .steps import Matrix, Steps

__all__ = ["DecompositionSteps", "build_decomposition"]

#: Elements of the largest batch in one call, by the library's documentation.
_BATCHED_ELEMENTS: Final = 2**31 - 1
#: Bytes of the workspace for what follows a group: the summary of info numbers.
_SPARE: Final = 4096
_TYPES: Final = {"float32": "FLOAT", "float64": "DOUBLE", "complex64": "COMPLEX", "complex128": "DOUBLE_COMPLEX"}
_STEPS: Final = {"svdvals": "_svd", "eigvalsh": "_eigh", "eig": "_general", "eigvals": "_general"}
#: Calls whose values are real numbers, and those that take a batch, or a group of it.
_REAL: Final = ("GESVD", "GESVDJ", "GESVDP", "GESVDA", "SYEVD", "SYEV_BATCHED", "SYEVJ", "SYEVDX")
_TOGETHER: Final = ("SYEV_BATCHED", "GESVDA")
_N, _T, _C = (CONSTANTS[f"CUBLAS_OP_{op}"] for op in "NTC")


def build_decomposition(spec: PlanSpec[DecompositionAttributes], context: CudaContext) -> Built:
    """Build a decomposition: operands in the order of the request's lowering."""
    if spec.attributes.left:
        raise Unsupported(
            f"{spec.op} with left=True as a message to a GPU: cuSOLVER has right eigenvectors only; allowed: the "
            f"method device.{spec.op}, which copies A to the host, and waits",
            rule="solver.left_eigenvectors",
        )
    if 0 in spec.attributes.batch:
        return Built("noop")
    if spec.attributes.route == "kernel" and all(0 not in operand.shape for operand in spec.operands):
        return build_small(spec, context)
    return _Builder(spec, context).build()


class DecompositionSteps(Steps):
    """The parts of a decomposition's sequence."""

    how: DecompositionAttributes | EigenRangeAttributes

    def __init__(self, spec: PlanSpec[Any], context: CudaContext) -> None:
        super().__init__(spec, context)
        self.routine = spec.op.removeprefix("solver.")
        self.itemsize = as_dtype(self.how.dtype).itemsize
        self.is_complex = self.how.dtype.startswith("complex")
        self.real_size = self.itemsize // 2 if self.is_complex else self.itemsize

    # Copies before and after the library's work.

    def _take_in(self, to: Matrix, a: Matrix, *modes: str) -> None:
        """Copy A to where it is decomposed, and look for what is not finite."""
        self.new_notes()
        self.move(to, a, *modes, "note", "infinite", "only_note")
        self.move(to, a, *modes, "blank")

    def _place(self, name: str, *, turned: bool = False) -> Matrix:
        """Return where the library makes an output: there, or in the scratch array for it."""
        found = self.matrix(f"{name}_work" if f"{name}_work" in self.at else name)
        return found.turned() if turned and f"{name}_work" not in self.at else found

    def _finish(self, name: str, place: Matrix, *, turned: bool = False) -> None:
        """Copy an output from where it was made, with NaN in matrices that failed or were not finite."""
        guards = (*(("guard",) if self.info else ()), *(("noted",) if self.notes else ()))
        if f"{name}_work" in self.at:
            self.move(self.matrix(name), place.turned() if turned else place, *guards)
        elif guards:
            self.move(place, place, *guards, "only_bad")

    def _values(self, name: str, found: Source, n: int, *, jump: int = 0) -> None:
        """Copy n real values of each matrix to an output; from those of one to the next are `jump`, or n."""
        out = self.spec.operands[self.at[name]]
        self.launch(
            "reals",
            (self.operand(name), found, self.info or found, self.notes or found),
            (n, self.count, *self.extents, out.strides[-1] // self.real_size, *self.leads[name], jump or n, 16 + 128),
            n * self.count,
        )

    def _vectors(self, source: Source, n: int) -> Matrix:
        """Return vectors without gaps as matrices of one column."""
        lead = (self.extents[0] * self.extents[1] * n, self.extents[1] * n, n)
        return Matrix(source, n, 1, 1, 0, lead, n * self.itemsize, self.itemsize)

    # The library's calls.

    def _step(self, matrix: Matrix) -> int:
        """Return the bytes to the next matrix; of a single one those that a call for batches takes."""
        return matrix.jump if self.count > 1 else matrix.ld * max(matrix.columns, 1) * matrix.itemsize

    def _new_vectors(self, rows: int, columns: int) -> Matrix:
        """Return room for vectors in the workspace."""
        each = rows * columns
        lead = (self.extents[0] * self.extents[1] * each, self.extents[1] * each, each)
        source = self.take(self.itemsize * self.count * each)
        return Matrix(source, rows, columns, 1, rows, lead, each * self.itemsize, self.itemsize)

    def _call(
        self,
        routine: str,
        a: Matrix,
        values: Source,
        n_values: int,
        b: Matrix | None = None,
        c: Matrix | None = None,
        *,
        found: Source | None = None,
        size: tuple[int, int],
        k: int = 0,
        **options: int,
    ) -> None:
        """Add a call: operands A, values, info, and where they are needed B and C, then the library's memory.

        `found`: where it says how many values there are.
        """
        operands = [a.source, values, self.new_info()]
        where = {}
        if found is not None:
            where["found"] = len(operands)
            operands.append(found)
        for name, matrix in (("b", b), ("c", c)):
            if matrix is not None:
                where[name] = len(operands)
                operands.append(matrix.source)
        size_of_value = self.real_size if routine in _REAL else self.itemsize
        if routine == "GEEV":  # complex ones
            size_of_value = 2 * self.real_size
        call = DecompositionCall(
            routine=CONSTANTS[f"ATOMR_DECOMPOSE_{routine}"],
            type=CONSTANTS[f"ATOMR_SOLVER_{_TYPES[self.how.dtype]}"],
            m=size[0],
            n=size[1],
            k=k,
            a=0,
            values=1,
            info=2,
            **where,
            scratch=len(operands),
            step=(a.ld, b.ld if b else max(size), c.ld if c else max(size)),
            batch=self.count,
            jump=(
                self._step(a), n_values * size_of_value, self._step(b) if b else 0, self._step(c) if c else 0,
            ),
            group=self.count if routine in _TOGETHER else 1,
            n_operands=len(operands) + 1,
            **options,
        )  # fmt: skip
        native = Decomposition(self.context.backend, call)
        if routine == "SYEV_BATCHED":
            call, native = self._grouped(call, native)
            routine = routine if call.group > 1 else "SYEVD"
        if call.group > 1:
            calls = -(-self.count // call.group)
            name = "syevBatched" if routine == "SYEV_BATCHED" else "gesvdaStridedBatched"
            self.note(f"{self.count} matrices in {calls} call{'s' if calls > 1 else ''} of {name}")
        elif self.count > 1:
            self.note(f"{self.count} calls of {routine.lower()}, one after the other")
        elif getattr(self.how, "algorithm", routine) != AUTO:
            self.note(f"by {routine.lower()}")
        self.native(native, (*operands, self.take(native.scratch_bytes)))

    def _grouped(self, call: DecompositionCall, native: Decomposition) -> tuple[DecompositionCall, Decomposition]:
        """Return a call of groups as large as the workspace allows, or of single matrices."""
        room = self.room - _SPARE
        if native.scratch_bytes <= room:
            return call, native
        group = max(1, room * call.group // native.scratch_bytes)
        single = CONSTANTS["ATOMR_DECOMPOSE_SYEVD"]
        call = replace(call, group=group, routine=call.routine if group > 1 else single)
        native = Decomposition(self.context.backend, call)
        if native.scratch_bytes > room and group > 1:  # it does not grow evenly
            call = replace(call, group=1, routine=single)
            native = Decomposition(self.context.backend, call)
        return call, native


class _Builder(DecompositionSteps):
    """The steps of one plan."""

    how: DecompositionAttributes

    def own_axes(self, name: str) -> int:
        """Return how many axes of an operand are not those of batches."""
        return 0 if name == "info" else 1 if name in ("tau", "tau_out", "s", "w") else 2

    def build(self) -> Built:
        """Return the plan."""
        a = self.matrix("a")
        if 0 in (a.rows, a.columns) or (self.routine == "qr_multiply" and self._is_empty("out")):
            return self._without_work()
        cusolver.load(library_file("cusolver"))
        getattr(self, _STEPS.get(self.routine, f"_{self.routine}"))(a)
        self.give_info()
        self.judge("UNCONVERGED" if self.how.check and "qr" not in self.routine else "ANY")
        return self.built()

    def _is_empty(self, name: str) -> bool:
        return math.prod(self.spec.operands[self.at[name]].shape) == 0

    def _without_work(self) -> Built:
        """Return the plan for an empty A: bases are identities, and a product with no reflector is C."""
        for name in ("q", "u", "vh"):
            if name in self.at and not self._is_empty(name):
                self.move(self.matrix(name), self.matrix(name), "eye")
        if "out" in self.at and not self._is_empty("out"):
            self.move(self.matrix("out"), self.matrix("c"))
        if "info" in self.at:
            self.launch("clear", (self.new_info(),), (self.count,), self.count)
            self.give_info()
        return self.built() if self.has_steps else Built("noop")

    def _geqrf(self, a: Matrix) -> Source:
        """Factor in place; return the factors of the reflectors."""
        least = min(a.rows, a.columns)
        tau = self.take(self.itemsize * self.count * least)
        self._call("GEQRF", a, tau, least, size=(a.rows, a.columns))
        return tau

    # Routines.

    def _qr(self, a: Matrix) -> None:
        factor = self.matrix("factor")
        self._take_in(factor, a)
        tau, least = self._geqrf(factor), min(a.rows, a.columns)
        info = self.info
        r = self.matrix("r")
        self.move(r, replace(factor, rows=r.rows), "upper", "noted")
        if "q" in self.at:
            q = self._place("q")
            self.move(replace(q, columns=least), replace(factor, columns=least))
            self._call("ORGQR", q, tau, least, size=(q.rows, q.columns), k=least)
            self.info = None
            self._finish("q", q)
        self.info = info

    def _qr_factor(self, a: Matrix) -> None:
        place = self._place("packed")
        self._take_in(place, a)
        tau, least = self._geqrf(place), min(a.rows, a.columns)
        self._finish("packed", place)
        self.move(self.matrix("tau_out"), self._vectors(tau, least), "noted")

    def _qr_multiply(self, a: Matrix) -> None:
        if "factor" in self.at:
            self.move(self.matrix("factor"), a)
            a = self.matrix("factor")
        k = a.columns
        tau = self.take(self.itemsize * self.count * k)
        self.move(self._vectors(tau, k), self.matrix("tau"))
        place = self._place("out")
        self.move(place, self.matrix("c"))
        adjoint = _C if self.how.dtype.startswith("complex") else _T
        trans, size = adjoint if self.how.adjoint else _N, (place.rows, place.columns)
        self._call("ORMQR", a, tau, k, place, size=size, k=k, side=int(self.how.right), trans=trans)
        info, self.info = self.info, None
        self._finish("out", place)
        self.info = info

    def _svd(self, a: Matrix) -> None:
        turned = a.rows < a.columns
        factor, n = self.matrix("factor"), min(a.rows, a.columns)
        self._take_in(factor, a.turned() if turned else a)
        values = self.take(self.real_size * self.count * n)
        size = (factor.rows, factor.columns)
        routine = call_of(self.routine, self.how.algorithm).upper()
        left, right = ("vh", "u") if turned else ("u", "vh")
        if routine != "GESVD" and "u" in self.at:
            places = self._place(left, turned=turned), self.matrix(f"{right}_work")
            self._call(routine, factor, values, n, *places, size=size, job=1)
            self._finish(left, places[0], turned=turned)
            adjoint = places[1] if turned else places[1].turned()
            self.move(self.matrix(right), adjoint, *(("conj",) if self.is_complex else ()), "guard", "noted")
        elif routine != "GESVD":  # without vectors cuSOLVER 12.0 reads at the addresses of U and V all the same
            places = self._new_vectors(factor.rows, n), self._new_vectors(n, n)
            self._call(routine, factor, values, n, *places, size=size, job=1)
        elif "u" not in self.at:
            self._call(routine, factor, values, n, size=size, job=CONSTANTS["ATOMR_DECOMPOSE_NOTHING"])
        else:
            job = CONSTANTS[f"ATOMR_DECOMPOSE_{'ALL' if self.how.mode == 'complete' else 'REDUCED'}"]
            places = self._place(left, turned=turned), self._place(right, turned=turned)
            self._call("GESVD", factor, values, n, *places, size=size, job=job)
            self._finish(left, places[0], turned=turned)
            self._finish(right, places[1], turned=turned)
        self._values("s", values, n)

    def _eigh(self, a: Matrix) -> None:
        place = self._place("v") if "v" in self.at else self.matrix("factor")
        half = "lower" if self.how.lower else "upper"
        n = a.rows
        self._take_in(place, a, half)
        values = self.take(self.real_size * self.count * n)
        gapless = place.ld == n and place.jump == n * n * self.itemsize
        at_once = self.count > 1 and gapless and n * n * self.count <= _BATCHED_ELEMENTS
        routine = call_of(self.routine, self.how.algorithm).upper()
        if at_once and self.how.route == "batched":
            routine = "SYEV_BATCHED"
        self._call(routine, place, values, n, size=(n, n), uplo=int(not self.how.lower), job=int("v" in self.at))
        if "v" in self.at:
            self._finish("v", place)
        self._values("w", values, n)

    def _general(self, a: Matrix) -> None:
        factor, n = self.matrix("factor"), a.rows
        self._take_in(factor, a)
        values = self.take(2 * self.real_size * self.count * n)
        vectors = "v" in self.at
        place = self._place("v") if vectors else None
        self._call("GEEV", factor, values, n, place, size=(n, n), job=int(vectors))
        self.note("cuSOLVER's geev works on the host, too: this lane waits for it")
        infos = (self.info or values, self.notes or values)
        w = self.spec.operands[self.at["w"]]
        step = w.strides[-1] // (2 * self.real_size)
        self.launch(
            "pairs",
            (self.operand("w"), values, *infos),
            (n, self.count, *self.extents, step, *self.leads["w"]),
            2 * n * self.count,
        )
        if place is None:
            return
        if self.is_complex:
            self._finish("v", place)
            return
        out = self.matrix("v")
        self.launch(
            "vectors",
            (out.source, place.source, values, *infos),
            (
                n, self.count, *self.extents, out.row, out.column, *out.leads, place.ld, place.jump // self.itemsize,
            ),
            n * n * self.count,
        )  # fmt: skip
