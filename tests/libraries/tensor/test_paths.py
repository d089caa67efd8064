"""Paths of expressions: the cheapest order, given ones, memory limits, and what they are said to cost."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.libraries.tensor.modes import Subscripts, parse
from atomr_native.libraries.tensor.path import (
    MOST_OPTIMAL,
    Path,
    contractions,
    find_path,
    peak_elements,
    sliced_extents,
)

pytestmark = pytest.mark.plain


def cost(subscripts: Subscripts, extents: tuple[int, ...], path: Path) -> int:
    return sum(math.prod(extents[m] for m in step.modes) for step in contractions(subscripts, path.steps))


def every_order(count: int) -> list[list[tuple[int, int]]]:
    if count == 1:
        return [[]]
    return [[pair, *rest] for pair in itertools.combinations(range(count), 2) for rest in every_order(count - 1)]


@st.composite
def networks(draw: st.DrawFn, most: int = 5) -> tuple[Subscripts, tuple[int, ...]]:
    count = draw(st.integers(2, most))
    modes = [draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)) for _ in range(count)]
    every = sorted({m for term in modes for m in term})
    output = [m for m in every if draw(st.booleans())]
    found = parse([*modes, output], [len(term) for term in modes])
    return found, tuple(draw(st.sampled_from([1, 2, 3, 5])) for _ in every)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_no_order_is_cheaper_than_the_optimal_one(network: tuple[Subscripts, tuple[int, ...]]) -> None:
    subscripts, extents = network
    least = min(
        cost(subscripts, extents, find_path(subscripts, extents, order))
        for order in every_order(len(subscripts.inputs))
    )
    assert cost(subscripts, extents, find_path(subscripts, extents, "optimal")) == least


@settings(max_examples=60, deadline=None)
@given(networks(7), st.sampled_from(["auto", "greedy", "left"]))
def test_every_operand_is_used_once(network: tuple[Subscripts, tuple[int, ...]], how: str) -> None:
    subscripts, extents = network
    steps = find_path(subscripts, extents, how).steps
    count = len(subscripts.inputs)
    assert sorted(i for step in steps for i in step) == list(range(count + len(steps) - 1))


def test_chains_of_matrices() -> None:
    count = MOST_OPTIMAL + 4
    chain = parse([[i, i + 1] for i in range(count)], [2] * count)
    extents = (1, *[20] * count)
    assert cost(chain, extents, find_path(chain, extents, "left")) == 400 * (count - 1)
    assert cost(chain, extents, find_path(chain, extents)) == 400 * (count - 1)
    with pytest.raises(an.InvalidRequest, match="optimize='optimal' with 12 operands; allowed: 10 at most"):
        find_path(chain, extents, "optimal")


def test_a_path_of_numpy() -> None:
    found = parse("ij,jk,kl->il", (2, 2, 2))
    arrays = [np.ones(shape) for shape in ((2, 30), (30, 2), (2, 30))]
    given = np.einsum_path("ij,jk,kl->il", *arrays)[0]
    assert find_path(found, (2, 30, 2, 30), given).steps == ((0, 1), (2, 3))
    assert find_path(found, (2, 30, 2, 30), [(0, 1, 2)]).steps == ((0, 1), (3, 2))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("best", "optimize='best'; allowed: 'auto'"),
        ([(0, 3), (0, 1)], "3 operands are left there; allowed: different positions from 0 to 2"),
        ([(0, 0), (0, 1)], "allowed: different positions"),
        ([(0, 1)], "leaves 2 operands"),
        (7, "optimize=7"),
        (["a", "b"], "optimize="),
    ],
)
def test_refused_paths(path: object, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        find_path(parse("ij,jk,kl->il", (2, 2, 2)), (2, 2, 2, 2), path)


@settings(max_examples=60, deadline=None)
@given(networks(6), st.integers(1, 30))
def test_slices_fit_the_limit(network: tuple[Subscripts, tuple[int, ...]], limit: int) -> None:
    subscripts, extents = network
    try:
        path = find_path(subscripts, extents, "auto", limit)
    except an.Unsupported:
        return
    made = contractions(subscripts, path.steps)
    assert peak_elements(made, sliced_extents(extents, path.slices), len(subscripts.inputs)) <= limit


def ring(count: int, chords: int) -> tuple[Subscripts, tuple[int, ...]]:
    """A ring of tensors with chords, of which two bonds are open."""
    pairs = [(i, (i + 1) % count) for i in range(count)] + [(i, (7 * i + 3) % count) for i in range(chords)]
    modes: list[list[int]] = [[] for _ in range(count)]
    for bond, ends in enumerate(pairs):
        for end in ends:
            modes[end].append(bond)
    modes[0].append(len(pairs))
    modes[count // 2].append(len(pairs) + 1)
    given = [*modes, [len(pairs), len(pairs) + 1]]
    return parse(given, [len(term) for term in modes]), (3,) * (len(pairs) + 2)


def test_opt_einsum_searches_for_many_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond those of which all orders are compared, where it is installed; else a greedy search does."""
    opt_einsum = pytest.importorskip("opt_einsum")
    few, many = ring(MOST_OPTIMAL, 0), ring(30, 9)
    asked: list[int] = []
    search = opt_einsum.paths.auto

    def auto(inputs: list[frozenset[int]], *rest: object) -> object:
        asked.append(len(inputs))
        return search(inputs, *rest)

    monkeypatch.setattr(opt_einsum.paths, "auto", auto)
    find_path(*few)
    path = find_path(*many)
    assert asked == [30]
    terms = ["".join(map(opt_einsum.get_symbol, modes)) for modes in (*many[0].inputs, many[0].output)]
    text = f"{','.join(terms[:-1])}->{terms[-1]}"
    _, said = opt_einsum.contract_path(text, *[(3,) * (len(term)) for term in terms[:-1]], shapes=True, optimize="auto")
    assert cost(*many, path) <= said.opt_cost
    arrays = [np.random.default_rng(i).standard_normal((3,) * len(term)) / 3 for i, term in enumerate(terms[:-1])]
    with an.System() as system:
        device = system.device("host")
        found = device.tensor.einsum(text, *map(device.put, arrays)).numpy()
    assert np.allclose(found, opt_einsum.contract(text, *arrays))
    monkeypatch.setitem(sys.modules, "opt_einsum", None)  # as where it is not installed
    assert find_path(*many).steps == find_path(*many, "greedy").steps
    assert asked == [30, 30]


def test_a_limit_that_nothing_fits() -> None:
    with pytest.raises(an.Unsupported, match="raise memory_limit") as refused:
        find_path(parse("ij,jk,kl->il", (2, 2, 2)), (600, 600, 600, 600), "auto", 100)
    assert refused.value.rule == "tensor.memory_limit"
