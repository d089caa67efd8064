"""Structs by value: NumPy scalars with fields as arguments of Numba's kernels, and of those in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fake_kernels
import numpy as np
import pytest

import atomr_native as an
from atomr_native.compile import cubin
from atomr_native.libraries.kernel.spec import _descr, record_dtype

pytestmark = pytest.mark.plain

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
VECTOR = np.dtype([("x", "f4"), ("y", "f4")])
PARAMETERS = np.dtype([("n", "i4"), ("gain", "f8"), ("at", VECTOR)], align=True)
SOURCE = """
struct Vector { float x, y; };
struct Parameters { int n; double gain; struct Vector at; };
struct Large { double values[100]; };
#ifndef __cplusplus
typedef struct Parameters Parameters;
typedef struct Large Large;
#endif
extern "C" __global__ void apply(double *out, Parameters p, double more) {
  out[0] = p.n; out[1] = p.gain; out[2] = p.at.x; out[3] = p.at.y; out[4] = more;
}
extern "C" __global__ void numbers(double *out, signed char n, unsigned long long u, bool b) {
  out[0] = n; out[1] = u; out[2] = b;
}
extern "C" __global__ void sum(double *out, Large large, Parameters p) {
  out[0] = p.n;
  for (int i = 0; i < 100; i++) out[0] += large.values[i];
}
"""
LARGE = np.dtype([("values", "f8", 100)])


def parameters(n: int) -> Any:
    made = np.zeros((), PARAMETERS)
    made["n"], made["gain"], made["at"] = n, 0.5, (1.5, -2)
    return made[()]


class TestNumba:
    """Numba's kernels, which take structs by their address; before the fake driver's, which change the environment."""

    @pytest.fixture(params=["host", GPU])
    def device(self, request: Any) -> Iterator[an.Device]:
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
        with an.System() as system:
            yield system.device(request.param)

    def test_a_struct(self, device: an.Device) -> None:
        import numba_kernels as kernels

        out = device.zeros(4, "f8")
        launch = device.kernel(kernels.of_a_struct)[1, 1]
        for n in (3, -4):
            launch(out, parameters(n)).result(60)
            np.testing.assert_array_equal(out.numpy(), [n, 0.5, 1.5, -2])
        with pytest.raises(an.InvalidRequest, match="holds Python objects"):
            launch(out, np.zeros((), [("a", "O")])[()])


@pytest.fixture(scope="module")
def cuda_device(cuda_engine: str) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("cuda:0")


def make(device: an.Device, engine: str, name: str, sizes: tuple[int, ...]) -> an.CudaKernel:
    return device.cuda_kernel(SOURCE, name) if engine == "gpu" else fake_kernels.make(device, SOURCE, name, sizes)


def test_structs_of_cuda(cuda_engine: str, cuda_device: an.Device) -> None:
    kernel = make(cuda_device, cuda_engine, "apply", (8, PARAMETERS.itemsize, 8))
    out = cuda_device.zeros(5, "f8")
    for n in (3, -4):
        kernel[1, 1](out, parameters(n), 7.0).result(60)
        np.testing.assert_array_equal(out.numpy(), [n, 0.5, 1.5, -2, 7])
    kernel[1, 1](out, parameters(9).tobytes(), 8.0).result(60)
    np.testing.assert_array_equal(out.numpy(), [9, 0.5, 1.5, -2, 8])
    with pytest.raises(an.InvalidRequest, match="p has 8 bytes; Parameters takes 24"):
        kernel[1, 1](out, np.zeros((), VECTOR)[()], 1.0)


def test_a_struct_that_is_too_large_for_a_message(cuda_engine: str, cuda_device: an.Device) -> None:
    kernel = make(cuda_device, cuda_engine, "sum", (8, LARGE.itemsize, PARAMETERS.itemsize))
    out = cuda_device.zeros(1, "f8")
    large = np.zeros((), LARGE)
    for n in (1, 2):
        large["values"] = n
        kernel[1, 1](out, large[()], parameters(5)).result(60)
        np.testing.assert_array_equal(out.numpy(), [5 + 100 * n])


def test_numbers_are_held_against_their_declaration_in_every_launch(cuda_engine: str, cuda_device: an.Device) -> None:
    launch = make(cuda_device, cuda_engine, "numbers", (8, 1, 8, 1))[1, 1]
    out = cuda_device.zeros(3, "f8")
    for given in ((5, 7, True), (-128, 2**63 - 1, 0), (np.int16(127), np.uint64(2**64 - 1), 1), (0, 2**64 - 1, False)):
        launch(out, *given).result(60)
        np.testing.assert_array_equal(out.numpy(), [float(n) for n in given])
        for wrong, text in (
            ((128, 0, 0), "n is 128; int8 takes -128 to 127"),
            ((np.int16(-129), 0, 0), "n is -129; int8 takes -128 to 127"),
            ((0, -1, 0), "u is -1; uint64 takes 0"),
            ((0, 0, 2), "b is 2; bool takes 0 to 1"),
            ((0.0, 0, 0), "n is 0.0; int8 takes an integer"),
        ):
            with pytest.raises(an.InvalidRequest, match=text):
                launch(out, *wrong)
    np.testing.assert_array_equal(out.numpy(), [0, float(2**64 - 1), 0])


@pytest.mark.parametrize(
    "dtype",
    [PARAMETERS, LARGE, np.dtype([("a", VECTOR, (2, 3)), ("b", "u1", 2), ("c", "?")]), np.dtype([("z", "c16")])],
)
def test_dtypes_in_plans(dtype: np.dtype[Any]) -> None:
    assert record_dtype(_descr(dtype)) == dtype


def test_compilation() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    import numba_kernels as kernels

    from atomr_native.compile import linker
    from atomr_native.compile.numba import api, compiler

    arrays = api.array_type(np.dtype("f8"), 1, "C")
    function = kernels.of_a_struct
    try:
        made = linker.machine_code(
            function.py_func, (arrays, api.record_type(PARAMETERS)), (9, 0), compiler.jit_options(function)
        )
    except an.Unsupported as error:
        pytest.skip(str(error))
    # No owner, size, item size, address, extent and stride; then one address.
    assert cubin.kernels(made.code.data)[made.entry] == (8,) * 8
