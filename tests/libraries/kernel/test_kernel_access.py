"""Which arrays a kernel only reads: only those whose every use is proven to be a read."""

from __future__ import annotations

import ast
import inspect
import operator

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from cuda.pathfinder import DynamicLibNotFoundError
from numba import cuda

import atomr_native as an
from atomr_native.compile.numba import access, api, cache, compiler
from atomr_native.plans.spec import READ, WRITE

HOST = (9, 0)
STRUCT = np.dtype([("a", np.float32), ("row", np.float32, (4,)), ("at", [("x", np.float32)])])
FLOATS = api.array_type(np.dtype(np.float32), 1, "C")
ROWS = api.array_type(np.dtype(np.float32), 2, "C")
COMPLEX = api.array_type(np.dtype(np.complex64), 1, "C")
STRUCTS = api.record_array_type(STRUCT, 1)
NUMBER = api.scalar_type("int64")


@cuda.jit(device=True)
def first(a, i):
    return a[i]


@cuda.jit(device=True)
def second(a, i):
    return first(a, i + 1)


@cuda.jit(device=True)
def puts(a, i):
    a[i] = 1


@cuda.jit(device=True)
def puts_later(a, i):
    puts(a, i)


@cuda.jit(device=True)
def puts_into_either(a, b, i):
    if i > 0:
        puts_into_either(b, a, i - 1)
    else:
        a[0] = 1


@cuda.jit(device=True)
def view_of(a):
    return a


# Kernels of x, an output y of float32, and a number i: x is only read by those in READS.


def reads_elements(x, y, i):
    y[i] = x[i] + x[i + 1] * len(x) + x.size + x.shape[0] + x[-1]


def reads_in_a_loop(x, y, i):
    for v in x:
        y[i] += v
    for j in range(x.shape[0]):
        y[j] = x[j]


def reads_a_view(x, y, i):
    v = x[1:3]
    s = slice(0, 2)
    y[i] = v[0] + x[s][1] + x[...][0]


def reads_by_another_name(x, y, i):
    v = x
    w = v
    y[i] = w[i]


def reads_in_a_function(x, y, i):
    def inner(j):
        return x[j]

    y[i] = inner(i) + first(x, i) + second(x, i)


def reads_with_a_hint(x, y, i):
    y[i] = cuda.ldca(x, i) + cuda.ldcs(x, i)


def never_uses(x, y, i):
    y[i] = i


def reads_a_row(x, y, i):
    row = x[i]
    y[i] = row[0] + x[i][1] + x[i, 2] + x.T[0, i]


def copies_a_row(x, y, i):
    y[0:2] = x[i, 0:2]


def reads_fields(x, y, i):
    p = x[i]
    y[i] = p.a + x[0].row[1] + x["a"][0] + p["a"] + p.at.x


def reads_parts(x, y, i):
    y[i] = x[i].real + x.imag[i]


READS = [
    *((f, FLOATS) for f in (
        reads_elements, reads_in_a_loop, reads_a_view, reads_by_another_name, reads_in_a_function, reads_with_a_hint,
        never_uses,
    )),
    *((f, ROWS) for f in (reads_a_row, copies_a_row)),
    (reads_fields, STRUCTS),
    (reads_parts, COMPLEX),
]  # fmt: skip


def writes(x, y, i):
    x[i] = 1


def writes_whole(x, y, i):
    x[...] = 1


def writes_a_slice(x, y, i):
    x[1:3] = y[1:3]


def writes_itself(x, y, i):
    x[...] = x


def adds(x, y, i):
    x[i] += 1


def renames(x, y, i):
    v = x
    v[0] = 1


def takes_a_slice(x, y, i):
    s = slice(2, 6)
    v = x[s]
    v[i] = 1


def takes_a_literal_slice(x, y, i):
    v = x[1:]
    v[0] = 1


def takes_an_ellipsis(x, y, i):
    whole = ...
    v = x[whole]
    v[i] = 1


def takes_a_literal_ellipsis(x, y, i):
    x[...][i] = 1


def chooses(x, y, i):
    v = x if i > 3 else y
    v[i] = 1


def rebinds(x, y, i):
    v = y
    for j in range(3):
        v[j] = 1
        v = x


def packs(x, y, i):
    t = (y, x)
    t[1][i] = 1


def in_a_function(x, y, i):
    def inner():
        x[i] = 1

    inner()


def by_a_device_function(x, y, i):
    puts_later(x, i)


def by_a_device_function_that_calls_itself(x, y, i):
    puts_into_either(y, x, i)


def by_a_view_of_a_device_function(x, y, i):
    view_of(x)[i] = 1


def by_an_atomic(x, y, i):
    cuda.atomic.add(x, i, 1)


def by_a_hint(x, y, i):
    cuda.stcs(x, i, np.float32(1))


def by_a_reshaped_view(x, y, i):
    x.reshape(2, 2)[0, 0] = 1


def by_the_other_kind(x, y, i):
    x.view(np.int32)[i] = 1


def by_a_flat_view(x, y, i):
    x.flat[i] = 1


def by_the_operator(x, y, i):
    operator.setitem(x, i, 1)


def writes_a_row(x, y, i):
    x[0][i] = 1


def writes_a_row_by_name(x, y, i):
    row = x[0]
    row[i] = 1


def writes_a_row_by_tuple(x, y, i):
    place = (0, slice(1, 3))
    v = x[place]
    v[0] = 1


def writes_rows_in_a_loop(x, y, i):
    for row in x:
        row[0] = 1


def writes_transposed(x, y, i):
    x.T[0, i] = 1


def writes_a_field(x, y, i):
    x[i].a = 1


def writes_a_field_by_name(x, y, i):
    p = x[0]
    p.a = 1


def writes_a_field_by_key(x, y, i):
    x[i]["a"] = 1


def writes_a_column(x, y, i):
    x["a"][0] = 1


def writes_in_a_field(x, y, i):
    x[i].row[1] = 1


def writes_a_nested_field(x, y, i):
    x[i].at.x = 1


def writes_a_struct(x, y, i):
    x[i] = x[i + 1]


def writes_a_part(x, y, i):
    x.real[i] = 1


WRITES = [
    *((f, FLOATS) for f in (
        writes, writes_whole, writes_a_slice, writes_itself, adds, renames, takes_a_slice, takes_a_literal_slice,
        takes_an_ellipsis, takes_a_literal_ellipsis, chooses, rebinds, packs, in_a_function, by_a_device_function,
        by_a_device_function_that_calls_itself, by_a_view_of_a_device_function, by_an_atomic, by_a_hint,
        by_a_reshaped_view, by_the_other_kind, by_a_flat_view, by_the_operator,
    )),
    *((f, ROWS) for f in (
        writes_a_row, writes_a_row_by_name, writes_a_row_by_tuple, writes_rows_in_a_loop, writes_transposed,
    )),
    *((f, STRUCTS) for f in (
        writes_a_field, writes_a_field_by_name, writes_a_field_by_key, writes_a_column, writes_in_a_field,
        writes_a_nested_field, writes_a_struct,
    )),
    (writes_a_part, COMPLEX),
]  # fmt: skip


@pytest.mark.plain
@pytest.mark.parametrize(("kernel", "kind"), READS, ids=[f.__name__ for f, _ in READS])
def test_arrays_that_are_only_read(kernel, kind) -> None:
    assert access.read_only(kernel, (kind, FLOATS, NUMBER), HOST) == {"x", "i"}


@pytest.mark.plain
@pytest.mark.parametrize(("kernel", "kind"), WRITES, ids=[f.__name__ for f, _ in WRITES])
def test_arrays_that_are_written(kernel, kind) -> None:
    found = access.read_only(kernel, (kind, FLOATS, NUMBER), HOST)
    assert "x" not in found
    assert "i" in found  # Numba accepts the kernel


@pytest.mark.plain
def test_what_numba_refuses_is_not_proven() -> None:
    def kernel(x, y, i):
        y[i] = x.nothing

    assert access.read_only(kernel, (FLOATS, FLOATS, NUMBER), HOST) == frozenset()


@pytest.mark.plain
def test_no_source_is_needed() -> None:
    made: dict = {}
    exec(compile(ast.parse(inspect.getsource(never_uses)), "<none>", "exec"), made)
    assert access.read_only(made["never_uses"], (FLOATS, FLOATS, NUMBER), HOST) == {"x", "i"}


@pytest.mark.plain
def test_a_proof_is_kept_on_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    options = {**compiler.OPTIONS}
    arguments = (reads_elements, (FLOATS, FLOATS, NUMBER), HOST, options)
    assert cache.read_only(*arguments) == {"x", "i"}
    monkeypatch.setattr(access, "typed", None)
    assert cache.read_only(*arguments) == {"x", "i"}


def test_a_tuple_is_read_as_a_whole() -> None:
    def kernel(t, u, y):
        y[0] = t[0][0] + u[1][0]
        u[0][0] = 1

    with an.System() as system:
        device = system.device("host")
        a, b, y = (device.empty(4) for _ in range(3))
        plan = device.kernel(kernel)[1, 1].plan((a, b), (a, b), y)
        assert [operand.access for operand in plan.spec.operands] == [READ, READ, *[READ | WRITE] * 3]


@pytest.mark.parametrize("kernel", [takes_a_slice, packs])
def test_a_copy_sent_afterwards_has_the_write(kernel) -> None:
    with an.System() as system:
        device = system.device("host")
        launch, y = device.kernel(kernel, actor="writer")[1, 1], device.empty(8)
        for _ in range(10):
            x = device.put(np.zeros(8, np.float32))
            launch.tell(x, y, 3)
            assert x.numpy().sum() == 1


def test_kernels_need_none_of_nvidias_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of NVVM is a part of a key where it is installed; the search for it fails where NVRTC is missing."""

    def missing(name: str) -> str:
        raise DynamicLibNotFoundError(f"no {name}")

    monkeypatch.setattr(compiler, "get_cudalib", missing)
    assert compiler.nvvm_file() is None
    monkeypatch.setattr(compiler, "get_cudalib", lambda _: "/nowhere/libnvvm.so")
    assert compiler.nvvm_file() is None
