"""cublas.h against the real thing: NVIDIA's headers with gcc, the library's symbols.  None of this needs a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from lt_emulator import source

pytestmark = [pytest.mark.abi, pytest.mark.plain]

_spec = importlib.util.spec_from_file_location("lt_headers", Path(__file__).with_name("test_cublaslt_headers.py"))
assert _spec is not None
assert _spec.loader is not None
headers = importlib.util.module_from_spec(_spec)
sys.modules["lt_headers"] = headers
_spec.loader.exec_module(headers)

FUNCTIONS = source("cublas_functions.h")


def c_source(swap: tuple[str, str] = ("", "")) -> str:
    """Return C that compiles only if our declarations are the header's; `swap` plants an error."""
    constants = dict(re.findall(r"^    (CUBLAS_\w+) = (\d+)", source("cublas.h").read_text(), re.M))
    assert len(constants) == 8
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <cublas_v2.h>", "#include <cublas_api.h>"]
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in constants.items()]
    lines += ['_Static_assert(sizeof(cuComplex) == 8 && sizeof(cuDoubleComplex) == 16, "complex");']
    lines += ['_Static_assert(__builtin_classify_type((cublasHandle_t)0) == 5, "a handle is a pointer");']
    lines += [FUNCTIONS.read_text().replace(*swap), "#define F(name, arguments) cublasStatus_t name arguments;"]
    return "\n".join([*lines, "ATOMR_CUBLAS_FUNCTIONS(F)", "ATOMR_CUBLAS_OPTIONAL(F)"]) + "\n"


def test_declarations_are_the_headers() -> None:
    assert headers.check_syntax(c_source(), headers.includes()) == ""


@pytest.mark.parametrize(
    "swap",
    [
        ("int n, int k, ", "int n, long k, "),
        ("const T *alpha, const T *x, int incx, T *y", "const T *alpha, T *x, int incx, T *y"),
        ("F(name, (cublasHandle_t handle, int n, const T *x, int incx, R *result))",
         "F(name, (cublasHandle_t handle, int n, const T *x, int incx, T *result))"),
    ],
)  # fmt: skip
def test_a_planted_error_is_found(swap: tuple[str, str]) -> None:
    assert swap[0] in FUNCTIONS.read_text()
    errors = re.findall(r"error: (.*)", headers.check_syntax(c_source(swap), headers.includes()))
    assert errors
    assert all("conflicting types" in error for error in errors)


def test_every_function_is_exported() -> None:
    found = headers.find("libcublas.so.1[23]")
    if not found:
        pytest.skip("libcublas not found; pip install nvidia-cublas, or set ATOMR_NATIVE_CUDA_WHEELS")
    ctypes.CDLL(str(found[0].parent / found[0].name.replace("libcublas", "libcublasLt")), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(found[0]))
    text = FUNCTIONS.read_text()
    names = re.findall(r"F\((cublas\w+_v2),", text) + re.findall(r"\(F, (cublas\w+),", text)
    names += [f"cublas{p}{n}" for p in "SDCZ" for n in re.findall(r"F\(cublas##p##(\w+),", text)]
    names += re.findall(r"F\((cublasGemmGrouped\w+),", text)
    assert len(names) == 67
    assert [name for name in names if not hasattr(library, name)] == []
