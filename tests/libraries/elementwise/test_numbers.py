"""Numbers in elementwise programs: constants by Python's rules, and comparisons with numbers of any size."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from codegen_engines import Engine, engines
from placements import GPU
from runners import HostRunner

from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest
from atomr_native.libraries.elementwise.constants import compared, computed
from atomr_native.libraries.elementwise.request import ElementwiseRequest

COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
NAMES = dict(zip(COMPARE, ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"), strict=True))


@pytest.fixture(scope="module", params=["host", "cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "host":
        yield HostRunner()
        return
    with engines(request.param, tmp_path_factory) as found:
        yield found


def run(engine: HostRunner | Engine, source: str, out: np.ndarray | None = None, **operands: Any) -> Any:
    made = ElementwiseRequest(program=source, operands=operands, out=out).lowered
    arrays = {
        o.name: np.zeros(o.spec.shape, DTYPES[o.spec.dtype]) if o.given is None else o.given for o in made.operands
    }
    engine.run(made.spec(), tuple(arrays.values()), tuple(scalar.value for scalar in made.scalars))
    return made.collect(arrays)


@pytest.mark.parametrize(
    "source",
    [
        "2 ** 64", "10 ** 20", "2 ** -3", "-7 // 2", "-7 % 3", "7.5 // -2", "2 ** 70 // 2 ** 69 - 1", "~5 ^ 3 | 8 & 12",
        "(3 > 2) + (2 ** 64 == 2.0 ** 64)", "10 ** 30 / 10 ** 29", "1 / 3", "0.1 + 0.2", "-(2 ** 63)", "5 - 2 ** 0.5",
        "(-1) ** (10 ** 20 + 1)", "(-1) ** 10 ** 20",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_constants_are_computed_as_in_python(engine: Any, source: str, dtype: str) -> None:
    x = np.array([0.5, -3.0, 7.0], dtype)
    got = run(engine, f"x * ({source})", x=x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x * np.array(eval(source), dtype))


def test_constants_meet_integers(engine: Any) -> None:
    x = np.array([1, 2, 3], np.int64)
    assert run(engine, "x * (2 ** 64 // 2 ** 62)", x=x).tolist() == [4, 8, 12]
    assert run(engine, "x + 2 ** -1", x=x).tolist() == [1.5, 2.5, 3.5]
    assert run(engine, "x / 2 ** 64 * 2 ** 64", x=x).tolist() == [1, 2, 3]
    assert run(engine, "where(2 ** 64, x, 0)", x=x).tolist() == [1, 2, 3]
    wide = np.zeros(3, np.uint64)
    assert run(engine, "x + (2 ** 64 - 2)", x=np.array([0, 1, 2], np.uint64)).tolist() == [2**64 - 2, 2**64 - 1, 0]
    assert run(engine, "2 ** 64 - 1", wide).tolist() == [2**64 - 1] * 3
    assert run(engine, "2 ** 70", np.zeros(1, np.float32))[0] == 2.0**70
    assert run(engine, "2 ** -1", np.zeros(1, np.float32))[0] == 0.5


def test_functions_of_constants(engine: Any) -> None:
    x = np.ones(2)
    for source, expected in {
        "maximum(2 ** 64, 3) / 2 ** 64": 1.0, "abs(-2 ** 65) / 2 ** 65": 1.0, "sign(-2 ** 70)": -1.0,
        "sqrt(2 ** 70)": 2.0**35, "minimum(2 ** 64, 3)": 3.0,
        "where(2 ** 64, 2, 3)": 2.0, "relu(-(10 ** 30))": 0.0, "floor(2.5) + ceil(2.5)": 5.0, "minimum(1, 0.5)": 0.5,
        "isnan(sqrt(-1.0)) + 0": 1.0, "exp(0) + log(1) + sigmoid(0)": 1.5, "erf(0)": 0.0,
    }.items():  # fmt: skip
        assert run(engine, f"x * ({source})", x=x).tolist() == [expected] * 2


@pytest.mark.plain
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x + 1 // 0", r"'1 // 0' has no value \(integer division or modulo by zero\) at line 1, column 5"),
        ("x + 1 / 0", "division by zero"),
        ("x + 5 % 0", "by zero"),
        ("x * (-8) ** 0.5", "the result is complex"),
        ("x * 1e300 ** 2", "has no value"),
        ("x * 10 ** 10 ** 10", "more than 4096 bits"),
        ("x * (2 ** 4000 * 2 ** 4000)", "more than 4096 bits"),
        ("x + 0.5 * 2 ** 2000", "too large"),
        ("f * 2 ** 2000", "of 2001 bits is too large for float32"),
        ("x * 2 ** 64", r"18446744073709551616 does not fit int64.*allowed: -9223372036854775808 to"),
        ("b + 300", r"300 does not fit uint8.*allowed: 0 to 255"),
        ("b - -1", "-1 does not fit uint8"),
        ("x + s * 2 ** 63", "does not fit int64"),
        ("x ** -2", r"an integer \(int64\) to the negative power -2.*allowed: 1 / x"),
        ("out = 2 ** 64", "does not fit int64"),
    ],
)
def test_constants_without_a_value_are_refused(source: str, words: str) -> None:
    known = {"x": np.ones(3, np.int64), "b": np.ones(3, np.uint8), "f": np.ones(3, np.float32), "s": 2}
    used = {name: value for name, value in known.items() if name in source.replace("out", "").replace("abs", "")}
    out = np.zeros(3, np.int64) if "out" in source else None
    with pytest.raises(InvalidRequest, match=words):
        ElementwiseRequest(program=source, operands=used, out=out).lowered  # noqa: B018


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint64"])
def test_comparisons_with_any_number_are_exact(engine: Any, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, 0, 1, info.max], dtype)
    sources = {}
    for at, (symbol, _) in enumerate(COMPARE.items()):
        for kind, number in enumerate((int(info.max) + 1, int(info.min) - 1, int(info.max))):
            sources[f"a{at}{kind}"] = f"x {symbol} {number}", COMPARE[symbol], number, False
            sources[f"b{at}{kind}"] = f"{number} {symbol} x", COMPARE[symbol], number, True
    outs = {name: np.zeros(4, bool) for name in sources}
    run(engine, "; ".join(f"{name} = {source}" for name, (source, *_) in sources.items()), x=x, **outs)
    for name, (source, compare, number, first) in sources.items():
        expected = [compare(number, int(v)) if first else compare(int(v), number) for v in x]
        assert outs[name].tolist() == expected, source


@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64"])
@pytest.mark.parametrize("number", [-1, 0, 300, 2**40])
def test_comparisons_with_numbers_of_a_message_are_exact(engine: Any, dtype: str, number: int) -> None:
    x = np.array([0, 1, np.iinfo(dtype).max], dtype)
    assert run(engine, "x < s", x=x, s=number).tolist() == [int(v) < number for v in x]
    assert run(engine, "s == x", x=x, s=number).tolist() == [int(v) == number for v in x]
    assert run(engine, "x + 0 * (s < 2 ** 64)", x=x, s=number).tolist() == x.tolist()


def test_an_array_that_a_known_answer_needs_not_may_be_alone(engine: Any) -> None:
    assert run(engine, "x < 2 ** 64", x=np.arange(5)).tolist() == [True] * 5
    assert run(engine, "x == 2 ** 64", x=np.arange(5)).dtype == bool


def test_negative_powers_of_integers_are_truncated(engine: Any) -> None:
    x = np.array([-2, -1, -1, 0, 1, 5, 3], np.int32)
    y = np.array([-1, -1, -2, -3, -4, -1, 3], np.int32)
    expected = [0, -1, 1, 0, 1, 0, 27]
    assert run(engine, "x ** y", x=x, y=y).tolist() == expected
    for n in (-1, -2):
        assert run(engine, "x ** n", x=x, n=n).tolist() == [v**-n if abs(v) == 1 else 0 for v in x.tolist()]
        assert run(engine, "x * 2 ** n", x=x, n=n).tolist() == [0] * 7
    assert run(engine, "x * n ** -1", x=x, n=4).tolist() == [v / 4 for v in x.tolist()]


@pytest.mark.plain
def test_against_python() -> None:
    names = {"add": "+", "subtract": "-", "multiply": "*", "floor_divide": "//", "remainder": "%", "power": "**"}
    values = (-3, -1, 0, 1, 2, 7, 2**64, 0.5, -2.5)
    for name, symbol in names.items():
        for a in values:
            for b in values:
                text = f"({a!r}) {symbol} ({b!r})"
                huge = symbol == "**" and abs(b) > 64
                try:
                    expected = None if huge else eval(text)
                except (ZeroDivisionError, OverflowError):
                    expected = None
                if expected is None or isinstance(expected, complex):
                    if not huge or abs(a) > 1 or isinstance(a, float):
                        if huge and abs(a) < 1:
                            continue
                        with pytest.raises(ArithmeticError):
                            computed(name, (a, b), "int")
                else:
                    found = computed(name, (a, b), "int")
                    assert (type(found), found) == (type(expected), expected), text


@pytest.mark.plain
def test_comparisons_beyond_a_range() -> None:
    for symbol, compare in COMPARE.items():
        for number in (-6, -5, 0, 5, 6):
            for first in (False, True):
                answers = {compare(number, v) if first else compare(v, number) for v in range(-5, 6)}
                known = compared(NAMES[symbol], number, -5, 5, first=first)
                assert known is None if abs(number) <= 5 else answers == {known}
