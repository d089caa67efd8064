"""Collectives that are sent again: without most checks, and with the same results and refusals."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from crowds import together

import atomr_native as an
from atomr_native.communicators import communicator


@pytest.fixture(scope="module")
def system() -> Iterator[an.System]:
    with an.System(isolation="thread", standby="off", timeout=60.0) as made:
        yield made


@pytest.fixture
def comm(system: an.System) -> Iterator[an.Communicator]:
    made = system.communicator(["host", "host:1"])
    yield made
    made.close()


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the requests that were checked from the beginning."""
    found: list[str] = []
    real = communicator.lower

    def lower(request: an.CollectiveRequest, devices: Any) -> Any:
        found.append(request.kind)
        return real(request, devices)

    monkeypatch.setattr(communicator, "lower", lower)
    return found


def put(comm: an.Communicator, *arrays: object) -> list[an.GpuRef]:
    return [device.put(array) for device, array in zip(comm.devices, arrays, strict=True)]


CALLS = {
    "all_reduce": lambda c, x, out: c.all_reduce(x, out=out),
    "all_reduce, max": lambda c, x, out: c.all_reduce(x, out=out, op="max"),
    "all_reduce, in place": lambda c, x, _: c.all_reduce(x, out=x),
    "all_reduce, factor": lambda c, x, out: c.all_reduce(x, out=out, factor=3),
    "all_reduce, fresh": lambda c, x, _: c.all_reduce(x),
    "reduce": lambda c, x, out: [c.reduce(x, 1, out[1])],
    "reduce, fresh": lambda c, x, _: [c.reduce(x)],
    "broadcast": lambda c, x, out: c.broadcast(x[1], out),
    "broadcast, in place": lambda c, x, out: c.broadcast(x[1], [out[0], x[1]]),
    "broadcast, fresh": lambda c, x, _: c.broadcast(x[0]),
    "all_gather, fresh": lambda c, x, _: c.all_gather(x),
    "gather, fresh": lambda c, x, _: [c.gather(x, 1)],
    "reduce_scatter, fresh": lambda c, x, _: c.reduce_scatter(x),
    "scatter, fresh": lambda c, x, _: c.scatter(x[1]),
    "all_to_all": lambda c, x, out: c.all_to_all(x, out),
    "send": lambda c, x, out: [c.send(x[1], 0, out[0])],
    "send, fresh": lambda c, x, _: [c.send(x[0], 1)],
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_is_as_the_first(comm: an.Communicator, lowered: list[str], name: str) -> None:
    rng = np.random.default_rng(7)

    def call() -> tuple[list[np.ndarray[Any, Any]], list[an.Device]]:
        arrays = rng.integers(-9, 9, (2, 6)).astype("float32")
        x, out = put(comm, *arrays), put(comm, *np.zeros((2, 6), "float32"))
        found = CALLS[name](comm, x, out)
        values = [ref.numpy() for ref in found]
        lowered.clear()
        other = put(comm, *arrays)
        again = [ref.numpy() for ref in CALLS[name](comm, other, put(comm, *np.zeros((2, 6), "float32")))]
        assert [a.tolist() for a in values] == [a.tolist() for a in again]
        return values, [ref.device for ref in found]

    _, where = call()
    assert not lowered
    values, again = call()
    assert not lowered
    assert where == again
    assert any(value.any() for value in values)


def test_what_was_refused_is_refused_again(comm: an.Communicator) -> None:
    x, out = put(comm, [1.0, 2.0], [3.0, 4.0]), put(comm, [0.0, 0.0], [0.0, 0.0])
    plan = comm.plan(an.CollectiveRequest("all_reduce", x, out=out))
    plan.tell(x, out=out)
    comm.all_reduce(x, out=out)
    wide = put(comm, np.zeros(4), np.zeros(4))
    freed = put(comm, [1.0, 2.0], [3.0, 4.0])
    freed[1].free()
    for arrays, into, error, text in (
        (x[::-1], out, an.InvalidRequest, "allowed for rank 0: host of this System"),
        (x, wide, an.InvalidRequest, r"allowed: float64\[2\]"),
        (x[:1], out, an.InvalidRequest, "allowed: 2 arrays"),
        ([*x, x[0]], out, an.InvalidRequest, "allowed: 2 arrays"),
        (x[0], out, an.InvalidRequest, "allowed: 2 arrays"),
        ([x[0], np.zeros(2)], out, an.InvalidRequest, "must be a GpuRef, not ndarray"),
        ([wide[0][:2], x[1]], [wide[0][1:3], out[1]], an.InvalidRequest, "overlaps its x"),
        (freed, out, an.GpuRefStale, "freed"),
    ):
        for send in (plan.tell, plan.ask, comm.all_reduce):
            with pytest.raises(error, match=text):
                send(arrays, out=into)  # type: ignore[operator]
    assert [ref.numpy().tolist() for ref in plan.ask(x, out=out).result(60)] == [[4.0, 6.0]] * 2
    fresh: Any = comm.tell(an.CollectiveRequest("all_reduce", x))
    assert [ref.numpy().tolist() for ref in fresh] == [[4.0, 6.0]] * 2
    assert plan.ask(x).result(60)[0].numpy().tolist() == [4.0, 6.0]  # an output of its own
    comm.close()
    for send in (plan.tell, plan.ask, comm.all_reduce):
        with pytest.raises(an.ActorStopped):
            send(x, out=out)  # type: ignore[operator]


def test_plans_go_into_groups_as_ever(comm: an.Communicator) -> None:
    x, out = put(comm, [1.0], [2.0]), put(comm, [0.0], [0.0])
    plan = comm.plan(an.CollectiveRequest("all_reduce", x, out=out))
    before = comm.stats()["messages"]
    with comm.group():
        plan.tell(x, out=out)
        most = comm.all_reduce(x, op="max")
    assert comm.stats()["messages"] == before + 1
    assert [ref.numpy().tolist() for ref in (*out, *most)] == [[3.0], [3.0], [2.0], [2.0]]


def test_what_is_remembered_holds_no_array(comm: an.Communicator) -> None:
    used: list[weakref.ref[an.GpuRef]] = []
    for _ in range(2):
        x = put(comm, np.zeros(8), np.zeros(8))
        found = [*x, *comm.broadcast(x[0]), *comm.all_reduce(x), comm.send(x[0], 1)]
        used += [weakref.ref(ref) for ref in found]
        comm.barrier().result(60)
        del x, found
    gc.collect()
    assert [ref() for ref in used] == [None] * len(used)


TOLD = {
    "all_reduce": ("all_reduce", lambda x, out: (x, out), {}),
    "all_reduce, in place": ("all_reduce", lambda x, _: (x, x), {}),
    "all_reduce, factor": ("all_reduce", lambda x, out: (x, out), {"factor": 3}),
    "reduce": ("reduce", lambda x, out: (x, out[1]), {"root": 1}),
    "broadcast": ("broadcast", lambda x, out: (x[1], out), {}),
    "broadcast, in place": ("broadcast", lambda x, out: (x[1], [out[0], x[1]]), {}),
    "all_to_all": ("all_to_all", lambda x, out: (x, out), {}),
    "send": ("send", lambda x, out: (x[1], out[0]), {"root": 0}),
}


@pytest.mark.parametrize("name", TOLD)
def test_plans_tell_without_python(comm: an.Communicator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, of, options = TOLD[name]

    def made() -> tuple[Any, Any]:
        x, out = put(comm, *np.arange(1.0, 5).reshape(2, 2)), put(comm, *np.zeros((2, 2)))
        arrays, into = of(x, out)  # type: ignore[no-untyped-call]
        return arrays, into

    def values(into: Any) -> list[Any]:
        return [ref.numpy().tolist() for ref in (into if isinstance(into, list) else [into])]

    arrays, into = made()
    plan = comm.plan(an.CollectiveRequest(kind, arrays, out=into, **options))
    plan.ask(arrays, out=into).result(60)
    expected = values(into)
    slowly: list[object] = []
    monkeypatch.setattr(type(plan), "_tell_slowly", lambda *given: slowly.append(given))
    before = comm.stats()["messages"]
    arrays, into = made()
    plan.tell(arrays, out=into)
    assert (slowly, values(into)) == ([], expected)
    assert comm.stats()["messages"] == before + 1
    with comm.group():
        plan.tell(arrays, out=into)
    assert len(slowly) == 1
    with comm.record() as g:
        plan.tell(arrays, out=into)
        comm.barrier()
    assert len(slowly) == 2
    assert g.plan.steps[0]
    comm.close()
    plan.tell(arrays, out=into)
    assert len(slowly) == 3


def test_quick_sends_of_several_threads_and_full_mailboxes(system: an.System) -> None:
    comm = system.communicator(["host", "host:1"])
    x = put(comm, np.zeros(3), np.zeros(3))
    one = put(comm, np.ones(3), np.ones(3))
    plan = comm.plan(an.CollectiveRequest("all_reduce", x, out=x, op="max"))

    def send(_: int) -> None:
        for _ in range(1000):
            plan.tell(x, out=x)

    together(send, range(3))
    plan.tell(one, out=one)
    assert [ref.numpy().tolist() for ref in (*x, *one)] == [[0.0] * 3] * 2 + [[1.0] * 3] * 2
    assert comm.stats()["messages"] == 3001
    comm.close()


def test_factors_that_compare_equal_are_told_apart(comm: an.Communicator) -> None:
    x, out = put(comm, [1.0], [1.0]), put(comm, [0.0], [0.0])
    for factor in (0.0, -0.0, 0.0, 0, -0.0):
        comm.all_reduce(x, out=out, factor=factor)
        assert np.signbit(out[0].numpy()) == np.signbit(np.float64(factor))
