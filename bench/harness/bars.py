"""The bars of the design, and an honest verdict for each.  Each bar stands beside its case, in a tuple ``BARS``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Bar", "Verdict", "judge"]


@dataclass(frozen=True)
class Bar:
    """An upper limit for the median of one series, of one ratio with `under`, or of a difference with `beyond`.

    Attributes
    ----------
    work
        What is bounded; bars of the same work are one row of a short table.
    case, series, under
        Where the figure is: the series, or the ratio of `series` over `under`.
    beyond
        The series whose median is subtracted.
    limit
        The limit, in `unit`; ``"x"`` is that of ratios.
    part
        Which of several with the same work.
    """

    work: str
    case: str
    series: str
    limit: float
    unit: str
    under: str = ""
    part: str = ""
    beyond: str = ""

    @property
    def name(self) -> str:
        """What a full table calls it."""
        return f"{self.work}, {self.part}" if self.part else self.work


@dataclass(frozen=True)
class Verdict:
    """A bar beside what was measured; `sure` when the whole interval is on the verdict's side."""

    bar: Bar
    state: Literal["met", "missed", "not measured"]
    median: float | None = None
    low: float | None = None
    high: float | None = None
    sure: bool = False


def _figure(bar: Bar, case: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if bar.under:
        rows = [r for r in case["ratios"] if (r["over"], r["under"]) == (bar.series, bar.under)]
    else:
        rows = [c for c in case["contenders"] if c["name"] == bar.series]
    figure = rows[0].get("summary") if rows else None
    if not isinstance(figure, Mapping) or not bar.beyond:
        return figure if isinstance(figure, Mapping) else None
    other = next((c.get("summary") for c in case["contenders"] if c["name"] == bar.beyond), None)
    if not isinstance(other, Mapping):
        return None
    return {
        "median": figure["median"] - other["median"], "low": figure["low"] - other["high"],
        "high": figure["high"] - other["low"],
    }  # fmt: skip


def judge(cases: Sequence[Mapping[str, Any]], bars: Sequence[Bar]) -> list[Verdict]:
    """Hold bars against the cases of a result document; a bar whose case did not run is left out."""
    by_name = {case["name"]: case for case in cases}
    verdicts = []
    for bar in bars:
        if bar.case not in by_name:
            continue
        figure = _figure(bar, by_name[bar.case])
        if figure is None:
            verdicts.append(Verdict(bar, "not measured"))
            continue
        met = figure["median"] <= bar.limit
        sure = figure["high"] <= bar.limit if met else figure["low"] > bar.limit
        verdicts.append(Verdict(bar, "met" if met else "missed", figure["median"], figure["low"], figure["high"], sure))
    return verdicts
