"""Modes of expressions: NumPy's notation, lists, implicit outputs, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.libraries.tensor.modes import extents_of, letters, parse, text_of

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.mark.parametrize(
    ("subscripts", "axes", "inputs", "output"),
    [
        ("ij,jk->ik", (2, 2), ((0, 1), (1, 2)), (0, 2)),
        ("ab,bc->ac", (2, 2), ((0, 1), (1, 2)), (0, 2)),
        ("ba", (2,), ((0, 1),), (1, 0)),
        ("ii", (2,), ((0, 0),), ()),
        ("i j , j k", (2, 2), ((0, 1), (1, 2)), (0, 2)),
        ("...ij,...jk", (4, 3), ((0, 1, 2, 3), (1, 3, 4)), (0, 1, 2, 4)),
        ("i...->...", (3,), ((0, 1, 2),), (1, 2)),
        ("i...->i", (2,), ((0, 1),), (0,)),
        ("->", (0,), ((),), ()),
        ([[5, 7], [7, "x"], ["x", 5]], (2, 2), ((0, 1), (1, 2)), (2, 0)),
        ([[0, ...], [..., 0]], (2, 2), ((0, 1), (1, 0)), (1,)),
    ],
)
def test_subscripts(subscripts: Any, axes: tuple[int, ...], inputs: Any, output: Any) -> None:
    found = parse(subscripts, axes)
    assert (found.inputs, found.output) == (inputs, output)


@pytest.mark.parametrize(
    ("subscripts", "axes", "text"),
    [
        ("ij->k", (2,), "mode 'k' of the output is no mode of an operand; allowed: i, j"),
        ("ij->ii", (2,), "mode 'i' is in the output 2 times"),
        ("ij", (3,), "operand 0 has 2 modes and 3 axes"),
        ("ij...", (1,), "operand 0 has 2 modes and 1 axes"),
        ("i,j", (1,), "2 terms for 1 operands"),
        ("i->i->i", (1,), "'->' twice"),
        ("i.j", (2,), r"'\.' is no mode"),
        ("......", (1,), "operand 0 has 2 ellipses"),
        ("...->......", (1,), "several ellipses"),
        ([[0]], (1, 1), "for 2 operands"),
        ([["a", 1]], (2,), "have no order"),
        (["ab", [1]], (2, 1), "modes 'ab' of operand 0"),
        ([[True, 1], [1]], (2, 1), "mode True of operand 0"),
    ],
)
def test_refusals(subscripts: Any, axes: tuple[int, ...], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        parse(subscripts, axes)


def test_extents() -> None:
    found = parse("ij,jk", (2, 2))
    assert extents_of(found, [(2, 1), (3, 4)], ["a", "b"]) == (2, 3, 4)
    with pytest.raises(an.InvalidRequest, match="mode 'j' has extent 5 in a and 3 in b"):
        extents_of(found, [(2, 5), (3, 4)], ["a", "b"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=4), st.data())
def test_numpy_reads_what_is_written(modes: list[list[int]], data: st.DataObject) -> None:
    every = sorted({m for term in modes for m in term})
    output = data.draw(st.permutations(every)).copy()[: data.draw(st.integers(0, len(every)))]
    found = parse([*modes, output], [len(term) for term in modes])
    names = letters(7)
    shapes = [tuple(2 + m for m in term) for term in modes]
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 3, shape) for shape in shapes]
    wanted = np.einsum(
        ",".join("".join(names[m] for m in t) for t in modes) + "->" + "".join(names[m] for m in output), *arrays
    )
    assert np.array_equal(np.einsum(text_of(found.inputs, found.output), *arrays), wanted)
