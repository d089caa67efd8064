"""Recorded programs over ranks: every rank replays, all or none."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from communicator_kinds import made_of

import atomr_native as an


def put(comm: an.Communicator, arrays: Any) -> list[an.GpuRef]:
    return [device.put(np.asarray(array, "float32")) for device, array in zip(comm.devices, arrays, strict=True)]


def values(refs: list[an.GpuRef]) -> list[Any]:
    return [ref.numpy().tolist() for ref in refs]


def test_a_training_step_of_every_rank(comm: an.Communicator) -> None:
    n = comm.size
    rng = np.random.default_rng(3)
    weights = put(comm, [np.ones(5)] * n)
    grads = put(comm, np.zeros((n, 5)))
    with comm.record() as g:
        given = g.operand("grads", grads)
        rate = g.scalar("rate", 0.5)
        mean = comm.all_reduce(given, op="avg")
        for device, w, m in zip(comm.devices, weights, mean, strict=True):
            device.elementwise.run("w = w - rate * m", w=w, m=m, rate=rate)
        del mean, w, m, given
        every = comm.all_gather([w[:2] for w in weights])
    plan = g.plan
    assert plan.names == ("grads", "rate")
    for send in (plan.tell, plan.ask):
        with pytest.raises(an.UnknownOption) as caught:
            send(grads, ratee=1.0)
        assert (caught.value.option, caught.value.nearest) == ("ratee", "rate")
        del caught
    assert {len(steps) for steps in plan.steps} == {3}
    assert [step.operation for step in plan.steps[0]][::2] == ["collective.all_reduce", "collective.all_gather"]
    expected = np.ones(5, "float32")
    before = comm.stats()["messages"]
    for turn, rate_now in enumerate((0.5, 0.25, 2.0)):
        arrays = rng.integers(-8, 9, (n, 5)).astype("float32") * n
        if turn:
            plan.tell(put(comm, arrays), rate=rate_now)
        else:
            assert plan.ask(put(comm, arrays)).result(60) is None
        expected = expected - np.float32(rate_now) * (arrays / np.float32(n)).sum(0, dtype="float32")
    assert comm.stats()["messages"] == before + 3  # one message a rank each
    for w in weights:
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5)
    for ref in every:
        np.testing.assert_array_equal(ref.numpy().reshape(n, 2), np.stack([w.numpy()[:2] for w in weights]))


def test_every_collective_in_one_program(comm: an.Communicator) -> None:
    n = comm.size
    arrays = (np.arange(n * n, dtype="float32") + 1).reshape(n, n)
    x = put(comm, arrays)
    with comm.record() as g:
        given = g.operand("x", x)
        factor = g.scalar("factor", 2.0)
        results = [
            comm.all_reduce(given, op="max"),
            [comm.reduce(given, n - 1)],
            comm.reduce_scatter(given),
            comm.broadcast(given[1]),
            comm.all_gather(given),
            [comm.gather(given, 1)],
            comm.scatter(given[0]),
            comm.all_to_all(given),
            [comm.send(given[0], 1)],
            comm.all_reduce(given, factor=factor),
        ]
        with comm.group():
            results.append(comm.all_reduce(given))
            results.append(comm.all_reduce(given, op="min"))
        comm.barrier()
    for shift in (0.0, 1.0):
        now = arrays + np.float32(shift)
        g.plan.tell(put(comm, now), factor=3.0)
        total = now.sum(0)
        wanted = [
            [now.max(0)] * n, [total], list(total.reshape(n, 1)), [now[1]] * n, [now.ravel()] * n, [now.ravel()],
            list(now[0].reshape(n, 1)), list(now.T), [now[0]], [3 * total] * n, [total] * n, [now.min(0)] * n,
        ]  # fmt: skip
        for found, expected in zip(results, wanted, strict=True):
            for ref, array in zip(found, expected, strict=True):
                if ref.allocation.freed == 0 and not (found is results[3] and ref.device is comm.devices[1]):
                    np.testing.assert_array_equal(ref.numpy(), array)


def test_large_arrays_take_many_rounds(pair: an.Communicator) -> None:
    x = put(pair, [np.full(300_001, 1.0), np.full(300_001, 2.0)])
    with pair.record() as g:
        for _ in range(3):
            pair.all_reduce(x, out=x)
    g.plan.ask().result(60)
    assert [set(ref.numpy().tolist()) for ref in x] == [{12.0}, {12.0}]


def test_an_operand_of_one_rank(pair: an.Communicator) -> None:
    batch = pair.devices[1].put(np.zeros(3, "float32"))
    out = put(pair, np.zeros((2, 3)))
    with pair.record() as g:
        given = g.operand("batch", batch)
        pair.broadcast(given, out=out)
    g.plan.tell(batch=pair.devices[1].put(np.arange(3, dtype="float32")))
    assert values(out) == [[0.0, 1.0, 2.0]] * 2
    with pytest.raises(an.InvalidRequest, match="lives on another device"):
        g.plan.tell(batch=pair.devices[0].put(np.zeros(3, "float32")))


def test_programs_inside_of_programs(pair: an.Communicator) -> None:
    x = put(pair, [[1.0], [2.0]])
    with pair.record() as inner:
        given, factor = inner.operand("x", x), inner.scalar("factor", 1.0)
        pair.all_reduce(given, out=given, factor=factor)
    with pair.record() as outer:
        scale = outer.scalar("scale", 1.0)
        inner.plan.tell(x, factor=scale)
        inner.plan.tell(x)
    outer.plan.ask(scale=10.0).result(60)
    assert values(x) == [[60.0], [60.0]]


def test_a_rank_without_messages_of_its_own(pair: an.Communicator) -> None:
    x = pair.devices[0].put(np.ones(2, "float32"))
    with pair.record() as g:
        x.fill(g.scalar("value", 1.0))
    reply = g.plan.ask(value=5.0)
    assert reply.result(60) is None
    assert len(reply.replies) == 2
    assert x.numpy().tolist() == [5.0, 5.0]


def test_asking_from_a_coroutine(pair: an.Communicator) -> None:
    x = put(pair, [[1.0], [2.0]])
    with pair.record() as g:
        pair.all_reduce(x, out=x)

    async def run() -> None:
        plan = await g.plan
        await plan.ask()

    asyncio.run(run())
    assert values(x) == [[3.0], [3.0]]


def test_what_a_recording_of_ranks_refuses(system: an.System, pair: an.Communicator, kind: str) -> None:
    x = put(pair, [[1.0], [2.0]])
    other = made_of(system, kind, 1, 0)

    def refused(text: str, record: Any, error: type[Exception] = an.InvalidRequest) -> None:
        with pytest.raises(error, match=text), pair.record() as g:
            record(g)

    def in_branch(_: Any) -> None:
        flag = pair.devices[0].ones((), dtype="int32")
        with pair.devices[0].recording.if_(flag):
            pair.all_reduce(x)

    def waits(_: Any) -> None:
        pair.all_reduce(x)[0].wait()

    def unused(g: Any) -> None:
        g.scalar("rate", 1.0)
        pair.all_reduce(x)

    refused("another communicator", lambda _: other.all_reduce(x[::-1]), an.Unsupported)
    refused("in a branch or a loop", in_branch, an.Unsupported)
    refused("inside a recording", waits)
    refused("sent by no message", unused)
    refused("nothing was recorded", lambda _: None)
    refused("1 arrays; allowed: 2 arrays", lambda g: g.operand("x", x[:1]))
    refused("is in use", lambda g: (g.operand("x", x), g.scalar("x", 1.0)))
    refused("a recording inside a recording", lambda _: pair.record().__enter__())
    with pytest.raises(an.Unsupported, match=r"Communicator\.record"), pair.devices[0].record():
        pair.all_reduce(x)
    with pytest.raises(an.InvalidRequest, match="no reply of its own"), pair.record():
        pair.barrier().result(1)
    with pair.record() as g:
        pair.all_reduce(g.operand("x", x))
    for call, text in (
        (lambda: g.plan.tell(), "'x' is missing"),
        (lambda: g.plan.tell(x, x), "2 operands given"),
        (lambda: g.plan.tell(x, x=x), "given twice"),
        (lambda: g.plan.tell(x, rate=1.0), "'rate' is no operand"),
        (lambda: g.plan.tell(x[:1]), "1 arrays"),
        (lambda: g.plan.tell(put(pair, [[1.0, 1.0]] * 2)), "this plan takes"),
    ):
        with pytest.raises(an.InvalidRequest, match=text):
            call()
    other.close()


def test_closing_ends_its_programs(system: an.System, kind: str) -> None:
    comm = made_of(system, kind, 0, 1)
    x = put(comm, [[1.0], [2.0]])
    with comm.record() as g:
        comm.all_reduce(x, out=x)
    g.plan.tell()
    comm.close()
    assert values(x) == [[3.0], [3.0]]
    with pytest.raises(an.ActorStopped):
        g.plan.tell()
    with pytest.raises(an.ActorStopped):
        comm.record()
