"""Parameters of kernels in CUDA C++: what their declarations say, and what the compiler says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_kernels import SOURCE, kernel_of

import atomr_native as an
from atomr_native.compile.cpp_parameters import Parameter, declared, parse

pytestmark = pytest.mark.plain


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
def test_the_compiler_says_what_parameters_are(compiler_cache: Path, name: str, expected: str) -> None:
    found = kernel_of(DEPENDENT, name)._declared.values()
    said = [f"{p.name}:{'const' if p.reads else p.type if p.kind == 'scalar' else p.kind}" for p in found]
    assert said == expected.split()


def test_what_the_user_says_of_parameters(compiler_cache: Path) -> None:
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


def test_half_numbers(compiler_cache: Path) -> None:
    source = "struct __half { unsigned short bits; }; __global__ void f(__half *x, __half a) { x[0] = a; }"
    kernel = kernel_of(source, "f")
    for value in (1.5, np.float16(1.5)):
        kind, scalar = kernel.classify("a", value)
        assert (kind, scalar.type, scalar.words) == ("scalar", "float16", (1.5,))
    with pytest.raises(an.InvalidRequest, match="a is 'x'; float16 takes a real number"):
        kernel.classify("a", "x")


def test_sources_that_the_compiler_cannot_be_asked_about(compiler_cache: Path) -> None:
    kernel = kernel_of("__global__ void f(const float **x, float a) {}", "f", options=["--std=c++03"])
    assert [(p.reads, p.type) for p in kernel._declared.values()] == [(False, "float"), (False, "float32")]
    ambiguous = "namespace a { __global__ void f(float *x) {} } namespace b { __global__ void f(float *y) {} }"
    with pytest.raises(an.InvalidRequest, match=r"declares 'b::f' with parameters \(float \*x\) and \(float \*y\)"):
        kernel_of(ambiguous, "b::f")
    with pytest.raises(an.LibraryError, match="oops") as caught:
        kernel_of("__global__ void f(float *x) { oops }", "f")
    assert "atomr_" not in str(caught.value)
