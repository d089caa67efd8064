"""Distributions of random numbers against SciPy's, their functions against NumPy's, streams against each other.

Every seed is fixed, and the same bits come everywhere, so that nothing here fails by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_builds import build_host

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.random.host import ARITHMETIC
from atomr_native.libraries.random.kernels.formulas import _tail_of_factorial
from atomr_native.libraries.random.kernels.functions import (
    cosine_and_sine,
    exponential,
    logarithm,
    logarithm_of_complement,
)

stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")

pytestmark = [pytest.mark.plain, pytest.mark.alike]

COUNT = 40000
LEAST = 1e-3  # probability below which a test says no


def draw(name: str, parameters: tuple[Any, ...], dtype: str, count: int = COUNT, **options: Any) -> np.ndarray:
    request = an.RandomRequest(
        distribution=name, shape=count, dtype=dtype, parameters=parameters, **{"seed": 7, **options}
    )
    out = np.zeros(count, DTYPES[dtype])
    run: Any = build_host(request.lowered.spec()).run
    run((out,), tuple(scalar.value for scalar in request.lowered.scalars))
    return out


REAL = [
    ("uniform", (-1.0, 3.0), stats.uniform(-1, 4)),
    ("normal", (1.0, 2.0), stats.norm(1, 2)),
    ("lognormal", (0.0, 0.5), stats.lognorm(0.5)),
    ("exponential", (2.0,), stats.expon(scale=2)),
    ("cauchy", (1.0, 2.0), stats.cauchy(1, 2)),
    *(
        ("truncated_normal", (1.0, 2.0, 1 + 2 * a, 1 + 2 * b), stats.truncnorm(a, b, 1, 2))
        for a, b in ((-2.0, 2.0), (3.0, np.inf), (0.5, 0.501), (-np.inf, -6.0), (5.0, 5.1), (-np.inf, np.inf))
    ),
    *(("gamma", (a, 2.0), stats.gamma(a, scale=2)) for a in (0.1, 1.0, 3.0, 1000.0)),
    *(("beta", (a, b), stats.beta(a, b)) for a, b in ((0.5, 0.5), (2.0, 3.0), (0.2, 5.0), (50.0, 1.0))),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "parameters", "want"), REAL, ids=[f"{n} {p}" for n, p, _ in REAL])
def test_real_numbers(name: str, parameters: tuple[float, ...], want: Any, dtype: str) -> None:
    """By the test of Kolmogorov and Smirnov."""
    got = draw(name, parameters, dtype).astype(np.float64)
    assert stats.kstest(got, want.cdf).pvalue > LEAST


WHOLE = [
    ("bernoulli", (0.3,), stats.bernoulli(0.3)),
    *(("geometric", (p,), stats.geom(p)) for p in (0.9, 0.2, 0.01)),
    *(("poisson", (r,), stats.poisson(r)) for r in (0.5, 9.99, 10.0, 30.0, 1e4)),
    *(
        ("binomial", (n, p), stats.binom(n, p))
        for n, p in ((10, 0.3), (100, 0.05), (100, 0.95), (100, 0.5), (30, 0.4), (10**6, 0.3))
    ),
    ("integers", (-3, 14), stats.randint(-3, 14)),
    ("integers", (0, 1000), stats.randint(0, 1000)),
]


@pytest.mark.parametrize(("name", "parameters", "want"), WHOLE, ids=[f"{n} {p}" for n, p, _ in WHOLE])
def test_whole_numbers(name: str, parameters: tuple[float, ...], want: Any) -> None:
    """By a chi-square test, of classes with 20 numbers or more each."""
    got = draw(name, parameters, "int64")
    edges = np.unique(want.ppf(np.linspace(0, 1, min(200, COUNT // 100))[1:-1]))
    chances = np.diff(np.concatenate([[0.0], want.cdf(edges), [1.0]]))
    keep = chances > 20 / COUNT
    found = np.bincount(np.searchsorted(edges, got), minlength=len(chances))
    found, expected = found[keep], chances[keep] * COUNT
    expected *= found.sum() / expected.sum()
    assert stats.chisquare(found, expected).pvalue > LEAST


@pytest.mark.parametrize("high", [3 * 2**30, 2**32, 3 * 2**61, 2**64])
def test_wide_ranges_have_no_bias(high: int) -> None:
    """A remainder of words would have the lower third of 3 * 2**30 and 3 * 2**61 twice as often."""
    got = draw("integers", (0, high), "uint64").astype(np.float64) / high
    assert stats.kstest(got, "uniform").pvalue > LEAST


def test_trials_without_chance() -> None:
    for p, n, want in ((0.0, 9, 0), (1.0, 9, 9), (0.5, 0, 0)):
        assert set(draw("binomial", (n, p), "int64", 50).tolist()) == {want}
    assert set(draw("poisson", (0.0,), "int64", 50).tolist()) == {0}
    assert set(draw("geometric", (1.0,), "int64", 50).tolist()) == {1}
    assert set(draw("bernoulli", (1.0,), "int64", 50).tolist()) == {1}
    assert set(draw("normal", (3.0, 0.0), "float32", 50).tolist()) == {3.0}


def test_counts_that_do_not_fit_are_the_largest_number() -> None:
    assert set(draw("poisson", (1e6,), "uint8", 50).tolist()) == {255}
    assert set(draw("geometric", (1e-30,), "int64", 50).tolist()) == {2**63 - 1024}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tails_of_the_normal_distribution(dtype: str) -> None:
    """In 2**20 numbers some are beyond 4.5 deviations, where 24 bits of a radius would still do; and not too many."""
    got = abs(np.concatenate([draw("normal", (0.0, 1.0), dtype, 2**18, offset=i * 2**18) for i in range(4)]))
    for bound in (3.0, 4.0, 4.5):
        want = 2**20 * 2 * stats.norm.sf(bound)
        assert abs((got > bound).sum() - want) < 4 * np.sqrt(want)
    assert got.max() < 6


TAILS = [case for case in REAL if case[0] in ("uniform", "lognormal", "exponential", "cauchy", "gamma", "beta")]


@pytest.mark.parametrize(("name", "parameters", "want"), TAILS, ids=[f"{n} {p}" for n, p, _ in TAILS])
def test_tails(name: str, parameters: tuple[float, ...], want: Any) -> None:
    """As many numbers as there must be beyond the outermost thousandth, and ten-thousandth, on both sides."""
    count = 200_000
    got = draw(name, parameters, "float64", count, seed=19)
    for part in (1e-3, 1e-4):
        for beyond in (got < want.ppf(part), got > want.isf(part)):
            assert stats.binomtest(int(beyond.sum()), count, part).pvalue > LEAST / 10


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["uniform", "normal", "exponential"])
def test_numbers_of_a_stream_are_not_correlated(name: str, dtype: str) -> None:
    """With those behind them, at distances up to 64 and at powers of two; nor are their squares."""
    count = 1 << 16
    got = draw(name, (1.0,) if name == "exponential" else (0.0, 1.0), dtype, count).astype(np.float64)
    for values in (got, (got - got.mean()) ** 2):
        score = (values - values.mean()) / values.std()
        for lag in (*range(1, 65), *(1 << k for k in range(7, 15))):
            correlation = np.mean(score[:-lag] * score[lag:]) * np.sqrt(count - lag)
            assert abs(correlation) < 4.5, lag  # with a chance of 7e-6 for each


def test_streams_and_seeds_are_not_correlated() -> None:
    drawn = [
        draw("normal", (0.0, 1.0), "float64", **source)
        for source in ({}, {"stream": 1}, {"seed": 8}, {"offset": COUNT}, {"seed": 7 + 2**32})
    ]
    drawn.append(np.roll(drawn[0], 1))
    drawn.append(draw("exponential", (1.0,), "float32"))  # of other counters, although seed and stream are the same
    apart = abs(np.corrcoef(drawn) - np.eye(len(drawn))).max()
    assert apart < 4 / np.sqrt(COUNT)


def test_words_of_dropout_are_others() -> None:
    """Dropout and fills with one seed have no counter in common: their last words differ."""
    from atomr_native._support.philox import philox
    from atomr_native.libraries.random.kernels.positions import PAIRS, QUADS, SINGLES

    assert len({word >> 30 for word in (0, 1, QUADS, PAIRS, SINGLES)}) == 4
    zero = np.zeros(1, np.uint64)
    counter = (zero, zero, zero, zero + np.uint64(QUADS))
    word = int(philox(counter, (7, 0))[0][0])
    assert draw("integers", (0, 2**32), "uint32", 1)[0] == word


def test_orders_of_few_numbers_are_equally_frequent() -> None:
    counts: dict[tuple[int, ...], int] = {}
    run: Any = build_host(an.PermutationRequest(n=4, seed=0).lowered.spec()).run
    out = np.zeros(4, np.int64)
    for seed in range(2400):
        run((out,), (seed, 0, 0))
        counts[tuple(out.tolist())] = counts.get(tuple(out.tolist()), 0) + 1
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > LEAST


def test_places_in_long_orders_are_equally_frequent() -> None:
    """Where the numbers 0 and 1 come, and how far apart, in permutations of 1500."""
    places = []
    run: Any = build_host(an.PermutationRequest(n=1500, seed=0).lowered.spec()).run
    out = np.zeros(1500, np.int64)
    for seed in range(400):
        run((out,), (seed, 0, 0))
        where = np.argsort(out)
        places.append((where[0], where[1], (where[1] - where[0]) % 1500, out[0], out[-1]))
    for column in np.array(places).T:
        assert stats.kstest((column + 0.5) / 1500, "uniform").pvalue > LEAST


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_functions_are_within_two_roundings(real: Any) -> None:
    o, rng = ARITHMETIC[real], np.random.default_rng(1)
    x = np.exp(rng.uniform(-60, 60, 20000)).astype(real)
    x = np.concatenate([x, (1 + rng.uniform(-0.01, 0.01, 20000)).astype(real)])
    for got, want in (
        (logarithm(o)(x), np.log(x.astype(np.longdouble))),
        (exponential(o)(x[:20000] % 80), np.exp((x[:20000] % 80).astype(np.longdouble))),
        (logarithm_of_complement(o)(x[:20000] % 1), np.log1p(-(x[:20000] % 1).astype(np.longdouble))),
    ):
        assert (abs(got - want) <= 2 * np.spacing(abs(want.astype(real)))).all()
    turn = 32 if real is np.float32 else 52
    angle = rng.integers(0, 2**turn, 20000)
    exact = angle.astype(np.longdouble) / 2**turn * 2 * np.longdouble("3.14159265358979323846264338327950288")
    for got, want in zip(cosine_and_sine(o, turn)(angle), (np.cos(exact), np.sin(exact)), strict=True):
        assert (abs(got - want) <= np.finfo(real).eps).all()
    with np.errstate(over="ignore", under="ignore"):
        ends = exponential(o)(np.array([-1e4, 1e4, -700 if real is np.float64 else -100], real))
    assert ends[0] == 0
    assert ends[1] == np.inf
    assert 0 < ends[2] < 1e-40


def test_logarithms_of_factorials() -> None:
    """As rejection of Poisson and binomial numbers has them: what Stirling's formula lacks, of any number."""
    special = pytest.importorskip("scipy.special", reason="SciPy is not installed")
    k = np.concatenate([np.arange(200.0), np.array([1e4, 1e8])])
    small, tail = _tail_of_factorial(ARITHMETIC[np.float64])
    np.testing.assert_allclose(small(k[:10]), special.gammaln(k[:10] + 1), rtol=1e-15, atol=0)
    lacks = special.gammaln(k[:200] + 1) - ((k[:200] + 0.5) * np.log(k[:200] + 1) - k[:200] - 1 + np.log(2 * np.pi) / 2)
    np.testing.assert_allclose(tail(k[:200]), lacks, atol=1e-12)
    np.testing.assert_allclose(tail(k[200:]), 1 / (12 * (k[200:] + 1)), rtol=1e-8)
