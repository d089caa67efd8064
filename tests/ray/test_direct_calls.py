"""Calls by connections between the processes, instead of the engine: the same promises, also when connections break."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from actions import eventually
from cluster_actors import Log

import atomr_native as an
from atomr_native.ray import Cluster
from atomr_native.ray.host import Host
from atomr_native.ray.in_process import InProcess
from atomr_native.ray.moving.channel import Call, Channel, Push, Result
from atomr_native.ray.moving.way import Way


class Direct(InProcess):
    """Nodes in this process, which are called by connections."""

    direct = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def call(self, handle: Any, method: str, *args: Any) -> Any:
        self.calls.append(method)
        return super().call(handle, method, *args)


class Counts(an.Actor):
    """Counts how often each message is run."""

    run: dict[Any, int]
    lock = threading.Lock()

    def receive(self, message: Any) -> Any:
        with type(self).lock:
            type(self).run[message] = type(self).run.get(message, 0) + 1
        return message


@pytest.fixture
def made() -> Iterator[tuple[Cluster, Direct]]:
    carrier = Direct()
    forever = an.OneForOne(max_restarts=None, backoff=0.001, max_backoff=0.002)
    options = {"standby": "off", "timeout": 30.0}
    with Cluster(nodes=2, carrier=carrier, supervision=forever, options=options) as cluster:
        yield cluster, carrier


def test_messages_and_operations_do_not_go_through_the_engine(made: tuple[Cluster, Direct]) -> None:
    cluster, carrier = made
    ref = cluster.spawn(Log, node=1)
    for number in range(300):
        ref.tell(number)
    assert ref.ask("seen").result(30) == list(range(300))
    assert "deliver" not in carrier.calls
    assert carrier.calls.count("control") == 1  # which asks for the way
    with pytest.raises(an.OutOfMemory) as error:
        ref.ask("fail").result(30)
    assert error.value.requested == 7
    x = cluster.device("node1/host").zeros((3,))
    assert x.numpy().tolist() == [0.0] * 3


@pytest.mark.parametrize("far", [False, True])
def test_arrays_of_the_program_do_not_go_through_the_engine(
    made: tuple[Cluster, Direct], far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if far:
        monkeypatch.setattr(Way, "near", False)
    cluster, carrier = made
    device = cluster.device("node1/host")
    data = np.random.default_rng(0).standard_normal((3, 50001)).astype("float32")
    for array in (data, data[:, ::2], data[:0], np.float64(2.5), np.ones(3, ml_dtypes.bfloat16)):
        found = device.put(array)
        assert (found.shape, found.dtype) == (np.shape(array), np.asarray(array).dtype)
        assert (found.numpy() == array).all()
    assert carrier.calls.count("control") == 1  # which asks for the way


@pytest.mark.parametrize("seals", [0, 1])
def test_memory_that_could_become_smaller_is_not_read(made: tuple[Cluster, Direct], seals: int) -> None:
    cluster, _ = made
    cluster.spawn(Log, node=1).ask("x").result(30)
    link = cluster._peer.link("node1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(link.life.way.local)
        channel = Channel(connection)
        assert channel.greet(link.life.way.secret, first=True)
        fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, 10)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        with pytest.raises(OSError):  # noqa: PT012, PT011 - the end of a connection has many names
            channel.send(Push(b"", 11 if seals else 10), fd)
            channel.receive()
        os.close(fd)
    assert cluster.device("node1/host").put([1.0]).numpy().tolist() == [1.0]


def test_only_these_calls_are_served(made: tuple[Cluster, Direct]) -> None:
    cluster, _ = made
    cluster.spawn(Log, node=1).ask("x").result(30)
    link = cluster._peer.link("node1")
    with pytest.raises(an.LibraryError, match="allowed: deliver, control"):
        link.calls.make(link.life, "close", 0.0)
    assert cluster.spawn(Log, node=1).ask("x").result(30) == 1


def test_connections_that_break_and_nodes_that_end(
    made: tuple[Cluster, Direct], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls or their results are lost: each message is run at most once, and each ask has one answer."""
    cluster, carrier = made
    draw, send = random.Random(5), Channel.send

    def fragile(channel: Channel, message: Any, fd: int | None = None) -> None:
        if isinstance(message, Call | Push | Result) and draw.random() < 0.05:
            if draw.random() < 0.5:
                send(channel, message, fd)
            channel.close()
            raise ConnectionResetError("broken by the test")
        send(channel, message, fd)

    monkeypatch.setattr(Channel, "send", fragile)
    Counts.run = {}
    refs = [cluster.spawn(Counts, node=node) for node in range(2)]
    answers, resolved = [], [0] * 300
    for number in range(300):
        answer = refs[number % 2].ask(number)
        answers.append(answer)
        answer.add_done_callback(lambda _, number=number: resolved.__setitem__(number, resolved[number] + 1))
        if number % 60 == 59:
            carrier.kill(f"node{draw.randrange(2)}")
            answer.wait(30)
    for number, answer in enumerate(answers):
        assert answer.wait(60)
        error = answer.exception()
        if error is None:
            assert (answer.result(0), Counts.run[number]) == (number, 1)
        else:
            assert isinstance(error, an.NodeLost)
            assert Counts.run.get(number, 0) <= int(error.may_have_run)
    assert resolved == [1] * 300


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("messages", [0, 3])
@pytest.mark.parametrize("times", [1, 4])
def test_a_batch_that_fails_by_an_unknown_error_loses_its_messages_only(
    made: tuple[Cluster, Direct], monkeypatch: pytest.MonkeyPatch, arrives: bool, messages: int, times: int
) -> None:
    """The node does the rest once, whether the batch has come to it or not, and however often it fails."""
    cluster, _ = made
    ref, other = (cluster.spawn(Log, node=1) for _ in range(2))
    assert [each.ask("x").result(30) for each in (ref, other)] == [1, 1]
    link = cluster._peer.link("node1")
    done: list[tuple[Any, ...]] = []
    failed: list[int] = []
    operate, make = Host._operate, link.calls.make

    def noted(host: Host, session: Any, *post: Any) -> None:
        done.append(post)
        operate(host, session, *post)

    def broken(life: Any, method: str, *args: Any) -> Any:
        if method != "deliver" or len(failed) == times or not args[-1]:
            return make(life, method, *args)
        failed.append(len(args[-2]))
        if arrives:
            make(life, method, *args)
        raise RuntimeError("of the engine")

    monkeypatch.setattr(Host, "_operate", noted)
    monkeypatch.setattr(link.calls, "make", broken)
    with link.lock:  # so that one batch has all of them
        answers = [other.ask(number) for number in range(messages)]
        ref.cell.stop(drain=False)
    assert ref.join(30)
    for answer in answers:
        assert answer.wait(30)
        error = answer.exception()  # or the node has answered first
        assert (isinstance(error, an.LibraryError) and "of the engine" in str(error)) or (arrives and error is None)
    eventually(lambda: failed == [messages] + [0] * (times - 1))
    assert [post for post in done if post[0] == "stop"] == [("stop", ref.cell.key, False)]
    assert other.ask("y").result(30) == 2 + (messages if arrives else 0)


@pytest.mark.parametrize("end", ["close", "death"])
def test_a_batch_that_always_fails_ends_with_its_node_or_its_link(
    made: tuple[Cluster, Direct], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    cluster, carrier = made
    ref, other = (cluster.spawn(Log, node=1) for _ in range(2))
    assert [each.ask("x").result(30) for each in (ref, other)] == [1, 1]
    link = cluster._peer.link("node1")
    first, make, tried = link.life, link.calls.make, threading.Event()

    def broken(life: Any, method: str, *args: Any) -> Any:
        if method == "deliver" and life is first:
            tried.set()
            raise RuntimeError("of the engine")
        return make(life, method, *args)

    monkeypatch.setattr(link.calls, "make", broken)
    pump = link._threads[0]
    ref.kill()
    assert tried.wait(30)
    if end == "death":
        carrier.kill("node1")
        assert ref.join(30)  # in the node's next life
        assert other.ask("y").result(30) == 1
    else:
        cluster.close(0.1)
        pump.join(30)
        assert not pump.is_alive()


def test_a_stop_that_is_on_its_way_when_the_node_ends_reaches_its_next_life(
    made: tuple[Cluster, Direct], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, carrier = made
    ref = cluster.spawn(Log, node=1)
    assert ref.ask("x").result(30) == 1
    link = cluster._peer.link("node1")
    first, make = link.life, link.calls.make

    def broken(life: Any, method: str, *args: Any) -> Any:
        if method == "deliver" and life is first:
            carrier.kill("node1")
        return make(life, method, *args)

    monkeypatch.setattr(link.calls, "make", broken)
    ref.kill()
    assert ref.join(30)


def test_without_a_connection_the_engine_calls(made: tuple[Cluster, Direct], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(channel: Channel, secret: bytes, *, first: bool) -> bool:
        raise ConnectionRefusedError("a firewall")

    monkeypatch.setattr(Channel, "greet", refuse)
    cluster, carrier = made
    ref = cluster.spawn(Log, node=1)
    assert [ref.ask(number).result(30) for number in range(3)] == [1, 2, 3]
    assert "deliver" in carrier.calls
    assert cluster.device("node1/host").put([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]
