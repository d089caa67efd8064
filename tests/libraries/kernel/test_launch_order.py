"""Kernels begin before the launch before them has ended: what they wait for, and how they are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from plan_builds import build_cuda

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.compile.nvrtc import arch_of
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.fused import norms
from atomr_native.libraries.kernel.attributes import CompiledKernel, KernelAttributes
from atomr_native.plans.spec import PlanSpec
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import fake_kernels
from numba import cuda
from shipped_kernels import bodies, check_order, linked_ptx, ptx_of

from atomr_native.compile import cubin as _cubin
from atomr_native.compile import linker, shipped
from atomr_native.compile.numba import api, compiler

HOPPER, AMPERE = (9, 0), (8, 0)
NARROW = DTYPES["bfloat16"]
X, Q, W = np.ones((8, 256), NARROW), np.ones((8, 256), DTYPES["float8_e4m3fn"]), np.ones(256, np.float32)


def made(request: Any) -> tuple[str, tuple[shipped.Part, ...]]:
    code = request.lowered.code
    return code.module, code.parts_for(HOPPER)


def long_norm_gradient() -> tuple[str, tuple[shipped.Part, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norms, "_HELD", 8)
        return made(an.NormGradientRequest(dy=X, x=X, weight=W))


#: Kernels that ship as Numba kernels, of which no other test looks at the PTX (`linked_ptx`) or the machine code for
#: Hopper.
SHIPPED: dict[str, Callable[[], tuple[str, tuple[shipped.Part, ...]]]] = {
    "activate_backward": lambda: made(an.ActivationGradientRequest(dy=X, x=X, curve="silu")),
    "norm_backward": long_norm_gradient,
    "amax": lambda: made(an.QuantizeRequest(x=X)),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_kernels_touch_memory_only_when_the_launch_before_has_ended(name: str) -> None:
    module, parts = SHIPPED[name]()
    assert name in [part.name for part in parts]
    assert linked_ptx(module, parts, HOPPER)


def theirs(x, y):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += y[i]


@pytest.mark.parametrize("capability", [AMPERE, HOPPER, (10, 0)])
def test_kernels_of_users_wait_too(capability: tuple[int, int]) -> None:
    array = api.array_type(np.dtype("f4"), 1, "C")
    made = compiler.compile_ltoir(theirs, (array, array), capability, compiler.OPTIONS)
    (body,) = bodies(ptx_of([made.code], capability))
    waiting = "griddepcontrol" in body
    assert waiting == (capability >= HOPPER)
    code = linker.machine_code(theirs, (array, array), capability, compiler.jit_options(theirs))
    assert code.awaits == (capability >= HOPPER)
    if waiting:
        check_order(body)
        cubin = linker.link([made.code], arch_of(capability))
        assert _cubin.why_no_overlap(cubin, made.entry) == ""


def test_which_kernels_of_users_overlap() -> None:
    plain = KernelAttributes(
        kernel=CompiledKernel("theirs", Binary(b"")), grid=(1, 1, 1), block=(1, 1, 1), shared=0, cluster=None,
        cooperative=False, parameters=(),
    )  # fmt: skip

    def overlaps(arch: str = "sm_90a", *, awaits: bool = False, **attributes: Any) -> bool:
        kernel = CompiledKernel("theirs", Binary(b""), awaits=awaits)
        spec = PlanSpec("kernel.theirs", (), (), replace(plain, kernel=kernel, **attributes))
        return bool(build_cuda(spec, Target(arch)).run.launches[0].overlaps)

    assert overlaps(awaits=True)
    assert overlaps(awaits=True, cluster=(2, 1, 1))
    assert not overlaps(awaits=True, cooperative=True)  # whose blocks must all find room at once
    assert not overlaps("sm_80", awaits=True)
    assert not overlaps()  # CUDA C++


def test_nothing_waits_where_launches_follow_each_other() -> None:
    assert "griddepcontrol" not in linked_ptx(*made(an.DequantizeRequest(q=Q, scale=np.ones((), "f4"))), AMPERE)
    assert [Target(arch).overlaps for arch in ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_121a")] == (
        [False, False, True, True, True, True]
    )


@pytest.fixture
def device(refuse: Callable[..., Path]) -> Iterator[an.Device]:
    refuse()
    with an.System() as system:
        yield system.device("cuda:0")


ADD_ONE = 'extern "C" __global__ void add_one(float *x) { x[threadIdx.x] += 1; }'


def test_cuda_cpp_of_users_is_launched_when_what_is_before_has_ended(
    device: an.Device, refuse: Callable[..., Path]
) -> None:
    """Only launches with attributes, as those that overlap, go by cuLaunchKernelEx."""
    kernel = fake_kernels.make(device, ADD_ONE, "add_one", (8,))
    x = device.zeros(4, "float32")
    x.wait()
    refusals = refuse(cuLaunchKernelEx=(1, 1))
    kernel[1, 4](x).result(60)
    assert refusals.read_text() == "cuLaunchKernelEx 1 1\n"
    with pytest.raises(an.LibraryError, match="cuLaunchKernel"):
        device.elementwise.run("a + 1", a=x).wait(60)
    assert refusals.read_text() == ""
    np.testing.assert_array_equal(device.elementwise.run("a + 1", a=x).numpy(), [2, 2, 2, 2])


def test_cuda_cpp_of_users_overlaps_where_it_is_said_to(device: an.Device, refuse: Callable[..., Path]) -> None:
    kernel = fake_kernels.make(device, ADD_ONE, "add_one", (8,), overlaps=True)
    x = device.zeros(4, "float32")
    x.wait()
    refusals = refuse(cuLaunchKernelEx=(1, 1))
    with pytest.raises(an.LibraryError, match="cuLaunchKernel"):
        kernel[1, 4](x).result(60)
    assert refusals.read_text() == ""
    x.fill(1).wait(60)
    kernel[1, 4](x).result(60)
    np.testing.assert_array_equal(x.numpy(), [2, 2, 2, 2])


STEPS = """
#define WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
extern "C" __global__ void late(float *x, long long clocks) {
  WAIT();
  asm volatile("griddepcontrol.launch_dependents;");
  const long long end = clock64() + clocks;
  while (clock64() < end) {}
  x[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}
extern "C" __global__ void turned(float *to, const float *from, int n) {
  WAIT();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[n - 1 - i];
}
"""


@pytest.mark.gpu
def test_overlapping_kernels_see_what_those_before_wrote() -> None:
    """Each turns what the one before it wrote in its last clocks, and other kernels come in between."""
    with an.System() as system:
        device = system.device("cuda:0")
        if device.facts["compute_capability"][0] < 9:
            pytest.skip("launches overlap from compute capability 9.0 on")
        n, rounds = 128 * 256, 200
        late, turned = (device.cuda_kernel(STEPS, name, overlaps=True)[128, 256] for name in ("late", "turned"))
        x, y = device.put(np.arange(n, dtype="f4")), device.empty(n, "float32")
        for i in range(rounds):
            late(x, 20_000 if i % 2 else 0)
            turned(y, x, n)
            late(y, 0 if i % 2 else 20_000)
            turned(x, y, n)
            device.elementwise.run("x = x + 1", x=x)
        np.testing.assert_array_equal(x.numpy(), np.arange(n, dtype="f4") + 3 * rounds)
