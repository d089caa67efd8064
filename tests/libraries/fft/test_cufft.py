"""Plans of cuFFT: the real library's functions, and on the fake one its errors, its work areas and its plans' ends."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from actions import eventually
from cuda_wheels import find
from fake_cuda import compiling_here, using
from fft_reference import assert_close, random_array, reference
from lt_emulator import source

import atomr_native as an

RNG = np.random.default_rng(3)


@pytest.mark.abi
@pytest.mark.plain
def test_every_function_is_exported() -> None:
    found = find("libcufft.so.1[12]")
    if not found:
        pytest.skip("libcufft not found; pip install nvidia-cufft, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cufft\w+),", source("libraries/cufft/names.h").read_text())
    assert len(names) == 9
    for path in found:
        library = ctypes.CDLL(str(path))
        assert [name for name in names if not hasattr(library, name)] == []
        version = ctypes.c_int()
        assert library.cufftGetVersion(ctypes.byref(version)) == 0
        assert version.value >= 11000


def send(device: an.Device, shape: tuple[int, ...] = (4, 30)) -> an.GpuRef:
    return device.fft.fft(device.put(random_array(RNG, shape, "complex64")))


@pytest.mark.parametrize(
    ("refusals", "error", "text"),
    [
        (
            {"cufftCreate": (5, 1)},
            an.LibraryError,
            r"cufft: CUFFT_INTERNAL_ERROR \(5\) .*cufftCreate, 4 transforms of 30",
        ),
        ({"cufftXtMakePlanMany": (2, 1)}, an.OutOfMemory, "cufftXtMakePlanMany: no device memory for the tables of 4"),
        ({"cufftXtMakePlanMany": (16, 1)}, an.Unsupported, r"refuses 4 transforms of 30: CUFFT_NOT_SUPPORTED \(16\)"),
        ({"cufftXtExec": (6, 1)}, an.LibraryError, r"CUFFT_EXEC_FAILED \(6\) .*cufftXtExec, 4 transforms of 30"),
    ],
)
def test_errors_name_function_status_and_sizes(
    refuse: Callable[..., Path], refusals: dict[str, tuple[int, int]], error: type[Exception], text: str
) -> None:
    refuse(**refusals)
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        with pytest.raises(error, match=text):
            send(device).numpy()
        send(device, (4, 31)).numpy()


def test_a_missing_library_is_named(fake_environment: dict[str, str]) -> None:
    environment = {**fake_environment, "ATOMR_NATIVE_CUFFT": "/nowhere/libcufft.so"}
    said = pytest.raises(an.Unsupported, match=r"cuFFT cannot be opened: .*pip install nvidia-cufft \(CUDA 13\)")
    with using(environment), an.System(standby="off") as system, said:
        send(system.device("cuda:0")).numpy()


def test_plans_end_with_their_device(fake_environment: dict[str, str]) -> None:
    """In this process: the worker of a thread leaves nothing behind."""
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUFFT"])
    alive = ctypes.c_uint.in_dll(library, "fake_fft_plans")
    before = alive.value
    with using(fake_environment), compiling_here(), an.System(isolation="thread") as system:
        device = system.device("cuda:0")
        for lane in (device.fft, an.Fft(device, "second")):
            lane.fft(device.put(np.ones((4, 30), "complex64"))).numpy()
        assert alive.value == before + 2
    gc.collect()
    eventually(lambda: alive.value == before)


def test_work_areas_are_the_lanes(fake_environment: dict[str, str]) -> None:
    """Transforms that need memory have it from the lane's workspace; a limit that is too low is named."""
    with using(fake_environment), an.System(workspace_limit=1 << 14, standby="off") as system:
        device = system.device("cuda:0")
        send(device, (4, 32)).numpy()
        assert device.stats()["actors"]["fft"]["workspace"] == 0
        x = random_array(RNG, (4, 30), "complex64")
        for _ in range(3):
            assert_close(device.fft.fft(device.put(x)).numpy(), reference("fft", x, axes=-1), 30)
        assert 960 <= device.stats()["actors"]["fft"]["workspace"] <= 1 << 14
        with pytest.raises(an.Unsupported, match=r"a transform needs 24000 bytes of workspace, and the limit is 16384"):
            send(device, (100, 30)).numpy()
        z = device.put(random_array(RNG, (100, 33), "complex64"))
        with pytest.raises(an.Unsupported, match="a transform with copies needs 26624 bytes of workspace"):
            device.fft.irfft(z).numpy()


def test_operands_of_a_plan_start_where_those_of_its_request_do(fake_environment: dict[str, str]) -> None:
    """A message with another address fails, and the device goes on."""
    with using(fake_environment), an.System(standby="off") as system:
        device = system.device("cuda:0")
        x = device.put(random_array(RNG, (40,), "float32"))
        out = device.zeros((11,), "complex64")
        plan = device.fft.plan(an.FftRequest(transform="rfft", x=x[:20], out=out))
        plan.ask(x[2:22], out=out).result(60)
        with pytest.raises(an.Unsupported, match=r"aligned to 4 bytes only, .* made for multiples of 8") as caught:
            plan.ask(x[1:21], out=out).result(60)
        assert caught.value.rule == "fft.alignment"
        plan.ask(x[:20], out=out).result(60)
