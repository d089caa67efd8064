"""Users' kernels in CUDA C++: declarations and compilation need no GPU, launches do."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native import _cubin, _nvrtc, cuda_kernel
from atomr_native._cpp_parameters import Parameter, declared, parse

pytestmark = pytest.mark.plain

SOURCE = """
#include "factor.cuh"
struct Pair { int a; double b; };
template <class T> __global__ void scale(T *x, const T *__restrict__ y, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = y[i] * factor * FACTOR;
}
extern "C" __global__ void types(double *out, signed char c, unsigned short s, bool flag, unsigned long long big,
                                 Pair p) {
  out[0] = c; out[1] = s; out[2] = flag; out[3] = (double)big; out[4] = p.a + p.b;
}
"""
HEADERS = {"factor.cuh": "#define FACTOR 2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("void", []),
        ("float *x", [Parameter("x", "pointer", "float")]),
        ("const float *__restrict__ x", [Parameter("x", "pointer", "float", reads=True)]),
        ("float const * x, int n", [Parameter("x", "pointer", "float", reads=True), Parameter("n", "scalar", "int32")]),
        ("float * const x", [Parameter("x", "pointer", "float")]),
        ("int x[]", [Parameter("x", "pointer", "int")]),
        ("unsigned long long int n", [Parameter("n", "scalar", "uint64")]),
        ("long int n", [Parameter("n", "scalar", "int64")]),
        ("unsigned n", [Parameter("n", "scalar", "uint32")]),
        ("signed char n", [Parameter("n", "scalar", "int8")]),
        ("std::size_t n", [Parameter("n", "scalar", "uint64")]),
        ("const double f = 1.0", [Parameter("f", "scalar", "float64")]),
        ("bool /* really, */ flag", [Parameter("flag", "scalar", "bool")]),
        ("Box<float, 3> box", [Parameter("box", "struct", "Box<float, 3>")]),
        ("Box<const int *, 3> box", [Parameter("box", "struct", "Box<const int *, 3>")]),
        ("Box<const int *, 3> *box", [Parameter("box", "pointer", "Box")]),
        ("Box<(1 < 2), 3> box = {1, 2}", [Parameter("box", "struct", "Box<(1 < 2), 3>")]),
        ("float x[][4], int n = 1 < 2", [Parameter("x", "pointer", "float"), Parameter("n", "scalar", "int32")]),
        ("const float x[N * 2]", [Parameter("x", "pointer", "float", reads=True)]),
        ("float (*x)[4]", [Parameter("x", "pointer", "float")]),
        ("const float (*__restrict__ x)[4]", [Parameter("x", "pointer", "float", reads=True)]),
        ("alignas(16) int n [[maybe_unused]]", [Parameter("n", "scalar", "int32")]),
        ("[[maybe_unused]] long unsigned n", [Parameter("n", "scalar", "uint64")]),
        ("char letter = ',', int n", [Parameter("letter", "scalar", "int8"), Parameter("n", "scalar", "int32")]),
        ("half a", [Parameter("a", "scalar", "float16")]),
        ("const __grid_constant__ CUtensorMap map", [Parameter("map", "struct", "CUtensorMap")]),
    ],
)
def test_parameters(text: str, expected: list[Parameter]) -> None:
    assert list(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("const float *x", True),
        ("float const *__restrict__ const x", True),
        ("const float x[]", True),
        ("float *const *x", True),
        ("const float **x", False),  # the pointers that x points to may be written
        ("const float *x[4]", False),
        ("Box< const float > *x", False),
        ("const Box<float> *x", True),
        ("IN float *x", False),
    ],
)
def test_what_a_pointer_is_for(text: str, reads: bool) -> None:
    (parameter,) = parse(text)
    assert (parameter.kind, parameter.reads) == ("pointer", reads)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("float", "a type and a name"),
        ("unsigned int", "a type and a name"),
        ("float (&x)[4]", "reference"),
        ("void (*f)(int)", "pointer to a function"),
        ("float &x", "reference"),
        ("int x, float x", "twice"),
        ("3", "a type and a name"),
    ],
)
def test_parameters_that_are_none(text: str, why: str) -> None:
    with pytest.raises(an.InvalidRequest, match=why):
        parse(text)


#: What `Device.cuda_kernel` gives by default.
OPTIONS: dict[str, Any] = {
    "parameters": None, "options": (), "headers": None, "include": (), "link": (), "writes": None, "overwrites": (),
    "actor": "kernels", "cluster": None, "cooperative": False, "overlaps": False,
}  # fmt: skip


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
        cuda_kernel.make(SimpleNamespace(name="cuda:0"), **(given | wrong))


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


def test_declarations_are_found() -> None:
    (text,) = declared(SOURCE, "scale<double>")
    assert [p.name for p in parse(text)] == ["x", "y", "factor", "n"]
    (text,) = declared(SOURCE, "types")
    assert [p.type for p in parse(text)] == ["double", "int8", "uint16", "bool", "uint64", "Pair"]
    assert declared(SOURCE, "other") == ()
    assert declared("__global__ void f(int a) {} __global__ void f(float a) {}", "f") == ("int a", "float a")
    assert declared("__global__ void f(int);\n__global__ void f(int a) {}", "f") == ("int a",)
    assert declared("__global__ void f(int a);", "&f") == ("int a",)
    assert declared("__global__ void __launch_bounds__(128) f(int a) {}", "f") == ("int a",)
    assert declared("__global__ void g(int a[sizeof(f (1))]) {}", "f") == ()
    assert declared("__glob\\\nal__ void f(int \\\n a) {}", "f") == ("int a",)


@pytest.mark.parametrize(
    "quoted", ["// {}\n", "/* {} */", '__device__ const char *s = "{}";', '__device__ const char *s = R"x(" {})x";']
)
def test_what_is_no_declaration(quoted: str) -> None:
    text = quoted.format("__global__ void f(int a) (")
    assert declared(text, "f") == ()
    assert declared(text + "__device__ char c = '\"';__global__ void f(int b) {}", "f") == ("int b",)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    try:
        _nvrtc.version()
    except an.Unsupported as error:
        pytest.skip(str(error))
    return tmp_path / "cache"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_compilation_needs_no_gpu(cache: Path, arch: str) -> None:
    made = _nvrtc.compile_program(SOURCE, arch, names=["scale<float>", "scale<double>", "types"], headers=HEADERS)
    found = _cubin.kernels(made.code)
    assert found[made.names["scale<float>"]] == (8, 8, 4, 4)
    assert found[made.names["scale<double>"]] == (8, 8, 4, 4)
    assert found["types"] == (8, 1, 2, 1, 8, 16)


def test_what_the_cache_depends_on(cache: Path, tmp_path: Path) -> None:
    def entries() -> int:
        return len(list(cache.rglob("*.cubin")))

    folder = tmp_path / "include"
    folder.mkdir()
    header = folder / "factor.cuh"
    header.write_text("#define FACTOR 2")
    first = _nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], include=[str(folder)])
    assert _nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], include=[str(folder)]) == first
    assert entries() == 1
    header.write_text("#define FACTOR 30")
    other = _nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], include=[str(folder)])
    assert other.code != first.code
    _nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<float>"], headers=HEADERS)
    _nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<double>"], headers=HEADERS)
    _nvrtc.compile_program(SOURCE, "sm_90a", names=["scale<double>"], headers=HEADERS, options=["--fmad=false"])
    assert entries() == 5
    with pytest.raises(an.InvalidRequest, match="not there"):
        _nvrtc.compile_program(SOURCE, "sm_90a", include=[str(tmp_path / "none")])


def test_where_headers_are_looked_for(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include" / "details").mkdir(parents=True)
    (tmp_path / "include" / "all.h").write_text('#include "details/first.h"')
    (tmp_path / "include" / "details" / "first.h").write_text('#include "second.h"')  # beside the one that names it
    (tmp_path / "include" / "details" / "second.h").write_text("#define FACTOR 2")
    source = '#include "{}"\nextern "C" __global__ void f(int *x) {{ *x = FACTOR; }}'
    assert _nvrtc.compile_program(source.format("all.h"), "sm_90a", include=[str(tmp_path / "include")]).code
    monkeypatch.chdir(tmp_path / "include" / "details")
    with pytest.raises(an.LibraryError, match=r"(?s)atomr\.cu\(1\).*second\.h"):
        _nvrtc.compile_program(source.format("second.h"), "sm_90a")


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
def test_headers_that_are_elsewhere(cache: Path, tmp_path: Path, source: str, options: tuple[str, ...]) -> None:
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
        return _nvrtc.compile_program(text, "sm_90a", options=given, include=[str(include)]).code

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
def test_what_the_compiler_is_not_given(cache: Path, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(an.InvalidRequest, match=why):
        _nvrtc.compile_program(**{"source": "", "arch": "sm_90a", **wrong})
    assert not list(cache.rglob("*.cubin"))


def test_the_compilers_log_is_in_the_error(cache: Path) -> None:
    with pytest.raises(an.LibraryError, match=r"(?s)atomr\.cu\(2\): error.*wrong"):
        _nvrtc.compile_program("\nwrong", "sm_90a")


def test_machine_code_that_is_none() -> None:
    for wrong in (b"", b"\x7fELF", b"\x7fELF" + struct.pack("<Q", 7) * 20):
        with pytest.raises(an.LibraryError, match="cubin"):
            _cubin.kernels(wrong)
        with pytest.raises(an.LibraryError, match="cubin"):
            _cubin.why_no_overlap(wrong, "f")


WAITING = """
#define WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
__device__ __noinline__ void later(float *x) { WAIT(); x[1] = 1; }
extern "C" __global__ void never(float *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void allows(float *x) { asm volatile("griddepcontrol.launch_dependents;"); x[0] = 1; }
extern "C" __global__ void first(float *x, const float *__restrict__ y, int n) {
  WAIT();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int j = 0; j < n; j++) x[i] += y[j];
}
extern "C" __global__ void prepared(float *x, int n) {
  __shared__ float table[64];
  extern __shared__ float more[];
  if (threadIdx.x < 8) table[threadIdx.x] = __expf(n);
  for (int i = threadIdx.x; i < n; i += 32) more[i] = i;
  __syncthreads();
  WAIT();
  x[threadIdx.x] = table[n & 7] + more[n];
}
extern "C" __global__ void leaves(float *x, int n) {
  if (threadIdx.x >= n) return;
  WAIT();
  x[threadIdx.x] = 1;
}
extern "C" __global__ void skips(float *x, int n) {
  if (n > 3) { WAIT(); x[threadIdx.x] = 1; }
  x[n] = 2;
}
extern "C" __global__ void alone(float *x) {
  __shared__ float y;
  if (threadIdx.x == 0) { WAIT(); y = x[0]; }
  __syncthreads();
  x[threadIdx.x] = y;
}
extern "C" __global__ void reads(float *x, const float *y) {
  const float early = y[threadIdx.x];
  WAIT();
  x[threadIdx.x] = early;
}
extern "C" __global__ void copies(float *x, const float *y) {
  __shared__ alignas(16) float z[4];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(z)), "l"(y));
  asm volatile("cp.async.wait_all;" ::: "memory");
  WAIT();
  x[threadIdx.x] = z[threadIdx.x & 3];
}
extern "C" __global__ void adds(float *x) { atomicAdd(x, 1); WAIT(); x[1] = 1; }
extern "C" __global__ void calls(float *x) { later(x); }
"""
LATE = {
    "never": "it never waits", "allows": "it never waits", "leaves": "it may return", "alone": "some of its threads",
    "skips": "some of its threads", "reads": "it may touch memory", "copies": "it may touch memory",
    "adds": "it may touch memory", "calls": "it may return or call a function",
}  # fmt: skip


@pytest.mark.parametrize("options", [(), ("-G",)], ids=["", "debug"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_which_kernels_wait_for_the_launch_before(cache: Path, arch: str, options: tuple[str, ...]) -> None:
    code = _nvrtc.compile_program(WAITING, arch, options=options).code
    assert _cubin.why_no_overlap(code, "first") == ""
    if not options:
        assert _cubin.why_no_overlap(code, "prepared") == ""
    for name, why in LATE.items():
        assert why in _cubin.why_no_overlap(code, name) or (options and _cubin.why_no_overlap(code, name)), name


def kernel_of(source: str, name: str, capability: tuple[int, int] = (9, 0), **options: Any) -> an.CudaKernel:
    """Make a kernel for a device that is not there."""
    device: Any = SimpleNamespace(name="cuda:0", _compute_capability=lambda: capability, _kernel_actor=lambda _: None)
    return cuda_kernel.make(device, source, name, **(OPTIONS | options))


def made(source: str, name: str, capability: tuple[int, int], **options: Any) -> dict[str, Any]:
    """Return what would be sent to a device of a kernel."""
    return dict(kernel_of(source, name, capability, **options).code(()))


def test_kernels_that_overlap_must_wait(cache: Path) -> None:
    assert made(WAITING, "first", (9, 0), overlaps=True)["awaits"]
    assert not made(WAITING, "first", (9, 0))["awaits"]
    for name in ("leaves", "never"):
        with pytest.raises(an.InvalidRequest, match=rf'{name} cannot overlap .*{LATE[name]}.*"griddepcontrol.wait;"'):
            made(WAITING, name, (9, 0), overlaps=True)


def test_nothing_overlaps_below_hopper(cache: Path) -> None:
    assert not made('extern "C" __global__ void f(float *x) {}', "f", (8, 0), overlaps=True)["awaits"]


DEPENDENT = """
enum class Mode : unsigned char { first };
typedef void (*Function)(int);
template <class T> struct Traits { using pointer = T *; };
#define IN const
#define T float
#define KERNEL extern "C" __global__ void
KERNEL macros(IN T *x, const T **y, T a, char16_t b, Mode mode, float3 c) {}
#undef T
template <class T>
__global__ void mixed(typename Traits<T>::pointer x, const T *y, T a, T *const *z, const int (*w)[4]) {}
template <class... T> __global__ void many(T... a) {}
__global__ void calls(Function f, int n) {}
namespace one { __global__ void same(const float *x) {} }
namespace two { __global__ void same(float *y, int n) {} }
namespace six { __global__ void same(int z) {} }
#if 0
__global__ void cased(const float *x, int n) {}
#else
__global__ void cased(float *x, long n) {}
#endif
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("macros", "x:const y:pointer a:float32 b:uint16 mode:uint8 c:struct"),
        ("mixed<double>", "x:pointer y:const a:float64 z:const w:const"),
        ("mixed<short>", "x:pointer y:const a:int16 z:const w:const"),
        ("mixed<float *>", "x:pointer y:const a:pointer z:const w:const"),
        ("mixed<const float *>", "x:pointer y:const a:const z:const w:const"),
        ("mixed<uchar4>", "x:pointer y:const a:struct z:const w:const"),
        ("two::same", "y:pointer n:int32"),
        ("six::same", "z:int32"),
        ("cased", "x:pointer n:int64"),
    ],
)
def test_the_compiler_says_what_parameters_are(cache: Path, name: str, expected: str) -> None:
    found = kernel_of(DEPENDENT, name)._declared.values()
    said = [f"{p.name}:{'const' if p.reads else p.type if p.kind == 'scalar' else p.kind}" for p in found]
    assert said == expected.split()


def test_what_the_user_says_of_parameters(cache: Path) -> None:
    reads = [p.reads for p in kernel_of(DEPENDENT, "cased", parameters="const float *x, long n")._declared.values()]
    assert reads == [False, False]  # the compiler knows better
    assert not kernel_of(DEPENDENT, "one::same", parameters="float *x")._declared["x"].reads  # const is cast away
    assert kernel_of(DEPENDENT, "many<const int *>", parameters="T x")._declared["x"].reads
    assert kernel_of(DEPENDENT, "many<float>")._declared["a"].type == "float32"
    for name, given, why in (
        ("many<float>", "int n", r"declared with \(int32 n\), and compiled with \(float32\)"),
        ("many<float, int>", "float n", r"compiled with \(float32, int32\)"),
        ("many<float *, const float *>", "int n, int *m", r"compiled with \(a pointer, a pointer to const\)"),
        ("calls", None, "parameter f of calls is a reference or a pointer to a function"),
    ):
        with pytest.raises(an.InvalidRequest, match=why):
            kernel_of(DEPENDENT, name, parameters=given)


def test_half_numbers(cache: Path) -> None:
    source = "struct __half { unsigned short bits; }; __global__ void f(__half *x, __half a) { x[0] = a; }"
    kernel = kernel_of(source, "f")
    for value in (1.5, np.float16(1.5)):
        kind, scalar = kernel.classify("a", value)
        assert (kind, scalar.type, scalar.words) == ("scalar", "float16", (1.5,))
    with pytest.raises(an.InvalidRequest, match="a is 'x'; float16 takes a real number"):
        kernel.classify("a", "x")


def test_sources_that_the_compiler_cannot_be_asked_about(cache: Path) -> None:
    kernel = kernel_of("__global__ void f(const float **x, float a) {}", "f", options=["--std=c++03"])
    assert [(p.reads, p.type) for p in kernel._declared.values()] == [(False, "float"), (False, "float32")]
    ambiguous = "namespace a { __global__ void f(float *x) {} } namespace b { __global__ void f(float *y) {} }"
    with pytest.raises(an.InvalidRequest, match=r"declares 'b::f' with parameters \(float \*x\) and \(float \*y\)"):
        kernel_of(ambiguous, "b::f")
    with pytest.raises(an.LibraryError, match="oops") as caught:
        kernel_of("__global__ void f(float *x) { oops }", "f")
    assert "atomr_" not in str(caught.value)


def test_the_host_device_says_what_to_do() -> None:
    with an.System(isolation="thread") as system, pytest.raises(an.Unsupported, match=r"Device\.kernel"):
        system.device("host").cuda_kernel(SOURCE, "scale<float>")


def test_numba_functions_link_into_cuda(cache: Path) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from atomr_native._kernel_code import link

    def cube(x):
        return x * x * x

    source = """
    extern "C" __device__ float cube(float);
    extern "C" __global__ void f(float *x) { x[threadIdx.x] = cube(x[threadIdx.x]); }
    """
    part = an.device_function(cube, "float32(float32)", capability=(9, 0))
    kernel = _nvrtc.compile_program(source, "sm_90", names=["f"], output="ltoir")
    assert _cubin.kernels(link([kernel.code, part], "sm_90")) == {"f": (8,)}
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
