"""Exceptions of checked kernels: the message fails, and says which, where, and in which thread.

PYTEST_DONT_REWRITE: Numba compiles the assertions of kernels, and knows none of pytest's functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernel_shim
import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.kernel.numba_kernel import NumbaKernel
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from numba import cuda
from numba.cuda import random, types

from atomr_native.compile import linker
from atomr_native.compile.numba import api, compiler, instrument, simulator

DATA = (1.0, 4.0, 9.0, -16.0)


@cuda.jit(device=True)
def root(value):
    assert value >= 0, "negative"
    return value**0.5


@cuda.jit
def raising(x, which):
    i = cuda.threadIdx.x
    if which == 1:
        if x[i] > 4:
            raise ValueError("too large")
    elif which == 2:
        x[i] = root(x[i])
    elif which == 3 and i == 3:
        raise KeyError
    elif which == 4:
        assert cuda.atomic.add(x, i, 1.0) < 100


#: What each way raises, in which thread, and what the source says.
WAYS = {
    1: ("ValueError", 2, "raise ValueError('too large')"),
    2: ("AssertionError", 3, "assert value >= 0, 'negative'"),
    3: ("KeyError", 3, "raise KeyError"),
}


@pytest.fixture(scope="module", params=["host", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


@pytest.mark.parametrize("which", WAYS)
def test_what_is_raised_fails_the_message(device: an.Device, which: int) -> None:
    name, thread, source = WAYS[which]
    x = device.put(np.array(DATA))
    with pytest.raises(an.LibraryError) as caught:
        device.kernel(raising, debug=True)[1, 4](x, which).result(60)
    assert caught.value.name == name
    where = re.escape(f"{Path(__file__).name}:") + r"\d+: " + re.escape(source)
    text = str(caught.value).replace('"', "'")
    assert re.search(where, text), text
    assert re.search(rf"thread \({thread}, 0, 0\)|tid=\[{thread}, 0, 0\]", text), text
    assert device.generation == 1
    with pytest.raises(an.LibraryError, match=name):
        x.numpy()


def test_what_is_asserted_is_done_once(device: an.Device) -> None:
    x = device.put(np.array(DATA))
    device.kernel(raising, debug=True)[1, 4](x, 4).result(60)
    np.testing.assert_array_equal(x.numpy(), np.array(DATA) + 1)


def places(function: Any, *found: Any) -> list[str]:
    """Return the places of a checked kernel, without paths, after its compilation."""
    options = compiler.jit_options(function)
    sites = linker.machine_code(function.py_func, found, (9, 0), options, checks=True).sites
    return [re.sub(r"\S*/(\w+\.py):\d+:", r"\1", site) for site in sites]


def test_exceptions_have_places(tools: None) -> None:
    found = places(raising, api.array_type(np.dtype("f8"), 1, "C"), types.int64)
    assert [place for place in found if "raise" in place or "assert" in place] == [
        "ValueError test_kernel_exceptions.py raise ValueError('too large')",
        "AssertionError test_kernel_exceptions.py assert value >= 0, 'negative'",
        "KeyError test_kernel_exceptions.py raise KeyError",
        "AssertionError test_kernel_exceptions.py assert cuda.atomic.add(x, i, 1.0) < 100",
    ]


def test_where_notes_are_put() -> None:
    """By the simulator, which would raise the same, but only after the notes."""
    noted: list[Any] = []

    def note(*words: Any) -> None:
        noted.append(words[:4])

    def check(array: Any, index: Any, *_: Any) -> Any:
        return index

    names = instrument.Names(
        cuda, random, api.is_device_function, lambda _, function: cuda.jit(device=True)(function), check, note
    )
    made, sites = instrument.instrument(raising.py_func, (1, None), names)
    kernel = simulator.simulated(made)
    for which, (name, _, source) in WAYS.items():
        x, report = (simulator.simulated_array(np.array(data)) for data in (DATA, [0] * 11))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds
            kernel[1, 4](x, which, report)  # type: ignore[index]
        assert type(caught.value).__name__ == name
        (words,) = set(noted)
        assert words[1:] == (0, -1, 0)
        assert sites[words[0]].startswith(f"{name} ")
        assert sites[words[0]].endswith(source)
        noted.clear()


REPORTING = """
extern "C" __global__ void reporting(
    unsigned long long a, unsigned long long b, unsigned long long c, unsigned long long d, double *x,
    unsigned long long e, unsigned long long f, long long which,
    unsigned long long g, unsigned long long h, unsigned long long i, unsigned long long j, long long *report,
    unsigned long long k, unsigned long long l) {
  report[0] = 1;
  report[1] = which;
  report[2] = 7;
  report[3] = which == 1 ? -1 : 1;
  report[4] = 5;
  for (int n = 5; n < 11; n++) report[n] = n;
}
"""


def test_what_lanes_say_of_a_report(refuse: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    code = Binary(kernel_shim.compile_module(REPORTING))
    sites = ("/a.py:3: x[i, 7]", "ValueError /a b.py:5: raise ValueError('no')")
    found = SimpleNamespace(entry="reporting", code=code, sites=sites, cooperative=False, awaits=False)
    monkeypatch.setattr(NumbaKernel, "_machine_code", lambda *_: found)
    refuse()
    with an.System() as system:
        device = system.device("cuda:0")
        kernel = device.kernel(raising, debug=True)
        for which, name, text in [
            (0, "IndexError", "index 7 is out of bounds for axis 1 with size 5, in thread (8, 9, 10) of block "
             "(5, 6, 7), at /a.py:3: x[i, 7]"),
            (1, "ValueError", "raised in thread (8, 9, 10) of block (5, 6, 7), at /a b.py:5: raise ValueError('no')"),
            (2, "IndexError", "size 5, in thread (8, 9, 10) of block (5, 6, 7), at an unknown place"),
        ]:  # fmt: skip
            x = device.put(np.array(DATA))
            with pytest.raises(an.LibraryError) as caught:
                kernel[1, 4](x, which).result(60)
            assert caught.value.name == name
            assert text in str(caught.value)


def test_assertions_that_are_off_cannot_fail() -> None:
    """As with ``python -O``, under which the whole statement is gone."""
    names = instrument.Names(cuda, random, api.is_device_function, lambda *_: None, None, None)
    owner = instrument._Instrumenter(names)
    tree = ast.parse("def f(x):\n    assert x, 'no'\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    instrument._Checks(owner, root.py_func, {}, {}).body(function)
    code = compile(ast.fix_missing_locations(tree), "<test>", "exec", optimize=1)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["f"](0) is None
