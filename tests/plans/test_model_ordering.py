"""Ordering by data against oracles: many lanes, many sender threads, views, small mailboxes."""

from __future__ import annotations

import graphlib
import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from crowds import together
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import Placement

from atomr_native.libraries.elementwise.actor import ElementwiseActor
from atomr_native.libraries.elementwise.request import ElementwiseRequest

LANES = 6
SHAPE = (4, 6)
VIEWS: list[Any] = [
    ...,
    np.s_[1:3],
    np.s_[:, ::2],
    np.s_[2],
    np.s_[::3, 1:5],
    np.s_[:, 3:4],
]


class Bench:
    """A device with small mailboxes and several actors."""

    def __init__(self, placement: Placement) -> None:
        # Work that starts late by chance shows every order that is not enforced.
        self.system = placement.on_fake(delay_us=200).system(mailbox_size=32, standby="off", spin_us=20)
        self.device = self.system.device()
        self.actors = [ElementwiseActor(self.device, f"e{i}") for i in range(LANES)]


@pytest.fixture(scope="module")
def bench(placement: Placement, nothing_left: None) -> Iterator[Bench]:
    """Lend a Bench that the module shares."""
    made = Bench(placement)
    yield made
    made.system.close()
    del made.device, made.actors


def values(rng: random.Random) -> np.ndarray[Any, Any]:
    return np.array([rng.getrandbits(62) for _ in range(24)], np.int64).reshape(SHAPE)


class Pair:
    """Arrays on the device and what NumPy makes of the same operations, one after the other."""

    def __init__(self, bench: Bench, n: int, seed: int) -> None:
        self.bench = bench
        self.rng = random.Random(seed)
        self.mine = [values(self.rng) for _ in range(n)]
        self.theirs = [bench.device.put(a) for a in self.mine]

    def step(self, op: str, lane: int, a: int, b: int, view: int, other: int, number: int) -> None:
        a, b = a % len(self.mine), b % len(self.mine)
        key, source = VIEWS[view], VIEWS[other]
        x, y = self.mine[a][key], self.mine[b][source]
        if np.broadcast_shapes(*((x.shape, y.shape) if _fits(x, y) else ((), ()))) != x.shape or a == b:
            y, source, b = x, key, a  # itself, which may be updated in place
        fx, fy = self.theirs[a][key], self.theirs[b][source]
        device, actor = self.bench.device, self.bench.actors[lane]
        with np.errstate(all="ignore"):
            match op:
                case "mix":
                    actor.run("x * 31 + y + k", out=fx, x=fx, y=fy, k=number)
                    x[...] = x * 31 + y + number
                case "both" if a != b and x.shape == y.shape:
                    actor.run("x = x + y * k; y = x - y", x=fx, y=fy, k=number)
                    x[...] = x + y * number
                    y[...] = x - y
                case "copy" if a != b:
                    device.copy(fy, out=fx)
                    x[...] = y
                case "fill":
                    fx.fill(number)
                    x[...] = number
                case "put":
                    self.mine[a] = values(self.rng)
                    device.put(self.mine[a], out=self.theirs[a])
                case "new":
                    # Its memory goes to the next one at once, whoever still uses it.
                    self.theirs[a] = actor.run("x + k", x=self.theirs[a], k=number)
                    self.mine[a] = self.mine[a] + number
                case "look":
                    assert (fx.numpy() == x).all()

    def check(self) -> None:
        for mine, theirs in zip(self.mine, self.theirs, strict=True):
            np.testing.assert_array_equal(theirs.numpy(), mine)


def _fits(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


steps = st.tuples(
    st.sampled_from(["mix", "mix", "mix", "both", "both", "copy", "copy", "fill", "put", "new", "look"]),
    st.integers(0, LANES - 1), st.integers(0, 3), st.integers(0, 3), st.integers(0, len(VIEWS) - 1),
    st.integers(0, len(VIEWS) - 1), st.integers(-(1 << 40), 1 << 40),
)  # fmt: skip


@settings(max_examples=60)
@given(n=st.integers(1, 4), seed=st.integers(0, 1 << 30), program=st.lists(steps, min_size=1, max_size=60))
def test_one_sender(bench: Bench, n: int, seed: int, program: list[Any]) -> None:
    pair = Pair(bench, n, seed)
    for step in program:
        pair.step(*step)
    pair.check()


@pytest.mark.parametrize("seed", range(3))
def test_senders_in_turn(bench: Bench, seed: int) -> None:
    """Threads send to all lanes; the order in which they got their turn is the order of effects."""
    pair, turn = Pair(bench, 4, seed), threading.Lock()

    def send(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        for _ in range(150):
            step = (
                rng.choice(["mix", "both", "copy", "fill", "new"]), rng.randrange(LANES), rng.randrange(4),
                rng.randrange(4), rng.randrange(len(VIEWS)), rng.randrange(len(VIEWS)), rng.randrange(1 << 40),
            )  # fmt: skip
            with turn:
                pair.step(*step)

    together(send, range(5))
    pair.check()


@pytest.mark.parametrize("seed", range(3))
def test_senders_that_race(bench: Bench, seed: int) -> None:
    """Nobody knows the order beforehand; afterwards there is one that explains everything that was seen.

    Each message records what it found in the arrays that it then changes.  From this the order of the messages of
    each array follows; those orders, the program order of each thread and the order of each mailbox have no cycle.
    """
    device, threads, each = bench.device, 4, 60
    names = ("a", "b", "c")
    rng = random.Random(seed)
    start = {name: rng.getrandbits(60) for name in names}
    shared = {name: device.put(np.full(2, value, np.int64)) for name, value in start.items()}
    seen = [device.zeros((each, 3, 2), "int64") for _ in range(threads)]
    plan: list[list[tuple[int, tuple[str, ...], int]]] = [
        [(rng.randrange(LANES), tuple(rng.sample(names, rng.choice([1, 2, 2, 3]))), rng.getrandbits(40))
         for _ in range(each)] for _ in range(threads)
    ]  # fmt: skip
    tickets: dict[tuple[int, int], tuple[int, int]] = {}
    barrier = threading.Barrier(threads)

    def send(number: int) -> None:
        barrier.wait()
        for i, (lane, used, k) in enumerate(plan[number]):
            # One message: remember, then change.
            program = "; ".join([*(f"p{n} = {n}" for n in used), *(f"{n} = {n} * 31 + k" for n in used)])
            operands = {n: shared[n] for n in used} | {f"p{n}": seen[number][i, j] for j, n in enumerate(used)}
            request = ElementwiseRequest(program=program, operands={**operands, "k": k})
            reply = bench.actors[lane].ask(request)
            tickets[number, i] = (reply.lane, reply.ticket)

    together(send, range(threads))
    final = {name: int(shared[name].numpy()[0]) for name in names}
    found = [ref.numpy() for ref in seen]
    graph: dict[tuple[int, int], set[tuple[int, int]]] = {(t, i): set() for t in range(threads) for i in range(each)}
    for name in names:
        after: dict[int, tuple[int, int]] = {}
        for t in range(threads):
            for i, (_, used, _) in enumerate(plan[t]):
                if name in used:
                    pair = found[t][i, used.index(name)]
                    assert pair[0] == pair[1]
                    assert int(pair[0]) not in after, "two messages found the same value"
                    after[int(pair[0])] = (t, i)
        value, previous = start[name], None
        while value in after:
            t, i = after.pop(value)
            if previous is not None:
                graph[t, i].add(previous)
            previous = (t, i)
            value = _wrap(value * 31 + plan[t][i][2])
        assert not after, "messages that no order explains"
        assert value == final[name]
    for t in range(threads):
        for i in range(1, each):
            graph[t, i].add((t, i - 1))
    by_lane = sorted(graph, key=lambda message: tickets[message])
    for first, second in itertools.pairwise(by_lane):
        if tickets[first][0] == tickets[second][0]:
            graph[second].add(first)
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == threads * each


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
