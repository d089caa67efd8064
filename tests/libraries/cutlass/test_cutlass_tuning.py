"""Tuned products: which kernels compete, that the fastest is taken and kept, and that its results are the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_cuda
import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

import atomr_native as an
from atomr_native.builders.cuda.context import CudaContext
from atomr_native.builders.cuda.target import KernelProgram, Target
from atomr_native.libraries.cutlass import code
from atomr_native.libraries.cutlass.attributes import CompiledKernel
from atomr_native.libraries.cutlass.candidates import MOST, candidates
from atomr_native.libraries.cutlass.choice import kernel_of
from atomr_native.libraries.cutlass.kernels import check, render
from atomr_native.libraries.cutlass.precompile import precompile, wanted_of
from atomr_native.libraries.cutlass.tuning import fastest
from atomr_native.plans.tuning import TuningStore
from atomr_native.protocol.binaries import Binary

RNG = np.random.default_rng(8)


def request(m: int, n: int, k: int, dtype: Any = np.float16, **how: Any) -> Any:
    a, b = np.empty((m, k), dtype), np.empty((n, k), dtype).T
    return an.GemmRequest(a=a, b=b, tune=True, **how)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("shape", "dtype", "capability", "how"),
    [
        ((4096, 4096, 4096), np.float16, (9, 0), {}),
        ((64, 4096, 14336), ml_dtypes.bfloat16, (9, 0), {"epilogue": "relu(acc) + 1"}),
        ((4096, 4096, 4096), ml_dtypes.float8_e4m3fn, (9, 0), {}),
        ((4096, 4096, 4096), np.float32, (9, 0), {}),
        ((33, 65, 127), np.int8, (8, 0), {}),
        ((64, 64, 64), np.float64, (8, 0), {}),
    ],
)
def test_candidates_are_different_kernels_or_orders(
    shape: tuple[int, int, int], dtype: Any, capability: tuple[int, int], how: dict[str, Any]
) -> None:
    spec = request(*shape, dtype, **how).lowered.spec()
    found = candidates(spec, capability)
    assert found[0] == spec.attributes.choice
    made = [kernel_of(replace(spec, attributes=replace(spec.attributes, choice=one)), capability) for one in found]
    assert len({(one.kernel, one.splits, one.swizzle) for one in made}) == len(made) > 1
    assert len({one.kernel for one in made}) <= MOST
    assert len({one.title for one in made}) == len(made)
    for one in made:
        check(one.kernel)
        render(one.kernel)
        if dtype is ml_dtypes.float8_e4m3fn:  # whose exact sums are in twice as many registers
            threads = 256 if one.kernel.schedule == "cooperative" else 128
            assert one.kernel.tile[0] * one.kernel.tile[1] // threads <= 64


@pytest.mark.plain
def test_candidates_of_groups_and_convolutions() -> None:
    a, b, ends = np.empty((4096, 1024), "f2"), np.empty((8, 512, 1024), "f2").swapaxes(1, 2), np.empty(8, "i4")
    x, w = np.empty((8, 28, 28, 64), "f2"), np.empty((128, 3, 3, 64), "f2")
    dy = np.empty((8, 28, 28, 128), "f2")
    requests = [
        (an.GroupedGemmRequest(a=a, b=b, offsets=ends, tune=True), (9, 0)),
        (an.GroupedGemmRequest(a=a, b=b, offsets=ends, tune=True), (8, 0)),
        (an.FusedConvolutionRequest(operation="forward", a=x, b=w, padding=1, tune=True), (9, 0)),
        (an.FusedConvolutionRequest(operation="filter_gradient", a=dy, b=x, size=(3, 3), padding=1, tune=True), (8, 0)),
    ]
    for one, capability in requests:
        spec = one.lowered.spec()
        found = candidates(spec, capability)
        made = [kernel_of(replace(spec, attributes=replace(spec.attributes, choice=one)), capability) for one in found]
        assert len({(one.kernel, one.splits, one.swizzle) for one in made}) == len(made) > 3
        assert len({one.title for one in made}) == len(made)
        for each in made:
            check(each.kernel)
        if spec.op == "cutlass.convolution":
            assert len({each.splits for each in made}) > 2


@pytest.mark.plain
def test_few_rows_may_be_turned_or_not() -> None:
    spec = request(16, 4096, 14336).lowered.spec()
    found = candidates(spec, (9, 0))
    made = [kernel_of(replace(spec, attributes=replace(spec.attributes, choice=one)), (9, 0)) for one in found]
    assert {one.turned for one in made} == {True, False}
    assert {one.kernel.decomposition for one in made if one.turned} == {"tiles", "stream_k"}
    assert {one.kernel.tile for one in made if one.turned} == {(128, 16, 64), (64, 16, 64), (64, 16, 128)}


@pytest.mark.plain
@pytest.mark.parametrize(
    "config", [{"schedule": "pingpong"}, {"tile": (128, 128, 64)}, {"swizzle": 4}, {"decomposition": "tiles"}]
)
def test_candidates_have_what_the_user_fixed(config: dict[str, Any]) -> None:
    spec = request(4096, 4096, 4096, config=an.GemmConfig(**config)).lowered.spec()
    found = candidates(spec, (9, 0))
    ((name, value),) = config.items()
    assert all(getattr(one, name) == value for one in found)
    assert config != {"schedule": "pingpong"} or len(found) > 2


@pytest.mark.plain
@pytest.mark.parametrize("value", [1, None, "known"])
def test_tune_is_a_flag(value: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="tune="):
        an.GemmRequest(a=np.empty((2, 2), "f4"), b=np.empty((2, 2), "f4"), tune=value)


class Backend:
    """Device memory of a process, and launches that take what their kernel's workspace says."""

    def __init__(self) -> None:
        self.measured: list[int] = []

    def allocate(self, nbytes: int) -> int:
        return 1 << 20

    def free(self, address: int, nbytes: int) -> None:
        pass

    def copy_now(self, target: int, source: int, nbytes: int) -> None:
        pass

    def prepare(self, program: KernelProgram) -> KernelProgram:
        if program.cubin == b"refused":
            raise an.Unsupported("no such kernel")
        return program

    def measure(self, run: KernelProgram, places: list[int], sets: int, launches: int, at: int, nbytes: int) -> float:
        assert len(places) == 3 * sets
        self.measured.append(nbytes)
        return float(run.workspace)


def kernels(*codes: bytes) -> tuple[CompiledKernel, ...]:
    """Return kernels whose titles are their codes' up to a dot."""
    return tuple(
        CompiledKernel("entry", Binary(one), Binary(b""), (), (), (), title=one.decode().partition(".")[0])
        for one in codes
    )


@pytest.mark.plain
def test_the_fastest_kernel_is_taken_and_kept(tmp_path: Path) -> None:
    spec, store = request(64, 64, 64).lowered.spec(), TuningStore(tmp_path)
    times = {b"first": 50, b"refused": 1, b"best": 20, b"slow": 90, b"other": 10}

    def trial(kernel: CompiledKernel) -> KernelProgram:
        return KernelProgram(kernel.code.data, (), workspace=times[kernel.code.data])

    def chosen(backend: Backend, *codes: bytes, deterministic: bool = False) -> tuple[str, str]:
        device: Any = backend
        context = CudaContext(Target("sm_90a"), device=device, deterministic=deterministic)
        found, line = fastest(context, spec, kernels(*codes), trial, store)
        return found.title, line

    backend = Backend()
    name, line = chosen(backend, b"first", b"refused", b"best", b"slow")
    assert name == "best"
    assert line.endswith("kernel best")
    assert {20, 50, 90} == set(backend.measured)
    again = Backend()
    assert chosen(again, b"first", b"refused", b"best", b"slow") == ("best", line)
    assert not again.measured
    assert chosen(again, b"first", b"other", deterministic=True) == ("first", "")
    assert not again.measured
    times[b"best.2"] = 70
    assert chosen(again, b"first", b"refused", b"best.2", b"slow")[0] == "first"  # other code is another problem
    assert again.measured


@pytest.mark.plain
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_groups_are_measured_with_equal_sizes(tmp_path: Path, dtype: str) -> None:
    a, b, ends = np.empty((1000, 64), "f2"), np.empty((3, 64, 64), "f2"), np.empty(3, dtype)
    spec = an.GroupedGemmRequest(a=a, b=b, offsets=ends, tune=True).lowered.spec()
    seen: list[bytes] = []

    class Copies(Backend):
        def copy_now(self, target: int, source: int, nbytes: int) -> None:
            seen.append(ctypes.string_at(source, nbytes) if nbytes == ends.nbytes else b"")

        def measure(self, run: KernelProgram, *_: Any) -> float:
            return float(run.workspace)

    device: Any = Copies()
    found, _ = fastest(
        CudaContext(Target("sm_90a"), device=device), spec, kernels(b"first", b"best"),
        lambda kernel: KernelProgram(kernel.code.data, (), workspace=len(kernel.code.data)), TuningStore(tmp_path),
    )  # fmt: skip
    assert found.title == "best"
    assert np.frombuffer(next(filter(None, seen)), dtype).tolist() == [333, 666, 1000]


@pytest.mark.plain
def test_candidates_compile_together_and_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    failing = [2]

    def compiled(spec: Any, _functions: object, _capability: object, _cancel: object = None) -> CompiledKernel:
        place = candidates_.index(spec.attributes.choice)
        seen.append((place, spec.attributes.tune))
        if place in failing:
            raise an.LibraryError("nvrtc", 6, "NVRTC_ERROR_COMPILATION", "compiling", "no")
        return kernels(str(place).encode())[0]

    monkeypatch.setattr(code, "compiled_kernel", compiled)
    (wanted,) = wanted_of([request(4096, 4096, 4096)])
    candidates_ = candidates(wanted.spec, (9, 0))
    ((_, _, problem),) = precompile([wanted], (9, 0))
    assert problem is None
    assert sorted(seen) == [(place, False) for place in range(len(candidates_))]
    made = code.compiled_kernels(wanted.spec, (), (9, 0))
    assert [one.title for one in made] == [str(place) for place in range(len(candidates_)) if place != 2]
    failing.append(0)
    ((_, _, problem),) = precompile([wanted], (9, 0))
    assert isinstance(problem, an.LibraryError)


@pytest.fixture(scope="module")
def device(fake_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[an.Device]:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
    import fake_cutlass

    with pytest.MonkeyPatch.context() as patch, fake_cuda.using(fake_environment):
        patch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        fake_cutlass.install(patch)
        with an.System() as system:
            yield system.device("cuda:0")


def test_a_tuned_plan_computes_the_same(device: an.Device) -> None:
    a, b, bias = RNG.standard_normal((8, 64)), RNG.standard_normal((64, 16)), RNG.standard_normal(16)
    given = [device.put(one.astype("f4")) for one in (a, b)]
    how = {"epilogue": "alpha * acc + 0.5 * bias", "operands": {"bias": device.put(bias.astype("f4"))}}
    plan = device.cutlass.plan(*given, tune=True, **how)
    assert plan.tuning.startswith("tuned: ")
    assert device.cutlass.plan(*given, **how).tuning == ""
    assert device.cutlass.plan(*given, tune=True, alpha=2.0, **how).tuning == plan.tuning  # as it was measured
    for alpha in (1.0, -3.0):
        found = device.cutlass.gemm(*given, tune=True, alpha=alpha, **how)
        np.testing.assert_allclose(found.numpy(), alpha * (a @ b) + 0.5 * bias, rtol=1e-4, atol=1e-4)


def test_tuned_plans_show_how_measuring_gets_on(device: an.Device) -> None:
    a, b = device.put(RNG.standard_normal((64, 32)).astype("f4")), device.zeros((2, 32, 16), "float32")
    seen: list[tuple[int, int, str]] = []

    def watch(done: int, total: int, what: str) -> None:
        seen.append((done, total, what))

    ends = device.put(np.array([10, 64], "i4"))
    x, w = device.zeros((1, 4, 4, 8), "float32"), device.zeros((8, 1, 1, 8), "float32")
    convolution = an.FusedConvolutionRequest(operation="forward", a=x, b=w, tune=True)
    for make in (
        lambda: device.cutlass.plan(a, b[0], tune=True, progress=watch),
        lambda: device.cutlass.plan_grouped(a, b, ends, tune=True, progress=watch),
        lambda: device.cutlass.plan_convolution(convolution, progress=watch),
    ):
        seen.clear()
        assert make().tuning.startswith("tuned: ")
        assert seen
        assert all(0 < done <= total for done, total, _ in seen)
        assert any("kernel" in what for _, _, what in seen)
    found = device.cutlass.grouped_gemm(a, b + 1, ends, tune=True).numpy()
    np.testing.assert_allclose(found, a.numpy().sum(1, keepdims=True).repeat(16, 1), rtol=1e-4, atol=1e-4)
    with pytest.raises(an.InvalidRequest, match="progress=3; allowed: True"):
        device.cutlass.plan(a, b[0], tune=True, progress=3)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_tuned_plan_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    a, b, bias = RNG.standard_normal((512, 1024)), RNG.standard_normal((512, 1024)), RNG.standard_normal(512)
    with an.System() as system:
        device = system.device("cuda:0")
        x, w = (device.put(one, "bfloat16") for one in (a, b))
        how = {"epilogue": "alpha * acc + bias", "operands": {"bias": device.put(bias, "float32")}}
        plan = device.cutlass.plan(x, w.T, tune=True, **how)
        assert plan.tuning.startswith("tuned: ")
        found = device.cutlass.gemm(x, w.T, tune=True, alpha=2.0, **how).numpy().astype("f8")
        want = 2 * (x.numpy().astype("f8") @ w.numpy().astype("f8").T) + bias
        np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-2 * np.abs(want).max())
        assert device.cutlass.plan(x, w.T, tune=True, **how).tuning == plan.tuning


@pytest.mark.gpu
@pytest.mark.slow
def test_tuned_groups_and_convolutions_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    older = an.GemmConfig(arch="sm_80")  # whose kernels compile in seconds
    with an.System() as system:
        device = system.device("cuda:0")
        x, w = (device.put(RNG.standard_normal(shape), "float16") for shape in ((512, 128), (3, 128, 64)))
        ends = device.put(np.array([100, 100, 512], "i4"))
        plan = device.cutlass.plan_grouped(x, w, ends, tune=True, config=older)
        assert plan.tuning.startswith("tuned: ")
        found = device.cutlass.grouped_gemm(x, w, ends, tune=True, config=older).numpy().astype("f8")
        a, b = x.numpy().astype("f8"), w.numpy().astype("f8")
        want = np.concatenate([a[:100] @ b[0], a[100:] @ b[2]])
        np.testing.assert_allclose(found, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
        y, f = (device.put(RNG.standard_normal(shape), "float16") for shape in ((4, 14, 14, 32), (32, 3, 3, 32)))
        dy = device.cutlass.convolution(y, f, padding=1, tune=True)
        assert np.abs(dy.numpy() - device.cutlass.convolution(y, f, padding=1).numpy()).max() == 0
        dw = device.cutlass.convolution_backward_filter(y, dy, (3, 3), padding=1, tune=True).numpy().astype("f8")
        want = device.cutlass.convolution_backward_filter(y, dy, (3, 3), padding=1).numpy().astype("f8")
        np.testing.assert_allclose(dw, want, rtol=5e-3, atol=5e-3 * np.abs(want).max())
