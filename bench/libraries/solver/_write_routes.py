"""Write the figures of `gpu_solver_routes` to where routes of batches are chosen by them, and their table in the docs.

``python -m bench.libraries.solver._write_routes RESULT.json`` takes the medians of a result of that case.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["main", "module", "points", "table"]

ROOT = Path(__file__).resolve().parents[3]
FIGURES = ROOT / "atomr_native" / "libraries" / "solver" / "route_figures.py"
PAGE = ROOT / "docs" / "libraries" / "solver.md"
#: Around the table in the docs.
BEGIN, END = "<!-- routes: begin -->\n", "<!-- routes: end -->\n"
ROUTES = ("kernel", "batched", "loop")
#: Columns of that table: the least and the largest number of matrices.
KINDS = {"one matrix": (1, 1), "2 to 15": (2, 15), "16 and more": (16, 2**63)}
_NAME = re.compile(r"atomr (\w+), (?:(\d+) of )?(\d+) x \d+ by (\w+), process")
_MODULE = """\
MEASURED_ON: Final = "{where}"
#: By routine.
FIGURES: Final[dict[str, tuple[Point, ...]]] = {{
{entries}}}
"""
#: What stands before the figures in that module, which stays.
_HEAD = FIGURES.read_text(encoding="utf-8").partition("MEASURED_ON:")[0]

Points = dict[str, dict[tuple[int, int], dict[str, float]]]


def points(document: Mapping[str, Any], end: str = "median") -> tuple[Points, str]:
    """Return microseconds by routine, rows and count, and route; and where and when they were measured.

    `end`: ``"median"``, or ``"low"`` or ``"high"`` of their interval.
    """
    (case,) = (case for case in document["cases"] if case["name"] == "gpu_solver_routes")
    found: Points = {}
    for contender in case["contenders"]:
        match = _NAME.fullmatch(contender["name"])
        if match is None or contender["status"] != "ok" or not contender["summary"]:
            continue
        routine, count, rows, route = match.groups()
        batches = found.setdefault(routine, {})
        batches.setdefault((int(rows), int(count or 1)), {})[route] = contender["summary"][end]
    return found, f"{document['machine']['device']['gpu']}, {case['measured']['date'][:10]}"


def module(document: Mapping[str, Any]) -> str:
    """Return the text of the module of figures."""
    found, where = points(document)
    entries = ""
    for routine, batches in found.items():
        entries += f'    "{routine}": (\n'
        for (rows, count), times in sorted(batches.items()):
            figures = ", ".join(f"{float(f'{times.get(route, 0):.4g}')!r}" for route in ROUTES)
            entries += f"        Point({rows}, {count}, {figures}),\n"
        entries += "    ),\n"
    return _HEAD + _MODULE.format(where=where, entries=entries)


def table(text: str) -> str:
    """Return the table of the docs, from the text of that module: the fastest routes by rows and matrices."""
    names: dict[str, Any] = {"__name__": "figures"}
    exec(compile(text, "figures", "exec"), names)
    lines = [f"| routine | {' | '.join(KINDS)} |\n", f"| --- |{' --- |' * len(KINDS)}\n"]
    for routine, batches in names["FIGURES"].items():
        cells = [
            _ranges([point for point in batches if least <= point.matrices <= most]) for least, most in KINDS.values()
        ]  # fmt: skip
        if any(cells):
            lines.append(f"| `{routine}` | {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |"))
    return "".join(lines)


def _ranges(points: list[Any]) -> str:
    """Return which route was the fastest of several for which rows; of which numbers of matrices differ, both."""
    winners: dict[int, list[str]] = {}
    for point in points:
        times = sorted((time, route) for route, time in zip(ROUTES, point[2:], strict=True) if time)
        if len(times) > 1 and times[0][1] not in winners.setdefault(point.rows, []):
            winners[point.rows].append(times[0][1])
    found: list[tuple[str, int, int]] = []
    for rows, routes in winners.items():
        name = " or ".join(f"`{route}`" for route in ROUTES if route in routes)
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], rows)
        elif name:
            found.append((name, rows, rows))
    return ", ".join(f"{name} {first}{f' to {last}' if last > first else ''}" for name, first, last in found)


def main(arguments: list[str]) -> int:
    """Write both."""
    if len(arguments) != 1:
        print("usage: python -m bench.libraries.solver._write_routes RESULT.json", file=sys.stderr)
        return 2
    text = module(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    FIGURES.write_text(text, encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table(text)}{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
