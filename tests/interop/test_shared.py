"""Arrays that programs of one user share by a name: the same memory, lent until both let go."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import scripts
from actions import eventually
from leaks import descriptors
from placements import ALL, HOST, Placement, resolve
from processes import is_alive

import atomr_native as an
from atomr_native.interop import shared as sharing

#: Opens an array, or shares one, and does what it is told.
OTHER = """
import sys
import numpy as np
import atomr_native as an

kind, isolation, name = sys.argv[1:]
with an.System(standby="off", isolation=isolation) as system:
    device = system.device(kind)
    if name == "share":
        ref = device.put(np.arange(4.0))
        shared = ref.share()
        print(shared.name, flush=True)
    else:
        ref = device.open_shared(name)
        print(ref.shape, ref.dtype, flush=True)
    while words := sys.stdin.readline().split():
        if words[0] == "double":
            device.elementwise.run("x = 2 * x", x=ref)
        print(ref.numpy().ravel().tolist(), flush=True)
"""


class Other:
    """Another program."""

    def __init__(self, process: scripts.Program) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        found = self.process.stdout.readline().strip()
        if not found:
            raise AssertionError(self.process.communicate()[1])
        return found

    def say(self, what: str) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        found: list[float] = json.loads(self.line())
        return found


@contextmanager
def other(placement: Placement, name: str) -> Iterator[Other]:
    with placement.using(), scripts.start(OTHER, placement.device, placement.isolation, name, piped=True) as process:
        yield Other(process)
        if process.poll() is None:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            assert process.wait(60) == 0, process.communicate()[1]


@pytest.fixture(params=ALL)
def placement(request: pytest.FixtureRequest) -> Placement:
    return resolve(request)


@pytest.fixture
def device(placement: Placement) -> Iterator[an.Device]:
    with placement.system(standby="off", allow_crash=True, within=0.0) as system:
        yield system.device(placement.device)


def in_use(device: an.Device) -> int:
    return device.stats()["memory"]["pools"]["volatile"]["in_use"]


def test_two_programs_use_one_memory_until_both_let_go(device: an.Device, placement: Placement) -> None:
    data = np.arange(4096.0).reshape(64, 64)
    x = device.put(data)
    before = in_use(device)
    with x[3:5, ::21].share() as shared, other(placement, shared.name) as program:
        assert program.line() == "(2, 4) float64"
        assert program.say("double") == (2 * data[3:5, ::21]).ravel().tolist()
        expected = data.copy()
        expected[3:5, ::21] *= 2
        assert np.array_equal(x.numpy(), expected)
        x.fill(7)
        x.wait()
        assert program.say("read") == [7.0] * 8
        shared.close()
        del x
        others = [device.put(np.zeros((64, 64))) for _ in range(8)]  # none lies where the other program still reads
        others[-1].wait()
        assert program.say("double") == [14.0] * 8
        del others
        assert in_use(device) >= before
    eventually(lambda: in_use(device) < before)
    with pytest.raises(an.InvalidRequest, match="shared no longer"):
        device.open_shared(shared.name)


def test_a_program_that_is_killed_lets_go(device: an.Device, placement: Placement) -> None:
    x = device.put(np.ones(5000))
    before = in_use(device)
    shared = x.share()
    with other(placement, shared.name) as program:
        assert program.line() == "(5000,) float64"
        del x, shared  # dropped is closed
        assert in_use(device) == before
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(60)
    eventually(lambda: in_use(device) < before)


def test_memory_of_a_program_that_is_killed_stays(device: an.Device, placement: Placement) -> None:
    with other(placement, "share") as program:
        name = program.line()
        ref, again = device.open_shared(name), device.open_shared(name)
        assert ref.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
        assert program.say("double") == [0.0, 2.0, 4.0, 6.0]
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(60)
    ref.fill(3)
    ref.wait()
    assert device.elementwise.run("a + b", a=ref, b=again).numpy().tolist() == [6.0] * 4
    with pytest.raises(an.InvalidRequest, match="no program on this machine shares it"):
        device.open_shared(name)


def test_restarts_end_what_was_open(device: an.Device, placement: Placement) -> None:
    if placement.isolation == "thread":
        pytest.skip("a thread does not restart")
    x = device.put([1.0, 2.0])
    with x.share() as shared:
        same = device.open_shared(shared.name)
        assert same.numpy().tolist() == [1.0, 2.0]
        device.inject_fault("exit")
        eventually(lambda: device.restarts == 1)
        device.wait_ready(60)
        with pytest.raises(an.GpuRefStale):
            same.numpy()
        with pytest.raises(an.InvalidRequest, match="has restarted"):
            device.open_shared(shared.name)


@pytest.fixture
def host() -> Iterator[an.Device]:
    with HOST.system(standby="off", isolation="thread") as system:
        yield system.device("host")


def test_names_that_are_none(host: an.Device) -> None:
    for name in ("x", f"{'0' * 32}-x", 7, "", "0" * 40):
        with pytest.raises(an.InvalidRequest, match="the name of a SharedArray"):
            host.open_shared(name)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match=r"no program on this machine shares it \(Connection refused\)"):
        host.open_shared(f"{'0' * 32}-1")
    with pytest.raises(an.InvalidRequest, match="timeout=-1"):
        host.open_shared(f"{'0' * 32}-1", timeout=-1)


def test_other_users_are_refused_at_both_ends(host: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with host.put([1.0]).share() as shared:
        real = sharing._user_of
        monkeypatch.setattr(sharing, "_user_of", lambda c: os.getuid() + 1)
        with pytest.raises(an.InvalidRequest, match="of a program of another user"):
            host.open_shared(shared.name)
        # Only the end that serves takes the other for a stranger.
        monkeypatch.setattr(sharing, "_user_of", lambda c: real(c) + (c.getsockname() != ""))
        with pytest.raises(an.InvalidRequest, match=r"has ended|does not answer"):
            host.open_shared(shared.name)


def test_what_cannot_be_shared(host: an.Device) -> None:
    foreign = host.asarray(np.ones(3), copy=False)
    with pytest.raises(an.Unsupported, match=r"device\.copy"):
        foreign.share()
    x = host.put([1.0])
    x.free()
    with pytest.raises(an.GpuRefStale):
        x.share()
    with host.put([1.0]).share() as shared:
        assert "SharedArray" in repr(shared)
        borrowed = host.open_shared(shared.name)
        with pytest.raises(an.Unsupported, match=r"device\.copy"):
            borrowed.share()
    shared.close()
    assert "closed" in repr(shared)


def test_memory_of_another_kind(cuda_system: an.System) -> None:
    shared = cuda_system.device("host").put([1.0]).share()
    with pytest.raises(an.Unsupported, match="memory of a host device, and cuda:0 is another kind"):
        cuda_system.device("cuda:0").open_shared(shared.name)


@pytest.mark.parametrize(
    "change",
    [
        {"bytes": 1 << 40}, {"start": -8}, {"dtype": "object"}, {"shape": [1 << 50]}, {"kind": 3}, {"uuid": 3},
        {"bytes": None}, {"start": 0.5}, {"dtype": []}, {"strides": "x"}, {"offset": 1 << 70},
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_is_refused(
    host: an.Device, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    real = sharing.SharedArray.offer

    def offer(self: sharing.SharedArray) -> object:
        described, fd, lease = real(self)
        return described | change, fd, lease

    monkeypatch.setattr(sharing.SharedArray, "offer", offer)
    with host.put([1.0]).share() as shared, pytest.raises((an.InvalidRequest, an.Unsupported)):
        host.open_shared(shared.name)
    assert host.put([2.0]).numpy().tolist() == [2.0]


@pytest.mark.parametrize("answer", ['{"error": "gone"}', "not JSON", "[1]", "{}"])
def test_a_descriptor_of_a_bad_answer_is_closed(host: an.Device, answer: str) -> None:
    token = secrets.token_hex(16)
    before = descriptors()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(sharing._address(token))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            fd = os.memfd_create("atomr-answer")
            with connection:
                connection.recv(64)
                socket.send_fds(connection, [answer.encode()], [fd])
            os.close(fd)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((an.InvalidRequest, an.Unsupported)):
            host.open_shared(f"{token}-1")
        thread.join(60)
    assert descriptors() == before


#: Shares an array, or opens one, and leaves a forked child.
FORKS = """
import os, sys
import atomr_native as an

with an.System(standby="off", isolation="thread") as system:
    device = system.device("host")
    if sys.argv[1] == "share":
        shared = device.put([1.0]).share()
        print(shared.name, end=" ")
    else:
        ref = device.open_shared(sys.argv[1])
        print(ref.numpy().tolist(), end=" ")
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        sys.stdin.read()
        os._exit(0)
    print(child, flush=True)
    os._exit(0)
"""


@contextmanager
def forked(name: str) -> Iterator[str]:
    """What a program said that has ended, and has left a child."""
    with scripts.start(FORKS, name, piped=True) as program:
        assert program.stdout is not None
        said, child = program.stdout.readline().rsplit(maxsplit=1)
        program.wait(60)
        assert is_alive(int(child))
        yield said
        assert program.stdin is not None
        program.stdin.close()


def test_a_forked_child_does_not_answer_for_its_parent(host: an.Device) -> None:
    with forked("share") as name, pytest.raises(an.InvalidRequest) as raised:
        host.open_shared(name)
    assert "timed out" not in str(raised.value)  # nobody has the socket any more, to whom it could connect


def test_a_forked_child_keeps_nothing_that_its_parent_had_opened(host: an.Device) -> None:
    x = host.put(np.ones(5000))
    before = in_use(host)
    shared = x.share()
    with forked(shared.name) as said:
        assert said.startswith("[1.0, ")
        del x, shared
        eventually(lambda: in_use(host) < before)


def test_a_server_that_is_none_is_refused(host: an.Device) -> None:
    token = secrets.token_hex(16)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(sharing._address(token))
        server.listen()
        with pytest.raises(an.InvalidRequest, match="does not answer"):
            host.open_shared(f"{token}-1", timeout=0.1)


def test_the_thread_that_answers_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a callback of the garbage collector it may try to open an array of its own program."""
    talk, refused = sharing._Server._talk, []

    with HOST.system(standby="off") as system, HOST.system(standby="off") as opening:
        device = opening.device("host")

        def talk_to(server: sharing._Server) -> object:  # looked up by the thread that accepts, before each answer
            with pytest.raises(an.NestedCall, match="another thread"):
                device.open_shared(shared.name, timeout=5)
            refused.append(threading.current_thread())
            return talk.__get__(server)

        with system.device("host").put([1.0]).share() as shared:
            monkeypatch.setattr(sharing._Server, "_talk", property(talk_to))
            assert device.open_shared(shared.name).numpy() == [1]
    assert len(refused) == 1
    assert refused[0] is not threading.current_thread()
