"""Nodes that end: supervision, answers, watches, addresses; calls that are lost, late or repeated."""

from __future__ import annotations

import functools
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from actions import eventually
from cluster_actors import Gate, Log, Watcher
from interrupts import Interrupter

import atomr_native as an
from atomr_native.ray import Cluster
from atomr_native.ray.host import Host
from atomr_native.ray.in_process import InProcess

Make = Callable[..., tuple[Cluster, InProcess]]


def ask_until_answered(ref: an.ActorRef, message: Any) -> Any:
    while True:
        try:
            return ref.ask(message).result(30)
        except an.NodeLost as found:
            error = found
        assert error.node == "node1"
        assert error.may_have_run


def test_a_restarted_node_has_the_same_addresses(clusters: Make) -> None:
    cluster, carrier = clusters()
    top = cluster.spawn(Log, "argument", node=1, name="log")
    child = top.ask(("spawn", "child")).result(30)
    other = cluster.spawn(Log, node=0)
    assert top.ask("before").result(30) == 1
    carrier.kill("node1")
    assert ask_until_answered(top, "after") == 1  # a new instance
    assert top.ask("arguments").result(30) == ("argument",)
    assert cluster.find("/node1/log") == top
    with pytest.raises(an.NodeLost):
        child.ask("x").result(30)
    assert child.stopped
    assert not top.stopped
    assert top.ask(("spawn", "child")).result(30) != child
    assert other.ask(("forward", top, "arguments")).result(30) == ("argument",)
    assert carrier.directory("nodes")["node1"][1] == 2
    assert carrier.directory("nodes")["node0"][1] == 1


def test_what_was_on_its_way_may_have_run_and_the_rest_has_not(clusters: Make) -> None:
    cluster, carrier = clusters()
    Gate.opened.clear()
    Gate.entered.clear()
    ref = cluster.spawn(Gate, node=1, mailbox=an.Mailbox(4))
    answers = [ref.ask(number) for number in range(8)]
    assert Gate.entered.wait(30)
    carrier.kill("node1")
    Gate.opened.set()
    with pytest.raises(an.NodeLost, match="node1 was lost while it had this message, which may have run or not"):
        answers[0].result(30)
    for answer in answers:
        try:
            assert answer.result(30)[0] != 0  # of the next life, which has not got the first message
        except an.NodeLost as found:
            error = found
        else:
            continue
        assert error.may_have_run


class LastWords(an.Actor):
    """Asks an actor of another node, and once more when its own node has died; only in one process."""

    dead = threading.Event()
    answered = threading.Event()
    answers: ClassVar[list[Any]] = []

    def receive(self, other: an.ActorRef) -> None:
        self.answers.append(other.ask("before").result(30))
        self.answered.set()
        assert self.dead.wait(30)
        try:
            self.answers.append(other.ask("after").result(30))
        except an.NodeLost as error:
            self.answers.append(type(error))
        self.answered.set()


def test_a_dead_node_sends_nothing_more(clusters: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its System is closed after its death, as far as others see it, and actors may notice that."""
    cluster, carrier = clusters()
    log = cluster.spawn(Log, node=0)
    for event in (LastWords.dead, LastWords.answered):
        event.clear()
    LastWords.answers.clear()
    cluster.spawn(LastWords, node=1).tell(log)
    assert LastWords.answered.wait(30)
    abort = Host.abort

    def abort_late(host: Host) -> None:
        LastWords.answered.clear()
        LastWords.dead.set()
        assert LastWords.answered.wait(30)
        abort(host)

    monkeypatch.setattr(Host, "abort", abort_late)
    carrier.kill("node1")
    assert LastWords.answers == [1, an.NodeLost]
    assert log.ask("seen").result(30) == ["before"]


def test_a_batch_that_comes_after_the_link_has_ended_is_not_run_again(clusters: Make) -> None:
    cluster, carrier = clusters()
    log = cluster.spawn(Log, node=1)
    (host,) = [each.host for each in carrier._nodes if each.place.node == "node1"]
    assert host is not None
    batch = ("link", 1, 0, [(log.cell.key, pickle.dumps("message"), None, 0)], [])
    assert host.deliver(*batch) == ([], [])
    assert host.deliver(*batch) == ([], [])
    host.bye("link")
    assert host.deliver(*batch) is None
    assert host.collect("link", 0, 30.0) is None
    assert host.control("link", 2, pickle.dumps(("find", ("/x",))), None) is None
    assert log.ask("seen").result(30) == ["message"]


def test_a_process_that_was_not_heard_for_long_begins_anew(clusters: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its node had been lost: what was on its way may have run, arrays are gone, and actors are there."""
    cluster, carrier = clusters()
    ref = cluster.spawn(Gate, node=1)
    array = cluster.device("node1/host").put([1.0])
    Gate.opened.clear()
    Gate.entered.clear()
    answer = ref.ask("before")
    assert Gate.entered.wait(30)
    (host,) = [each.host for each in carrier._nodes if each.place.node == "node1"]
    assert host is not None
    monkeypatch.setattr("atomr_native.ray.host._SILENCE", -1.0)
    host.session("of another process")
    monkeypatch.undo()
    with pytest.raises(an.NodeLost, match="node1 did not hear this process for long, and forgot it while") as found:
        answer.result(30)
    assert found.value.may_have_run
    Gate.opened.set()
    assert ref.ask("after").result(30) == ["before", "after"]  # the same instance
    with pytest.raises(an.GpuRefStale):
        array.numpy()
    assert cluster.device("node1/host").put([2.0]).numpy().tolist() == [2.0]


def test_a_spent_budget_loses_the_node_and_only_it(clusters: Make) -> None:
    cluster, carrier = clusters(supervision=an.OneForOne(max_restarts=1, within=1000, backoff=0.001))
    ref, other = cluster.spawn(Log, node=1), cluster.spawn(Log, node=0)
    watcher = cluster.spawn(Watcher, ref, node=0)
    assert watcher.started.result(30) is None
    assert ref.ask("x").result(30) == 1
    carrier.kill("node1")
    assert ask_until_answered(ref, "x") == 1
    carrier.kill("node1")
    assert ref.join(30)
    terminated = watcher.ask("found").result(30)
    assert terminated.ref == ref
    assert isinstance(terminated.error, an.NodeLost)
    with pytest.raises(an.NodeLost) as error:
        ref.ask("x").result(30)
    assert not error.value.may_have_run
    with pytest.raises(an.NodeLost):
        cluster.spawn(Log, node=1)
    assert other.ask("x").result(30) == 1
    assert cluster.stats()["node1"] is None


def test_supervision_that_stops_and_one_for_all(clusters: Make) -> None:
    stops, carrier = clusters(supervision=an.OneForOne({an.NodeLost: "stop"}))
    ref = stops.spawn(Log, node=1)
    carrier.kill("node1")
    assert ref.join(30)
    together, carrier = clusters(supervision=an.AllForOne())
    first, second = together.spawn(Log, node=0), together.spawn(Log, node=1)
    assert first.ask("x").result(30) == second.ask("x").result(30) == 1
    carrier.kill("node1")
    assert ask_until_answered(second, "x") == 1
    for _ in range(1000):
        try:
            if first.ask("x").result(30) == 1:
                break
        except an.NodeLost:
            break
    else:
        pytest.fail("node0 was not restarted")


class Slow(an.Actor):
    """Waits with its messages until it is let go."""

    go = threading.Event()
    seen: ClassVar[list[Any]] = []

    def receive(self, message: Any) -> None:
        assert type(self).go.wait(30)
        type(self).seen.append(message)


class Starts(an.Actor):
    """Starts an actor on another node, and tells it messages."""

    def receive(self, count: int) -> None:
        slow = Cluster.join().spawn(Slow, node=1)
        for number in range(count):
            slow.tell(number)


def test_close_lets_actors_finish_on_nodes_that_the_program_has_not_called(clusters: Make) -> None:
    Slow.seen.clear()
    Slow.go.clear()
    cluster, carrier = clusters()
    cluster.spawn(Starts, node=0).ask(5).result(30)
    (host,) = [each.host for each in carrier._nodes if each.place.node == "node1" and each.host is not None]
    eventually(lambda: [cell.depth for cell in host._top.values()] == [4])
    timer = threading.Timer(0.1, Slow.go.set)
    timer.start()
    cluster.close(30.0)
    timer.join()
    assert Slow.seen == list(range(5))


def test_an_interrupted_close_ends_all_nodes(clusters: Make) -> None:
    Slow.seen.clear()
    Slow.go.clear()
    cluster, carrier = clusters()
    cluster.spawn(Slow, node=1).tell("last")
    with Interrupter(random.Random(1)) as interrupter:
        assert interrupter.call(functools.partial(cluster.close, 30.0), 0.3)
        Slow.go.set()
        cluster.close()  # it waits for the first
    assert (Slow.seen, carrier._nodes) == (["last"], [])


def test_a_watch_across_nodes(clusters: Make) -> None:
    cluster, carrier = clusters()
    top = cluster.spawn(Log, node=1)
    child = top.ask(("spawn", "child")).result(30)
    watchers = [cluster.spawn(Watcher, ref, node=0) for ref in (top, child)]
    assert [each.started.result(30) for each in watchers] == [None, None]
    carrier.kill("node1")
    terminated = watchers[1].ask("found").result(30)  # it does not come back
    assert terminated.ref == child
    assert isinstance(terminated.error, an.NodeLost)
    assert ask_until_answered(top, "x") == 1
    top.stop()
    assert watchers[0].ask("found").result(30) == an.Terminated(top, None)
    late = cluster.spawn(Watcher, top, node=0)
    assert late.ask("found").result(30).ref == top


def test_a_node_that_cannot_start(clusters: Make) -> None:
    with pytest.raises(an.InvalidRequest, match="isolation="):
        clusters(options={"isolation": "none"})


class Fails(InProcess):
    def start(self, place: Any) -> Any:
        raise an.Unsupported("no such driver", rule="test")


def test_the_error_of_a_node_that_does_not_start_is_raised() -> None:
    with pytest.raises(an.Unsupported, match="no such driver"):
        Cluster(carrier=Fails(), supervision=an.OneForOne(max_restarts=1, backoff=0.001))


def test_an_actor_that_stopped_is_not_spawned_again(clusters: Make) -> None:
    cluster, carrier = clusters()
    gone, stays = cluster.spawn(Log, node=1, name="gone"), cluster.spawn(Log, node=1, name="stays")
    gone.stop()
    assert gone.join(30)
    while len(carrier.directory("records", "node1")) != 1:
        assert stays.ask("x").result(30)
    carrier.kill("node1")
    assert ask_until_answered(stays, "x") == 1
    assert cluster.find("/node1/gone") is None


@pytest.mark.parametrize("seed", range(3))
def test_lost_late_and_repeated_calls(clusters: Make, seed: int) -> None:
    """Each message is run once, in order, and each ask has its own answer."""
    cluster, carrier = clusters(faults={"lost": 0.2, "late": 0.2, "repeated": 0.3, "seed": seed})
    refs = [cluster.spawn(Log, node=node) for node in (0, 1)]
    sent: list[list[Any]] = [[], []]
    answers = []
    draw = random.Random(seed)
    for number in range(300):
        which = draw.randrange(2)
        sent[which].append(number)
        if draw.random() < 0.5:
            refs[which].tell(number)
        else:
            answers.append((refs[which].ask(number), len(sent[which])))
        if answers and draw.random() < 0.05:
            assert answers[-1][0].result(30) == answers[-1][1]
    for ref, numbers in zip(refs, sent, strict=True):
        assert ref.ask("seen").result(30) == numbers
    assert [answer.result(30) for answer, _ in answers] == [position for _, position in answers]
    assert carrier.deepest <= 3 * 4  # three calls of a link at most, and four links


def test_a_report_that_comes_again_counts_once(clusters: Make) -> None:
    cluster, _ = clusters(faults={"lost": 0.4, "late": 0.4})
    ref = cluster.spawn(Log, node=1)
    ref.stop()
    assert ref.join(30)
    again = cluster.spawn(Log, node=1)
    for _ in range(50):
        again.tell(Refuses())
        again.ask("x").result(30)
    assert again.ask("seen").result(30) == ["x"] * 50
    assert cluster.dead_letters.total == 50


class Refuses:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise an.InvalidRequest("not here")


@pytest.mark.parametrize("seed", range(2))
def test_nodes_killed_at_random(clusters: Make, seed: int) -> None:
    """Whatever ends when: one answer for each ask, nothing run twice, and restarted nodes serve."""
    cluster, carrier = clusters(
        nodes=3, faults={"lost": 0.1, "late": 0.1, "repeated": 0.1, "seed": seed},
        supervision=an.OneForOne(max_restarts=None, backoff=0.001, max_backoff=0.002),
    )  # fmt: skip
    run: dict[Any, int] = {}
    lock = threading.Lock()
    Counts.counts = (run, lock)
    refs = [cluster.spawn(Counts, node=node) for node in range(3)]
    draw = random.Random(seed)
    answers: list[tuple[int, an.Answer]] = []
    resolved: dict[int, int] = {}
    for number in range(400):
        answer = refs[draw.randrange(3)].ask(number)
        answers.append((number, answer))
        answer.add_done_callback(lambda _, number=number: resolved.update({number: resolved.get(number, 0) + 1}))
        if draw.random() < 0.02:
            carrier.kill(f"node{draw.randrange(3)}")
            answer.exception() if draw.random() < 0.5 and answer.wait(30) else None
    for number, answer in answers:
        assert answer.wait(60)
        error = answer.exception()
        if error is None:
            assert answer.result(0) == number
            assert run[number] == 1
        else:
            assert isinstance(error, an.NodeLost)
            assert run.get(number, 0) <= (1 if error.may_have_run else 0)
    assert set(resolved.values()) == {1}
    for ref in refs:
        while True:
            try:
                assert ref.ask("alive").result(30) == "alive"
                break
            except an.NodeLost:
                continue


class Counts(an.Actor):
    counts: tuple[dict[Any, int], threading.Lock]

    def receive(self, message: Any) -> Any:
        run, lock = type(self).counts
        with lock:
            run[message] = run.get(message, 0) + 1
        return message


@pytest.mark.parametrize("call", ["deliver", "collect"])
def test_what_a_node_fails_to_do_does_not_stop_the_rest_and_is_done_later(
    clusters: Make, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    cluster, _ = clusters()
    ref = cluster.spawn(Log, node=1)
    assert ref.ask("x").result(30) == 1
    host = cluster._peer.link("node1").life.handle.host
    array = host.system.device("host").put([1.0])
    ident = host.arrays.add(array, "other")
    begun: list[str] = []
    failures = [RuntimeError("can't start new thread")] * 2
    start = threading.Thread.start

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "atomr_native-watch":
            if failures:
                raise failures.pop()
            begun.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    posts = [("watch_device", "host"), ("stop", ref.cell.key, False), ("release", ident)]
    refused, _ = host.deliver("other", 1, 0, [], posts)
    assert (refused, begun) == ([], [])
    assert ref.join(30)
    with pytest.raises(an.GpuRefStale):
        host.arrays.find(ident)
    for _ in range(3):
        if call == "deliver":
            host.deliver("other", 1, 0, [], posts)  # the same one, which has come before
        else:
            host.collect("other", 0, 0.0)
    assert len(begun) == 1
    assert not failures
    host.bye("other")
