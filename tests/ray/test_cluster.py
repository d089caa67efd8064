"""Actors on the nodes of a cluster: addresses, order, answers, mailboxes, errors."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from cluster_actors import Gate, Log

import atomr_native as an
from atomr_native.ray import Cluster
from atomr_native.ray.calls import Calls
from atomr_native.ray.in_process import InProcess
from atomr_native.testing import Probe

Make = Callable[..., tuple[Cluster, InProcess]]


def test_the_same_actor_in_a_system_and_on_a_node(cluster: Cluster) -> None:
    with an.System() as system:
        for ref in (system.spawn(Log), cluster.spawn(Log, node=1)):
            assert ref.tell("a")
            assert ref.ask("b").result(30) == 2
            assert ref.ask("seen").result(30) == ["a", "b"]
            assert ref.started.result(30) is None
            assert ref.stats()["processed"] == 3


async def awaited(ref: an.ActorRef) -> Any:
    assert await ref.tell_async("a")
    return await ref.ask("b"), await ref.ask_async("c")


def test_answers_are_awaited(cluster: Cluster) -> None:
    import asyncio

    assert asyncio.run(awaited(cluster.spawn(Log))) == (2, 3)


def test_references_are_equal_and_picklable_everywhere(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1, name="log")
    assert ref.path == "/node1/log"
    assert ref.name == "log"
    assert pickle.loads(pickle.dumps(ref)) == ref
    assert copy.deepcopy(ref) == ref
    assert cluster.find("/node1/log") == ref
    assert cluster.find("/node1/none") is None
    assert ref.ask("node").result(30) == ref  # its own address, from its own node
    assert len({ref, cluster.find("node1/log")}) == 1
    other = cluster.spawn(Log, node=1)
    assert other != ref
    child = ref.ask(("spawn", "child")).result(30)
    assert child.path == "/node1/log/child"
    assert child.ask("x").result(30) == 1


def test_actors_of_two_nodes_talk(cluster: Cluster) -> None:
    first, second = cluster.spawn(Log, node=0), cluster.spawn(Log, node=1)
    assert first.ask(("tell", second, "hello")).result(30) is True
    assert first.ask(("forward", second, "sender")).result(30) is None  # the program has no address
    third = cluster.spawn(Log, first, node=1)
    assert third.ask("arguments").result(30) == (first,)
    found = []
    for _ in range(100):
        found = second.ask("seen").result(30)
        if found:
            break
    assert found == ["hello"]
    # A message of an actor has its sender, who gets the answer.
    assert first.ask(("tell", third, "sender")).result(30) is True


def test_a_pipeline_over_nodes(cluster: Cluster) -> None:
    stages = [cluster.spawn(Log, node=0), cluster.spawn(Log, node=1)]
    assert list(an.Pipeline(stages, in_flight=3).map(["x"] * 9)) == list(range(1, 10))


def test_order_is_kept_over_batches(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1)
    for number in range(1000):
        assert ref.tell(number)
    assert ref.ask("seen").result(30) == list(range(1000))


def tell_until_full(ref: an.ActorRef) -> tuple[int, an.MailboxFull]:
    for sent in range(1000):
        try:
            ref.tell(sent)
        except an.MailboxFull as full:
            return sent, full
    pytest.fail("the mailbox has no bound")


def test_a_full_mailbox_is_bounded_on_both_sides(clusters: Make) -> None:
    """The actor's mailbox, what is on its way, and the sender's: each at most its capacity; nothing is lost."""
    cluster, _ = clusters(options={"timeout": 0.2})
    Gate.opened.clear()
    ref = cluster.spawn(Gate, node=1, mailbox=an.Mailbox(4))
    sent, full = tell_until_full(ref)
    assert full.capacity == 4
    assert 8 <= sent <= 4 + 4 + 4 + 1
    assert not ref.try_tell("more")
    Gate.opened.set()
    answer = None
    while answer is None:  # as soon as there is room
        try:
            answer = ref.ask("last").result(30)
        except an.MailboxFull:
            continue
    assert answer == [*range(sent), "last"]


def test_a_mailbox_that_rejects_and_one_that_drops(clusters: Make) -> None:
    cluster, _ = clusters()
    Gate.opened.clear()
    rejects = cluster.spawn(Gate, node=1, mailbox=an.Mailbox(2, "reject"))
    drops = cluster.spawn(Gate, node=1, mailbox=an.Mailbox(2, "drop_oldest"))
    assert tell_until_full(rejects)[0] <= 2 + 2 + 2 + 1
    for number in range(100):
        assert drops.tell(number)
    newest = drops.ask("newest")
    Gate.opened.set()
    assert newest.result(30)[-1] == "newest"
    assert len(newest.result(30)) <= 5


def test_a_full_mailbox_does_not_hold_up_other_actors(cluster: Cluster) -> None:
    Gate.opened.clear()
    gate, log = cluster.spawn(Gate, node=1, mailbox=an.Mailbox(1)), cluster.spawn(Log, node=1)
    answers = [gate.ask(number) for number in range(2)]
    assert [log.ask("x").result(30) for _ in range(20)] == list(range(1, 21))
    Gate.opened.set()
    assert answers[-1].result(30) == [0, 1]


def test_typed_errors_arrive_as_they_are(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1)
    with pytest.raises(an.OutOfMemory, match="too much") as error:
        ref.ask("fail").result(30)
    assert error.value.requested == 7


class Breaks:
    def __reduce__(self) -> Any:
        return _broken, ()


def _broken() -> None:
    raise KeyError("inside")


class Stale(Breaks):
    def __reduce__(self) -> Any:
        return _stale, ()


def _stale() -> None:
    raise an.GpuRefStale("gone", "freed")


def test_errors_of_unpickling(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1)
    with pytest.raises(an.InvalidRequest, match="cannot be unpickled on node1: KeyError: 'inside'"):
        ref.ask(Breaks()).result(30)
    with pytest.raises(an.GpuRefStale, match="gone"):
        ref.ask(Stale()).result(30)
    assert ref.ask("next").result(30) == 1


def test_a_tell_that_cannot_be_delivered_is_a_dead_letter_here(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1)
    found = threading.Event()
    cluster.dead_letters.subscribe(lambda letter: found.set())
    ref.tell(Stale())
    assert found.wait(30)
    (letter,) = cluster.dead_letters
    assert isinstance(letter.error, an.GpuRefStale)
    assert letter.actor == ref.path


@dataclass
class Step:
    config: dict[str, Any]


@pytest.mark.parametrize("send", ["tell", "ask", "try_tell"])
def test_a_message_that_cannot_be_pickled_names_the_part(cluster: Cluster, send: str) -> None:
    ref = cluster.spawn(Log, node=1)
    with pytest.raises(an.InvalidRequest, match=r"the Step cannot .*: message\.config\['lock'\]\[1\] is a lock"):
        getattr(ref, send)(Step({"fine": 1, "lock": [0, threading.Lock()]}))
    assert ref.ask("next").result(30) == 1


def test_an_actor_without_an_address_is_refused(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1)
    with an.System() as system:
        local = system.spawn(Log)
        with pytest.raises(an.InvalidRequest, match="is not one of the cluster's nodes"):
            ref.tell([local])
        with pytest.raises(an.InvalidRequest, match="is not one of the cluster's nodes"):
            ref.tell(system.device("host").put([1.0]))
        assert Probe(system).ref.cell.tree.naming is None


def test_stop_finishes_the_messages_before(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1, name="log")
    answers = [ref.ask(number) for number in range(300)]
    cluster.stop(ref)
    with pytest.raises(an.ActorStopped):
        ref.ask("late").result(30)
    assert [each.result(30) for each in answers] == list(range(1, 301))
    assert ref.join(30)
    assert ref.stopped
    assert cluster.find("/node1/log") is None
    again = cluster.spawn(Log, node=1, name="log")
    assert again != ref
    assert again.ask("x").result(30) == 1


def test_kill_drops_the_messages(cluster: Cluster) -> None:
    Gate.opened.clear()
    Gate.entered.clear()
    ref = cluster.spawn(Gate, node=1)
    answers = [ref.ask(number) for number in range(10)]
    assert Gate.entered.wait(30)
    ref.kill()
    for each in answers[1:]:
        with pytest.raises(an.ActorStopped):
            each.result(30)
    Gate.opened.set()
    assert ref.join(30)


def test_spawn_checks_its_arguments_at_once(cluster: Cluster) -> None:
    with pytest.raises(an.InvalidRequest, match="node='node7'; allowed: node0, node1"):
        cluster.spawn(Log, node=7)
    with pytest.raises(an.InvalidRequest, match="node='elsewhere'"):
        cluster.spawn(Log, node="elsewhere")
    with pytest.raises(an.InvalidRequest, match="subclass of Actor"):
        cluster.spawn(int, node=0)  # type: ignore[type-var]
    with pytest.raises(an.InvalidRequest, match=r"is a lock"):
        cluster.spawn(Log, threading.Lock(), node=0)
    cluster.spawn(Log, node=0, name="log")
    with pytest.raises(an.InvalidRequest, match="actor /log exists"):
        cluster.spawn(Log, node=0, name="log")
    for path in (7, "/", "node0"):
        with pytest.raises(an.InvalidRequest, match="path="):
            cluster.find(path)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="cannot be stopped"):
        cluster.stop("log")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nodes": 0}, "nodes=0"), ({"gpus": -1}, "gpus=-1"), ({"strategy": "WIDE"}, "strategy='WIDE'"),
        ({"cpus": "2"}, "cpus='2'"), ({"memory": 0}, "memory=0"), ({"supervision": 3}, "supervision=3"),
        ({"name": ""}, "name=''"), ({"options": 3}, "options=3"), ({"carrier": 3}, "carrier=3"),
        ({"options": {"mailbox_size": 0}}, "mailbox_size=0"), ({"options": {"mailbox_sizes": 1}}, "mailbox_sizes"),
        ({"node": 2}, "node"),
    ],
)  # fmt: skip
def test_a_cluster_checks_its_arguments_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        Cluster(**{"carrier": InProcess(), **options})


class Nests(an.Actor):
    def receive(self, message: Any) -> Any:
        if message == "join":
            with Cluster.join() as own:
                return own.name, own.spawn(Log, node=0).ask("x").result(30)
        return Cluster(carrier=InProcess())


def test_an_actor_joins_its_cluster_and_makes_none(cluster: Cluster) -> None:
    ref = cluster.spawn(Nests, node=1)
    assert ref.ask("join").result(30) == (cluster.name, 1)
    with pytest.raises(an.InvalidRequest, match="inside an actor of cluster"):
        ref.ask("make").result(30)
    assert ref.ask("join").result(30) == (cluster.name, 1)
    with pytest.raises(an.InvalidRequest, match="name=None"):
        Cluster.join()


def test_a_closed_cluster_refuses(clusters: Make) -> None:
    cluster, _ = clusters()
    ref = cluster.spawn(Log)
    answers = [ref.ask(number) for number in range(50)]
    cluster.close()
    cluster.close()
    assert [each.result(0) for each in answers] == list(range(1, 51))  # what was sent is done
    with pytest.raises(an.ActorStopped):
        cluster.spawn(Log)
    with pytest.raises((an.NodeLost, an.ActorStopped)):
        ref.ask("x").result(30)
    with pytest.raises(an.InvalidRequest, match="cannot be reached"):
        pickle.loads(pickle.dumps(ref))


def test_the_statistics_of_all_nodes(cluster: Cluster) -> None:
    ref = cluster.spawn(Log, node=1, name="log")
    ref.ask("x").result(30)
    found = cluster.stats()
    assert list(found) == ["node0", "node1"]
    assert found["node1"]["actors"]["/log"]["processed"] == 1
    assert cluster.nodes == ("node0", "node1")


def test_actors_take_turns_on_nodes(clusters: Make) -> None:
    cluster, _ = clusters(nodes=3)
    assert sorted(cluster.spawn(Log).path.split("/")[1] for _ in range(6)) == [f"node{n // 2}" for n in range(6)]


def test_messages_that_the_engine_loses_are_no_load(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = cluster.spawn(Log, node=1)
    assert ref.ask("a").result(30) == 1
    real = Calls.make

    def fails(self: Calls, life: Any, method: str, *args: Any) -> Any:
        if method == "deliver" and args[3]:
            raise RuntimeError("the engine is out of order")
        return real(self, life, method, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Calls, "make", fails)
        for _ in range(3):
            with pytest.raises(an.LibraryError, match="out of order"):
                ref.ask("lost").result(30)
    assert ref.ask("b").result(30) == 2
    assert ref.cell.load == 0
