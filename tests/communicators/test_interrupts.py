"""An interrupt at any moment of a collective, or of `Communicator.close`, leaves nothing half-done."""

from __future__ import annotations

import gc
import random
import signal
from collections.abc import Iterator

import pytest
from actions import Gate
from crash import overwrite

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
