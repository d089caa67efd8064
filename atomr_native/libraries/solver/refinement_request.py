"""The request of a refined solve that is one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..._support.checks import as_integer, check_choice, check_flag
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_output
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, read, written
from .attributes import RefinementAttributes
from .layouts import layout_in_batch, new_matrix
from .request import SolverRequest
from .spec import column_major, resolve

__all__ = ["FACTORS", "MOST_ITERATIONS", "NARROW", "RefinementRequest"]

#: The precisions of a factor, from 24 bits to 11, 8 and 11 bits with the range of float16.
FACTORS: Final = ("float32", "tf32", "bfloat16", "float16")
#: The dtypes of matrices, and those of half the precision.
NARROW: Final = {"float64": "float32", "complex128": "complex64"}
MOST_ITERATIONS: Final = 1000


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RefinementRequest(Request[Any]):
    """A solve ``A X = B`` by LU factors of less precision, refined by residuals, as one message.

    On a GPU cuSOLVER computes it, and waits for the device: so does the lane, and no other.  The method
    `Solver.solve_refined` sends it for factors of less than float32, and waits for the number of iterations.

    Parameters
    ----------
    a, b
        As of ``solve`` in `SolverRequest`: float64 or complex128.
    out, iterations_out, info
        Outputs; allocated where missing.  `iterations_out`, int32 of the batch's shape: corrections, or a negative
        number if they did not suffice, so that X is that of a factor in full precision.
    factor : str
        The precision of the factors: ``"float32"``, ``"tf32"``, ``"bfloat16"`` or ``"float16"``; of complex matrices
        that of their parts.
    iterations : int
        The largest number of corrections, 1 to 1000.
    check : bool
        As in `SolverRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Notes
    -----
    The result is ``x, iterations``, and with ``check=False`` info, too.  On a GPU one right side is refined by GMRES
    with the factors as its preconditioner, several by residuals; on the host device, where the factors are those of
    rounded matrices in float32, all by residuals.

    Examples
    --------
    >>> a, b = device.put(np.array([[4.0, 1.0], [2.0, 3.0]])), device.put(np.array([1.0, 2.0]))
    >>> x, iterations = device.solver.tell(an.RefinementRequest(a=a, b=b, factor="bfloat16"))
    >>> x.numpy().round(12)
    array([0.1, 0.6])
    """

    a: Any = None
    b: Any = None
    out: Any = None
    iterations_out: Any = None
    info: Any = None
    factor: str = "float32"
    iterations: int = 50
    check: bool = True

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("factor", self.factor, FACTORS)
        most = as_integer("iterations", self.iterations, 1, MOST_ITERATIONS)
        check_flag("check", self.check, bool | np.bool)
        solve = SolverRequest(
            routine="solve", a=self.a, b=self.b, out=self.out, info=self.info, check=self.check, route=None
        )
        problem = resolve(solve)
        if dtype_name(problem.dtype) not in NARROW:
            raise InvalidRequest(f"a has dtype {dtype_name(problem.dtype)}; a refined solve takes {', '.join(NARROW)}")
        counts = Fresh(problem.batch, DTYPES["int32"])
        self._check_counts(counts)
        operands = [read("a", self.a), read("b", self.b)]
        if self.out is None and not problem.vector:
            operands.append(new_matrix("out", problem.fresh["out"]))
        else:
            operands.append(written("out", self.out, problem.fresh["out"]))
        operands.append(written("iterations_out", self.iterations_out, counts))
        if not self.check:
            operands.append(written("info", self.info, problem.fresh["info"]))
        operands.append(new_matrix("factor", Fresh((*problem.batch, *problem.size), problem.dtype)))
        named: dict[str, Operand] = {operand.name: operand for operand in operands}
        out = layout_in_batch(named["out"], problem.batch, problem.dtype, vector=problem.vector)
        if not column_major(out):
            operands.append(new_matrix("work", Fresh(out.shape, problem.dtype)))
        names = ("out", "iterations_out", *(() if self.check else ("info",)))

        def collect(arrays: Mapping[str, Any]) -> Any:
            return tuple(arrays[name] for name in names)

        return Lowered(
            op="solver.solve_refined",
            operands=tuple(operands),
            collect=collect,
            attributes=RefinementAttributes(
                dtype=dtype_name(problem.dtype),
                batch=problem.batch,
                vector=problem.vector,
                factor=self.factor,
                iterations=most,
                check=bool(self.check),
            ),
        )

    def _check_counts(self, wanted: Fresh) -> None:
        given = self.iterations_out
        if given is None:
            return
        check_output("iterations_out", given)
        if tuple(given.shape) != wanted.shape or as_dtype(given.dtype) != wanted.dtype:
            raise InvalidRequest(
                f"iterations_out has shape {tuple(given.shape)} and dtype {dtype_name(as_dtype(given.dtype))}; "
                f"allowed: {wanted.shape} and int32"
            )
        outputs = [(name, getattr(self, name)) for name in ("out", "iterations_out", "info")]
        check_disjoint(
            [(name, array) for name, array in outputs if array is not None], [("a", self.a), ("b", self.b)],
            "; omit it for a new array",
        )  # fmt: skip
