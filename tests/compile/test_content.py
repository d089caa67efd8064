"""Digests of functions: what decides whether compiled code is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atomr_native.compile.content import Digest

pytestmark = [pytest.mark.plain, pytest.mark.alike]

_BASE = "def f(x, a=1, *, b=2):\n    return x.real + 1.5"
_CHANGES = [
    ("a=1", "a=2"), ("a=1", "a=1.0"), ("b=2", "b=3"), ("1.5", "2.5"), ("1.5", "0.0"), ("1.5", "-0.0"), ("1.5", "y"),
    ("real", "imag"), ("+", "-"),
]  # fmt: skip


def digest(source: str, **names: Any) -> bytes:
    """Return the digest of a function ``f``; all have one name, and one place."""
    exec(source, names)
    made = Digest(lambda _digest, _value: False, lines=False)
    made.function(names["f"])
    return made.digest()


def test_every_part_of_a_function_counts() -> None:
    sources = [_BASE, *(_BASE.replace(*change) for change in _CHANGES)]
    assert len({digest(source, y=1.5) for source in sources}) == len(sources)
    assert digest(_BASE, y=1.5) == digest(_BASE, y=2.5)  # which it does not reach
    assert digest(_BASE.replace("1.5", "y"), y=1.5) != digest(_BASE.replace("1.5", "y"), y=2.5)


def test_values_are_told_apart_by_where_they_end() -> None:
    values = [(1, 23), (12, 3), (123,), (1, (2, 3)), ((1, 2), 3), ("12", 3), (1, "23")]
    assert len({digest("def f(): return y", y=value) for value in values}) == len(values)


def test_every_part_of_an_array_counts() -> None:
    arrays = [
        np.zeros(4), np.zeros(4, np.float32), np.zeros((2, 2)), np.zeros((2, 2), order="F"), np.ones(4),
        np.zeros(4, np.int64), np.zeros(8)[::2],
    ]  # fmt: skip
    assert len({digest("def f(): return y", y=array) for array in arrays}) == len(arrays)
