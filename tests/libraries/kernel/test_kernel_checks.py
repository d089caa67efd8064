"""Indices that are checked: where the checks are put, what they take for an index, and what is said of a bad one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import numba_kernels as kernels
from numba import cuda
from numba.cuda import random, types
from numba.cuda.random import xoroshiro128p_dtype

from atomr_native.compile import linker
from atomr_native.compile.numba import api, cache, compiler, index_checks, instrument, simulator
from atomr_native.compile.numba.index_checks import _each, _signed, _typed, _unchecked, _unsigned, check

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
STATES = 9


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


def test_ways_out_of_bounds(device: an.Device) -> None:
    x = device.zeros((4, 5))
    states = an.Records(device.zeros((STATES, xoroshiro128p_dtype.itemsize), "uint8"), xoroshiro128p_dtype)
    launch = device.kernel(kernels.over_in_many_ways, debug=True)[1, 1]
    for which, (index, axis, size, source) in enumerate(kernels.WAYS):
        with pytest.raises(an.LibraryError) as caught:
            launch(x, states, which).result(60)
        x.clear_error()
        states.ref.clear_error()
        assert caught.value.name == "IndexError"
        text = str(caught.value)
        assert f"index {index} is out of bounds for axis {axis} with size {size}" in text, which
        if source != "states":  # of which the simulator names a line of Numba's
            assert re.search(rf"at \S*numba_kernels\.py:\d+: .*{re.escape(source)}", text), text
    launch(x, states, 99).result(60)
    assert device.generation == 1
    assert not x.numpy().any()


def reports(array: Any, index: Any, axis: int, site: int, report: Any) -> Any:
    """Do in Python what `check` does."""
    shape = tuple(array.shape)  # the simulator's has no negative indices
    for number, one in enumerate(index if isinstance(index, tuple) else (index,), axis):
        if isinstance(one, int | np.integer) and not -shape[number] <= one < shape[number]:
            if not report[0]:
                report[:5] = 1, site, one, number % len(shape), shape[number]
            raise IndexError
    return index


def test_where_checks_are_put() -> None:
    """By the simulator, which would find the bad indices itself, but only after the checks."""
    names = instrument.Names(
        cuda,
        random,
        api.is_device_function,
        lambda _, function: cuda.jit(device=True)(function),
        reports,
        print,
    )
    made, sites = instrument.instrument(kernels.over_in_many_ways.py_func, (2, 1, None), names)
    kernel = simulator.simulated(made)
    states = np.zeros(STATES, xoroshiro128p_dtype)
    for which, (index, axis, size, source) in enumerate(kernels.WAYS):
        x, report = np.zeros((4, 5), np.float32), np.zeros(instrument.REPORT_WORDS, np.int64)
        shared = map(simulator.simulated_array, (x, states, report))
        with pytest.raises(IndexError):
            kernel[1, 1](next(shared), next(shared), which, next(shared))  # type: ignore[index]
        assert report[0], which
        assert report[2:5].tolist() == [index, axis, size]
        assert source in sites[report[1]]
        assert not x.any()


def never_an_index(x, r, pair, which):
    """Have what looks like an index of an array, and must stay as it is."""
    mixed = (1, 2.5, x)
    mixed[2][0] = mixed[1] + mixed[0]
    x[0] = r[0]["a"] + r[0].b[1] + pair[0] + x.shape[0]
    x[which] += pair[1]
    lock = cuda.shared.array(1, np.int32)
    cuda.atomic.compare_and_swap(lock, 500, 7)
    for member in cuda.grid(2):
        x[member] = 0


def test_what_must_not_be_checked(tools: None) -> None:
    struct = np.dtype([("a", np.float32), ("b", np.float32, 3)])
    arrays = api.array_type(np.dtype("f4"), 1, "C"), api.record_array_type(struct, 1)
    found = (*arrays, api.tuple_type((types.int64, types.float32)), types.uint64)
    options = compiler.jit_options(never_an_index)
    sites = linker.machine_code(never_an_index, found, (9, 0), options, checks=True).sites
    assert [site.rpartition(": ")[2] for site in sites] == ["x[0]", "r[0]", "r[0]", "x[which]", "x[member]"]


def test_all_ways_compile(tools: None) -> None:
    found = (
        api.array_type(np.dtype("f4"), 2, "C"), api.record_array_type(xoroshiro128p_dtype, 1), types.int64,
    )  # fmt: skip
    options = compiler.jit_options(kernels.over_in_many_ways)
    made = linker.machine_code(kernels.over_in_many_ways.py_func, found, (9, 0), options, checks=True)
    assert len(made.sites) > len(kernels.WAYS)


@cuda.jit(device=True)
def countdown(x, n):
    if n < 1:
        return x[n]
    return x[n] + countdown(x, n - 1)


def counts(x):
    x[0] = countdown(x, 3)


def test_a_device_function_that_calls_itself(tools: None) -> None:
    found = (api.array_type(np.dtype("f4"), 1, "C"),)
    sites = linker.machine_code(counts, found, (9, 0), compiler.jit_options(counts), checks=True).sites
    assert [site.rpartition(": ")[2] for site in sites] == ["x[0]", "x[n]", "x[n]"]


def test_what_is_taken_for_an_index() -> None:
    array, site = api.array_type(np.dtype("f4"), 2, "A"), (types.int64, types.int64, types.int64)
    for index, expected in [
        (types.int32, _signed),
        (types.uint8, _unsigned),
        (types.UniTuple(types.int64, 2), _each),
        (types.Tuple((types.int32, types.slice2_type)), _each),
        (types.Tuple((types.int32, types.ellipsis)), _unchecked),
        (types.Tuple(()), _unchecked),
        (types.boolean, _unchecked),
        (types.slice2_type, _unchecked),
    ]:
        assert _typed(array, index, *site) is expected
        assert _typed(types.UniTuple(types.int64, 2), index, *site) is _unchecked


def test_checks_are_in_the_key_of_checked_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    function = kernels.scale.py_func
    array = api.array_type(np.dtype("f4"), 1, "C")
    types_ = array, array, types.float64
    checked, _ = index_checks.with_checks(function, types_)
    options = compiler.jit_options(kernels.scale)

    def keys() -> tuple[bytes, ...]:
        return tuple(cache._key(f, types_, (9, 0), options) for f in (function, checked))

    before = keys()
    assert keys() == before
    monkeypatch.setitem(check.__globals__, "_typed", _unchecked)
    after = keys()
    assert after[0] == before[0]
    assert after[1] != before[1]
