"""Users' kernels in CUDA C++: compilation needs no GPU, launches do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_kernels import HEADERS, OPTIONS, SOURCE

import atomr_native as an
from atomr_native.compile import cubin, nvrtc
from atomr_native.libraries.kernel import cuda_kernel

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"options": "--std=c++20"}, "options is '--std=c..20'; allowed: a sequence of strings"),
        ({"options": None}, "options is None"),
        ({"include": "/usr/include"}, "include is '/usr/include'; allowed: a sequence of strings"),
        ({"include": [3]}, "include is .3."),
        ({"headers": ["a.cuh"]}, "headers is .*; allowed: a mapping from names to texts"),
        ({"headers": {"a.cuh": b"text"}}, "headers is"),
        ({"link": b"code"}, "link is b'code'; allowed: a list of LTO-IR"),
        ({"parameters": ["int n"]}, "parameters is .'int n'.; allowed: None, or a string"),
        ({"source": b"text"}, "source is b'text'"),
        ({"overlaps": 1}, "overlaps=1; allowed: False, True"),
        ({"overlaps": True, "cooperative": True}, "overlaps=True and cooperative=True"),
    ],
)
def test_options_that_are_none(wrong: dict[str, Any], why: str) -> None:
    given = OPTIONS | {"source": SOURCE, "name": "scale<float>"}
    with pytest.raises(an.InvalidRequest, match=why):
        cuda_kernel.make(SimpleNamespace(name="cuda:0", kind="cuda"), **(given | wrong))


@pytest.mark.parametrize(
    ("signature", "name", "capability", "why"),
    [
        (3, None, (9, 0), "signature is 3"),
        ("", None, (9, 0), "signature is ''"),
        ("float32(float32)", "a b", (9, 0), "name is 'a b'"),
        ("float32(float32)", None, 9, "capability is 9; allowed: two integers"),
        ("float32(float32)", None, "90", "capability is '90'"),
    ],
)
def test_what_is_no_device_function(signature: Any, name: Any, capability: Any, why: str) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    with pytest.raises(an.InvalidRequest, match=why):
        an.device_function(lambda x: x, signature, name=name, capability=capability)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_compilation_needs_no_gpu(compiler_cache: Path, arch: str) -> None:
    made = nvrtc.compile_program(SOURCE, arch, names=["scale<float>", "scale<double>", "types"], headers=HEADERS)
    found = cubin.kernels(made.code)
    assert found[made.names["scale<float>"]] == (8, 8, 4, 4)
    assert found[made.names["scale<double>"]] == (8, 8, 4, 4)
    assert found["types"] == (8, 1, 2, 1, 8, 16)


def test_what_the_cache_depends_on(compiler_cache: Path, tmp_path: Path) -> None:
    def entries() -> int:
        return len(list(compiler_cache.rglob("*.cubin")))

    folder = tmp_path / "include"
    folder.mkdir()
    header = folder / "factor.cuh"
    header.write_text("#define FACTOR 2")
    first = nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], include=[str(folder)])
    assert nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], include=[str(folder)]) == first
    assert entries() == 1
    header.write_text("#define FACTOR 30")
    other = nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], include=[str(folder)])
    assert other.code != first.code
    nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], headers=HEADERS)
    nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<double>"], headers=HEADERS)
    nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<double>"], headers=HEADERS, options=["--fmad=false"])
    assert entries() == 5
    with pytest.raises(an.InvalidRequest, match="does not exist"):
        nvrtc.compile_program(SOURCE, "sm_90a", include=[str(tmp_path / "none")])


def test_where_headers_are_looked_for(compiler_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include" / "details").mkdir(parents=True)
    (tmp_path / "include" / "all.h").write_text('#include "details/first.h"')
    (tmp_path / "include" / "details" / "first.h").write_text('#include "second.h"')  # beside the one that names it
    (tmp_path / "include" / "details" / "second.h").write_text("#define FACTOR 2")
    source = '#include "{}"\nextern "C" __global__ void f(int *x) {{ *x = FACTOR; }}'
    assert nvrtc.compile_program(source.format("all.h"), "sm_90a", include=[str(tmp_path / "include")]).code
    monkeypatch.chdir(tmp_path / "include" / "details")
    with pytest.raises(an.LibraryError, match=r"(?s)atomr\.cu\(1\).*second\.h"):
        nvrtc.compile_program(source.format("second.h"), "sm_90a")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ('#include "../other/factor.h"', ()),
        ('#include "out.h"', ()),  # which includes ../other/factor.h
        ("# include <{other}/factor.h> // by its path", ()),
        ('#include "linked/factor.h"', ()),
        ("#include <factor.h>", ("-I", "{other}")),
        ("#include <factor.h>", ("-I{other}",)),
        ("#include <factor.h>", ("--include-path={other}",)),
        ("", ("-include={other}/factor.h",)),
        ("", ("--pre-include", "factor.h", "-I", "{other}")),
    ],
)
def test_headers_that_are_elsewhere(
    compiler_cache: Path, tmp_path: Path, source: str, options: tuple[str, ...]
) -> None:
    include, other = tmp_path / "include", tmp_path / "other"
    include.mkdir()
    other.mkdir()
    (include / "linked").symlink_to(other)
    (include / "nothing").symlink_to(tmp_path / "nothing")
    (include / "itself").symlink_to(include / "itself")
    (include / "out.h").write_text('#pragma once\n#include "../include/out.h"\n#include "../other/factor.h"')
    text = source.format(other=other) + '\nextern "C" __global__ void f(int *x) { *x = FACTOR; }'

    def code(factor: int) -> bytes:
        (other / "factor.h").write_text(f"#define FACTOR {factor}")
        given = [option.format(other=other) for option in options]
        return nvrtc.compile_program(text, "sm_90a", options=given, include=[str(include)]).code

    assert code(3) != code(40)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"source": "int x; \0 int y;"}, "NUL character, at which the compiler would stop"),
        ({"source": "// \udcff"}, "cannot be encoded"),
        ({"headers": {"a.h": "\0"}}, "NUL character"),
        ({"options": ["-DA=\0"]}, "NUL character"),
        ({"options": ["-arch=sm_80"]}, "options has '-arch=sm_80'; -arch, .* are set by the library"),
        ({"options": ["-rdc=true"]}, "options has '-rdc=true'"),
        ({"options": ["-dlto"]}, "options has '-dlto'"),
    ],
)
def test_what_the_compiler_is_not_given(compiler_cache: Path, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(an.InvalidRequest, match=why):
        nvrtc.compile_program(**{"source": "", "arch": "sm_90a", **wrong})
    assert not list(compiler_cache.rglob("*.cubin"))


def test_the_compilers_log_is_in_the_error(compiler_cache: Path) -> None:
    with pytest.raises(an.LibraryError, match=r"(?s)atomr\.cu\(2\): error.*wrong"):
        nvrtc.compile_program("\nwrong", "sm_90a")


def test_the_host_device_says_what_to_do() -> None:
    with an.System(isolation="thread") as system, pytest.raises(an.Unsupported, match=r"Device\.kernel"):
        system.device("host").cuda_kernel(SOURCE, "scale<float>")


def test_numba_functions_link_into_cuda(compiler_cache: Path) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from atomr_native.compile.linker import link

    def cube(x):
        return x * x * x

    source = """
    extern "C" __device__ float cube(float);
    extern "C" __global__ void f(float *x) { x[threadIdx.x] = cube(x[threadIdx.x]); }
    """
    part = an.device_function(cube, "float32(float32)", capability=(9, 0))
    kernel = nvrtc.compile_program(source, "sm_90", names=["f"], output="ltoir")
    assert cubin.kernels(link([kernel.code, part], "sm_90")) == {"f": (8,)}
    with pytest.raises(an.LibraryError, match="cube"):
        link([kernel.code], "sm_90")
    with pytest.raises(an.InvalidRequest, match="int"):
        an.device_function(3, "float32(float32)", capability=(9, 0))
    with pytest.raises(an.LibraryError, match="nothing"):
        an.device_function(lambda x: nothing(x), "float32(float32)", capability=(9, 0))  # noqa: F821


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("cuda:0")


@pytest.mark.gpu
class TestLaunches:
    """What needs a GPU."""

    @pytest.mark.parametrize(("name", "dtype"), [("float", "float32"), ("double", "float64")])
    def test_a_template(self, device: an.Device, name: str, dtype: str) -> None:
        data = np.random.default_rng(1).standard_normal(1000).astype(dtype)
        y, x = device.put(data), device.empty(1000, dtype)
        kernel = device.cuda_kernel(SOURCE, f"scale<{name}>", headers=HEADERS)
        kernel.forall(1000)(x, y, 1.5, 1000).result(60)
        np.testing.assert_allclose(x.numpy(), data * 3, rtol=1e-6)
        plan = kernel.forall(1000).plan(x, y, 1.0, 1000)
        plan.tell(x, y, factor=2, n=10)
        np.testing.assert_allclose(x.numpy()[:11], [*(data[:10] * 4), data[10] * 3], rtol=1e-6)
        with pytest.raises(an.InvalidRequest, match="2147483647"):
            plan.ask(x, y, n=2**31).result(60)

    def test_scalars_and_structs(self, device: an.Device) -> None:
        out = device.empty(5, "float64")
        kernel = device.cuda_kernel(SOURCE, "types", headers=HEADERS)[1, 1]
        pair = np.zeros((), np.dtype([("a", "i4"), ("b", "f8")], align=True))
        pair["a"], pair["b"] = 3, 0.5
        kernel(out, -5, 65535, True, 2**64 - 1, pair[()]).result(60)
        np.testing.assert_array_equal(out.numpy(), [-5, 65535, 1, float(2**64 - 1), 3.5])
        for wrong, text in [
            ((out, 128, 0, 0, 0, pair[()]), "-128 to 127"),
            ((out, 1.5, 0, 0, 0, pair[()]), "takes an integer"),
            ((out, 1, 0, 0, 0, b"123"), "3 bytes; Pair takes 16"),
            ((3, 1, 0, 0, 0, pair[()]), "takes a GpuRef"),
        ]:
            with pytest.raises(an.InvalidRequest, match=text):
                kernel(*wrong)

    def test_numbers_of_a_template_and_half(self, device: an.Device) -> None:
        source = """
        #include <cuda_fp16.h>
        template <class T> __global__ void scale(T *x, T factor, half more) {
          x[threadIdx.x] = x[threadIdx.x] * factor + T(__half2float(more));
        }"""
        for kind, dtype in (("float", "float32"), ("int", "int32"), ("double", "float64")):
            x = device.put(np.arange(32, dtype=dtype))
            device.cuda_kernel(source, f"scale<{kind}>", include=_cuda_include())[1, 32](x, 3, 2.0).result(60)
            np.testing.assert_array_equal(x.numpy(), np.arange(32) * 3 + 2)

    def test_shared_memory_above_the_default(self, device: an.Device) -> None:
        source = """
        extern "C" __global__ void turn(float *x, int n) {
          extern __shared__ float tile[];
          for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
          __syncthreads();
          for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[n - 1 - i];
        }"""
        n = 50_000
        x = device.put(np.arange(n, dtype=np.float32))
        device.cuda_kernel(source, "turn")[1, 256, 4 * n](x, n).result(60)
        np.testing.assert_array_equal(x.numpy(), np.arange(n)[::-1])

    def test_shared_memory_beside_arrays_of_the_kernel(self, device: an.Device) -> None:
        """Which together are more than a kernel has without asking."""
        source = """
        extern "C" __global__ void turn(float *x, int n) {
          __shared__ float kept[4096];
          extern __shared__ float tile[];
          for (int i = threadIdx.x; i < n; i += blockDim.x) (i < 4096 ? kept[i] : tile[i - 4096]) = x[i];
          __syncthreads();
          for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const int j = n - 1 - i;
            x[i] = j < 4096 ? kept[j] : tile[j - 4096];
          }
        }"""
        n = 4096 + 12288
        x = device.put(np.arange(n, dtype=np.float32))
        device.cuda_kernel(source, "turn")[1, 256, 48 << 10](x, n).result(60)
        np.testing.assert_array_equal(x.numpy(), np.arange(n)[::-1])

    def test_clusters_and_cooperation(self, device: an.Device) -> None:
        if device.facts["compute_capability"][0] < 9:
            pytest.skip("clusters need compute capability 9.0")
        source = """
        #include <cooperative_groups.h>
        namespace cg = cooperative_groups;
        extern "C" __global__ void sizes(int *out) {
          out[blockIdx.x] = cg::this_cluster().num_blocks();
        }
        extern "C" __global__ void sum(int *x, int n) {
          x[blockIdx.x] = blockIdx.x;
          cg::this_grid().sync();
          if (blockIdx.x == 0) for (int i = 1; i < n; i++) x[0] += x[i];
        }"""
        include = _cuda_include()
        out = device.empty(32, "int32")
        device.cuda_kernel(source, "sizes", include=include, cluster=4)[32, 1](out).result(60)
        assert (out.numpy() == 4).all()
        device.cuda_kernel(source, "sum", include=include, cooperative=True)[32, 1](out, 32).result(60)
        assert out.numpy()[0] == 31 * 32 // 2
        with pytest.raises(an.InvalidRequest, match="no multiple"):
            device.cuda_kernel(source, "sizes", include=include, cluster=4)[30, 1]

    def test_a_numba_function_in_it(self, device: an.Device) -> None:
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

        def blend(a, b):
            return 2 * a + b

        source = """
        extern "C" __device__ double blend(double, double);
        extern "C" __global__ void f(double *x, const double *y) {
          x[threadIdx.x] = blend(x[threadIdx.x], y[threadIdx.x]);
        }
        """
        part = an.device_function(blend, "float64(float64, float64)", capability=device.facts["compute_capability"])
        x, y = device.put(np.arange(32.0)), device.put(np.ones(32))
        device.cuda_kernel(source, "f", link=[part])[1, 32](x, y).result(60)
        np.testing.assert_array_equal(x.numpy(), 2 * np.arange(32.0) + 1)

    def test_declarations_that_do_not_fit(self, device: an.Device) -> None:
        with pytest.raises(an.InvalidRequest, match=r"compiled with \(a pointer, a pointer to const, float32, int32\)"):
            device.cuda_kernel(
                SOURCE, "scale<float>", headers=HEADERS, parameters="float *x, float *y, double f, int n"
            )
        with pytest.raises(an.LibraryError):
            device.cuda_kernel(SOURCE, "nothing", headers=HEADERS, parameters="int n")
        with pytest.raises(an.InvalidRequest, match="give parameters"):
            device.cuda_kernel(SOURCE, "nothing", headers=HEADERS)


def _cuda_include() -> list[str]:
    """Return the folder of the toolkit's headers, or skip."""
    found: Any = [p for p in (Path("/usr/local/cuda/include"),) if (p / "cooperative_groups.h").exists()]
    if not found:
        pytest.skip("the CUDA toolkit's headers are not in /usr/local/cuda")
    cccl = found[0] / "cccl"
    return [str(found[0]), *([str(cccl)] if cccl.is_dir() else [])]
