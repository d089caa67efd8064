"""The harness: interleaved rounds and their statistics, twins in C, peers in Python, bars, results and their tables.

It knows no case: cases and libraries import it, and `bench.harness.discovery` finds them by their folders.
"""

from bench.harness.bars import Bar, Verdict, judge
from bench.harness.harness import (
    Case,
    CaseResult,
    Effort,
    Interval,
    Kind,
    Sample,
    Series,
    Setup,
    list_contenders,
    median,
    median_interval,
    ratio_interval,
    run_case,
)
from bench.harness.unavailable import Unavailable, describe

__all__ = [
    "Bar",
    "Case",
    "CaseResult",
    "Effort",
    "Interval",
    "Kind",
    "Sample",
    "Series",
    "Setup",
    "Unavailable",
    "Verdict",
    "describe",
    "judge",
    "list_contenders",
    "median",
    "median_interval",
    "ratio_interval",
    "run_case",
]
