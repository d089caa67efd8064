"""PyTorch, CuPy, Numba and JAX as consumers and producers of GPU memory.  All of it needs a GPU."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scripts
from actions import bits, eventually
from crowds import together
from layouts import NAMES, filled
from lending import in_use, opened

import atomr_native as an
from atomr_native.dtypes import DTYPES

pytestmark = pytest.mark.gpu

VIEWS: list[Any] = [lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[2, 1:2]]
#: Names that PyTorch has, and its DLPack since long ago.
TORCH = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64", "complex128",
         "bfloat16")  # fmt: skip
CUPY = tuple(name for name in NAMES if not name.startswith(("bfloat", "float8")))
LONG = 200_000_000  # cycles of a GPU: a tenth of a second


@pytest.fixture(scope="module")
def system(each_isolation: Any) -> Iterator[an.System]:
    with an.System(isolation=each_isolation, allow_crash=True, within=0.0) as made:
        yield made


@pytest.fixture
def device(system: an.System) -> Iterator[an.Device]:
    found = system.device("cuda:0")
    yield found
    gc.collect()
    eventually(lambda: not found._state.imports._imports)
    system.dead_letters.clear()


@pytest.fixture(scope="module")
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    found.zeros(1, device="cuda")
    return found


@pytest.fixture(scope="module")
def cupy() -> Any:
    found = pytest.importorskip("cupy")
    found.zeros(1)
    return found


def tensor(torch: Any, data: np.ndarray) -> Any:
    """A tensor on the GPU with the bits of an array."""
    if data.dtype.name == "bfloat16":
        return torch.from_numpy(data.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(data).cuda()


def run(code: str, *arguments: str) -> str:
    """Run a program with libraries that warn; what it printed."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=scripts.environment()
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def host(torch: Any, x: Any) -> bytes:
    x = x.contiguous().cpu()
    return bytes((x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy().tobytes())


# ---- PyTorch


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("view", VIEWS)
def test_torch_reads_and_writes_handles(device: an.Device, torch: Any, name: str, view: Any) -> None:
    data = filled((4, 6), DTYPES[name])
    ref = view(device.put(data))
    x = torch.from_dlpack(ref)
    assert x.device == torch.device("cuda", ref.__dlpack_device__()[1])
    assert host(torch, x) == bits(view(data))
    if name != "bfloat16":
        y = torch.as_tensor(ref, device="cuda")
        assert y.data_ptr() == x.data_ptr()
    ref.fill(1)
    ref.wait()
    assert host(torch, x) == bits(np.ones_like(view(data)))
    with ref.lend():
        x.zero_()
    assert bits(ref.numpy()) == bits(np.zeros_like(view(data)))


def test_torch_float8(device: an.Device, torch: Any) -> None:
    for name in ("float8_e4m3fn", "float8_e5m2"):
        data = filled((4, 6), DTYPES[name])
        ref = device.put(data)
        x = torch.from_dlpack(ref.view("uint8")).view(getattr(torch, name))
        assert bits(x.view(torch.uint8).cpu().numpy()) == bits(data)
        try:
            direct = torch.from_dlpack(ref)
        except (RuntimeError, BufferError, TypeError) as error:
            pytest.skip(f"this PyTorch does not import {name} through DLPack: {error}")
        assert direct.dtype == getattr(torch, name)


def test_torch_consumes_on_a_side_stream(device: an.Device, torch: Any) -> None:
    stream = torch.cuda.Stream()
    ref = device.elementwise.run("x + 1", x=device.put(np.arange(1000.0)))
    with torch.cuda.stream(stream):
        y = torch.from_dlpack(ref) * 2
    stream.synchronize()
    assert y.cpu().tolist() == [2.0 * (i + 1) for i in range(1000)]


def test_lending_waits_for_torch(device: an.Device, torch: Any) -> None:
    stream = torch.cuda.Stream()
    for which in (None, stream.cuda_stream):
        ref = device.zeros((1000,), "float64")
        with ref.lend(stream=which) as lent, torch.cuda.stream(stream):
            x = torch.from_dlpack(lent)
            torch.cuda._sleep(LONG)
            x.fill_(5)
        assert (device.elementwise.run("x + 1", x=ref).numpy() == 6).all()


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("view", VIEWS)
def test_torch_tensors_are_memory_of_the_device(device: an.Device, torch: Any, name: str, view: Any) -> None:
    data = filled((4, 6), DTYPES[name])
    base = tensor(torch, data)
    x = view(base)
    ref = device.asarray(x, copy=False)
    assert ref.allocation.origin + ref.offset == x.data_ptr()
    assert bits(ref.numpy()) == bits(view(data))
    ref.fill(1)
    ref.wait()
    assert host(torch, x) == bits(np.ones_like(view(data)))
    base.copy_(tensor(torch, filled((4, 6), DTYPES[name], 3)))
    torch.cuda.synchronize()
    assert bits(ref.numpy()) == bits(view(filled((4, 6), DTYPES[name], 3)))


def test_torch_produces_on_a_side_stream(device: an.Device, torch: Any) -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        x.fill_(7)
        ref = device.asarray(x, copy=False)
    assert (ref.numpy() == 7).all()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        x.fill_(8)
        copied = device.asarray(x, copy=True)
    assert (copied.numpy() == 8).all()


def test_a_tensor_twice_is_one_allocation(device: an.Device, torch: Any) -> None:
    x = torch.zeros(64, 64, device="cuda")
    a, b, row = device.asarray(x), device.asarray(x.T), device.asarray(x[3])
    assert a.allocation.slot == b.allocation.slot == row.allocation.slot
    for i in range(200):
        device.elementwise.run("x + 1", x=a, out=a)
        if i % 3 == 0:
            row.fill(i)
    assert row.numpy().tolist() == [199] * 64
    assert (a.numpy()[0] == 200).all()


def test_the_memory_of_tensors_is_given_back(device: an.Device, torch: Any, each_isolation: str) -> None:
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    x = torch.ones(32 << 20, dtype=torch.uint8, device="cuda")
    ref = device.asarray(x, copy=False)
    y = device.elementwise.run("x + 1", x=ref)
    del x, ref
    eventually(lambda: torch.cuda.memory_allocated() <= before)  # less where a test before had something left then
    if each_isolation == "process":
        assert opened(device) == 0
    torch.cuda.empty_cache()  # which may free what the worker had open
    assert (y.numpy() == 2).all()


def test_tensors_that_come_and_go(device: an.Device, torch: Any) -> None:
    for turn in range(200):
        x = torch.full((1000 + 1000 * (turn % 7),), float(turn), device="cuda")
        y = device.elementwise.run("x + 1", x=device.asarray(x, copy=False))
        del x
        if turn % 20 == 0:
            torch.cuda.empty_cache()
            assert (y.numpy() == turn + 1).all()


def test_tensors_with_gradients_are_refused(device: an.Device, torch: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="grad"):
        device.asarray(torch.zeros(3, device="cuda", requires_grad=True))


def test_tensors_in_another_place_are_copied(device: an.Device, system: an.System, torch: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with pytest.raises(an.Unsupported, match="host memory"):
        device.asarray(x, copy=False)
    assert device.asarray(x).numpy().tolist() == x.tolist()
    y = x.cuda().T
    assert system.device("host").asarray(y).numpy().tolist() == y.tolist()
    if torch.cuda.device_count() < 2:
        pytest.skip("a second GPU is needed")
    z = x.to("cuda:1").T
    with pytest.raises(an.Unsupported, match="GPU 1"):
        device.asarray(z, copy=False)
    assert device.asarray(z).numpy().tolist() == z.tolist()


def test_torch_keeps_what_it_borrowed_through_a_restart(device: an.Device, torch: Any, each_isolation: str) -> None:
    if each_isolation == "thread":
        pytest.skip("a thread does not restart")
    ref = device.put(np.arange(1000.0))
    x, before = torch.from_dlpack(ref), in_use(device)
    generation = device.generation
    device.inject_fault("abort")
    eventually(lambda: device.generation > generation)
    device.wait_ready(60)
    others = [device.full((1000,), -1.0, "float64") for _ in range(100)]
    an.gather(*others, timeout=60)
    assert x.cpu().tolist() == list(range(1000))
    with pytest.raises(an.GpuRefStale):
        ref.numpy()
    del x, others
    eventually(lambda: in_use(device) <= before - 8192)


def test_torch_lets_go_while_its_kernel_runs(device: an.Device, torch: Any) -> None:
    stream = torch.cuda.Stream()
    for _ in range(3):
        ref = device.empty((1 << 20,), "uint8")
        with torch.cuda.stream(stream):
            x = torch.from_dlpack(ref)
            torch.cuda._sleep(LONG)
            x.fill_(3)
        del x, ref
        fresh = device.full((1 << 20,), 9, "uint8")
        fresh.wait()
        stream.synchronize()
        assert (fresh.numpy() == 9).all()


TORCH_POOLS = """
import os, sys
import numpy as np, torch, atomr_native as an
x = torch.arange(1000.0, device="cuda")
with an.System(isolation=sys.argv[1]) as system:
    device = system.device("cuda:0")
    try:
        ref = device.asarray(x, copy=False)
        print("shared")
    except an.Unsupported as error:
        print("refused:", error)
        ref = device.asarray(x)
    assert (device.elementwise.run("x + 1", x=ref).numpy() == np.arange(1000) + 1).all()
    assert (device.asarray(x, copy=True).numpy() == np.arange(1000)).all()
    del ref
"""


@pytest.mark.parametrize("pool", ["expandable_segments:True", "backend:cudaMallocAsync", "backend:native"])
def test_other_pools_of_torch(torch: Any, each_isolation: str, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", pool)
    out = run(TORCH_POOLS, each_isolation)
    assert out.startswith("shared" if each_isolation == "thread" or pool == "backend:native" else "refused")
    assert "cudaMalloc" in out or out.startswith("shared")


def test_messages_and_torch_take_turns(device: an.Device, torch: Any) -> None:
    """A thousand steps on one tensor, alternately; each sees what the other has done."""
    x = torch.zeros(4096, device="cuda")
    ref = device.asarray(x, copy=False)
    for _ in range(500):
        device.elementwise.run("x * 0.5 + 1", x=ref, out=ref)
        with ref.lend(stream=torch.cuda.current_stream().cuda_stream or 1):
            x.add_(1)
    expected = np.float32(0)
    for _ in range(500):
        expected = expected * np.float32(0.5) + np.float32(1) + np.float32(1)
    assert (ref.numpy() == expected).all()


def test_threads_of_torch(device: an.Device, torch: Any) -> None:
    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(50):
                x = torch.full((5000,), float(number * 100 + turn), device="cuda")
                y = device.elementwise.run("x + 1", x=device.asarray(x, copy=False))
                back = torch.from_dlpack(y)
                assert bool((back == number * 100 + turn + 1).all())

    together(work, range(4))


# ---- CuPy


@pytest.mark.parametrize("name", CUPY)
@pytest.mark.parametrize("view", VIEWS)
def test_cupy_both_ways(device: an.Device, cupy: Any, name: str, view: Any) -> None:
    data = filled((4, 6), DTYPES[name])
    ref = view(device.put(data))
    seen = [cupy.asarray(ref)]
    if name not in ("bool",):
        seen.append(cupy.from_dlpack(ref))
    for x in seen:
        assert x.data.ptr == ref.__cuda_array_interface__["data"][0]
        assert bits(x.get()) == bits(view(data))
    base = cupy.asarray(data)
    mine = device.asarray(view(base), copy=False)
    assert mine.allocation.origin + mine.offset == view(base).data.ptr
    mine.fill(1)
    mine.wait()
    after = data.copy()
    view(after)[...] = 1
    assert bits(base.get()) == bits(after)


def test_cupy_on_a_side_stream(device: an.Device, cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    big = cupy.zeros((4096, 4096), cupy.float32)
    with stream:
        x = big
        for _ in range(20):
            x = x @ big
        x = x + 3
        ref = device.asarray(x, copy=False)
    assert (ref.numpy() == 3).all()


def test_lending_waits_for_cupy(device: an.Device, cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    big = cupy.zeros((4096, 4096), cupy.float32)
    for which in (None, stream.ptr):
        ref = device.zeros((1000,), "float32")
        with ref.lend(stream=which) as lent, stream:
            x = cupy.asarray(lent)
            late = big
            for _ in range(20):
                late = late @ big
            x += late[0, :1000] + 5
        assert (device.elementwise.run("x + 1", x=ref).numpy() == 6).all()
        with ref.lend() as lent:
            assert (cupy.from_dlpack(lent).get() == 5).all()


def test_cupy_keeps_what_it_borrowed(device: an.Device, cupy: Any) -> None:
    before = in_use(device)
    ref = device.put(np.arange(1000.0))
    seen = [cupy.from_dlpack(ref), cupy.asarray(ref)]
    del ref
    others = [device.full((1000,), -1.0, "float64") for _ in range(100)]
    an.gather(*others, timeout=60)
    while seen:
        assert seen.pop().get().tolist() == list(range(1000))
    del others
    eventually(lambda: in_use(device) <= before)


@pytest.mark.parametrize("pool", ["managed", "async", "default"])
def test_pools_of_cupy(device: an.Device, cupy: Any, each_isolation: str, pool: str) -> None:
    allocators = {
        "managed": lambda: cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc,
        "async": lambda: cupy.cuda.MemoryAsyncPool().malloc,
        "default": lambda: cupy.cuda.MemoryPool().malloc,
    }
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocators[pool]())
    try:
        x = cupy.arange(1000.0)
    finally:
        cupy.cuda.set_allocator(before)
    if each_isolation == "process" and pool != "default":
        with pytest.raises(an.Unsupported, match="cudaMalloc"):
            device.asarray(x, copy=False)
    else:
        assert device.asarray(x, copy=False).allocation.origin == x.data.ptr
    assert device.asarray(x).numpy().tolist() == list(range(1000))


def test_the_memory_of_cupy_is_given_back(device: an.Device, cupy: Any) -> None:
    x = cupy.ones(8 << 20, cupy.uint8)
    gone = weakref.ref(x)
    y = device.elementwise.run("x + 1", x=device.asarray(x, copy=False))
    del x
    eventually(lambda: gone() is None)
    cupy.get_default_memory_pool().free_all_blocks()
    assert (y.numpy() == 2).all()


# ---- Numba, JAX


def test_numba_arrays(device: an.Device) -> None:
    cuda = pytest.importorskip("numba.cuda")
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = cuda.to_device(data)
    ref = device.asarray(x, copy=False)
    assert bits(ref.numpy()) == bits(data)
    ref.fill(2)
    ref.wait()
    assert (x.copy_to_host() == 2).all()
    mine = device.put(data)
    seen = cuda.as_cuda_array(mine)
    assert bits(seen.copy_to_host()) == bits(data)
    stream = cuda.stream()
    y = cuda.to_device(data, stream=stream)
    assert bits(device.asarray(y, copy=False).numpy()) == bits(data)
    del x, ref, seen, y


JAX = """
import sys
import numpy as np, jax, jax.numpy as jnp, atomr_native as an
if not any(found.platform == "gpu" for found in jax.devices()):
    print("no GPU")
    sys.exit()
with an.System(isolation=sys.argv[1]) as system:
    device = system.device("cuda:0")
    x = jnp.arange(1000.0) + 1
    assert (device.asarray(x).numpy() == np.arange(1000) + 1).all()
    ref = device.put(np.arange(6, dtype="float32").reshape(2, 3))
    y = jax.dlpack.from_dlpack(ref)
    assert (np.asarray(y) == np.arange(6).reshape(2, 3)).all()
    del x, y, ref
print("done")
"""


def test_jax_arrays(each_isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    out = run(JAX, each_isolation)
    if out.startswith("no GPU"):
        pytest.skip("this JAX has no GPU")
    assert out.endswith("done\n")
