"""Launch records: equal messages are launched by one call of the driver; results, order and errors stay as they are."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actions import eventually, poison
from crash import PATIENT, await_generation
from fake_cuda import using
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.plans import actor as library_actor

INVALIDATED = 901
SIZE = 16
NONE = {"kept": 0, "nodes": 0, "captures": 0, "refused": 0, "replays": 0}


def _matrix(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (size, size)).astype("float32")


@pytest.fixture(scope="module")
def device(cuda_engine: str) -> Iterator[an.Device]:
    with an.System(allow_crash=True) as system:
        yield system.device("cuda:0")


@pytest.fixture(scope="module")
def plain(cuda_engine: str) -> Iterator[an.Device]:
    with an.System(launch_records="off") as system:
        yield system.device("cuda:0")


def _counts(device: an.Device) -> dict[str, int]:
    return dict(device.stats()["records"])  # type: ignore[arg-type]


def _until_replayed(device: an.Device, send: Callable[[], Any]) -> None:
    """Send messages until one of them is launched from a record."""
    before = _counts(device)["replays"]

    def replayed() -> bool:
        send()
        return _counts(device)["replays"] > before

    eventually(replayed)


def _ask(plan: an.Plan, *refs: an.GpuRef, **more: Any) -> None:
    plan.ask(*refs, **more).result(60)


_LIBRARIES: dict[str, Callable[[an.Device, an.GpuRef, an.GpuRef], an.GpuRef]] = {
    "matmul": lambda device, x, y: device.blas_lt.matmul(x, y),
    "epilogue": lambda device, x, y: device.blas_lt.matmul(x, y, bias=y[0], epilogue="relu_bias"),
    "transposed view": lambda device, x, y: device.blas_lt.matmul(x[::2].T, y[::2]),
    "gemm": lambda device, x, y: device.blas.gemm(x, y),
    "dot": lambda device, x, y: device.blas.dot(x[0], y[0]),
    "fft": lambda device, x, _: device.fft.rfft(x),
    "fft of columns": lambda device, x, _: device.fft.fft(x, axis=0),
}


@pytest.mark.parametrize("operation", _LIBRARIES)
def test_equal_messages_of_each_library_are_launched_from_a_record(
    device: an.Device, plain: an.Device, operation: str
) -> None:
    """New bytes at the same addresses are read: it is launches that are kept, not results."""
    call = _LIBRARIES[operation]
    x, y = device.put(_matrix(0)), device.put(_matrix(1))
    _until_replayed(device, lambda: call(device, x, y).wait())
    before = _counts(device)
    for seed in range(2, 6):
        device.put(_matrix(seed), out=x)
        want = call(plain, plain.put(_matrix(seed)), plain.put(_matrix(1))).numpy()
        np.testing.assert_array_equal(call(device, x, y).numpy(), want)
    assert plain.stats()["records"] == NONE
    found = _counts(device)
    assert found["replays"] >= before["replays"] + 2  # its output may lie elsewhere for once
    assert found["refused"] == before["refused"]
    assert 0 < found["kept"] <= found["nodes"]


def test_alternating_buffers_have_a_record_each(device: an.Device) -> None:
    x, y = device.put(_matrix(0)), device.put(_matrix(1))
    plan = device.blas_lt.plan(x, y, alpha=7.0)
    outs = [device.empty((SIZE, SIZE)) for _ in range(3)]
    first = _counts(device)
    for out in outs:
        _until_replayed(device, partial(_ask, plan, x, y, out=out))
    before = _counts(device)
    assert before["captures"] == first["captures"] + 3
    for number in range(30):
        plan.ask(x, y, out=outs[number % 3]).result(60)
    after = _counts(device)
    assert after["replays"] == before["replays"] + 30
    assert after["captures"] == before["captures"]
    for out in outs:
        np.testing.assert_array_equal(out.numpy(), 7 * (_matrix(0) @ _matrix(1)))


def test_operands_and_numbers_that_do_not_come_again_are_not_captured(device: an.Device) -> None:
    first, second = _matrix(0, 24), _matrix(1, 24)  # of a plan that no other test has
    x, y = device.put(first), device.put(second)
    plan = device.blas_lt.plan(x, y, alpha=1.0)
    outs = [device.empty((24, 24)) for _ in range(100)]
    before = _counts(device)
    for number, out in enumerate(outs):
        plan.tell(x, y, out=out)
        plan.tell(x, y, out=outs[0], alpha=float(number + 2))
    np.testing.assert_array_equal(outs[0].numpy(), 101 * (first @ second))
    assert _counts(device) == before


def test_numbers_are_part_of_a_record(device: an.Device) -> None:
    x, y, out = device.put(_matrix(0)), device.put(_matrix(1)), device.empty((SIZE, SIZE))
    plan = device.blas_lt.plan(x, y, alpha=1.0)
    for alpha in (2.0, 3.0):
        _until_replayed(device, partial(_ask, plan, x, y, out=out, alpha=alpha))
    for alpha in (2.0, 5.0, 3.0, 2.0):
        plan.tell(x, y, out=out, alpha=alpha)
        np.testing.assert_array_equal(out.numpy(), alpha * (_matrix(0) @ _matrix(1)))


def test_single_kernels_have_records_only_on_demand(device: an.Device, cuda_engine: str) -> None:
    with an.System(launch_records="all") as system:
        for one in (device, system.device("cuda:0")):
            total, x = one.zeros(8), one.ones(8)
            plan = one.elementwise.plan("out = t + x", t=total, x=x)
            before = _counts(one)
            for _ in range(5):
                plan.ask(t=total, x=x, out=total).result(60)
            assert (_counts(one) == before) == (one is device)
            if one is not device:
                _until_replayed(one, partial(_ask, plan, t=total, x=x, out=total))
            total.fill(1.0)
            plan.tell(t=total, x=x, out=total)
            assert set(total.numpy().tolist()) == {2.0}


def test_the_environment_turns_records_off(cuda_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_LAUNCH_RECORDS", "0")
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        x, out = device.put(_matrix(0)), device.empty((SIZE, SIZE))
        for _ in range(10):
            device.blas_lt.matmul(x, x, out=out)
        out.wait()
        assert _counts(device) == NONE
    monkeypatch.setenv("ATOMR_NATIVE_LAUNCH_RECORDS", "yes")
    with pytest.raises(an.InvalidRequest, match="ATOMR_NATIVE_LAUNCH_RECORDS='yes'; allowed: 0, 1"):
        an.System()
    monkeypatch.delenv("ATOMR_NATIVE_LAUNCH_RECORDS")
    with pytest.raises(an.InvalidRequest, match=r"launch_records='some'.*'auto', 'all', 'off'"):
        an.System(launch_records="some")  # type: ignore[arg-type]


def test_the_host_has_no_records() -> None:
    with an.System(standby="off") as system:
        device = system.device("host")
        for _ in range(5):
            device.blas_lt.matmul(device.ones((2, 2)), device.ones((2, 2))).wait()
        assert _counts(device) == NONE


def test_records_go_with_their_plan(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_actor, "_PLANS", 1)
    x, out = device.put(_matrix(0)), device.empty((SIZE, SIZE))
    plan = device.blas_lt.plan(x, x, alpha=-1.0)
    _until_replayed(device, partial(_ask, plan, x, x, out=out))
    kept = _counts(device)["kept"]
    del plan
    sizes = itertools.count(
        SIZE + 1
    )  # each new plan that is used takes the place of the oldest, which others have made

    def dropped() -> bool:
        size = next(sizes)
        device.blas_lt.matmul(device.ones((size, size)), device.ones((size, size))).wait()
        gc.collect()
        return _counts(device)["kept"] < kept

    eventually(dropped)
    np.testing.assert_array_equal(device.blas_lt.matmul(x, x).numpy(), _matrix(0) @ _matrix(0))


def test_messages_that_may_fail_late_are_not_recorded(device: an.Device) -> None:
    x = device.put(_matrix(0) @ _matrix(0).T + SIZE * 100 * np.eye(SIZE, dtype="float32"))
    bad = device.put(-np.eye(SIZE, dtype="float32"))
    before = _counts(device)
    for _ in range(5):
        device.solver.cholesky(x).wait()
        with pytest.raises(an.LibraryError):
            device.solver.cholesky(bad).wait()
    after = _counts(device)  # records of plans that are forgotten go meanwhile
    assert (after["captures"], after["refused"], after["replays"]) == (
        before["captures"], before["refused"], before["replays"],
    )  # fmt: skip


def test_poison_and_stale_handles_stop_a_message_with_a_record(device: an.Device) -> None:
    x, y, out = device.put(_matrix(0)), device.put(_matrix(1)), device.empty((SIZE, SIZE))
    plan = device.blas_lt.plan(x, y)
    _until_replayed(device, partial(_ask, plan, x, y, out=out))
    poison(device.lane("writer"), y)
    before = _counts(device)["replays"]
    with pytest.raises(an.DependencyFailed):
        plan.ask(x, y, out=out).result(60)
    assert _counts(device)["replays"] == before
    device.put(_matrix(2), out=y)
    out.clear_error()
    np.testing.assert_array_equal(device.blas_lt.matmul(x, y).numpy(), _matrix(0) @ _matrix(2))
    x.free()
    with pytest.raises(an.GpuRefStale):
        plan.tell(x, y, out=out)


@pytest.mark.parametrize("call", ["cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags", "cuGraphLaunch"])
def test_where_the_driver_refuses_records_messages_run_as_ever(refuse: Callable[..., Path], call: str) -> None:
    refuse(**{call: (INVALIDATED, 1000)})
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        x, out = device.put(_matrix(0)), device.empty((SIZE, SIZE))
        plan = device.blas_lt.plan(x, x)

        def refused() -> bool:
            plan.ask(x, x, out=out).result(60)
            return _counts(device)["refused"] > 0

        eventually(refused)
        for _ in range(20):
            plan.ask(x, x, out=out).result(60)
        np.testing.assert_array_equal(out.numpy(), _matrix(0) @ _matrix(0))
        assert _counts(device)["refused"] <= 3
        assert _counts(device)["replays"] == 0


# ---- random programs, with records and without


_index = st.integers(0, 3)
_steps = st.one_of(
    st.tuples(st.sampled_from(["matmul", "scaled", "gemm", "add"]), _index, _index, _index),
    st.tuples(st.sampled_from(["fft", "columns", "fill", "copy"]), _index, _index),
    st.tuples(st.sampled_from(["into", "put"]), _index, _index),
)
_events = st.sampled_from(["run", "run", "run", "wait", "read", "grow", "free", "evict", "die"])


def _step(device: an.Device, arrays: list[an.GpuRef], kind: str, *at: int) -> None:
    """Send the messages of a step, in up to five lanes; its last array is replaced, or written."""
    x, out = arrays[at[0]], at[-1]

    def clipped(z: an.GpuRef) -> an.GpuRef:
        found: an.GpuRef = device.elementwise.run("out = minimum(maximum(z, -8.0), 8.0)", z=z)
        return found

    if kind == "matmul":
        arrays[out] = clipped(device.blas_lt.matmul(x, arrays[at[1]]))
    elif kind == "scaled":
        arrays[out] = clipped(device.blas_lt.matmul(x, arrays[at[1]], bias=x[0], epilogue="relu_bias", alpha=0.5 * out))
    elif kind == "gemm":
        arrays[out] = clipped(device.blas.gemm(x, arrays[at[1]]))
    elif kind == "add":
        arrays[out] = clipped(x + arrays[at[1]])
    elif kind == "fft":
        arrays[out] = clipped(device.fft.irfft(device.fft.rfft(x), n=SIZE))
    elif kind == "columns":
        arrays[out] = clipped(device.fft.irfft(device.fft.rfft(x, axis=0), n=SIZE, axis=0))
    elif kind == "fill":
        arrays[out].fill(float(at[0]))
    elif kind == "copy" and at[0] != out:
        device.copy(x, out=arrays[out])
    elif kind == "into" and at[0] != out:
        device.blas_lt.matmul(clipped(x), x, out=arrays[out])
    elif kind == "put":
        arrays[out] = device.put(_matrix(at[0]))


class _Side:
    """One device of two, on which the same happens."""

    def __init__(self, device: an.Device) -> None:
        self.device = device
        self.arrays = [device.put(_matrix(seed)) for seed in range(4)]
        self.grown = 0

    def apply(self, event: str, program: list[Any]) -> None:
        device = self.device
        if event == "run":
            for step in program:
                _step(device, self.arrays, *step)
        elif event == "wait":
            for ref in self.arrays:
                ref.wait()
        elif event == "grow":  # a larger workspace
            self.grown += 1
            size = 32 * self.grown
            device.fft.fft(device.put(_matrix(5, size)), axis=0)
            device.blas_lt.matmul(device.put(_matrix(5, size))[::2].T, device.put(_matrix(6, size))[::2])
        elif event == "free":
            self.arrays.append(device.put(_matrix(9)))
            self.arrays.pop(0).free()
        elif event == "evict":
            for actor in (device.blas_lt, device.blas, device.fft):
                actor._plans.clear()
        elif event == "die":
            for ref in self.arrays:
                ref.wait()
            generation = device.generation
            device.inject_fault("segfault")
            await_generation(device, generation + 1)
            self.arrays = [device.put(_matrix(seed)) for seed in range(4)]


@pytest.fixture(scope="module")
def sides(cuda_engine: str, request: pytest.FixtureRequest) -> Iterator[list[an.Device]]:
    """Lend a device that makes all the records that it can, and one that makes none; work of the fake begins late."""
    options: dict[str, Any] = {"standby": "warm", "allow_crash": True, "max_restarts": 10_000, **PATIENT}
    late: Any = contextlib.nullcontext()
    if cuda_engine == "fake":
        late = using({**request.getfixturevalue("fake_environment"), "FAKE_CUDA_DELAY_US": "100"})
    with late, an.System(launch_records="all", **options) as one, an.System(launch_records="off", **options) as other:
        yield [one.device("cuda:0"), other.device("cuda:0")]


@settings(max_examples=10)
@given(program=st.lists(_steps, min_size=1, max_size=6), events=st.lists(_events, min_size=1, max_size=6))
def test_random_programs_have_the_same_bits_with_records_and_without(
    sides: list[an.Device], program: list[Any], events: list[str]
) -> None:
    pair = [_Side(device) for device in sides]
    for event in ("run", "run", "run", *events, "run", "run", "run"):
        for side in pair:
            side.apply(event, program)
        if event == "read":
            for one, other in zip(*(side.arrays for side in pair), strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy())
    for one, other in zip(*(side.arrays for side in pair), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_random_programs_were_launched_from_records(sides: list[an.Device]) -> None:
    """The last test of the programs above: they do not only pass because nothing was recorded."""
    side = _Side(sides[0])
    program = [("matmul", 0, 1, 2), ("gemm", 0, 1, 2), ("columns", 0, 3), ("into", 0, 1)]
    _until_replayed(sides[0], lambda: (side.apply("run", program), side.apply("wait", program)))
    assert sides[1].stats()["records"] == NONE
