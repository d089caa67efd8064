"""Durable groups over ranks: whichever rank dies where, all ranks return to one commit."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from actions import poison
from communicator_kinds import KINDS, made_of, using

import atomr_native as an

SIZES = (5, 1000)  # of the members; each rank has other values
LOST = (an.DeviceFault, an.DependencyFailed, an.GpuRefStale, an.InvalidRequest)


@pytest.fixture(params=[kind for kind in KINDS if kind != "thread"])
def comm(request: pytest.FixtureRequest) -> Iterator[an.Communicator]:
    kind = request.param
    with using(request, kind), an.System(timeout=60.0, within=0.0, standby="off", allow_crash=True) as system:
        made = made_of(system, kind, 0, 1)
        yield made
        made.close()


def state_of(rank: int, step: int) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {f"m{size}": np.full(size, 100.0 * rank + step) for size in SIZES}


def begin(comm: an.Communicator) -> list[dict[str, an.GpuRef]]:
    return [
        {name: device.put(array, durable=True) for name, array in state_of(rank, 0).items()}
        for rank, device in enumerate(comm.devices)
    ]


def step(members: list[dict[str, an.GpuRef]], rank: int) -> None:
    for ref in members[rank].values():
        ref.device.elementwise.run("w = w + 1", w=ref)


def check(members: list[dict[str, an.GpuRef]], number: int) -> None:
    for rank, mine in enumerate(members):
        for name, wanted in state_of(rank, number).items():
            assert np.array_equal(mine[name].numpy(), wanted), (rank, name, number)


def test_commits_and_restores(comm: an.Communicator) -> None:
    members = begin(comm)
    group = comm.durable_group(members, tag=40)
    assert (group.sequence, group.tag) == (0, 40)
    for number in (1, 2, 3):
        for rank in range(comm.size):
            step(members, rank)
        reply = group.commit(tag=40 + number)
        assert reply.result(60) == number
        assert (group.sequence, group.tag) == (number, 40 + number)
    step(members, 1)
    assert group.restore(60) == 43
    check(members, 3)
    assert group.members[1]["m5"] is members[1]["m5"]
    assert "on 2 ranks; sequence 3" in repr(group)
    assert group.groups[1].save(comm.devices[0]).tag == 43
    group.groups[0].commit().result(60)
    with pytest.raises(an.InvalidRequest, match=r"of rank 0 was committed by itself"):
        group.commit()


def test_a_rank_that_cannot_commit_takes_the_others_back(comm: an.Communicator) -> None:
    members = begin(comm)
    group = comm.durable_group(members)
    for rank in range(comm.size):
        step(members, rank)
    group.commit(tag=1).result(60)
    for rank in range(comm.size):
        step(members, rank)
    poison(comm.devices[1].lane("mine"), members[1]["m5"])
    reply = group.commit(tag=2)
    with pytest.raises((an.DependencyFailed, an.LibraryError), match="boom"):
        reply.result(60)
    assert (group.sequence, group.tag) == (1, 1)
    with pytest.raises(an.InvalidRequest, match=r"the ranks have commits \[2, 1\], and 2 was sent; restore\(\)"):
        group.commit(tag=3)
    assert group.restore(60) == 1
    check(members, 1)
    for rank in range(comm.size):
        step(members, rank)
    assert group.commit(tag=2).result(60) == 2
    assert group.restore() == 2
    check(members, 2)
    comm.devices[0].system.dead_letters.clear()


@pytest.mark.parametrize("kills", [4, pytest.param(300, marks=pytest.mark.slow)])
def test_ranks_that_die_at_random(comm: an.Communicator, kills: int) -> None:
    if comm.devices[0].kind == "cuda":
        kills = min(kills, 30)  # each takes seconds
    members = begin(comm)
    group = comm.durable_group(members)
    draw, number, left = random.Random(kills), 0, kills
    while left or number < 3:
        victim, moment = draw.randrange(comm.size), draw.randrange(6)

        def maybe(now: int, victim: int = victim, moment: int = moment) -> None:
            nonlocal left
            if left and now == moment and (pid := comm.devices[victim].worker_pid) is not None:
                left -= 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        try:
            for rank in range(comm.size):
                step(members, rank)
                maybe(rank)
            reply = group.commit(tag=number + 1)
            maybe(2)
            reply.replies[draw.randrange(comm.size)].wait(60)
            maybe(3)
            reply.result(60)
            maybe(4)
            for mine in members:
                mine["m5"].numpy()
            number += 1
        except LOST:
            while True:
                try:
                    found = group.restore(60)
                except LOST:  # another death
                    continue
                break
            assert found in (number, number + 1)
            number = found
            check(members, number)
    comm.devices[0].system.dead_letters.clear()


@pytest.mark.host_only
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m[:1], "2 mappings of names to durable arrays, one for each rank"),
        (lambda m: m[0], "one for each rank"),
        (lambda m: [m[0], {"other": m[1]["m5"]}], r"members\[1\] is .* the names of members\[0\], \['m5', 'm1000'\]"),
        (lambda m: [m[0], list(m[1].values())], r"members\[1\] is"),
        (lambda m: m[::-1], "must be a whole durable array of"),
        (lambda m: [m[0], {name: ref[:2] for name, ref in m[1].items()}], "must be a whole durable array of"),
    ],
)
def test_members_that_cannot_be(comm: an.Communicator, change: object, text: str) -> None:
    members = begin(comm)
    with pytest.raises(an.InvalidRequest, match=text):
        comm.durable_group(change(members))  # type: ignore[operator]


def test_a_long_loop_keeps_few_commits_in_mind(system: an.System) -> None:
    comm = system.communicator(["host", "host:1"])
    members = begin(comm)
    group = comm.durable_group(members)
    for number in range(1, 21):
        step(members, 0)
        step(members, 1)
        assert group.commit(tag=number).result(60) == number
    assert all(len(numbers) < 10 for numbers in group._numbers)
    step(members, 1)
    assert group.restore(60) == 20
    check(members, 20)
    comm.close()
