"""What a death, or a rank that cannot take part, does to collectives."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from actions import Gate, eventually, poison
from crash import kill, overwrite

import atomr_native as an


@pytest.fixture
def system() -> Iterator[an.System]:
    with an.System(timeout=60.0, within=0.0, allow_crash=True) as made:
        yield made


def request(refs: list[an.GpuRef]) -> an.CollectiveRequest:
    return an.CollectiveRequest("all_reduce", refs, out=refs)


def hold(device: an.Device, ref: an.GpuRef) -> Gate:
    """Keep messages that use an array from running until the gate opens."""
    gate = Gate(device.lane("mine"))
    overwrite(device.lane("mine"), ref, 1.0)
    return gate


def has_come(comm: an.Communicator, rank: int) -> bool:
    """Whether a rank waits for the others in a message."""
    owner = comm._owners[rank]
    stats = owner.core.lane_stats(comm._registry.lane_of(owner))
    return stats["claimed"] > stats["completed"]


def put(comm: an.Communicator, array: object, *, durable: bool = False) -> list[an.GpuRef]:
    refs = [device.put(array, durable=durable) for device in comm.devices]
    for ref in refs:
        ref.wait()
    return refs


def test_a_rank_that_cannot_take_part_fails_all_and_nothing_is_written(system: an.System) -> None:
    comm = system.communicator(["host", "host:1", "host:2"])
    refs = put(comm, [1.0, 2.0])
    poison(comm.devices[1].lane("mine"), refs[1])
    reply = comm.ask(request(refs))
    with pytest.raises(an.DependencyFailed) as met:
        reply.result(60)
    first = met.value.cause
    assert isinstance(first, an.LibraryError)
    assert "boom" in str(first)
    errors = [one.exception() for one in reply.replies]
    assert [type(error) for error in errors] == [an.DependencyFailed] * 3
    assert "host:1 could not take part" in str(errors[0])
    assert all("boom" in str(error) for error in errors)
    for rank in (0, 2):
        with pytest.raises(an.LibraryError, match="boom"):
            refs[rank].numpy()
        refs[rank].clear_error()
        assert refs[rank].numpy().tolist() == [1.0, 2.0]
    assert comm.all_reduce(put(comm, [1.0, 2.0]))[2].numpy().tolist() == [3.0, 6.0]


def test_a_death_fails_the_message_on_every_rank_and_poisons_what_it_writes(system: an.System) -> None:
    comm = system.communicator(["host", "host:1", "host:2"])
    generations: list[int] = []
    comm.on_generation(generations.append)
    refs, kept = put(comm, np.ones(4)), put(comm, [7.0])
    queued = put(comm, [3.0], durable=True)
    with hold(comm.devices[2], refs[2]) as gate:
        reply = comm.ask(request(refs))
        later = comm.ask(request(refs))
        durable = comm.ask(request(queued))
        eventually(lambda: has_come(comm, 1) and has_come(comm, 0))
        kill(comm.devices[1])
        assert reply.replies[0].wait(60)  # rank 2 has not come, and rank 0 waits for it: then it learns of the death
        gate.open()
        with pytest.raises(an.DeviceFault, match="host:1"):
            reply.result(60)
    assert all(isinstance(one.exception(), an.DeviceFault) for one in reply.replies)
    assert all("host:1" in str(one.exception()) for one in reply.replies)
    with pytest.raises((an.DependencyFailed, an.GpuRefStale)):
        later.result(60)
    with pytest.raises(an.DeviceFault, match="host:1"):
        refs[0].numpy()
    assert durable.result(60)[0].numpy().tolist() == [9.0]  # it was queued, and runs when the rank is back
    assert [kept[rank].numpy().tolist() for rank in (0, 2)] == [[7.0], [7.0]]
    eventually(lambda: generations == [2])
    assert comm.generation == 2
    assert comm.stats()["generation"] == 2


def test_a_closed_device_ends_what_waits_for_it(system: an.System) -> None:
    comm = system.communicator(["host", "host:1"])
    refs = put(comm, [1.0])
    with hold(comm.devices[1], refs[1]):
        reply = comm.ask(request(refs))
        eventually(lambda: has_come(comm, 0))
        closing = threading.Thread(target=comm.devices[1].close, args=(0.0,))
        closing.start()
        with pytest.raises(an.ActorStopped):
            reply.result(60)
    closing.join(60)
    with pytest.raises(an.ActorStopped):
        comm.all_reduce(refs)
    assert comm.devices[0].put([2.0]).numpy().tolist() == [2.0]


def test_a_device_that_is_lost_ends_what_waits_for_it() -> None:
    with an.System(max_restarts=0, allow_crash=True, timeout=60.0) as system:
        comm = system.communicator(["host", "host:1"])
        refs = put(comm, [1.0], durable=True)
        with hold(comm.devices[1], refs[1]):
            replies = [comm.ask(request(refs)) for _ in range(3)]
            eventually(lambda: has_come(comm, 0))
            kill(comm.devices[1])
            for reply in replies:
                with pytest.raises((an.DeviceLost, an.DependencyFailed)):
                    reply.result(60)
        with pytest.raises(an.DeviceLost):
            comm.barrier()
        rest = comm.without(1)
        assert rest.devices == comm.devices[:1]
        assert rest.all_reduce([comm.devices[0].put([2.0])])[0].numpy().tolist() == [2.0]


def test_the_watchdog_does_not_count_waiting_for_other_ranks() -> None:
    with an.System(watchdog=0.2, allow_crash=True, timeout=60.0) as system:
        comm = system.communicator(["host", "host:1"])
        refs = put(comm, [1.0])
        watched = comm._owners[0].supervisor._watchdog
        checks: list[object] = []
        check = watched.check

        def counted(worker: object) -> object:
            checks.append(None)
            return check(worker)

        watched.check = counted
        # On the rank that is late nothing runs too long: its messages wait in turn for a reply of ours.
        with hold(comm.devices[1], refs[1]) as gate:
            comm._owners[1].supervisor._watchdog.check = lambda _: None
            reply = comm.ask(request(refs))
            eventually(lambda: has_come(comm, 0))
            seen = len(checks)
            eventually(lambda: len(checks) > seen + 8)
            gate.open()
            reply.result(60)
        assert comm.devices[0].restarts == 0


@pytest.mark.parametrize("kills", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_ranks_that_are_killed_at_random(system: an.System, kills: int) -> None:
    """Each reply is a value that all ranks agree on, or a typed error; no array ever holds anything else."""
    comm = system.communicator(["host", "host:1", "host:2"])
    draw = random.Random(kills)
    for _ in range(kills):
        inputs = [device.put(np.full(100_000, rank + 1.0), durable=True) for rank, device in enumerate(comm.devices)]
        replies, outs = [], []
        for _ in range(4):
            outs.append([device.empty(100_000, "float64", durable=True) for device in comm.devices])
            replies.append(comm.ask(an.CollectiveRequest("all_reduce", inputs, out=outs[-1])))
        victim, moment = comm.devices[draw.randrange(3)], draw.randrange(4)
        replies[moment].replies[draw.randrange(3)].wait(60)  # then the next one is at work
        before = victim.generation
        kill(victim)
        for reply, mine in zip(replies, outs, strict=True):
            try:
                reply.result(60)
            except (an.DeviceFault, an.DependencyFailed, an.GpuRefStale):
                for ref in mine:
                    with contextlib.suppress(an.DeviceFault, an.DependencyFailed, an.GpuRefStale):
                        assert (ref.numpy() == 6.0).all()
            else:
                assert all((ref.numpy() == 6.0).all() for ref in mine)
        eventually(lambda v=victim, b=before: v.generation > b)  # type: ignore[misc]
        victim.wait_ready(60)
    eventually(lambda: comm.generation == kills + 1)  # told in the thread of the callbacks
