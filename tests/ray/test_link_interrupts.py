"""Interrupts and nested calls of threads that call other nodes, and threads of a link that do not start."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from actions import eventually
from cluster_actors import Log
from interrupts import at_each_check

import atomr_native as an
from atomr_native.ray import Cluster, _peers
from atomr_native.ray.directory import Directory
from atomr_native.ray.link import Link
from atomr_native.ray.session import Session
from atomr_native.ray.traffic import Traffic


@pytest.mark.parametrize("part", ["/threading.py", "atomr_native/ray"])
@pytest.mark.parametrize("name", ["tell", "ask", "kill", "begun"])
def test_an_interrupted_call_leaves_the_link_usable(cluster: Cluster, part: str, name: str) -> None:
    other = cluster.spawn(Log, node=1)
    assert other.ask("x").result(30) == 1
    refs = [cluster.spawn(Log, node=1) for _ in range(100)]
    calls: dict[str, Callable[[], object]] = {
        "tell": lambda: other.tell("y"),
        "ask": lambda: other.ask("y"),
        "kill": lambda: refs.pop().kill(),
        "begun": lambda: refs.pop().cell.begun,
    }
    interrupts = 0
    for _ in at_each_check(part, calls[name]):
        interrupts += 1
        assert other.ask("z").result(30) > 1
    assert interrupts
    assert refs


def test_an_interrupted_start_of_a_link_leaves_its_two_threads(cluster: Cluster) -> None:
    links = [Link(cluster._peer, "node1") for _ in range(100)]
    interrupts = 0
    for part in ("/threading.py", "atomr_native/ray/link.py"):
        link = links.pop()
        for _ in at_each_check(part, lambda: link.post(("end_span", ("none", 1)))):  # noqa: B023 - called at once
            interrupts += 1
            link.post(("end_span", ("none", 2)))
            eventually(lambda: len(link._threads) == 2)  # noqa: B023
            eventually(lambda: not link._posts)  # noqa: B023
            assert all(thread.is_alive() for thread in link._threads)
            link.close()
            link = links.pop()
        link.close()
    assert interrupts


@pytest.mark.parametrize("which", ["send", "collect"])
def test_a_link_whose_threads_do_not_start_starts_them_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    link = Link(cluster._peer, "node1")
    start, begun = threading.Thread.start, list[str]()

    def scarce(thread: threading.Thread) -> None:
        if thread.name == f"atomr_native-{which}-node1" and which not in begun:
            begun.append(which)
            raise RuntimeError("can't start new thread")
        begun.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with pytest.raises(RuntimeError, match="can't start"):
        link.post(("end_span", ("none", 1)))
    link.post(("end_span", ("none", 2)))
    eventually(lambda: not link._posts)
    assert sorted(begun) == sorted([which, "atomr_native-collect-node1", "atomr_native-send-node1"])
    link.close()


@pytest.mark.parametrize("name", ["directory", "session", "traffic"])
def test_an_interrupted_call_keeps_no_lock_of_a_condition(name: str) -> None:
    directory, session, traffic = Directory({"node0": 0}), Session("link"), Traffic()

    def collective() -> None:
        with traffic.collective():
            pass

    def transfer() -> None:
        assert traffic.begin(30)
        traffic.end()

    call: Callable[[], object]
    other: Callable[[], object]
    call, other = {
        "directory": (lambda: directory.publish("node0", "up", 0), directory.nodes),
        "session": (lambda: session.report("ended", "a", None), lambda: session.collect(0, 30)),
        "traffic": (collective, transfer),
    }[name]
    interrupts = 0
    for _ in at_each_check("/threading.py", call):
        interrupts += 1
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert interrupts


class _Nested(an.Actor):
    """Makes calls under the locks of its node, as callbacks of the garbage collector do."""

    def receive(self, comm: Any) -> list[str]:
        host = comm._peer.host
        rank = comm._peer.rank((comm._meeting.path, 0))
        child = self.context.spawn(Log)
        span = (("none", 1), None, (), {})
        refused: list[str] = []
        for name, lock, call in (
            ("communicator", rank.lock, comm.barrier),
            ("host", host._lock, lambda: pickle.dumps(child)),
            ("spans", comm._peer.spans._lock, lambda: comm._peer.spans.open(*span)),
        ):
            with lock:
                try:
                    call()
                except an.NestedCall:
                    refused.append(name)
        comm.barrier()
        pickle.dumps(child)
        return refused


def test_callbacks_inside_of_a_lock_are_refused(cluster: Cluster) -> None:
    """They would wait for their own thread."""
    comm = cluster.communicator(["node0/host"])
    assert cluster.spawn(_Nested, node=0).ask(comm).result(30) == ["communicator", "host", "spans"]
    events = cluster._peer.events
    for lock, call in (
        (_peers._lock, lambda: Cluster.join(cluster.name)),
        (events._lock, lambda: events.post(cluster.stats)),
        (cluster._peer.caller._lock, cluster.stats),
        (cluster._closing, cluster.close),
    ):
        with lock, pytest.raises(an.NestedCall):
            call()
    assert Cluster.join(cluster.name).stats()
