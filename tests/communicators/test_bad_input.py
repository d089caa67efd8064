"""Bad input: typed, with the offending value and the allowed ones, and nothing is sent to any rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import atomr_native as an


@pytest.fixture(scope="module")
def system() -> Iterator[an.System]:
    with an.System(isolation="thread", standby="off", mailbox="reject", mailbox_size=32, allow_crash=True) as made:
        yield made


@pytest.fixture(scope="module")
def comm(system: an.System) -> Iterator[an.Communicator]:
    made = system.communicator(["host", "host:1"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def refs(comm: an.Communicator) -> list[an.GpuRef]:
    return [device.zeros((4, 6)) for device in comm.devices]


@pytest.fixture(autouse=True)
def nothing_is_sent(comm: an.Communicator) -> Iterator[None]:
    before = comm.stats()["messages"]
    yield
    assert comm.stats()["messages"] == before


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ([], "0 devices; allowed: 1 to 64"),
        (["host", "host:1", "host:0"], "one is given twice"),
        ("host", "allowed: a list such as"),
        (["host", 3], "has 3; allowed: names and devices of this System"),
        (["host:16"], "unknown device 'host:16'"),
    ],
)
def test_devices(system: an.System, devices: Any, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        system.communicator(devices)


Call = Callable[[an.Communicator, list[an.GpuRef]], Any]
CALLS: dict[str, tuple[Call, str]] = {
    "too few": (lambda c, r: c.all_reduce(r[:1]), "arrays is 1 arrays; allowed: 2 arrays, one for each rank"),
    "one array": (lambda c, r: c.all_gather(r[0]), "arrays is a GpuRef; allowed: 2 arrays"),  # type: ignore[arg-type]
    "swapped": (lambda c, r: c.all_reduce(r[::-1]), "arrays[0] lies on host:1; allowed for rank 0: host of this"),
    "no handle": (lambda c, r: c.all_reduce([r[0], 1.0]), "arrays[1] must be a GpuRef, not float"),  # type: ignore[list-item]
    "layouts": (lambda c, r: c.all_reduce([r[0], r[1][:2]]), "arrays[1] is float32[2, 6] and arrays[0] is float32"),
    "strided": (lambda c, r: c.all_reduce([r[0].T, r[1].T]), "not contiguous; device.copy(arrays[0]) makes"),
    "op": (lambda c, r: c.all_reduce(r, op="mean"), "op='mean'; allowed: sum, prod, min, max, avg"),  # type: ignore[arg-type]
    "factor": (lambda c, r: c.all_reduce(r, op="max", factor=2), "allowed with a factor: op='sum'"),
    "factors": (lambda c, r: c.all_reduce(r, factor=r), "factor[0] is float32[4, 6]; allowed: one element of float32"),
    "root": (lambda c, r: c.reduce(r, 2), "root=2; allowed: ranks 0 to 1"),
    "to": (lambda c, r: c.send(r[0], -1), "to=-1; allowed: ranks 0 to 1"),
    "to itself": (lambda c, r: c.send(r[0], 0), "allowed: another rank"),
    "out": (lambda c, r: c.all_gather(r, out=r), "out[0] is float32[4, 6]; allowed: float32[8, 6]"),
    "overlap": (
        lambda c, r: c.all_reduce([x[:2] for x in r], out=[x[1:3] for x in r]),
        "out of rank 0 overlaps its x: bytes 24 to 72 and 0 to 48",
    ),
    "wrong place": (
        lambda c, r: c.reduce_scatter(r, out=[x[2:] for x in r]), "or the smaller one 0 bytes from the beginning",
    ),
    "crossing": (lambda c, r: c.all_to_all(r, out=r), "allowed: separate memory"),
    "parts": (lambda c, r: c.reduce_scatter([x[:3] for x in r]), "a first axis that is a multiple of the 2 ranks"),
    "counts": (lambda c, r: c.all_to_all(r, counts=[[1, 2], [2, 2]]), "counts[0] sum to 3 and arrays[0] has 4 rows"),
    "counts' shape": (lambda c, r: c.all_to_all(r, counts=[[4]]), "2 rows of 2 numbers that are at least 0"),
    "ranks": (lambda c, _: c.sub([0, 0]), "ranks=[0, 0]; allowed: different numbers from 0 to 1"),
    "without": (lambda c, _: c.without(2), "without (2,); allowed: numbers from 0 to 1, but not all of them"),
    "without all": (lambda c, _: c.without(1, 0), "without (1, 0); allowed"),
    "colors": (lambda c, _: c.split("a"), "colors='a'; allowed: 2 values"),
    "request": (lambda c, _: c.tell("all_reduce"), "takes a CollectiveRequest, not str"),  # type: ignore[arg-type]
    "kind": (lambda c, _: c.tell(an.CollectiveRequest("sum")), "kind='sum'; allowed: all_reduce"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(comm: an.Communicator, refs: list[an.GpuRef], name: str) -> None:
    call, text = CALLS[name]
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        call(comm, refs)


def test_types_that_cannot_be_reduced(comm: an.Communicator) -> None:
    arrays = [device.zeros(2, "complex64") for device in comm.devices]
    with pytest.raises(an.InvalidRequest, match="complex64, which cannot be reduced; allowed: int8, int32"):
        comm.all_reduce(arrays)
    whole = [device.zeros(2, "int32") for device in comm.devices]
    with pytest.raises(an.InvalidRequest, match=re.escape("factor=0.5 of int32 arrays; allowed: integers")):
        comm.all_reduce(whole, factor=0.5)


def test_arrays_of_another_communicator(system: an.System, comm: an.Communicator, refs: list[an.GpuRef]) -> None:
    third = system.device("host:2").zeros((4, 6))
    with pytest.raises(an.InvalidRequest, match="lies on host:2; allowed: a device of this communicator"):
        comm.broadcast(third)
    with pytest.raises(an.InvalidRequest, match=re.escape("arrays[1] lies on host:2")):
        comm.all_reduce([refs[0], third])


def test_a_stale_handle_at_one_rank_leaves_the_others(comm: an.Communicator, refs: list[an.GpuRef]) -> None:
    gone = comm.devices[1].zeros((4, 6))
    plan = comm.plan(an.CollectiveRequest("all_reduce", refs, out=refs))
    sent = [owner.core.lane_stats(plan._communicator._registry.lane_of(owner))["sent"] for owner in comm._owners]
    gone.free()
    with pytest.raises(an.GpuRefStale, match="freed"):
        plan.tell([refs[0], gone], out=refs)
    after = [owner.core.lane_stats(plan._communicator._registry.lane_of(owner))["sent"] for owner in comm._owners]
    assert after == sent


def test_use_after_close(system: an.System, refs: list[an.GpuRef]) -> None:
    closed = system.communicator(["host", "host:1"])
    plan = closed.plan(an.CollectiveRequest("all_reduce", refs))
    closed.close()
    closed.close()
    for use in (
        lambda: closed.all_reduce(refs),
        lambda: plan.tell(refs),
        lambda: closed.sub([0]),
        lambda: closed.without(0),
        closed.barrier,
    ):
        with pytest.raises(an.ActorStopped, match="this communicator is closed"):
            use()
