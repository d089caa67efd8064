"""Ways to write kernels that Numba's users have: in functions, in debug mode, with tuples, on the host as on GPUs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import numba
from numba import cuda
from numba.cuda import dispatcher, types

from atomr_native.compile import cubin, linker
from atomr_native.compile.numba import api, compiler, index_checks
from atomr_native.plans.spec import READ, WRITE

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


@pytest.fixture(scope="module")
def host() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


def compiled(kernel: Any, *arguments: Any, checks: bool = False) -> linker.MachineCode:
    """Return the code of a kernel of one array of float32, and of what else it takes."""
    options = compiler.jit_options(kernel)
    found = types.float32[::1], *arguments
    return linker.machine_code(api.python_function(kernel), found, (9, 0), options, checks=checks)


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


def test_device_functions_keep_their_signatures() -> None:
    float32 = types.float32[::1]
    with compiler._current_device.compiling_for((9, 0)):
        fresh = compiler.renewed(calls_fixed.py_func).__globals__["fixed"]
        assert (list(fresh.overloads), fresh._can_compile) == ([(types.int32,)], False)
        checked, _ = index_checks.with_checks(calls_fixed.py_func, [float32])
        (name,) = (name for name in checked.__globals__ if "_whole_" in name)
        fresh = compiler.renewed(checked).__globals__[name]
        assert list(fresh.overloads) == [(types.int32, types.int64[::1])]


def test_numba_is_left_as_it_was() -> None:
    """Importing and compiling, also in two threads that overlap, restore what they replace in Numba."""
    code = textwrap.dedent("""
        from numba.cuda import dispatcher
        numbas = dispatcher.get_current_device
        from numba import types
        from atomr_native.compile.numba import compiler
        assert dispatcher.get_current_device is numbas
        def f(x):
            x[0] += 1
        made = compiler.compile_ltoir(f, (types.float32[::1],), (9, 0), compiler.OPTIONS)
        assert made.code
        assert dispatcher.get_current_device is numbas
        def fails(x):
            x.nothing()
        try:
            compiler.compile_ltoir(fails, (types.float32[::1],), (9, 0), compiler.OPTIONS)
        except compiler.LibraryError:
            pass
        else:
            raise AssertionError
        assert dispatcher.get_current_device is numbas
    """)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_threads_compile_at_once_for_different_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    numbas = object()
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: numbas)
    before = dispatcher.get_current_device
    both, done = threading.Barrier(2), threading.Event()
    seen: dict[tuple[int, int], Any] = {}

    def compiles(capability: tuple[int, int], first: bool) -> None:
        with compiler._current_device.compiling_for(capability):
            both.wait(30)
            seen[capability] = dispatcher.get_current_device().compute_capability
            if not first:
                done.wait(30)
            seen[capability] = (seen[capability], dispatcher.get_current_device().compute_capability)

    threads = [threading.Thread(target=compiles, args=a) for a in (((9, 0), True), ((8, 0), False))]
    for thread in threads:
        thread.start()
    threads[0].join(30)
    assert dispatcher.get_current_device is not before  # one thread compiles
    assert dispatcher.get_current_device() is numbas  # this one does not
    done.set()
    threads[1].join(30)
    assert seen == {(9, 0): ((9, 0), (9, 0)), (8, 0): ((8, 0), (8, 0))}
    assert dispatcher.get_current_device is before


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


halved = cuda.jit(device=True)(lambda v: v / 2)


@cuda.jit
def with_a_lambda(x: Any) -> None:
    i = cuda.grid(1)
    x[i] = 4 * halved(x[i])


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
        (with_a_lambda, [0, 2, 4, 6]), (aligned, [7, 5, 3, 1]),
    ],
)  # fmt: skip
def test_ways_to_write(device: an.Device, tools: None, kernel: Any, expected: list[int]) -> None:
    x = device.put(np.arange(4, dtype=np.float32))
    device.kernel(kernel)[1, 4, 16](x).result(60)
    assert x.numpy().tolist() == expected
    assert compiled(kernel, checks=True).code


def test_an_error_of_numba_is_not_taken_for_a_missing_nvvm(tools: None) -> None:
    failure = compiler.failure(RuntimeError("no such thing"), whole)  # type: ignore[arg-type]
    assert isinstance(failure, an.LibraryError)
    assert "no such thing" in str(failure)


class Pair(NamedTuple):
    """Two of a kind."""

    first: Any
    second: Any


class Swapped(NamedTuple):
    """The same two, the other way round."""

    second: Any
    first: Any


@cuda.jit
def of_tuples(x: Any, inputs: Any, pair: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        x[i] = inputs[0][0][i] + inputs[0][1] * inputs[1][i, 1] + pair.first[i] - pair.second[i]


def test_tuples_of_arrays(device: an.Device) -> None:
    x, a, b = device.zeros(4), device.put(np.arange(4.0)), device.put(np.arange(8, dtype=np.int32)).reshape(4, 2)
    c, d = device.put(np.full(4, 7, np.float32)), device.put(np.ones(4, np.float32))
    kernel = device.kernel(of_tuples, writes=["x"])
    inputs = (a, 10), b.T.T
    expected = np.arange(4) + 10 * np.arange(1, 8, 2)
    kernel[1, 4](x, inputs, Pair(c, d)).result(60)
    np.testing.assert_array_equal(x.numpy(), expected + 6)
    kernel[1, 4](x, inputs, Swapped(c, d)).result(60)
    np.testing.assert_array_equal(x.numpy(), expected - 6)
    plan = kernel[1, 4].plan(x, inputs, Pair(c, d))
    plan.ask(x, a, b, d, c, inputs_0_1=0).result(60)
    np.testing.assert_array_equal(x.numpy(), np.arange(4) - 6)


@cuda.jit
def adds_to_the_first(arrays: Any) -> None:
    arrays[0][0] += 1


def test_arrays_in_tuples_count_as_written(host: an.Device) -> None:
    x, kernel = host.zeros(4), host.kernel(adds_to_the_first)
    (operand,) = kernel[1, 1].plan((x,)).spec.operands
    assert (operand.name, operand.access) == ("arrays[0]", READ | WRITE)
    with pytest.raises(an.Unsupported, match=r"arrays\[0\] is a struct, in a tuple"):
        kernel[1, 1]((np.zeros((), [("a", "f4")])[()],))
    with pytest.raises(an.InvalidRequest, match=r"arrays\[1\]\[0\] is a str"):
        kernel[1, 1]((x, ("a",)))


@cuda.jit
def names_alike(x: Any, x_0: Any, z: Any, z_real: Any, uses_0: Any) -> None:
    i = cuda.grid(1)
    if i < x_0.size:
        x[0][i] += x_0[i] * x[1] + z.real - z_real + uses_0[i]


def test_names_of_members_are_no_others(device: an.Device) -> None:
    a, b, c, used = device.zeros(4), device.put(np.arange(4.0)), device.zeros(8)[::2], device.zeros(3)
    launch = device.kernel(names_alike)[1, 4]
    plan = launch.plan((a, 2.0), b, 1 + 2j, 1.0, c, uses=[used])
    assert [(o.name, o.access) for o in plan.spec.operands][:3] == [
        ("x[0]", READ | WRITE), ("x_0", READ), ("uses_0", READ),
    ]  # fmt: skip
    assert plan.signature.scalars == ("x_1", "z_real_", "z_imag", "z_real")
    launch((a, 2.0), b, 1 + 2j, 1.0, c)
    np.testing.assert_array_equal(a.numpy(), 2 * np.arange(4))
    plan.tell(a, b, c, used, x_1=3.0, z_real=0.5)
    np.testing.assert_array_equal(a.numpy(), 5 * np.arange(4) + 0.5)
    with pytest.raises(an.InvalidRequest, match="uses_0"):
        plan.tell(a, b, device.zeros(4), used)  # whose layout is another one


def test_parameters_of_tuples(tools: None) -> None:
    pair = api.tuple_type((types.float32[::1], types.float32[::1]), Pair)
    swapped = api.tuple_type((types.float32[::1], types.float32[::1]), Swapped)
    inputs = types.Tuple((types.Tuple((types.float64[::1], types.int64)), types.int32[:, ::1]))
    codes = [compiled(of_tuples, inputs, one) for one in (pair, swapped)]
    (sizes,) = {cubin.kernels(code.code.data)[code.entry] for code in codes}
    assert sizes == (8,) * (7 + 7 + 1 + 9 + 7 + 7)
    assert codes[0].code != codes[1].code


def test_lambdas_are_checked(device: an.Device, tools: None) -> None:
    x = device.zeros(4)
    take = cuda.jit(device=True)(lambda array, i: array[i])

    @cuda.jit
    def kernel(x: Any, i: Any) -> None:
        x[0] = take(x, i)

    launch = device.kernel(kernel, debug=True)[1, 1]
    launch(x, 3).result(60)
    with pytest.raises(an.LibraryError, match="index 4 is out of bounds for axis 0 with size 4"):
        launch(x, 4).result(60)
    assert len(compiled(kernel, types.int64, checks=True).sites) == 2
    both = [cuda.jit(device=True)(f) for f in (lambda v: v, lambda v: v)]
    first = both[0]

    @cuda.jit
    def ambiguous(x: Any) -> None:
        x[0] = first(x[0])

    with pytest.raises(an.Unsupported, match="the only lambda of its statement"):
        compiled(ambiguous, checks=True)


PLACE = np.dtype([("at", "f4", (2,)), ("n", "i4")])


@cuda.jit
def moves_structs(x: Any) -> None:
    i = cuda.threadIdx.x
    shared, local = cuda.shared.array(2, PLACE), cuda.local.array(1, PLACE)
    shared[i] = x[i]
    cuda.syncthreads()
    shared[i].n += 1
    local[0] = shared[i]
    cuda.syncthreads()
    x[i] = shared[1 - i]
    x[i].n += local[0].n * 10


def test_structs_are_assigned(device: an.Device, tools: None) -> None:
    data = np.array([((1, 2), 3), ((4, 5), 6)], PLACE)
    records = an.Records(device.put(data.view(np.uint8).reshape(2, -1)), PLACE)
    device.kernel(moves_structs)[1, 2](records).result(60)
    expected = np.array([((4, 5), 7 + 40), ((1, 2), 4 + 70)], PLACE)
    np.testing.assert_array_equal(np.ascontiguousarray(records.ref.numpy()).view(PLACE)[:, 0], expected)
    found, options = (api.record_array_type(PLACE, 1),), compiler.jit_options(moves_structs)
    assert linker.machine_code(moves_structs.py_func, found, (9, 0), options, checks=True).code


@cuda.jit
def in_double(x: Any, y: Any, by: Any, n: Any) -> None:
    x[0] = y[0] * by
    x[1] = 1 / (by - by)
    x[2] = cuda.clz(n)


def test_numbers_of_the_host_are_as_wide_as_on_gpus(device: an.Device) -> None:
    x, y = device.zeros(3, "float64"), device.put(np.full(1, 0.1, np.float32))
    device.kernel(in_double)[1, 1](x, y, 0.1, 5).result(60)
    assert x.numpy().tolist() == [float(np.float32(0.1)) * 0.1, np.inf, 61]
