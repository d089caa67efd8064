"""Numba kernels that are linked with other code, synchronise their grid, or run in clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_kernels
import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
from numba import cuda  # noqa: E402

from atomr_native.compile import cubin, link_parts, linker  # noqa: E402
from atomr_native.compile import nvrtc as _nvrtc  # noqa: E402
from atomr_native.compile.numba import api, compiler  # noqa: E402

CUBE = 'extern "C" __device__ int cube(float *r, float x) { *r = x * x * x; return 0; }'
QUOTED = f'#include "power.cuh"\n{CUBE.replace("x * x * x", "POWER(x)")}'
cube = cuda.declare_device("cube", "float32(float32)", link=cuda.CUSource(CUBE))
alone = cuda.declare_device("cube", "float32(float32)")


@cuda.jit
def cubes(x):
    i = cuda.grid(1)
    x[i] = cube(x[i])


def of_files(x):
    i = cuda.grid(1)
    x[i] = alone(x[i])


@cuda.jit
def waits(x):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] = 1
    grid.sync()
    other = x[x.size - 1 - i]
    grid.sync()
    x[i] += other


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile anew; skip where that cannot be done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        try:
            _nvrtc.version()
            linker.link([_nvrtc.compile_program(CUBE, "sm_90", output="ltoir").code], "sm_90")
        except an.Unsupported as error:
            pytest.skip(str(error))
        yield


def compiled(kernel: Any, *, checks: bool = False) -> linker.MachineCode:
    types = (api.array_type(np.dtype("f4"), 1, "C"),)
    made = linker.machine_code(api.python_function(kernel), types, (9, 0), compiler.jit_options(kernel), checks=checks)
    assert made.entry in cubin.kernels(made.code.data)
    return made


def by_nvrtc(kind: str) -> bytes:
    """Return `CUBE` as PTX or machine code that can be linked, or as LTO-IR."""
    if kind == "ltoir":
        return _nvrtc.compile_program(CUBE, "sm_90", output="ltoir").code
    _, program = nvrtc.nvrtcCreateProgram(CUBE.encode(), b"cube.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
    assert not int(status)
    size, get = (
        (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if kind == "ptx" else (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    )
    code = b" " * size(program)[1]
    get(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return code


@pytest.mark.parametrize("kernel", [cubes, waits])
@pytest.mark.parametrize("checks", [False, True])
def test_compilation(tools: None, kernel: Any, checks: bool) -> None:
    made = compiled(kernel, checks=checks)
    assert made.cooperative == (kernel is waits)
    assert bool(made.sites) == checks


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_other_code(tools: None, tmp_path: Path, kind: str) -> None:
    code = by_nvrtc(kind)
    file = tmp_path / f"cube.{kind}"
    file.write_bytes(code)
    wrapped = {"ptx": cuda.PTXSource, "ltoir": cuda.LTOIR, "cubin": cuda.Cubin}[kind]
    for part in (str(file), wrapped(code)):
        compiled(cuda.jit(link=[part])(of_files))  # without it "cube" cannot be resolved
    with pytest.raises(an.LibraryError, match="cube"):
        compiled(cuda.jit(of_files))


def test_sources_and_what_they_include(tools: None, tmp_path: Path) -> None:
    source, header = tmp_path / "cube.cu", tmp_path / "power.cuh"
    source.write_text(QUOTED)
    codes = []
    for power in ("x * x * x", "x * x"):
        header.write_text(f"#define POWER(x) ({power})")
        compiled(cuda.jit(link=[source])(of_files))
        codes.append(link_parts.prepared(link_parts.from_file(source), "sm_90").data)
    assert codes[1] != codes[0]
    source.write_text("\nwrong")
    with pytest.raises(an.LibraryError, match=r"(?s)\(2\): error.*wrong"):
        compiled(cuda.jit(link=[source])(of_files))


def test_a_library(tools: None) -> None:
    found = compiler.device_runtime()
    assert (found.kind, found.name) == ("library", "libcudadevrt.a")
    assert found.data.startswith(b"!<arch>")


def test_what_cannot_be_linked(tmp_path: Path) -> None:
    for link, text in [
        (["cube.o"], r"link has 'cube\.o'; allowed: files with the suffixes \.cu, \.ptx"),
        ([tmp_path / "none.cu"], r"none\.cu', which cannot be read"),
        ([cuda.Fatbin(b"")], "link has a Fatbin; allowed: paths, and cuda's CUSource, PTXSource"),
        ([3], "link has a int; allowed: paths"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            compiler.link_part(link[0])
    with pytest.raises(an.Unsupported, match="setup_callback"):
        compiler.link_part(cuda.CUSource(CUBE, setup_callback=print))


def test_headers_of_the_working_directory_are_not_found(
    tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no part of the cache's key."""
    (tmp_path / "power.cuh").write_text("#define POWER(x) 1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(an.LibraryError, match=r"power\.cuh"):
        _nvrtc.compile_program(QUOTED, "sm_90")
    part = link_parts.LinkPart("cu", QUOTED.encode(), "cube.cu")
    with pytest.raises(an.LibraryError, match=r"power\.cuh"):
        link_parts.prepared(part, "sm_90")
    assert _nvrtc.compile_program(QUOTED, "sm_90", include=[os.getcwd()]).code


@pytest.fixture(scope="module")
def host() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


def test_stand_ins(host: an.Device) -> None:
    x = host.put(np.arange(4, dtype=np.float32))
    with pytest.raises(an.Unsupported, match=r"calls cube, which is declared and not Python, .* stand_ins"):
        host.kernel(cubes)[1, 4](x)
    host.kernel(cubes, stand_ins={"cube": lambda v: v * v * v})[1, 4](x).result(60)
    np.testing.assert_array_equal(x.numpy(), np.arange(4) ** 3)
    with pytest.raises(an.InvalidRequest, match="stand_ins names 'cub'; functions that kernel cubes declares: cube"):
        host.kernel(cubes, stand_ins={"cub": abs})
    with pytest.raises(an.InvalidRequest, match="declares: none"):
        host.kernel(waits, stand_ins={"cube": abs})
    with pytest.raises(an.InvalidRequest, match="function is a int"):
        host.kernel(cubes, stand_ins={"cube": 3})


def test_grids_and_clusters_on_the_host_device(host: an.Device) -> None:
    x = host.zeros(4)
    with pytest.raises(an.Unsupported, match=r"kernel waits synchronises its grid, of \(2, 1, 1\) blocks"):
        host.kernel(waits)[2, 2](x)
    host.kernel(waits)[1, 4](x).result(60)
    assert (x.numpy() == 2).all()
    host.kernel(cubes, stand_ins={"cube": lambda v: v * v * v}, cluster=2)[2, 2](x).result(60)
    with pytest.raises(an.InvalidRequest, match="no multiple"):
        host.kernel(waits, cluster=2)[3, 1]


def test_grids_whose_blocks_do_not_all_run_at_once(fake_environment: dict[str, str]) -> None:
    import fake_cuda

    source = 'extern "C" __global__ void f(int *x, int n) { x[blockIdx.x] = n; }'
    with fake_cuda.using(fake_environment), an.System() as system:
        device = system.device("cuda:0")
        kernel = fake_kernels.make(device, source, "f", (8, 4), cooperative=True)
        most = 2 * device.facts["multiprocessors"]  # of 1024 threads
        x = device.zeros(most + 1, "i4")
        kernel[most, 1024](x, 3).result(60)
        assert x.numpy().tolist() == [3] * most + [0]
        with pytest.raises(an.InvalidRequest, match=f"kernel f has {most + 1} blocks; at most {most} of 1024 threads"):
            kernel[most + 1, 1024](x, 4).result(60)
        with pytest.raises(an.InvalidRequest, match=r"and 200000 bytes of dynamic shared memory"):
            kernel[most, 32, 200_000](x, 4).result(60)
        kernel[1, 1](x, 5).result(60)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    with an.System() as system:
        device = system.device("cuda:0")
        x = device.put(np.arange(64, dtype=np.float32))
        device.kernel(cubes)[2, 32](x).result(60)
        np.testing.assert_array_equal(x.numpy(), np.arange(64.0, dtype=np.float32) ** 3)
        device.kernel(waits)[2, 32](x).result(60)
        assert (x.numpy() == 2).all()
        with pytest.raises(an.InvalidRequest, match="can run at once"):
            device.kernel(waits)[10**6, 1024](x).result(60)
        if device.facts["compute_capability"][0] >= 9:
            device.kernel(cubes, cluster=2)[2, 32](x).result(60)
