"""Pages of one communicator in several processes: the words of ranks reach all pages, and a loss reaches all, too."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native._lib import mirrors
from atomr_native._lib.seats import Page
from atomr_native._lib.sender import DEVICE_FAULT
from atomr_native.ray.moving.channel import Call, Channel
from atomr_native.ray.network import interface_of, meet_at
from atomr_native.ray.relay import Meet, Relay

SIZE = 4
PLACES = ((0, 2), (1,), (3,))  # the ranks of each process

pytestmark = [pytest.mark.plain, pytest.mark.alike]


class Process:
    """What a process has of the communicator."""

    def __init__(self, mine: tuple[int, ...]) -> None:
        self.page = Page([f"rank {number}" for number in range(SIZE)])
        self.ended = threading.Event()
        self.relay = Relay(self.page, SIZE, mine, self.ended.set)

    def has(self, rank: int, words: bytes) -> bool:
        return mirrors.read(self.page, rank) == words


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    with contextlib.ExitStack() as stack:
        made = [Process(mine) for mine in PLACES]
        for each in made:
            stack.callback(each.relay.close)
        yield made


def connected(processes: list[Process]) -> Meet:
    meet = processes[0].relay.listen("127.0.0.1")
    for each in processes[1:]:
        each.relay.connect(meet)
    return meet


def test_words_of_each_rank_reach_all_pages(processes: list[Process]) -> None:
    processes[1].page.lose(1, 3, DEVICE_FAULT, 7)  # before the others are there
    connected(processes)
    for process, rank in ((processes[0], 2), (processes[1], 1), (processes[2], 3)):
        process.page.lose(rank, 5 + rank, DEVICE_FAULT, rank)
        process.page.bury(rank, DEVICE_FAULT, rank)
        words = mirrors.read(process.page, rank)
        for each in processes:
            eventually(lambda each=each, rank=rank, words=words: each.has(rank, words))
    assert not any(each.ended.is_set() for each in processes)


@pytest.mark.parametrize("gone", range(3))
def test_the_end_of_one_is_the_end_of_all(processes: list[Process], gone: int) -> None:
    connected(processes)
    eventually(lambda: len(processes[0].relay._channels) == 2)
    processes[gone].relay.close()
    untouched = mirrors.read(Page(["x"]), 0)
    for each, mine in zip(processes, PLACES, strict=True):
        assert each.ended.wait(30)
        for rank in range(SIZE):
            assert each.has(rank, untouched) == (rank in mine)


def test_a_hub_without_descriptors_serves_later(processes: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a process would fail the calls of its other threads, too: only this accept has none."""
    left = [OSError(errno.EMFILE, "too many open files")] * 2

    class Scarce(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if left:
                raise left.pop()
            return super().accept()

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Scarce)
        meet = processes[0].relay.listen("127.0.0.1")
    with socket.create_connection((meet.host, meet.port), 30) as made:
        assert Channel(made).greet(meet.secret, first=True)
    assert not left


def test_a_hub_without_threads_refuses_and_serves_later(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    meet = processes[0].relay.listen("127.0.0.1")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no thread")))
        with socket.create_connection((meet.host, meet.port)) as made:
            assert made.recv(1) == b""
    processes[1].relay.connect(meet)
    eventually(lambda: len(processes[0].relay._channels) == 1)


def test_others_get_no_word_and_write_none(processes: list[Process]) -> None:
    meet = connected(processes)
    with pytest.raises(ConnectionRefusedError):
        Process((3,)).relay.connect(Meet(meet.host, meet.port, b"x" * 32))
    assert meet.secret.hex() not in repr(meet)
    for claimed in (b"\x00", b"", bytes((SIZE,))):  # a rank of the hub, none, one that does not exist
        with socket.create_connection((meet.host, meet.port)) as made:
            channel = Channel(made)
            assert channel.greet(meet.secret, first=True)
            channel.send(Call(claimed))
            with pytest.raises(OSError):  # noqa: PT011 - the end of a connection has many names
                channel.receive()
    assert not any(each.ended.is_set() for each in processes)


def test_a_rank_of_another_process_is_not_written(processes: list[Process]) -> None:
    meet = processes[0].relay.listen("127.0.0.1")
    untouched = mirrors.read(processes[0].page, 3)
    stranger = Page(["a", "b", "c", "d"])
    stranger.lose(1, 9, DEVICE_FAULT, 1)
    with socket.create_connection((meet.host, meet.port)) as made:
        channel = Channel(made)
        assert channel.greet(meet.secret, first=True)
        channel.send(Call(b"\x01"))
        words = mirrors.read(stranger, 1)
        for rank in (0, 2, 3, 1):
            channel.send(Call(bytes((rank,)) + words))
        eventually(lambda: processes[0].has(1, words))
        assert all(processes[0].has(rank, untouched) for rank in (0, 2, 3))
        channel.send(Call(b"\x01short"))
        assert processes[0].ended.wait(30)


def test_words_that_are_none() -> None:
    page = Page(["x"])
    for rank, words in ((1, mirrors.read(page, 0)), (0, b"x")):
        with pytest.raises(an.InvalidRequest, match="allowed"):
            mirrors.write(page, rank, words)
    with pytest.raises(an.InvalidRequest, match="rank 1; allowed: 0 to 0"):
        mirrors.read(page, 1)
    with pytest.raises(OSError):  # noqa: PT011 - the system's own
        Relay(page, 1, (0,), lambda: None).listen("192.0.2.1")


def test_the_network_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None
    for given, address, expected in (
        ({}, "127.0.0.1", "=lo"), ({"NCCL_SOCKET_IFNAME": "eth7"}, "127.0.0.1", "eth7"), ({}, "192.0.2.1", None),
    ):  # fmt: skip
        meet_at(given, address)
        assert given.get("NCCL_SOCKET_IFNAME") == expected
