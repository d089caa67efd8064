"""Messages of the solver, for the test that records every operation."""

from __future__ import annotations

import pytest
from recorded_cases import Case, case

import atomr_native as an


def _symmetric(a: an.GpuRef) -> an.GpuRef:
    return a + a.T


CASES: dict[str, Case] = {
    "solve": case(lambda d, _, wide, column: d.solver.solve(wide, column), "wide column"),
    "solve, indefinite": case(
        lambda d, _, wide, column: d.solver.solve(_symmetric(wide), column, assume="symmetric"), "wide column"
    ),
    "refined solve": case(
        lambda d, _, wide, column: d.solver.tell(an.RefinementRequest(a=wide, b=column, factor="tf32")), "wide column"
    ),
    "qr": case(lambda d, _, wide: d.solver.qr(wide), "wide"),
    "qr, factors": case(lambda d, _, a, b: d.solver.qr_multiply(*d.solver.qr_factor(a), b), "wide wide"),
    "svd": case(lambda d, _, wide: (d.solver.svd(wide), d.solver.svdvals(wide)), "wide"),
    "eigh": case(
        lambda d, _, wide: (d.solver.eigh(_symmetric(wide)), d.solver.eigvalsh(_symmetric(wide))), "wide"
    ),
    "eigh, ranges": case(
        lambda d, _, wide: d.solver.tell(an.EigenRangeRequest(a=_symmetric(wide), subset_by_index=(0, 1))), "wide"
    ),
    "eig": case(lambda d, _, wide: (d.solver.eig(wide), d.solver.eigvals(wide)), "wide"),
}  # fmt: skip
#: Of small matrices the call computes on the host, and waits.
MARKS = {"eig": pytest.mark.host_only}
