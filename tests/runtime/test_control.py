"""The client of the control plane: requests, answers, ends."""

from __future__ import annotations

import os
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from wire import open_fds, raw, receive, send

from atomr_native import errors
from atomr_native.protocol.frames import (
    Frame,
    FrameReader,
)
from atomr_native.protocol.messages import WorkerGone
from atomr_native.protocol.wire_errors import encode_error
from atomr_native.runtime.control import ControlClient

pytestmark = pytest.mark.usefixtures("no_leaks")


class Peer:
    """The worker's end, served by hand in a thread."""

    def __init__(self, **options: Any) -> None:
        ours, self.sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.setblocking(True)
        self.notifications: list[dict[str, Any]] = []
        self.client = ControlClient(ours, self.notifications.append, **options)
        self.reader = FrameReader(self.sock)

    def take(self) -> Frame:
        return receive(self.reader, self.sock)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.sock.close()
        self.reader.close()


def echo(peer: Peer, count: int, *, reverse: bool = False) -> None:
    frames = [peer.take() for _ in range(count)] if reverse else None
    for i in range(count):
        frame = frames[-1 - i] if frames is not None else peer.take()
        send(peer.sock, {"id": frame.fields["id"], "ok": True, "x": frame.fields["x"]}, tuple(frame.fds), b"")
        frame.close()


@pytest.mark.parametrize("adopted", [False, True])
def test_many_threads_ask_at_once(adopted: bool) -> None:
    with Peer() as peer, ThreadPoolExecutor(10) as pool:
        serving = pool.submit(echo, peer, 200)
        stop = threading.Event()
        if adopted:
            pool.submit(supervise, peer.client, stop)

        def ask(base: int) -> None:
            for i in range(25):
                answer = peer.client.request("echo", fds=(0,), x=base + i, timeout=20)
                assert answer.fields == {"x": base + i}
                os.close(answer.take_fd())

        for future in [pool.submit(ask, 1000 * n) for n in range(8)]:
            future.result(30)
        serving.result(30)
        stop.set()


def supervise(client: ControlClient, stop: threading.Event) -> None:
    client.adopt()
    while not stop.is_set():
        select.select([client.fileno()], [], [], 0.05)
        client.on_readable()


def test_answers_in_any_order_and_the_reader_asks_for_itself() -> None:
    with Peer() as peer, ThreadPoolExecutor(2) as pool:
        serving = pool.submit(echo, peer, 3, reverse=True)
        peer.client.adopt()
        first, second = (peer.client.submit("echo", x=i) for i in range(2))
        results: list[Any] = []
        # A callback that asks again, from inside the reading: must not deadlock.
        first.add_done_callback(lambda f: results.append(f.result().fields["x"]))
        assert peer.client.request("echo", x=2, timeout=30).fields == {"x": 2}
        while not (first.done() and second.done()):
            peer.client.on_readable()
        assert second.result().fields == {"x": 1}
        assert results == [0]
        serving.result(30)


def test_a_callback_may_ask() -> None:
    with Peer() as peer, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(echo, peer, 2)
        peer.client.adopt()
        nested: list[Any] = []
        future = peer.client.submit("echo", x=0)
        future.add_done_callback(lambda _: nested.append(peer.client.request("echo", x=1, timeout=30).fields["x"]))
        while not nested:
            select.select([peer.client.fileno()], [], [], 1)
            peer.client.on_readable()
        assert nested == [1]
        serving.result(30)


def test_timeout_then_late_answer_leaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Peer() as peer:
        with pytest.raises(errors.AskTimeout, match=r"did not answer 'slow' within 0.05 s"):
            peer.client.request("slow", timeout=0.05)
        number = peer.take().fields["id"]
        before = open_fds()
        send(peer.sock, {"id": number, "ok": True}, (0, 0))
        assert peer.client.on_readable()
        assert not caplog.text  # it was late, and nobody's fault
        send(peer.sock, {"id": number, "ok": True}, (0, 0))
        for odd in (None, True, "1", 1.0, [1], -1, 10**30):
            send(peer.sock, {"id": odd, "ok": True}, (0,))
        assert peer.client.on_readable()
        assert open_fds() == before
        assert "has no waiting request" in caplog.text


def test_a_worker_that_does_not_read() -> None:
    with Peer(send_timeout=0.1) as peer:
        with pytest.raises(errors.AskTimeout):
            peer.client.submit("big", blob=bytes(4 << 20))
        with pytest.raises(errors.AskTimeout):
            peer.client.submit("next")
        with ThreadPoolExecutor(1) as pool:  # reading again, the stream is whole: the rest of the first, then the new
            taking = pool.submit(lambda: [peer.take() for _ in range(2)])
            peer.client.submit("third", timeout=10)
            frames = taking.result(10)
        assert [f.fields["op"] for f in frames] == ["big", "third"]
        assert len(frames[0].blob) == 4 << 20


@pytest.mark.parametrize("how", ["close", "malformed"])
def test_every_waiter_learns_that_the_worker_is_gone(how: str) -> None:
    with Peer() as peer, ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(peer.client.request, "x") for _ in range(3)]
        future = peer.client.submit("y")
        for _ in range(4):
            peer.take()
        if how == "close":
            peer.sock.close()
        else:
            raw(peer.sock, b"x" * 16)
        for item in waiting:
            with pytest.raises(WorkerGone, match="closed" if how == "close" else "malformed"):
                item.result(30)
        with pytest.raises(WorkerGone):
            future.result(30)
        assert peer.client.gone is not None
        assert not peer.client.on_readable()
        with pytest.raises(WorkerGone):
            peer.client.request("z")


def test_close_wakes_waiters_and_is_idempotent() -> None:
    with Peer() as peer, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(peer.client.request, "x") for _ in range(2)]
        peer.take()
        peer.take()
        peer.client.close()
        peer.client.close()
        for item in waiting:
            with pytest.raises(WorkerGone):
                item.result(30)
        assert peer.client.fileno() == -1


def test_answers_before_the_end_are_good() -> None:
    with Peer() as peer:
        future = peer.client.submit("x")
        send(peer.sock, {"id": peer.take().fields["id"], "ok": True, "last": 1})
        peer.sock.close()
        with pytest.raises(WorkerGone):
            peer.client.submit("too late")
        peer.client.on_readable()
        assert future.result(0).fields == {"last": 1}


def test_a_failing_answer_and_a_failing_notification(caplog: pytest.LogCaptureFixture) -> None:
    with Peer() as peer:
        future = peer.client.submit("x")
        number = peer.take().fields["id"]
        peer.client._on_notification = lambda fields: fields["absent"]
        send(peer.sock, {"op": "log"}, (0,))
        send(
            peer.sock,
            {
                "id": number,
                "ok": False,
                "error": encode_error(errors.OutOfMemory("full", requested=1)),
            },
            (0,),
        )
        peer.client.on_readable()
        with pytest.raises(errors.OutOfMemory, match="full"):
            future.result(0)
        assert "a notification of worker failed" in caplog.text


def test_a_bad_descriptor_is_the_callers_error_only() -> None:
    with Peer() as peer, ThreadPoolExecutor(1) as pool:
        with pytest.raises(OSError, match="Bad file"):
            peer.client.request("x", fds=(1_000_000,))
        serving = pool.submit(echo, peer, 1)
        assert peer.client.request("x", x=1, timeout=30).fields == {"x": 1}
        serving.result(30)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_abandon_in_a_forked_child() -> None:
    with Peer() as peer, ThreadPoolExecutor(1) as pool:
        pid = os.fork()
        if pid == 0:
            try:
                peer.client._send_lock.acquire()
                peer.client.abandon()
                ok = peer.client.fileno() == -1
                try:
                    peer.client.request("x")
                except WorkerGone as error:
                    ok = ok and "fork" in str(error)
                os._exit(0 if ok else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        serving = pool.submit(echo, peer, 1)
        assert peer.client.request("x", x=1, timeout=30).fields == {"x": 1}
        serving.result(30)
