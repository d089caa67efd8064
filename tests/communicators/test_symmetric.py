"""Symmetric arrays: one offset on all ranks, windows of NCCL, and what becomes of them."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_cuda
import numpy as np
import pytest
from actions import eventually
from communicator_kinds import made_of, using
from crash import restart
from placements import GPU

import atomr_native as an
from atomr_native._lib.foreign import position
from atomr_native.communicators.symmetric import why_plain


@pytest.fixture(scope="module", params=["host", "fake", *GPU])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module", params=[2, 3])
def comm(system: an.System, kind: str, request: pytest.FixtureRequest) -> Iterator[an.Communicator]:
    made = made_of(system, kind, *range(request.param))
    yield made
    made.close()


@pytest.fixture
def windows(kind: str) -> bool:
    """Whether devices of the kind have windows."""
    return kind in ("fake", "gpu")


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """Return what counts the calls of the fake NCCL since the last time, of all ranks."""
    path = tmp_path / "trace"
    monkeypatch.setenv("FAKE_CUDA_NCCL_TRACE", str(path))

    def calls() -> Counter[str]:
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return Counter(line.removeprefix("nccl") for line in lines)

    return calls


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., an.System]]:
    """Make a System of fake GPUs; options of the fake begin with ``nccl_``."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(using(request, "fake"))

        def make(**options: Any) -> an.System:
            for name in [name for name in options if name.startswith("nccl_")]:
                stack.enter_context(fake_cuda.using({f"FAKE_CUDA_{name.upper()}": str(options.pop(name))}))
            settings = {"standby": "off", "timeout": 60.0, "within": 0.0, "allow_crash": True, **options}
            return stack.enter_context(an.System(**settings))

        yield make


def filled(comm: an.Communicator, shape: Any, dtype: str = "float32", seed: int = 0) -> tuple[list[an.GpuRef], Any]:
    """Return symmetric arrays, and their values."""
    rng = np.random.default_rng(seed)
    values = [rng.integers(-9, 9, shape).astype(dtype) for _ in comm.devices]
    refs = comm.symmetric(shape, dtype)
    for ref, value in zip(refs, values, strict=True):
        ref.device.put(value, out=ref)
    return refs, values


def places(refs: list[an.GpuRef]) -> set[tuple[int, int]]:
    return {position(ref) for ref in refs}


def is_at_work(comm: an.Communicator, owner: Any) -> bool:
    lane = owner.core.lane_stats(comm._registry.lane_of(owner))
    return bool(lane["claimed"] > lane["completed"])


# ---- arrays


def test_every_collective_of_symmetric_arrays(comm: an.Communicator, windows: bool) -> None:
    n = comm.size
    refs, values = filled(comm, (2 * n, 3))
    total = np.sum(values, axis=0)
    if windows:
        assert len(places(refs)) == 1
        assert places(refs) != {(0, 0)}
    outs = comm.symmetric((2 * n, 3))
    assert comm.all_reduce(refs, out=outs) == outs
    for out in outs:
        np.testing.assert_array_equal(out.numpy(), total)
    for rank, part in enumerate(comm.reduce_scatter(refs, out=comm.symmetric((2, 3)))):
        np.testing.assert_array_equal(part.numpy(), total[2 * rank : 2 * rank + 2])
    for joined in comm.all_gather(refs, out=comm.symmetric((2 * n * n, 3))):
        np.testing.assert_array_equal(joined.numpy(), np.concatenate(values))
    for rank, swapped in enumerate(comm.all_to_all(refs, out=outs)):
        np.testing.assert_array_equal(
            swapped.numpy(), np.concatenate([value[2 * rank : 2 * rank + 2] for value in values])
        )
    np.testing.assert_array_equal(comm.reduce(refs, 1, out=outs[1], op="max").numpy(), np.max(values, axis=0))
    for copy in comm.broadcast(refs[1], out=outs):
        np.testing.assert_array_equal(copy.numpy(), values[1])
    gathered = comm.symmetric((2 * n * n, 3))
    np.testing.assert_array_equal(comm.gather(refs, 1, out=gathered[1]).numpy(), np.concatenate(values))
    for rank, part in enumerate(comm.scatter(refs[0], out=comm.symmetric((2, 3)))):
        np.testing.assert_array_equal(part.numpy(), values[0][2 * rank : 2 * rank + 2])
    np.testing.assert_array_equal(comm.send(refs[0], to=1, out=outs[1]).numpy(), values[0])
    counts = [[2 * n if i == j else 0 for j in range(n)] for i in range(n)]
    for rank, kept in enumerate(comm.all_to_all(refs, out=outs, counts=counts)):
        np.testing.assert_array_equal(kept.numpy(), values[rank])
    comm.all_reduce(refs, out=refs)
    np.testing.assert_array_equal(refs[0].numpy(), total)
    comm.broadcast(refs[1], out=refs)
    with comm.group():
        sums = comm.all_reduce(refs, out=outs)
        joined = comm.all_gather(refs)
    np.testing.assert_array_equal(sums[0].numpy(), n * total)
    np.testing.assert_array_equal(joined[1].numpy(), np.concatenate([total] * n))


def test_outputs_that_are_not_given_are_symmetric(pair: an.Communicator, windows: bool) -> None:
    comm = pair
    refs, values = filled(comm, 2 * comm.size, "int32")
    for found in (
        comm.all_reduce(refs), comm.all_gather(refs), comm.reduce_scatter(refs), comm.all_to_all(refs),
        comm.all_reduce(refs),
    ):  # fmt: skip
        assert len(places(found)) == 1 or not windows
        assert (0 in {position(ref)[0] for ref in found}) != windows
    np.testing.assert_array_equal(comm.reduce(refs).numpy(), np.sum(values, axis=0))
    copies = comm.broadcast(refs[0])
    np.testing.assert_array_equal(copies[-1].numpy(), values[0])
    np.testing.assert_array_equal(comm.send(refs[0], to=1).numpy(), values[0])
    np.testing.assert_array_equal(comm.gather(refs).numpy(), np.concatenate(values))


def test_arrays_are_as_others(pair: an.Communicator, kind: str) -> None:
    refs, values = filled(pair, (4, 5), "float64")
    first, second = pair.devices
    np.testing.assert_array_equal(second.copy(refs[0]).numpy(), values[0])
    np.testing.assert_array_equal((refs[1] * 2 + 1).numpy(), values[1] * 2 + 1)
    first.elementwise.run("x = x - 1", x=refs[0])
    np.testing.assert_array_equal(refs[0][1:3].numpy(), values[0][1:3] - 1)
    total = pair.all_reduce([ref[1:3] for ref in refs])
    np.testing.assert_array_equal(total[1].numpy(), values[0][1:3] - 1 + values[1][1:3])
    assert [ref.shape for ref in pair.symmetric((0, 3))] == [(0, 3)] * 2
    assert [ref.shape for ref in pair.symmetric(())] == [()] * 2
    assert pair.symmetric(3, "bfloat16")[0].dtype.name == "bfloat16"
    if kind == "host":
        assert pair.notes == ("symmetric: plain arrays, since host devices meet in shared memory",)


def test_quick_sends_of_plans(pair: an.Communicator, windows: bool) -> None:
    refs, values = filled(pair, 1000)
    plan = pair.plan(an.CollectiveRequest("all_reduce", refs, out=refs))
    plan.tell(refs, out=refs)
    np.testing.assert_array_equal(refs[1].numpy(), values[0] + values[1])
    plain = [device.ones(1000) for device in pair.devices]
    plan.tell(plain, out=plain)
    np.testing.assert_array_equal(plain[0].numpy(), np.full(1000, 2.0))
    if windows:
        others = pair.symmetric(1000)
        for arrays, out in (
            (refs, plain), (plain, refs), (refs, [others[0], refs[1]]), ([refs[0], plain[1]], [plain[0], refs[1]])
        ):  # fmt: skip
            for send in (plan.tell, plan.ask):
                with pytest.raises(an.InvalidRequest, match="symmetric"):
                    send(arrays, out=out)
        plan.ask(refs, out=others).result(60)
        np.testing.assert_array_equal(others[0].numpy(), 2 * (values[0] + values[1]))


def test_bad_input(pair: an.Communicator, system: an.System) -> None:
    for shape, dtype in ((-1, "float32"), ("x", "float32"), (3, "nothing")):
        with pytest.raises(an.InvalidRequest):
            pair.symmetric(shape, dtype)
    with pytest.raises(an.InvalidRequest, match=r"copy_engines='yes'; allowed: True, False"):
        system.communicator(pair.devices, copy_engines="yes")  # type: ignore[arg-type]


def test_mixed_arrays_are_refused(pair: an.Communicator, windows: bool) -> None:
    if not windows:
        pytest.skip("plain arrays may be mixed")
    (x, y), values = filled(pair, 8)
    plain = [device.ones(8) for device in pair.devices]
    for call in (
        lambda: pair.all_reduce([x, plain[1]]),
        lambda: pair.all_reduce([x, y], out=plain),
        lambda: pair.all_gather(plain, out=pair.symmetric(16)),
        lambda: pair.send(x, to=1, out=plain[1]),
        lambda: pair.broadcast(plain[0], out=[plain[0], y]),
    ):
        with pytest.raises(an.InvalidRequest, match=r"of rank \d is a symmetric array, and \w+ of rank \d is none"):
            call()
    halves = [x[:4], y[4:]]
    with pytest.raises(an.InvalidRequest, match=r"x of rank 1 is at byte \d+ of symmetric memory .* at byte \d+ of"):
        pair.all_reduce(halves)
    with pytest.raises(an.InvalidRequest, match="out of rank 1 is at byte"):
        pair.broadcast(x[:4], out=[x[:4], y[4:]])
    pair.send(x[:4], to=1, out=y[4:])  # sends and receives find each other's memory by themselves
    np.testing.assert_array_equal(y.numpy(), np.concatenate([values[1][:4], values[0][:4]]))
    np.testing.assert_array_equal(x.numpy(), values[0])


def test_arrays_of_another_communicator_are_plain(system: an.System, kind: str, pair: an.Communicator) -> None:
    other = made_of(system, kind, 1, 0)
    refs, values = filled(other, 8)
    total = pair.all_reduce([refs[1], pair.devices[1].ones(8)])
    np.testing.assert_array_equal(total[0].numpy(), values[1] + 1)
    other.close()
    np.testing.assert_array_equal(refs[0].numpy(), values[0])
    with pytest.raises(an.ActorStopped):
        other.symmetric(3)


def test_programs_take_bound_symmetric_arrays_only(pair: an.Communicator, windows: bool) -> None:
    refs, values = filled(pair, 100, "float64")
    plain = [device.zeros(100, "float64") for device in pair.devices]
    with pair.record() as g:
        for ref in refs:
            ref.device.elementwise.run("x = x + 1", x=ref)
        pair.all_reduce(refs, out=refs)
    g.plan.tell()
    g.plan.tell()
    np.testing.assert_array_equal(refs[1].numpy(), 2 * (values[0] + values[1] + 2) + 2)
    with pytest.raises(an.InvalidRequest, match="inside a recording"), pair.record():
        pair.symmetric(3)
    if not windows:
        return
    with pytest.raises(an.InvalidRequest, match="operand 'x' is a symmetric array"), pair.record() as g:
        g.operand("x", refs)
    with pair.record() as g:
        given = g.operand("x", plain)
        pair.all_reduce(given, out=given)
    with pytest.raises(an.InvalidRequest, match="operand 'x' is a symmetric array"):
        g.plan.tell(refs)
    with pair.record() as g:
        pair.all_reduce(plain, out=plain)
    with pytest.raises(an.InvalidRequest, match="new is a symmetric array"):
        g.plan.bind(plain[0], refs[0])


# ---- memory


def test_ranges_are_used_again_when_no_rank_uses_them(system: an.System, kind: str, windows: bool) -> None:
    if not windows:
        pytest.skip("plain arrays")
    pair = made_of(system, kind, 0, 1)
    refs = pair.symmetric(1000)
    [place] = places(refs)
    again = refs[0]
    del refs
    gc.collect()
    kept = pair.symmetric(1000)
    assert places(kept) != {place}  # rank 0 has an array there
    del again
    gc.collect()

    def reused() -> bool:  # the device's callback thread releases it
        return places(pair.symmetric(1000)) == {place}

    eventually(reused)
    for _ in range(10):
        pair.all_reduce(pair.symmetric(1 << 20))[0].wait()
    assert len(pair._symmetric_memory()._segments) <= 2
    pair.close()


def test_memory_of_messages_at_work_is_not_used_again(
    make: Callable[..., an.System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(held))
    comm = made_of(make(), "fake", 0, 1)
    refs, values = filled(comm, 1000)
    outs = comm.symmetric(1000)
    for ref in (*refs, *outs):
        ref.wait()
    taken = places(refs)
    held.touch()
    reply = comm.ask(an.CollectiveRequest("all_reduce", refs, out=outs))
    del refs, ref
    gc.collect()
    assert native_take(comm) not in taken
    held.unlink()
    reply.result(60)
    np.testing.assert_array_equal(outs[0].numpy(), values[0] + values[1])
    eventually(lambda: native_take(comm) in taken)


def native_take(comm: an.Communicator) -> tuple[int, int]:
    """Return where the next array would lie."""
    [segment] = comm._symmetric_memory()._segments
    found = segment.take(4000)
    assert found is not None
    return segment.number, found.start


def test_memory_counts_towards_the_limit_and_is_given_back(make: Callable[..., an.System]) -> None:
    system = make(memory_limit=48 << 20)
    comm = made_of(system, "fake", 0, 1)
    refs, values = filled(comm, 8 << 20)  # 32 MiB, and no 64
    assert [owner.memory.segments.reserved() >= 32 << 20 for owner in comm._owners] == [True, True]
    with pytest.raises(an.OutOfMemory):
        comm.symmetric(8 << 20)
    np.testing.assert_array_equal(comm.all_reduce(refs, out=refs)[1].numpy(), values[0] + values[1])
    comm.close()
    np.testing.assert_array_equal(refs[0].numpy(), values[0] + values[1])  # it outlives the communicator
    del refs
    gc.collect()
    eventually(lambda: all(owner.memory.segments.reserved() < 32 << 20 for owner in comm._owners))
    again = made_of(system, "fake", 0, 1)
    again.symmetric(8 << 20)
    again.close()


# ---- windows


def test_windows_and_copy_engines(make: Callable[..., an.System], trace: Callable[[], Counter[str]]) -> None:
    system = make()
    comm = made_of(system, "fake", 0, 1)
    refs, _ = filled(comm, 64)
    comm.symmetric(1000)
    assert trace()["CommWindowRegister window"] == 2  # once a rank
    for collective in (comm.all_reduce, comm.all_gather, comm.reduce_scatter, comm.all_to_all):
        collective(refs)
    comm.all_reduce([device.ones(64) for device in comm.devices])
    comm.barrier().result(60)
    assert trace() == {
        "AllReduce window": 2, "AllGather window": 2, "ReduceScatter window": 2, "AlltoAll window": 2,
        "AllReduce plain": 2,
    }  # fmt: skip
    comm.close()
    assert trace() == {"CommWindowDeregister window": 2}
    engines = made_of(system, "fake", 0, 1, copy_engines=True)
    refs, values = filled(engines, 64)
    joined, swapped = engines.all_gather(refs), engines.all_to_all(refs)
    np.testing.assert_array_equal(joined[0].numpy(), np.concatenate(values))
    np.testing.assert_array_equal(swapped[1].numpy(), np.concatenate([value[32:] for value in values]))
    calls = trace()
    assert calls["AllGather engine"] == calls["AlltoAll engine"] == 2
    assert engines.sub([1, 0])._copy_engines


@pytest.mark.parametrize("version", [22609, 22703, 22802])
def test_older_versions(make: Callable[..., an.System], trace: Callable[[], Counter[str]], version: int) -> None:
    comm = made_of(make(nccl_version=version), "fake", 0, 1, copy_engines=True)
    refs, values = filled(comm, 64)
    joined = comm.all_gather(refs)
    swapped = comm.all_to_all(refs)
    np.testing.assert_array_equal(joined[0].numpy(), np.concatenate(values))
    np.testing.assert_array_equal(swapped[1].numpy(), np.concatenate([value[32:] for value in values]))
    calls = trace()
    has = version >= 22703
    assert calls["CommWindowRegister window"] == 2 * has
    assert calls[f"AllGather {'window' if has else 'plain'}"] == 2
    assert (calls["Send plain"] + calls["Send window"], calls["AlltoAll window"]) == (4, 0)
    if has:
        assert comm.notes == ()
    else:
        [note] = comm.notes
        assert note.startswith(f"symmetric: plain arrays, since NCCL {version // 10000}.{version // 100 % 100}.")
        assert "2.27.3 brings them" in note


def test_why_arrays_are_plain() -> None:
    of: Any = SimpleNamespace(devices=(SimpleNamespace(kind="cuda"),) * 2, size=2)
    assert why_plain(of, "process") is None
    assert "threads of this process" in str(why_plain(of, "thread"))


def test_one_rank_has_plain_arrays(make: Callable[..., an.System]) -> None:
    comm = made_of(make(), "fake", 0)
    [ref] = comm.symmetric(3)
    assert position(ref)[0] == 0
    assert comm.notes == ("symmetric: plain arrays, since one rank shares its memory with nobody",)


def test_the_restart_of_a_rank(make: Callable[..., an.System], trace: Callable[[], Counter[str]]) -> None:
    comm = made_of(make(), "fake", 0, 1, 2)
    refs, values = filled(comm, 100)
    spare = comm.symmetric(50)
    comm.all_reduce(refs, out=refs)
    total = np.sum(values, axis=0)
    for ref in refs:
        np.testing.assert_array_equal(ref.numpy(), total)
    trace()
    restart(comm.devices[1])
    with pytest.raises(an.GpuRefStale, match="restarted"):
        refs[1].numpy()
    np.testing.assert_array_equal(refs[0].numpy(), total)
    with pytest.raises(an.GpuRefStale):
        comm.all_reduce(refs, out=refs)
    comm.barrier().result(60)
    fresh, values = filled(comm, 100, seed=1)
    assert len(places(fresh)) == 1
    assert places(fresh).isdisjoint(places([refs[0], refs[2]]) | places([spare[0]]))  # survivors still have these
    assert trace()["CommWindowRegister window"] == 3
    outs = comm.all_reduce(fresh)
    np.testing.assert_array_equal(outs[1].numpy(), np.sum(values, axis=0))
    assert trace()["AllReduce window"] == 3
    with pytest.raises(an.InvalidRequest, match="symmetric memory"):
        comm.all_reduce([refs[0], fresh[1], refs[2]])
    np.testing.assert_array_equal(refs[2].numpy(), total)
    comm.close()
    assert [device.restarts for device in comm.devices] == [0, 1, 0]


def test_a_death_at_work(make: Callable[..., an.System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(held))
    comm = made_of(make(), "fake", 0, 1)
    refs, _ = filled(comm, 100)
    for ref in refs:
        ref.wait()
    held.touch()
    reply = comm.ask(an.CollectiveRequest("all_reduce", refs, out=refs))
    eventually(lambda: all(is_at_work(comm, owner) for owner in comm._owners))
    restart(comm.devices[0])
    held.unlink()
    with pytest.raises(an.DeviceFault, match="cuda:0"):
        reply.result(60)
    with pytest.raises(an.DeviceFault):
        refs[1].numpy()
    del refs, ref
    again, values = filled(comm, 100, seed=2)
    np.testing.assert_array_equal(comm.all_reduce(again)[1].numpy(), values[0] + values[1])
    restart(comm.devices[0])
    comm.close()  # without a connection, nothing is to be let go of


def test_a_new_connection_has_no_windows_until_the_next_call(
    make: Callable[..., an.System], trace: Callable[[], Counter[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = tmp_path / "refusals"
    monkeypatch.setenv("FAKE_CUDA_REFUSE", str(refusals))
    comm = made_of(make(), "fake", 0, 1)
    refs, values = filled(comm, 100)
    refusals.write_text("ncclAllGather 3 1\n")
    with pytest.raises(an.LibraryError, match="nccl"):
        comm.ask(an.CollectiveRequest("all_gather", refs)).result(60)
    trace()
    np.testing.assert_array_equal(comm.all_reduce(refs)[0].numpy(), values[0] + values[1])
    calls = trace()
    assert calls["AllReduce plain"] + calls["AllReduce window"] == 2
    comm.symmetric(3)
    comm.all_reduce(refs)
    comm.barrier().result(60)
    assert trace()["AllReduce window"] == 2


def test_memory_that_nccl_refuses(
    make: Callable[..., an.System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = tmp_path / "refusals"
    monkeypatch.setenv("FAKE_CUDA_REFUSE", str(refusals))
    comm = made_of(make(), "fake", 0, 1)
    refusals.write_text("ncclCommWindowRegister 3 1\n")
    [*_, plain] = comm.symmetric(3)
    assert position(plain)[0] == 0
    [note] = comm.notes
    assert note.startswith("symmetric: plain arrays, since NCCL does not register their memory: nccl:")
    refs, values = filled(comm, 3)
    np.testing.assert_array_equal(comm.all_reduce(refs)[0].numpy(), values[0] + values[1])
    assert [device.restarts for device in comm.devices] == [0, 0]
    gc.collect()
    eventually(lambda: all(owner.memory.segments.reserved() < 200 << 20 for owner in comm._owners))


@pytest.mark.parametrize("copy_engines", [False, True])
def test_sizes(system: an.System, kind: str, windows: bool, copy_engines: bool) -> None:
    comm = made_of(system, kind, 0, 1, copy_engines=copy_engines)
    for n in (1, 1000, 1 << 18, *([1 << 24] if kind == "gpu" else [])):
        refs, values = filled(comm, n)
        np.testing.assert_array_equal(comm.all_reduce(refs)[1].numpy(), values[0] + values[1])
        np.testing.assert_array_equal(comm.all_gather(refs)[0].numpy(), np.concatenate(values))
    assert (comm.notes == ()) == windows
    comm.close()


def test_a_part_for_which_there_is_no_memory_is_let_go_once(
    make: Callable[..., an.System], monkeypatch: pytest.MonkeyPatch
) -> None:
    comm = made_of(make(), "fake", 0, 1)
    comm.symmetric((4,), "float32")
    memory = comm._symmetric
    gone = memory._segments[0].mappings[1]
    restart(comm.devices[1])
    users = gone.users

    def refuse(*_: object) -> None:
        raise an.OutOfMemory("nothing fits")

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "_open", refuse)
        for _ in range(2):
            with pytest.raises(an.OutOfMemory):
                comm.symmetric((4,), "float32")
    assert gone.users == users
    assert len(places(comm.symmetric((4,), "float32"))) == 1
    comm.close()
