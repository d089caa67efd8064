"""Batching, hot swap, cascade, fair share, mixture of experts."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from actions import eventually

import atomr_native as an
from atomr_native.patterns import (
    Batcher,
    Cascade,
    CascadeResult,
    FairShare,
    ForTenant,
    HotSwap,
    Mixture,
    Swap,
    WrongCount,
)
from atomr_native.testing import Deterministic, Probe


class Call(an.Actor):
    def __init__(self, function: Any) -> None:
        self.function = function

    def receive(self, message: Any) -> Any:
        return self.function(message)


# ---- batching


def test_a_batch_leaves_when_it_is_full_or_old_enough() -> None:
    batches: list[list[int]] = []

    def double(items: list[int]) -> list[int]:
        batches.append(items)
        return [2 * item for item in items]

    with Deterministic() as sim:
        ref = sim.system.spawn(Batcher, double, max_size=3, max_age=0.5)
        answers = [ref.ask(i) for i in range(4)]
        sim.run()
        assert [answer.done() for answer in answers] == [True, True, True, False]
        sim.advance(0.25)
        answers.append(ref.ask(4))  # does not make the first one younger
        sim.run()
        sim.advance(0.25)
        assert [answer.result() for answer in answers] == [0, 2, 4, 6, 8]
        assert batches == [[0, 1, 2], [3, 4]]
        sim.advance(10)
        assert len(batches) == 2


@pytest.mark.parametrize("actor", [False, True])
def test_wrong_counts_and_errors_fail_the_whole_batch_and_nothing_else(actor: bool) -> None:
    def work(items: list[Any]) -> Any:
        if "short" in items:
            return items[1:]
        if "none" in items:
            return None
        if "fail" in items:
            raise ValueError("in the batch")
        return items

    with Deterministic() as sim:
        target = sim.system.spawn(Call, work) if actor else work
        ref = sim.system.spawn(Batcher, target, max_size=2)
        for word, error in (("short", WrongCount), ("none", WrongCount), ("fail", ValueError)):
            for answer in (ref.ask(word), ref.ask(1)):
                with pytest.raises(error):
                    answer.result()
        assert an.gather(ref.ask("a"), ref.ask("b")) == ["a", "b"]
        assert ref.stats()["restarts"] == 0


@pytest.mark.parametrize("actor", [False, True])
def test_what_is_collected_is_answered_at_a_stop(actor: bool) -> None:
    with Deterministic() as sim:
        target = sim.system.spawn(Call, list) if actor else list
        ref = sim.system.spawn(Batcher, target, max_size=10, max_age=1000)
        answers = [ref.ask(i) for i in range(13)]
        ref.stop()
        assert [answer.result() for answer in answers] == list(range(13))
        sim.run()
        assert ref.stopped


@pytest.mark.parametrize("actor", [False, True])
def test_what_is_collected_is_answered_at_a_restart(actor: bool) -> None:
    class Failing(Batcher):
        def receive(self, message: Any) -> None:
            if message == "fail":
                raise KeyError(message)
            super().receive(message)

    with Deterministic() as sim:
        target = sim.system.spawn(Call, list) if actor else list
        ref = sim.system.spawn(Failing, target, max_size=10, max_age=1000)
        answers = [ref.ask(i) for i in range(3)]
        ref.tell("fail")
        assert [answer.result() for answer in answers] == list(range(3))
        assert ref.stats()["restarts"] == 1


def test_batches_over_a_device(nothing_left: None) -> None:
    with an.System(standby="off") as system:
        device = system.device("host")

        def predict(rows: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
            out: np.ndarray[Any, Any] = device.elementwise.run("x * 2", x=device.put(np.stack(rows))).numpy()
            return out

        ref = system.spawn(Batcher, predict, max_size=8, max_age=0.001)
        rows = [np.full(4, float(i)) for i in range(100)]
        answers = [ref.ask(row) for row in rows]
        for row, result in zip(rows, an.gather(*answers, timeout=60), strict=True):
            np.testing.assert_array_equal(result, 2 * row)


# ---- hot swap


class Model(an.Actor):
    def __init__(self, version: str, gate: threading.Event | None = None, broken: bool = False) -> None:
        if broken:
            raise RuntimeError("no weights")
        self.version, self.gate = version, gate

    def receive(self, message: Any) -> Any:
        if self.gate is not None:
            self.gate.wait(30)
        if isinstance(message, BaseException):
            raise message
        return self.version, message


def test_a_swap_drops_no_request(nothing_left: None) -> None:
    with an.System() as system:
        ref = system.spawn(HotSwap, Swap(Model, ("a",)))
        versions: Counter[str] = Counter()
        stop = threading.Event()
        errors: list[BaseException] = []

        def load(sender: int) -> None:
            i = 0
            while not stop.is_set() or i < 100:
                i += 1
                try:
                    version, message = ref.ask((sender, i)).result(30)
                    assert message == (sender, i)
                    versions[version] += 1
                except BaseException as error:
                    errors.append(error)
                    return

        threads = [threading.Thread(target=load, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for name in "bcd":
            assert ref.ask(Swap(Model, (name,), warm_up="warm")).result(30) > 1
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert ref.ask(1).result(10) == ("d", 1)
        assert set(versions) <= set("abcd")
        eventually(lambda: len([p for p in system.stats()["actors"] if p.startswith(ref.path + "/")]) == 1)
        assert not system.dead_letters


def test_the_old_one_finishes_what_it_has_and_stays_if_the_new_one_fails() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(HotSwap, Swap(Model, ("a",)), model_supervision=an.OneForOne(max_restarts=1, backoff=0))
        with pytest.raises(an.ActorStopped, match="no weights"):
            ref.ask(Swap(Model, ("b",), {"broken": True})).result()
        with pytest.raises(KeyError):
            ref.ask(Swap(Model, ("b",), warm_up=KeyError("cold"))).result()
        assert ref.ask(1).result() == ("a", 1)
        before, swap, after = ref.ask(2), ref.ask(Swap(Model, ("c",))), ref.ask(3)
        assert before.result() == ("a", 2)
        assert swap.result() == 4
        assert after.result()[1] == 3
        assert ref.ask(4).result() == ("c", 4)
        sim.run()
        assert len(sim.system.stats()["actors"]) == 2
        with pytest.raises(an.InvalidRequest, match="kind"):
            Swap(int)  # type: ignore[arg-type]


def test_swaps_are_one_after_the_other_and_a_model_may_restart() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(HotSwap, Swap(Model, ("a",)))
        swaps = [ref.ask(Swap(Model, (name,))) for name in "bcd"]
        assert [swap.result() for swap in swaps] == [2, 3, 4]
        with pytest.raises(KeyError):
            ref.ask(KeyError()).result()
        assert ref.ask(1).result() == ("d", 1)


def test_a_model_that_ends_fails_the_swap_actor() -> None:
    with Deterministic() as sim:
        probe = Probe(sim.system)
        strategy = an.OneForOne({an.ActorStopped: "stop"})
        ref = sim.system.spawn(
            HotSwap, Swap(Model, ("a",)), model_supervision=an.OneForOne({KeyError: "stop"}), supervision=strategy
        )
        probe.watch(ref)
        with pytest.raises(KeyError):
            ref.ask(KeyError()).result()
        assert isinstance(probe.expect_terminated(ref).error, an.ActorStopped)


# ---- cascade


def test_a_cascade_stops_at_the_first_stage_that_is_sure() -> None:
    asked: list[str] = []

    def stage(name: str, sure: float) -> Any:
        def run(x: float) -> tuple[str, float]:
            asked.append(name)
            return name, min(1.0, sure * x)

        return run

    with Deterministic() as sim:
        stages = [sim.system.spawn(Call, stage(name, sure)) for name, sure in (("s", 0.1), ("m", 0.5), ("l", 0.0))]
        ref = sim.system.spawn(Cascade, stages, threshold=[0.9, 0.8])
        assert ref.ask(9).result() == CascadeResult("s", 0.9, 0)
        assert ref.ask(2).result() == CascadeResult("m", 1.0, 1)
        assert ref.ask(1).result() == CascadeResult("l", 0.0, 2)
        assert asked == ["s", "s", "m", "s", "m", "l"]
        answers = [ref.ask(i) for i in range(1, 10)]
        ref.stop()  # what is on its way arrives
        assert [answer.result().stage for answer in answers] == [2, 1, 1, 1, 1, 1, 1, 1, 0]


def test_a_cascade_passes_errors_on() -> None:
    with Deterministic() as sim:
        bad = sim.system.spawn(Call, lambda x: 1 / x)
        ref = sim.system.spawn(Cascade, [bad], split=lambda value: (value, 1.0))
        with pytest.raises(ZeroDivisionError):
            ref.ask(0).result()
        assert ref.ask(2).result() == CascadeResult(0.5, 1.0, 0)
        with pytest.raises(an.InvalidRequest, match="a value and a confidence"):
            sim.system.spawn(Cascade, [bad]).ask(1).result()
        for stages, threshold in (([], 0.5), ([1], 0.5), ([bad, bad], [0.5, 0.5]), ([bad, bad], ["x"])):
            with pytest.raises(an.InvalidRequest):
                Cascade(stages, threshold=threshold)  # type: ignore[arg-type]


# ---- fair share


def test_shares_are_in_proportion_to_weights() -> None:
    order: list[str] = []
    with Deterministic() as sim:
        target = sim.system.spawn(Call, order.append)
        ref = sim.system.spawn(FairShare, target, {"a": 1, "b": 3}, in_flight=1)
        for _ in range(40):
            ref.tell(ForTenant("a", "a"))
        for _ in range(40):
            ref.tell(ForTenant("b", "b"))
        sim.run()
        first = Counter(order[8:48])
        assert 27 <= first["b"] <= 33
        assert Counter(order) == {"a": 40, "b": 40}


def test_idling_earns_no_credit_and_a_flood_delays_only_itself() -> None:
    order: list[str] = []
    gate: list[an.ReplyTo] = []

    class Target(an.Actor):
        def receive(self, message: str) -> None:
            order.append(message)
            gate.append(self.context.reply_later())

    with Deterministic() as sim:
        ref = sim.system.spawn(FairShare, sim.system.spawn(Target), {"a": 1, "b": 1}, in_flight=2)

        def serve(number: int) -> None:
            for _ in range(number):
                gate.pop(0).reply()
                sim.run()

        for i in range(20):
            ref.tell(ForTenant("a", f"a{i}"))
        sim.run()
        assert len(order) == 2  # in flight
        serve(6)
        ref.tell(ForTenant("b", "b0"))  # comes late, and is not made to wait behind what "a" has queued
        ref.tell(ForTenant("b", "b1"))
        sim.run()
        serve(4)
        assert {"b0", "b1"} <= set(order)
        for i in range(2, 10):
            ref.tell(ForTenant("b", f"b{i}"))  # nor may it take everything for having been idle
        sim.run()
        before = len(order)
        serve(8)
        late = order[before:]
        assert 3 <= sum(each[0] == "a" for each in late) <= 5


def test_what_a_fair_share_refuses() -> None:
    with Deterministic() as sim:
        forever = sim.system.spawn(Probe(sim.system).ref.cell.kind, Probe(sim.system))
        ref = sim.system.spawn(FairShare, forever, {"a": 1}, queue=2)
        with pytest.raises(an.InvalidRequest, match="unknown tenant 'z'; allowed: 'a'"):
            ref.ask(ForTenant("z", 1)).result()
        for tenant in (["a"], {"a": 1}):  # which no mapping can look up
            with pytest.raises(an.InvalidRequest, match=re.escape(f"unknown tenant {tenant!r}; allowed: 'a'")):
                ref.ask(ForTenant(tenant, 1)).result()  # type: ignore[arg-type]
        for cost in (0, -1.0, float("inf"), float("nan"), 10**400, "1"):
            with pytest.raises(an.InvalidRequest, match=f"cost={cost!r}; it must be a positive number"):
                ref.ask(ForTenant("a", 1, cost=cost)).result()  # type: ignore[arg-type]
        with pytest.raises(an.UnhandledMessage):
            ref.ask("x").result()
        for _ in range(3):
            ref.tell(ForTenant("a", 1))
        with pytest.raises(an.MailboxFull, match="2 requests waiting"):
            ref.ask(ForTenant("a", 1)).result()
        weights: tuple[Any, ...] = ({}, {"a": 0}, {"a": 10**400}, {"a": "1"}, ["a"], 3)
        for options in (*({"weights": each} for each in weights), {"in_flight": 0}, {"queue": 0}, {"target": 3}):
            with pytest.raises(an.InvalidRequest):
                FairShare(**{"target": ref, "weights": {"a": 1}, **options})  # type: ignore[arg-type]


def test_errors_free_their_place() -> None:
    with Deterministic() as sim:
        target = sim.system.spawn(Call, lambda x: 1 / x, supervision=an.OneForOne(lambda _: an.Directive.RESUME))
        ref = sim.system.spawn(FairShare, target, {"a": 1})
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                ref.ask(ForTenant("a", 0)).result()
        answers = [ref.ask(ForTenant("a", 2)) for _ in range(5)]
        ref.stop()
        assert [answer.result() for answer in answers] == [0.5] * 5


def test_a_place_of_before_a_restart_is_no_place_of_the_next_instance() -> None:
    running: list[an.ReplyTo] = []

    class Target(an.Actor):
        def receive(self, message: str) -> None:
            running.append(self.context.reply_later())

    class Failing(FairShare):
        def receive(self, message: Any) -> None:
            if message == "fail":
                raise KeyError(message)
            super().receive(message)

    with Deterministic() as sim:
        ref = sim.system.spawn(Failing, sim.system.spawn(Target), {"a": 1}, in_flight=1)
        before = ref.ask(ForTenant("a", "before"))
        ref.tell("fail")
        sim.run()
        for i in range(3):
            ref.tell(ForTenant("a", i))
        sim.run()
        assert len(running) == 2  # the next instance has a place of its own
        running[0].reply("done")
        assert before.result() == "done"
        sim.run()
        assert len(running) == 2
        running[1].reply()
        sim.run()
        assert len(running) == 3


# ---- mixture of experts


def test_the_best_experts_are_weighed() -> None:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((4, 3, 5))
    gate = rng.standard_normal((4, 5))
    asked: list[int] = []

    def expert(i: int) -> Any:
        def run(x: Any) -> Any:
            asked.append(i)
            return matrices[i] @ x

        return run

    with Deterministic() as sim:
        experts = [sim.system.spawn(Call, expert(i)) for i in range(4)]
        ref = sim.system.spawn(Mixture, experts, lambda x: gate @ x, top_k=2)
        for _ in range(5):
            x = rng.standard_normal(5)
            asked.clear()
            got = ref.ask(x).result()
            scores = gate @ x
            chosen = np.argsort(-scores)[:2]
            weights = np.exp(scores[chosen]) / np.exp(scores[chosen]).sum()
            expected = sum(w * (matrices[i] @ x) for w, i in zip(weights, chosen, strict=True))
            # Two products of float64 with weights that sum to one: a few units in the last place.
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
            assert sorted(asked) == sorted(chosen)


def test_a_mixture_over_a_device(nothing_left: None) -> None:
    with an.System(standby="off") as system:
        device = system.device("host")
        experts = [
            system.spawn(Call, lambda x, f=factor: device.elementwise.run("x * f", x=x, f=f)) for factor in (1.0, 3.0)
        ]

        def combine(results: list[an.GpuRef], weights: list[float]) -> an.GpuRef:
            a, b = results
            out: an.GpuRef = device.elementwise.run("a * v + b * w", a=a, b=b, v=weights[0], w=weights[1])
            return out

        ref = system.spawn(Mixture, experts, lambda x: (0.0, 0.0), combine=combine)
        assert ref.ask(device.put([1.0, 2.0])).result(60).numpy().tolist() == [2, 4]


def test_experts_and_gates_that_fail() -> None:
    with Deterministic() as sim:
        good, bad = sim.system.spawn(Call, lambda x: x), sim.system.spawn(Call, lambda x: 1 / 0)
        ref = sim.system.spawn(Mixture, [good, bad], lambda x: x, top_k=1)
        assert ref.ask(np.array([2.0, 1.0])).result().tolist() == [2.0, 1.0]
        with pytest.raises(ZeroDivisionError):
            ref.ask([1.0, 2.0]).result()
        for scores in ([1.0], [1.0, float("nan")]):
            with pytest.raises(an.InvalidRequest, match="the gate returned"):
                ref.ask(scores).result()
        with pytest.raises(ValueError, match="could not convert"):
            ref.ask("ab").result()
        both = sim.system.spawn(Mixture, [good, good], lambda x: (float("inf"), float("-inf")))
        assert both.ask(np.ones(2)).result().tolist() == [1, 1]
        for options in ({"experts": []}, {"gate": 3}, {"top_k": 0}, {"top_k": 3}):
            with pytest.raises(an.InvalidRequest):
                Mixture(**{"experts": [good, bad], "gate": len, **options})  # type: ignore[arg-type]
        assert ref.stats()["failed"] == 0
