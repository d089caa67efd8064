"""Ways to write kernels that Numba's users have: in functions, in debug mode, with tuples, on the host as on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import numba
from numba import cuda
from numba.cuda import types

from atomr_native import _kernel_code, _numba, _numba_compile

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


@pytest.fixture(scope="module")
def host() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


def compiled(kernel: Any, *arguments: Any, checks: bool = False) -> _kernel_code.MachineCode:
    """Return the code of a kernel of one array of float32, and of what else it takes."""
    options = _numba_compile.jit_options(kernel)
    found = types.float32[::1], *arguments
    return _kernel_code.machine_code(_numba.python_function(kernel), found, (9, 0), options, checks=checks)


def with_signature(function: Callable[..., Any], signature: Any) -> Any:
    """Return a device function as ``@cuda.jit(signature, device=True)`` leaves it, which needs a GPU."""
    made = cuda.jit(device=True)(function)
    made.overloads[signature.args] = SimpleNamespace(signature=signature)
    made.disable_compile()
    return made


@cuda.jit(debug=True, opt=False)
def raises_in_debug_mode(x: Any, n: Any) -> None:
    if n == 1:
        raise ValueError("one")
    x[0] = tripled(n)


@cuda.jit(device=True, debug=True, opt=False)
def tripled(n: Any) -> Any:
    if n == 2:
        raise ValueError("two")
    return 3 * n


def test_numbas_debug_mode(tools: None) -> None:
    # nvJitLink would end the process with it.
    for checks in (False, True):
        assert compiled(raises_in_debug_mode, types.int64, checks=checks).code


@cuda.jit(device=True)
def fibonacci(n: Any) -> Any:
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@cuda.jit
def fibonaccis(x: Any, n: Any) -> None:
    x[0] = fibonacci(n)
    x[1] = fibonacci(6)


def with_recursion_in_a_closure() -> Any:
    @cuda.jit(device=True)
    def inner(n: Any) -> Any:
        if n < 2:
            return n
        return inner(n - 1) + inner(n - 2)

    @cuda.jit
    def kernel(x: Any, n: Any) -> None:
        x[0] = inner(n)
        x[1] = inner(6)

    return kernel


@pytest.mark.parametrize("kernel", [fibonaccis, with_recursion_in_a_closure()], ids=["global", "closure"])
def test_functions_that_call_themselves(device: an.Device, tools: None, kernel: Any) -> None:
    x = device.zeros(2)
    device.kernel(kernel)[1, 1](x, 5).result(60)
    assert x.numpy().tolist() == [5, 8]
    for checks in (False, True):
        assert compiled(kernel, types.int64, checks=checks).code


def whole(v: Any) -> Any:
    return v + 1


fixed = with_signature(whole, types.int32(types.int32))


@cuda.jit
def calls_fixed(x: Any) -> None:
    x[0] = fixed(x[0])


def test_device_functions_keep_their_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    float32 = types.float32[::1]
    monkeypatch.setattr(_numba_compile._target, "compute_capability", (9, 0))
    fresh = _numba_compile._renewed(calls_fixed.py_func).__globals__["fixed"]
    assert (list(fresh.overloads), fresh._can_compile) == ([(types.int32,)], False)
    checked, _ = _numba.with_checks(calls_fixed.py_func, [float32])
    (name,) = (name for name in checked.__globals__ if "_whole_" in name)
    fresh = _numba_compile._renewed(checked).__globals__[name]
    assert list(fresh.overloads) == [(types.int32, types.int64[::1])]


class Foreign:
    """What other libraries' arrays are to Numba."""

    __cuda_array_interface__: ClassVar = {
        "shape": (4,),
        "typestr": "<f4",
        "data": (4096, False),
        "version": 3,
        "strides": None,
    }


foreign = Foreign()


@cuda.jit(device=True)
def of_foreign(i: Any) -> Any:
    return foreign[i]


@cuda.jit
def reads_foreign(x: Any) -> None:
    x[0] = of_foreign(1)


def test_arrays_on_gpus_are_arguments(device: an.Device) -> None:
    x = device.zeros(4)

    def reads_another(y: Any) -> None:
        y[0] = x[1]

    for kernel, name in ((reads_foreign, "foreign"), (reads_another, "x")):
        with pytest.raises(an.InvalidRequest, match=rf"refers to {name}, an array on a GPU"):
            device.kernel(kernel)[1, 1](x)


@cuda.jit
def qualified(x: Any) -> None:
    i = numba.cuda.grid(1)
    shared, other = numba.cuda.shared.array(4, numba.float32), numba.cuda.shared.array(4, numba.float32)
    shared[i] = other[i] = x[i]
    numba.cuda.syncthreads()
    other[i] += 1
    numba.cuda.syncthreads()
    numba.cuda.atomic.add(x, i, shared[3 - i])


@cuda.jit(device=True)
def doubled(v: Any) -> Any:
    return 2 * v


pair = fibonacci, doubled


@cuda.jit
def through_a_tuple(x: Any) -> None:
    i = cuda.grid(1)
    x[i] = pair[1](x[i])


@cuda.jit
def through_an_inner_function(x: Any) -> None:
    def inner(v: Any) -> Any:
        return doubled(v)

    i = cuda.grid(1)
    x[i] = inner(x[i])


@cuda.jit
def aligned(x: Any) -> None:
    i = cuda.threadIdx.x
    shared = cuda.shared.array(4, types.float32, alignment=16)
    local = cuda.local.array(1, types.float32, alignment=16)
    dynamic = cuda.shared.array(0, np.float32)
    shared[i] = dynamic[i] = x[i]
    local[0] = 1
    cuda.syncthreads()
    x[i] = shared[3 - i] + local[0] + dynamic[3 - i]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (qualified, [3, 3, 3, 3]), (through_a_tuple, [0, 2, 4, 6]), (through_an_inner_function, [0, 2, 4, 6]),
        (aligned, [7, 5, 3, 1]),
    ],
)  # fmt: skip
def test_ways_to_write(device: an.Device, tools: None, kernel: Any, expected: list[int]) -> None:
    x = device.put(np.arange(4, dtype=np.float32))
    device.kernel(kernel)[1, 4, 16](x).result(60)
    assert x.numpy().tolist() == expected
    assert compiled(kernel, checks=True).code


def test_an_error_of_numba_is_not_taken_for_a_missing_nvvm(tools: None) -> None:
    failure = _numba_compile._failure(RuntimeError("no such thing"), whole)  # type: ignore[arg-type]
    assert isinstance(failure, an.LibraryError)
    assert "no such thing" in str(failure)
