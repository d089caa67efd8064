"""Routes of batches: the choice by figures, the table in the docs, and that padding cannot win."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.solver.route_figures import FIGURES, MEASURED_ON, Point
from atomr_native.libraries.solver.routes import KNOWN_WRONG, ROUTES, fastest
from bench.libraries.solver import _write_routes as write_routes

pytestmark = pytest.mark.plain

NAMES = ("kernel", "batched", "loop")
RESULTS = write_routes.ROOT / "bench" / "results"


def route_of(routine: str, rows: int, count: int, dtype: str = "float32", **options: Any) -> str:
    a = np.broadcast_to(np.zeros((), dtype), (count, rows, rows))
    if routine.startswith("solve"):
        options["b"] = np.broadcast_to(np.zeros((), dtype), (count, rows, 1))
    kind = an.DecompositionRequest if routine in ("qr", "svd", "eigh", "svdvals") else an.SolverRequest
    return str(kind(routine=routine, a=a, **options).lowering().attributes.route)


@pytest.mark.parametrize("routine", list(FIGURES))
def test_no_batch_that_was_measured_takes_more_than_the_best_route(routine: str) -> None:
    for point in FIGURES[routine]:
        times = dict(zip(NAMES, point[2:], strict=True))
        measured = {name: time for name, time in times.items() if time}
        chosen = route_of(routine, point.rows, point.matrices)
        if len(measured) > 1:
            assert measured[chosen] <= 1.1 * min(measured.values()), point


def test_committed_figures_confirm_the_table() -> None:
    """Of the device that it was measured on: no route surely takes more than 1.1 times as long as another one."""
    device = MEASURED_ON.split(",")[0]
    confirmed = 0
    for path in RESULTS.glob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        cases = [case for case in document["cases"] if case["name"] == "gpu_solver_routes"]
        if not cases or document["machine"]["device"]["gpu"] != device:
            continue
        (low, _), (high, _) = (write_routes.points(document, end) for end in ("low", "high"))
        for routine, batches in low.items():
            for (rows, count), least in batches.items():
                most = high[routine][rows, count]
                if len(least) > 1:
                    confirmed += 1
                    chosen = route_of(routine, rows, count)
                    assert least[chosen] <= 1.1 * min(most.values()), (path.name, routine, rows, count, chosen)
    assert confirmed > 200


def test_batches_around_one_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """In rows and in the number of matrices; one matrix has figures of its own."""
    points = (
        Point(16, 1, 9, 0, 5), Point(16, 4, 1, 2, 3), Point(16, 1000, 3, 1, 0), Point(64, 4, 0, 0, 7),
        Point(64, 100, 0, 9, 8), Point(300, 8, 0, 1, 2),
    )  # fmt: skip
    monkeypatch.setitem(FIGURES, "cholesky", points)
    for rows, count, want in [
        (16, 1, "loop"), (3, 1, "loop"), (16, 2, "kernel"), (16, 330, "kernel"), (16, 340, "batched"),
        (17, 60, "kernel"), (30, 900, "batched"), (33, 10**6, "loop"), (300, 2, "batched"),
        (4000, 10**5, "batched"), (4000, 1, "loop"),
    ]:  # fmt: skip
        assert route_of("cholesky", rows, count) == want, (rows, count)
    assert route_of("cholesky", 64, 5) == "batched"  # one route was measured there: the first that it can take
    assert fastest("cholesky", 16, 4, ("loop",)) is None
    assert route_of("det", 16, 4, assume="positive_definite") == "batched"  # it has no kernel


def test_times_between_batches_are_those_of_a_line_in_matrices_and_of_a_power_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = (Point(64, 2, 0, 100, 20), Point(64, 10, 0, 100, 180), Point(256, 2, 0, 400, 320))
    monkeypatch.setitem(FIGURES, "cholesky", points)
    assert [route_of("cholesky", 64, count) for count in (5, 6, 7)] == ["loop", "batched", "batched"]
    # 128 rows: 200 against 80; from 7 matrices on the loop takes more at 64 rows, and less at 256
    assert [route_of("cholesky", rows, 2) for rows in (64, 128, 256)] == ["loop"] * 3
    assert [route_of("cholesky", rows, 10) for rows in (64, 90, 200, 256)] == ["batched", "batched", "loop", "loop"]


def test_matrices_take_only_what_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another route was faster for others."""
    monkeypatch.setitem(FIGURES, "eigh", (Point(40, 10, 5, 1, 2), Point(8, 10, 9, 1, 2)))
    assert route_of("eigh", 40, 10) == route_of("eigh", 8, 10) == "batched"
    assert ("eigh", "complex64", "batched") in KNOWN_WRONG
    assert route_of("eigh", 40, 10, "complex64") == route_of("eigh", 8, 10, "complex64") == "loop"
    assert route_of("eigh", 8, 10, route="kernel") == "kernel"


def test_without_figures_large_matrices_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FIGURES, "solve_triangular", raising=False)
    for rows, want in ((256, "batched"), (257, "loop")):
        assert route_of("inv_triangular", rows, 5) == want
    assert route_of("inv_triangular", 8, 1) == "loop"
    assert route_of("inv_triangular", 600, 5, route="batched") == "batched"
    monkeypatch.setitem(FIGURES, "solve_triangular", (Point(300, 5, 0, 1, 2),))
    assert route_of("inv_triangular", 257, 5) == "batched"


def test_an_algorithm_of_its_own_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is `gesvd` and `syevd` in the loop, which another algorithm is not."""
    points = (Point(8, 1, 1, 0, 9), Point(8, 9, 9, 0, 1))
    for routine in ("svd", "eigh"):
        monkeypatch.setitem(FIGURES, routine, points)
        assert [route_of(routine, 8, count) for count in (1, 9)] == ["kernel", "loop"]
        assert [route_of(routine, 8, count, algorithm="jacobi") for count in (1, 9)] == ["loop", "kernel"]
    assert [route_of("svdvals", 8, count, algorithm="polar") for count in (1, 9)] == ["loop", "loop"]
    monkeypatch.setitem(FIGURES, "eigh", (Point(8, 1, 1, 2, 3), Point(8, 9, 1, 3, 2)))
    assert [route_of("eigh", 8, count, algorithm="divide") for count in (1, 9)] == ["batched", "loop"]


def test_more_rows_never_took_less_time() -> None:
    """So padding cannot win: of as many matrices with more rows, by the fastest route of each.

    Fifty microseconds vary, and a fifth: rounds of `syevBatched` of 8 matrices of 384 rows took 19 to 27 ms.
    """
    for routine, points in FIGURES.items():
        best = {(p.rows, p.matrices): min(time for time in p[2:] if time) for p in points}
        for (rows, count), time in best.items():
            for (more, others), other in best.items():
                if more > rows and others == count:
                    assert time <= 1.2 * other + 50, (routine, count, rows, more)


def _document(**medians: float) -> dict[str, Any]:
    contenders = [
        {"name": name, "status": "ok" if median else "skipped", "summary": {"median": median} if median else None}
        for name, median in medians.items()
    ]
    case = {"name": "gpu_solver_routes", "contenders": contenders, "measured": {"date": "2026-11-26T02:01:22Z"}}
    return {"cases": [case], "machine": {"device": {"gpu": "A GPU"}}}


def test_figures_come_from_a_result_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = _document(
        **{
            "atomr qr, 4 of 8 x 8 by kernel, process": 12.3456, "atomr qr, 4 of 8 x 8 by loop, process": 99.0,
            "atomr qr, 8 x 8 by loop, process": 7.0, "atomr qr, 8 x 8 by kernel, process": 8.0,
            "atomr qr, 4 of 16 x 16 by kernel, process": 0.0, "atomr qr, 4 of 16 x 16 by loop, process": 3.0,
        }
    )  # fmt: skip
    text = write_routes.module(document)
    names: dict[str, Any] = {"__name__": "figures"}
    exec(compile(text, "figures", "exec"), names)
    assert names["FIGURES"] == {"qr": ((8, 1, 8.0, 0.0, 7.0), (8, 4, 12.35, 0.0, 99.0), (16, 4, 0.0, 0.0, 3.0))}
    assert "| `qr` | `loop` 8 | `kernel` 8 | |\n" in write_routes.table(text)

    page, figures, result = tmp_path / "page.md", tmp_path / "figures.py", tmp_path / "result.json"
    page.write_text(f"before\n{write_routes.BEGIN}old\n{write_routes.END}after\n")
    result.write_text(json.dumps(document))
    monkeypatch.setattr(write_routes, "PAGE", page)
    monkeypatch.setattr(write_routes, "FIGURES", figures)
    assert write_routes.main([]) == 2
    assert write_routes.main([str(result)]) == 0
    assert figures.read_text() == text
    table = write_routes.table(text)
    assert page.read_text() == f"before\n{write_routes.BEGIN}{table}{write_routes.END}after\n"


def test_the_table_in_the_docs_is_that_of_the_figures() -> None:
    text = write_routes.PAGE.read_text(encoding="utf-8")
    section = text.partition(write_routes.BEGIN)[2].partition(write_routes.END)[0]
    assert section == write_routes.table(write_routes.FIGURES.read_text(encoding="utf-8"))
    assert set(FIGURES) <= set(ROUTES)
    listed = {line.split("`")[1] for line in section.splitlines()[2:]}
    assert {"cholesky", "lu_factor", "solve", "inv", "eigh"} <= listed
