"""Kernels that were decorated with types: what arguments become, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scripts

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

import numba_kernels as kernels
from numba import cuda
from numba.cuda import types

from atomr_native.compile.numba import api
from atomr_native.libraries.kernel import spec


def decorated(function: Any, *signatures: tuple[Any, ...]) -> Any:
    """Return a dispatcher as ``@cuda.jit(signature)`` leaves it, which only a machine with a GPU can make."""
    made = cuda.jit(function)
    made.overloads.update(dict.fromkeys(signatures, SimpleNamespace(entry_point=None)))
    made.disable_compile()
    return made


@pytest.fixture(scope="module")
def host() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


SINGLE = types.float32[:], types.float32[:], types.float32, types.int32
DOUBLE = types.float64[:], types.float64[:], types.float64, types.int64


def test_numbers_become_what_the_signature_says(host: an.Device) -> None:
    kernel = host.kernel(decorated(kernels.third, SINGLE, DOUBLE))
    for dtype in ("float32", "float64"):
        x, out = host.put(np.ones(4), dtype), host.zeros(4, dtype)
        launch = kernel[1, 4]
        for by in (3, 3, 3.0, 3.0, np.float64(3), np.float32(3), np.int8(3), np.int8(3)):
            out.fill(0.0)
            launch(out, x, by, 4).result(60)
            np.testing.assert_array_equal(out.numpy(), np.ones(4, dtype) / np.dtype(dtype).type(3))
        # 0.1 is another number in float32.
        kernel[1, 4](out, x, 0.1, 4).result(60)
        np.testing.assert_array_equal(out.numpy(), np.ones(4, dtype) / np.dtype(dtype).type(0.1))
        plan = kernel[1, 4].plan(out, x, 1, 4)
        plan.ask(out, x, by=0.5).result(60)
        np.testing.assert_array_equal(out.numpy(), 2)


def test_complex_numbers_of_real_ones(host: an.Device) -> None:
    kernel = host.kernel(
        decorated(kernels.third, (types.complex64[:], types.complex64[::1], types.complex64, types.u1))
    )
    out, x = host.zeros(4, "complex64"), host.put(np.full(4, 3j), "complex64")
    for _ in range(2):
        kernel[1, 4](out, x, 3.0, np.uint64(4)).result(60)
    np.testing.assert_array_equal(out.numpy(), 1j)


@pytest.mark.parametrize(
    "arguments",
    [
        ("float32", "float64", 3.0, 4),  # arrays are never converted
        ("float16", "float16", 3.0, 4),
        ("float32", "float32", 3j, 4),
        ("float32", "float32", 3.0, 4.0),
        ("float32", "float32", 3.0, 2**31),  # no int32
        ("float32", "float32", (3.0,), 4),
    ],
)
def test_what_fits_no_signature(host: an.Device, arguments: tuple[Any, ...]) -> None:
    kernel = host.kernel(decorated(kernels.third, SINGLE, DOUBLE))
    out, x = host.zeros(4, arguments[0]), host.zeros(4, arguments[1])
    if arguments[3] == 2**31:  # the same structure as one that is taken
        kernel[1, 4](out, x, 3.0, 4).result(60)
    with pytest.raises(an.InvalidRequest, match=r"kernel third has no signature for .*it was decorated with: \(array"):
        kernel[1, 4](out, x, *arguments[2:])


def test_layouts_and_tuples(host: an.Device) -> None:
    def uses(x, pair):
        x[0, 0] = pair[0] + pair[1]

    pair = types.UniTuple(types.float32, 2)
    kernel = host.kernel(decorated(uses, (types.float32[::1, :], pair), (types.float32[:, ::1], pair)))
    for x in (host.zeros((3, 4)), host.zeros((3, 4)).T, host.zeros((1, 4))[:, ::1]):
        kernel[1, 1](x, (1, 2.5)).result(60)
        assert x.numpy()[0, 0] == 3.5
    with pytest.raises(an.InvalidRequest, match="no signature"):
        kernel[1, 1](host.zeros((3, 4))[:, ::2], (1, 2))
    with pytest.raises(an.InvalidRequest, match="no signature"):
        kernel[1, 1](host.zeros((3, 4)), (1, 2, 3))
    fitted = kernel.fitted([kernel.classify("x", host.zeros((3, 4))), kernel.classify("pair", (1, 2))])
    one, two = (("scalar", spec.Scalar("float32", (number,))) for number in (1.0, 2.0))
    assert fitted[1] == ("tuple", spec.Members((one, two)))
    assert api.signatures(kernels.scale) == ()


@pytest.mark.gpu
def test_a_dispatcher_that_numba_has_compiled() -> None:
    """In a program of its own, which Numba opens the GPU in."""
    scripts.run(
        """
import warnings
warnings.simplefilter("ignore")  # Numba's, of how it is launched
import numpy as np
from numba import cuda
import atomr_native as an

@cuda.jit("void(float32[:], float32)")
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] / factor

with an.System() as system:
    device = system.device("cuda:0")
    x = device.put(np.ones(8, np.float32))
    device.kernel(scale)[1, 8](x, 3).result(60)
    assert (x.numpy() == np.float32(1) / np.float32(3)).all()
    try:
        device.kernel(scale)[1, 8](device.zeros(8, "float64"), 3)
    except an.InvalidRequest as error:
        assert "no signature" in str(error)
    else:
        raise SystemExit("was taken")
"""
    )
