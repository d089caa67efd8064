"""A worker that has gone wild neither ends the program nor holds it up.

Its shared memory is the subject of tests/native/runtime/test_wild.c.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crash import PATIENT, await_generation, filled, kill, overwrite, send

import atomr_native as an
from atomr_native._lib.sender import STAGING
from atomr_native.plans.spec import READ
from atomr_native.runtime import link as _link
from atomr_native.runtime import watchdog
from atomr_native.runtime.wakers import Subscriber

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.System]
MIB = 1 << 20
F_SEAL_SEAL, F_SEAL_SHRINK = 1, 2


class Lies:
    """Replaces fields of a worker's next answer."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Callable[[dict[str, Any]], object]]] = []

    def at(self, op: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the fields of the next answer to `op`."""
        self.told.append((op, change))


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> Lies:
    """Lend what makes workers lie to supervisors."""
    made, original = Lies(), _link.Link.ask

    def ask(link: _link.Link, op: str, *arguments: Any, **fields: Any) -> Any:
        answer = original(link, op, *arguments, **fields)
        for lie in [each for each in made.told if each[0] == op][:1]:
            made.told.remove(lie)
            lie[1](answer.fields)
        return answer

    monkeypatch.setattr(_link.Link, "ask", ask)
    return made


# ---- segments


def memory_file(nbytes: int, seals: int) -> int:
    fd = os.memfd_create("atomr-wild", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_segments_keep_their_size(make_system: Make, placement: Any) -> None:
    device = make_system().device()
    kept = [device.host_array((4,), "uint8"), device.zeros(4), device.zeros(4, durable=True)]
    segments = device._memory.segments._segments.values()
    shared = [each for each in segments if each.pool == STAGING or device.kind == "host"]
    assert len(shared) == (3 if device.kind == "host" else 1)
    for segment in shared:
        for size in (0, segment.nbytes + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(segment.fd, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, F_SEAL_SHRINK)
    del kept


@pytest.mark.parametrize("kind", ["unsealed", "open to seals", "small", "file", "pipe"])
def test_segments_that_may_shrink_are_refused(make_system: Make, tmp_path: Path, kind: str) -> None:
    device = make_system().device("host")
    links = device._state.supervisor.links
    make = links.create_segment

    def wild(number: int, nbytes: int, pool: int) -> int:
        os.close(make(number, nbytes, pool))
        if kind == "file":
            path = tmp_path / "segment"
            path.write_bytes(b"")
            os.truncate(path, nbytes)
            return os.open(path, os.O_RDWR)
        if kind == "pipe":
            reading, writing = os.pipe()
            os.close(writing)
            return reading
        seals = {"unsealed": 0, "open to seals": F_SEAL_SHRINK, "small": F_SEAL_SHRINK | F_SEAL_SEAL}[kind]
        return memory_file(nbytes - 4096 if kind == "small" else nbytes, seals)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "create_segment", wild)
        with pytest.raises(an.AtomrError, match=r"made a segment that is smaller than \d+ bytes, or could become"):
            device.zeros(4)
    assert device.zeros(4).numpy().tolist() == [0.0] * 4
    assert device.stats()["memory"]["pools"]["volatile"]["segments"] == 1


def test_a_segment_that_cannot_be_mapped_is_out_of_memory(make_system: Make) -> None:
    device = make_system().device("host")
    nbytes = 1 << 56  # more than there are addresses
    fd = memory_file(nbytes, F_SEAL_SHRINK | F_SEAL_SEAL)
    try:
        with pytest.raises(an.OutOfMemory, match="cannot map") as caught:
            device._core.map_segment(7, fd, nbytes)
    finally:
        os.close(fd)
    assert caught.value.requested == nbytes


# ---- numbers


FACTS = {"name": "x", "uuid": None, "multiprocessors": None, "driver_version": None, "total_memory": 1 << 40}
WRONG: list[dict[str, Any]] = [
    *({"w_bytes": value} for value in ("x", -1, 1 << 70, None, True)),
    {"facts": None},
    {"facts": FACTS | {"total_memory": 1 << 63}},
    {"facts": FACTS | {"compute_capability": [-9, 0]}},
]


def test_a_worker_with_wrong_numbers_is_not_used(
    make_system: Make, lies: Lies, caplog: pytest.LogCaptureFixture
) -> None:
    system = make_system(**PATIENT)
    for wrong in (WRONG[0], WRONG[-1]):
        lies.at("init", lambda fields, wrong=wrong: fields.update(wrong))  # type: ignore[misc]
        with pytest.raises(an.AtomrError, match="the worker reports"):
            system.device("host")
    device = system.device("host")
    x = filled(device, 1.0)
    for wrong in WRONG:
        lies.at("init", lambda fields, wrong=wrong: fields.update(wrong))  # type: ignore[misc]
    kill(device)
    await_generation(device, 2)
    assert caplog.text.count("restart failed: the worker reports") == len(WRONG)
    assert (x.numpy() == 1.0).all()


@pytest.fixture
def group(make_system: Make) -> an.DurableGroup:
    """Make a group with three commits."""
    device = make_system(**PATIENT).device("host")
    made = device.durable_group({"x": filled(device, 1.0)})
    for tag in (5, 6, 7):
        made.commit(tag).result(30)
    return made


def tell(field: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["groups"][0].update({field: value})


def test_an_answer_about_groups_that_makes_no_sense_is_refused(
    group: an.DurableGroup, lies: Lies, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [("sequence", 1 << 70), ("sequence", "3"), ("sequence", None), ("tag", 1 << 63), ("damaged", 1)]
    for field, value in wrong:
        lies.at("recover_groups", tell(field, value))
    kill(group.device)
    await_generation(group.device, 2)
    assert caplog.text.count("restart failed: the worker's answer about durable group") == len(wrong)
    assert (group.sequence, group.tag) == (3, 7)
    group.restore().result(30)
    assert group.commit(8).result(30) == 4


def test_a_commit_that_cannot_be_is_a_lost_one(group: an.DurableGroup, lies: Lies) -> None:
    """Its header was overwritten: the members are torn, and the next commit is good."""
    x, device = group.members["x"], group.device
    lane = device.lane("writer")
    for commits, number in enumerate((0, 2, 6, -1), 3):  # 2 is less than what is known
        lies.at("recover_groups", tell("sequence", commits + 2 if number == 6 else number))
        generation = device.generation
        kill(device)
        await_generation(device, generation + 1)
        assert group.sequence == commits
        with pytest.raises(an.GpuRefStale, match=f"commit {commits} of this group is lost"):
            group.restore()
        with pytest.raises(an.GpuRefStale, match="a message was writing it"):
            x.numpy()
        x.clear_error()
        overwrite(lane, x, number).result(30)
        assert group.commit(9).result(30) == commits + 1
        overwrite(lane, x, 5.0).result(30)
        group.restore().result(30)
        assert (x.numpy() == number).all()


def test_the_commit_that_is_being_sent_may_have_run(group: an.DurableGroup, lies: Lies) -> None:
    lies.at("recover_groups", lambda fields: fields["groups"][0].update({"sequence": 4, "tag": 8}))
    kill(group.device)
    await_generation(group.device, 2)
    assert (group.sequence, group.tag) == (4, 8)
    group.restore().result(30)


# ---- what both sides hold


def in_time(action: Callable[[], object]) -> None:
    """Perform an action in a thread; fail if it does not return."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def spoil(subscriber: Subscriber, *, full: bool) -> None:
    """Empty or fill the worker's eventfd, whose flags are the same for all processes that hold it."""
    _, shared = subscriber.fds
    os.set_blocking(shared, False)
    done = False
    while not done:  # the worker may ring between the two
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(shared)
        with contextlib.suppress(BlockingIOError):
            if full:
                os.eventfd_write(shared, (1 << 64) - 2)
            done = True
    os.set_blocking(shared, True)


@pytest.mark.parametrize("full", [False, True], ids=["empty", "full"])
def test_a_blocking_eventfd_holds_nobody_up(full: bool) -> None:
    subscriber = Subscriber(cast("Any", None), 1)
    try:
        spoil(subscriber, full=full)
        in_time(subscriber.kick)
        assert select.select(subscriber.fds, [], [], 0)[0]
        for _ in range(2):
            in_time(subscriber.serve)
        assert not select.select(subscriber.fds, [], [], 0)[0]
    finally:
        subscriber.close()


@pytest.mark.parametrize("full", [False, True], ids=["empty", "full"])
def test_a_device_works_and_closes_with_blocking_eventfds(make_system: Make, full: bool) -> None:
    system = make_system(timeout=60.0)
    device = system.device("host")
    x, lane, wakers = filled(device, 1.0), device.lane("a"), device._state.wakers

    async def wait() -> None:
        await send(lane, x, access=READ)
        for subscriber in wakers._each():
            spoil(subscriber, full=full)
        await send(lane, x, access=READ)
        wakers.kick()
        await send(lane, x, access=READ)

    in_time(lambda: asyncio.run(wait()))
    called = threading.Event()
    send(lane, x, access=READ).add_done_callback(lambda _: called.set())
    assert called.wait(30)
    spoil(wakers.own, full=full)
    in_time(system.close)


class _Client:
    """Its worker answers until its socket is full."""

    def __init__(self) -> None:
        self.full = False
        self.asked: list[Future[Any]] = []

    def submit(self, op: str, *, timeout: float) -> Future[Any]:
        if self.full:
            raise an.AskTimeout(f"the worker does not take {op} within {timeout} s")
        self.asked.append(Future())
        return self.asked[-1]


def test_the_watchdog_ends_a_worker_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page says that it is idle, so nothing else ends it, and waits have no timeout."""
    now, client = 100.0, _Client()
    core = SimpleNamespace(watch=lambda: None, control_busy=0, lane_names={})
    worker = SimpleNamespace(pid=None, client=client)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now)
    watched = watchdog.Watchdog("host", cast("Any", core), 2.0)
    now += 60.0  # a restart takes its time
    assert watched.check(cast("Any", worker)) is None
    client.asked[-1].set_result(None)
    client.full = True
    for _ in range(4):
        now += 1.5
        assert watched.check(cast("Any", worker)) is None
    now += 1.5
    assert watched.check(cast("Any", worker)) == "it did not answer for more than 5 s"
    watched.reset()
    client.full = False
    now += 60.0
    for _ in range(20):
        assert watched.check(cast("Any", worker)) is None
        client.asked[-1].set_result(None)
        now += 1.5
    assert len(client.asked) == 21
    assert watched.check(cast("Any", worker)) is None
    for _ in range(3):
        now += 1.5
        assert watched.check(cast("Any", worker)) is None
    now += 1.5
    assert watched.check(cast("Any", worker)) == "it did not answer for more than 5 s"
