"""An interrupt at any moment of a collective, or of `Communicator.close`, leaves nothing half-done."""

from __future__ import annotations

import gc
import random
import signal
from collections.abc import Iterator

import pytest
from actions import Gate
from crash import overwrite
from interrupts import at_each_check

import atomr_native as an

#: An interrupt inside of a destructor is reported, and goes no further.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def signals() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # callbacks of the garbage collector, which swallow an interrupt and report it
    yield
    gc.enable()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_sends_are_counted_whatever_interrupts_them(system: an.System, signals: None) -> None:
    comm = system.communicator(["host", "host:1"])
    refs = [device.put([1.0]) for device in comm.devices]
    comm.all_reduce(refs)
    draw, interrupted = random.Random(5), 0
    for _ in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 2e-4))
            comm.all_reduce(refs, op="max", out=refs)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        assert not comm._sends
    assert interrupted
    assert [ref.numpy().tolist() for ref in refs] == [[1.0], [1.0]]
    comm.close(timeout=60.0)
    assert comm._number in comm._registry._free  # no send was waited for in vain


def close_interrupted(comm: an.Communicator) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    comm.close(timeout=600.0)


def test_an_interrupted_close_waits_no_longer(system: an.System, signals: None) -> None:
    comm = system.communicator(["host", "host:1"])
    refs = [device.put([1.0]) for device in comm.devices]
    second = comm.devices[1].lane("mine")
    with Gate(second) as gate:
        overwrite(second, refs[1], 2.0)
        reply = comm.ask(an.CollectiveRequest("all_reduce", refs, out=refs))
        with pytest.raises(KeyboardInterrupt):
            close_interrupted(comm)
        gate.open()
    with pytest.raises(an.ActorStopped, match="closed"):
        comm.barrier()
    assert reply.result(60)[0].numpy().tolist() == [3.0]


def test_commits_and_restores_stay_those_of_all_ranks(system: an.System) -> None:
    """An interrupt between the commits of two ranks, or before the number of a commit is noted, leaves it usable."""
    comm = system.communicator(["host", "host:1"])
    members = [{"w": device.zeros(8, durable=True)} for device in comm.devices]
    group = comm.durable_group(members)
    interrupts = 0
    for call in (group.commit, group.restore):
        for _ in at_each_check("atomr_native/communicators", call):
            interrupts += 1
            group.restore(60)
            group.commit().result(60)
    assert interrupts
    for mine in members:
        mine["w"].fill(3.0)
    group.commit(tag=7).result(60)
    assert group.restore(60) == 7
    assert [mine["w"].numpy().tolist() for mine in members] == [[3.0] * 8] * 2
    comm.close(timeout=60.0)


class _Moment:
    """In the place of a lock: an interrupt is looked for where it is taken and given back."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_a_group_ends_whatever_interrupts_it(system: an.System, monkeypatch: pytest.MonkeyPatch) -> None:
    comm = system.communicator(["host", "host:1"])
    refs = [device.put([1.0]) for device in comm.devices]

    def grouped() -> None:
        with comm.group():
            comm.all_reduce(refs, op="max", out=refs)

    grouped()
    with monkeypatch.context() as patch:
        patch.setattr(comm, "_lock", _Moment())
        for _ in at_each_check("communicators", grouped):
            grouped()  # no other one is open in this thread
    assert [ref.numpy().tolist() for ref in refs] == [[1.0], [1.0]]
    comm.close(timeout=60.0)


def test_callbacks_inside_of_a_lock_are_refused(system: an.System) -> None:
    """A callback of the garbage collector runs at any allocation, under any lock of its thread."""
    comm = system.communicator(["host", "host:1"])
    refs = [device.put([1.0]) for device in comm.devices]
    group = comm.durable_group([{"w": device.zeros(8, durable=True)} for device in comm.devices])
    generator = an.Generator(5)
    for lock, call in (
        (comm._lock, lambda: comm.all_reduce(refs)),
        (group._lock, group.commit),
        (group._lock, group.restore),
        (generator._lock, lambda: generator.take(1)),
    ):
        with lock, pytest.raises(an.NestedCall):
            call()
        call()
    comm.close(timeout=60.0)


def test_a_recording_of_ranks_ends_whatever_interrupts_it(system: an.System) -> None:
    comm = system.communicator(["host", "host:1"])
    refs = [device.put([1.0]) for device in comm.devices]

    def recorded() -> None:
        with comm.record():
            comm.all_reduce(refs, op="max", out=refs)

    recorded()
    for _ in at_each_check("atomr_native/communicators/recording", recorded):
        assert [ref.fill(2.0).numpy().tolist() for ref in refs] == [[2.0], [2.0]]
        recorded()
    comm.close(timeout=60.0)
