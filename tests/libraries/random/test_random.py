"""Random numbers on both kinds of device: ranges, sources, shapes, limits, restarts."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator
from typing import Any

import crash
import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import DTYPES

pytestmark = [pytest.mark.plain, pytest.mark.alike]

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
#: Methods, with parameters and a dtype apart from float32.
METHODS: list[tuple[str, dict[str, Any], str]] = [
    ("uniform", {"low": -1.0, "high": 3.0}, "float64"),
    ("integers", {"low": -3, "high": 90}, "int8"),
    ("bernoulli", {"p": 0.3}, "bool"),
    ("normal", {"mean": 1.0, "std": 2.0}, "float64"),
    ("lognormal", {"sigma": 0.5}, "float16"),
    ("truncated_normal", {"low": 0.5}, "float64"),
    ("exponential", {"scale": 2.0}, "bfloat16"),
    ("gamma", {"alpha": 0.5}, "float64"),
    ("beta", {"a": 0.5, "b": 2.0}, "float16"),
    ("cauchy", {"loc": 1.0}, "float64"),
    ("geometric", {"p": 0.1}, "uint16"),
    ("poisson", {"rate": 20.0}, "int32"),
    ("binomial", {"n": 100, "p": 0.3}, "uint64"),
]


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def bits(array: np.ndarray) -> list[int]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tolist()


@pytest.mark.parametrize(("name", "parameters", "dtype"), METHODS)
def test_a_fill_in_parts_is_the_whole(device: an.Device, name: str, parameters: dict[str, Any], dtype: str) -> None:
    """Element i has the position offset + i: parts that begin anywhere, in another lane or view, have its bits."""
    method = getattr(device.random, name)
    start = 2**64 - 1000
    whole = method((7, 11), dtype, **parameters, seed=2**64 - 1, stream=5, offset=start).numpy()
    assert whole.dtype == DTYPES[dtype]
    flat = whole.reshape(-1)
    for first, count in ((0, 1), (1, 2), (3, 30), (33, 44)):
        part = method(count, dtype, **parameters, seed=2**64 - 1, stream=5, offset=start + first)
        assert bits(part.numpy()) == bits(flat[first : first + count])
    at = device.put(np.array([start % 2**64], np.uint64))
    assert bits(method((7, 11), dtype, **parameters, seed=2**64 - 1, stream=5, offset=at).numpy()) == bits(whole)
    out = device.zeros((7, 22), dtype)
    view = out[:, ::2]
    assert method(**parameters, seed=2**64 - 1, stream=5, offset=start, out=view) is view
    assert bits(view.numpy()) == bits(whole)
    assert not out.numpy()[:, 1::2].any()
    others = [{"seed": 1, "stream": 5, "offset": start}, {"seed": 2**64 - 1, "stream": 6, "offset": start}]
    for other in others:
        assert bits(method((7, 11), dtype, **parameters, **other).numpy()) != bits(whole)


def test_lanes_give_the_same_bits(device: an.Device) -> None:
    lanes = [device.random, *(an.Random(device, f"random {i}") for i in range(7))]
    made = [lane.gamma(500, alpha=0.7, seed=3) for _ in range(3) for lane in lanes]
    for array in made:
        assert bits(array.numpy()) == bits(made[0].numpy())


def test_parameters_of_arrays_are_those_of_elements(device: an.Device) -> None:
    mean, std = np.array([[0.0], [10.0]]), np.array([1.0, 2.0, 0.0], np.float32)
    got = device.random.normal(None, "float64", device.put(mean), device.put(std), seed=3).numpy()
    plain = device.random.normal((2, 3), "float64", seed=3).numpy()
    np.testing.assert_array_equal(got, mean + std.astype(float) * plain)
    counts = device.random.poisson((2, 50), rate=device.put(np.array([[3.0], [1000.0]])), seed=3).numpy()
    for row, rate in enumerate((3.0, 1000.0)):
        want = device.random.poisson(50, rate=rate, seed=3, offset=50 * row).numpy()
        np.testing.assert_array_equal(counts[row], want)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("normal", {"std": np.array([1.0, -1.0])}),
        ("gamma", {"alpha": np.array([1.0, np.nan])}),
        ("uniform", {"low": np.array([0.0, 2.0])}),
        ("poisson", {"rate": np.array([1.0, -0.5])}),
        ("binomial", {"n": np.array([3.0, 2.5])}),
        ("discrete", {"weights": np.array([1.0, -1.0])}),
        ("discrete", {"weights": np.array([0.0, 0.0])}),
        ("discrete", {"weights": np.array([1.0, np.inf])}),
        ("discrete", {"weights": np.array([1.0, 0.0]), "replace": False}),
    ],
)
def test_bad_parameters_on_the_device_fail_the_message(
    device: an.Device, name: str, parameters: dict[str, Any]
) -> None:
    given = {key: device.put(value) if isinstance(value, np.ndarray) else value for key, value in parameters.items()}
    sent = getattr(device.random, name)(shape=2, seed=1, **given)
    with pytest.raises(an.LibraryError):
        sent.numpy()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), 1])
def test_shapes(device: an.Device, shape: Any) -> None:
    want = (shape,) if isinstance(shape, int) else shape
    for made in (
        device.random.normal(shape, seed=1),
        device.random.integers(shape, seed=1),
        device.random.poisson(shape, seed=1),
        device.random.discrete([1.0, 2.0], shape, seed=1),
    ):
        assert made.numpy().shape == want


def test_uniform_numbers_stay_below_the_upper_bound(device: an.Device) -> None:
    for dtype, low, high in (("bfloat16", 1.0, 1.0625), ("float16", -1e-7, 0.0), ("float32", 1.0, 1.0000002)):
        got = device.random.uniform(4000, dtype, low, high, seed=5).numpy()
        bounds = np.array([low, high]).astype(got.dtype)
        assert got.min() == bounds[0]
        assert (got < bounds[1]).all()
    assert (device.random.uniform(5, low=2.0, high=2.0, seed=1).numpy() == 2.0).all()
    huge = device.random.integers(2000, "uint64", 0, 2**64, seed=1).numpy()
    assert huge.max() > 2**63


# ---------------------------------------------------------------------------------------------- orders, choices


@pytest.mark.parametrize("n", [0, 1, 2, 700, 1024, 1025, 5000])
def test_permutations_have_every_number_once(device: an.Device, n: int) -> None:
    got = device.random.permutation(n, "int32", seed=3).numpy()
    assert sorted(got.tolist()) == list(range(n))
    if n > 100:
        assert np.count_nonzero(got == np.arange(n)) < 10
        assert got.tolist() != device.random.permutation(n, "int32", seed=3, stream=1).numpy().tolist()


@pytest.mark.parametrize("n", [20, 1100])
@pytest.mark.parametrize("dtype", ["int8", "complex128", "bfloat16"])
def test_rows_follow_the_permutation(device: an.Device, n: int, dtype: str) -> None:
    x = (np.arange(3 * n) % 100).reshape(n, 3).astype(DTYPES[dtype])
    order = device.random.permutation(n, seed=3, offset=9).numpy()
    out = device.zeros((n, 3), dtype)
    assert device.random.shuffle(device.put(x), seed=3, offset=9, out=out) is out
    assert bits(out.numpy()) == bits(x[order])


def test_indices_by_weights(device: an.Device) -> None:
    weights = np.array([0.0, 3.0, 1.0, 0.0])
    given = device.put(weights)
    got = device.random.discrete(given, (100, 100), "int16", seed=3)
    assert got.dtype == np.int16
    counts = np.bincount(got.numpy().reshape(-1), minlength=4)
    assert counts[0] == counts[3] == 0
    assert abs(counts[1] - 7500) < 4 * np.sqrt(10000 * 0.75 * 0.25)
    part = device.random.discrete(given, 50, "int16", seed=3, offset=33).numpy()
    assert part.tolist() == got.numpy().reshape(-1)[33:83].tolist()
    assert sorted(device.random.discrete(given, 2, seed=4, replace=False).numpy().tolist()) == [1, 2]
    firsts = [device.random.discrete(weights, 2, seed=s, replace=False).numpy()[0] for s in range(200)]
    assert abs(firsts.count(1) - 150) < 4 * np.sqrt(200 * 0.75 * 0.25)


# ---------------------------------------------------------------------------------------------- sources


def test_generators_hand_out_each_range_once(device: an.Device) -> None:
    g = an.Generator(7, stream=2)
    first, second = (device.random.normal((2, 3), generator=g).numpy() for _ in range(2))
    whole = device.random.normal(12, seed=7, stream=2).numpy()
    np.testing.assert_array_equal(np.concatenate([first.reshape(-1), second.reshape(-1)]), whole)
    twin = pickle.loads(pickle.dumps(g))
    assert (twin.seed, twin.stream, twin.offset) == (7, 2, 12)
    np.testing.assert_array_equal(
        device.random.uniform(4, generator=g).numpy(), device.random.uniform(4, generator=twin).numpy()
    )
    device.random.permutation(5, generator=g)
    device.random.shuffle(device.put(np.arange(6)), generator=g)
    device.random.discrete([1.0, 1.0, 1.0], 2, generator=g)
    device.random.discrete([1.0, 1.0, 1.0], 2, generator=g, replace=False)
    device.random.poisson(rate=device.put(np.ones((2, 2))), generator=g)
    assert g.offset == 16 + 5 + 6 + 2 + 3 + 4
    before = device.random.generator.offset
    assert device.random.normal(3).numpy().tolist() != device.random.normal(3).numpy().tolist()
    assert device.random.generator.offset == before + 6


def test_generators_of_a_split_are_apart() -> None:
    g = an.Generator(7)
    twin = an.Generator(7)
    made = [*g.split(3), *g.split(2)]
    assert [(child.seed, child.stream) for child in made] == [(c.seed, c.stream) for c in twin.split(5)]
    assert len({child.seed for child in (*made, g)}) == 6
    assert (g.offset, made[0].offset) == (0, 0)
    assert an.Generator().seed != an.Generator().seed


def test_threads_share_a_generator() -> None:
    g = an.Generator(1)
    taken: list[int] = []

    def take() -> None:
        for _ in range(500):
            taken.append(g.take(3).offset)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(0, 6000, 3))


def test_numbers_are_the_same_after_a_restart() -> None:
    with an.System(standby="off", allow_crash=True) as system:
        device = system.device("host")
        before = device.random.gamma(50, alpha=0.5, seed=3).numpy()
        g = an.Generator(3)
        device.random.gamma(20, alpha=0.5, generator=g).wait()
        crash.restart(device)
        after = device.random.gamma(30, alpha=0.5, generator=g).numpy()
        np.testing.assert_array_equal(before[20:], after)


# ---------------------------------------------------------------------------------------------- messages


def test_plans_take_other_numbers_with_each_message(device: an.Device) -> None:
    request = an.RandomRequest(distribution="normal", shape=5, parameters=(0.0, 1.0), seed=1)
    plan = device.random.plan(request)
    out = device.zeros(5, "float32")
    plan.ask(out=out, seed=3, offset=2, mean=4.0, std=0.5).result(60)
    want = device.random.normal(5, mean=4.0, std=0.5, seed=3, offset=2).numpy()
    np.testing.assert_array_equal(out.numpy(), want)
    assert device.random.ask(request).result(60) is not None
    np.testing.assert_array_equal(device.random.tell(request).numpy(), device.random.normal(5, seed=1).numpy())


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("normal", (3,), {"std": -1.0}, "std=-1.0; allowed: [0, 3.40282e+38]"),
    ("normal", (3,), {"mean": np.nan}, "mean=nan"),
    ("normal", (3,), {"mean": "x"}, "mean='x'; it must be a real number"),
    ("normal", (3, "int8"), {}, "dtype int8 of normal numbers; allowed: float32, float16, bfloat16, float64"),
    ("normal", ((3, -1),), {}, "shape=(3, -1)"),
    ("normal", (3,), {"seed": -1}, "seed=-1; allowed: integers from 0 to 18446744073709551615"),
    ("normal", (3,), {"stream": 2**32}, "stream=4294967296"),
    ("normal", (3,), {"offset": 2**64 - 2}, f"offset={2**64 - 2} with 3 elements; allowed: {2**64 - 3} or less"),
    ("normal", (3,), {"generator": an.Generator(1)}, "allowed: a generator alone, or a seed"),
    ("uniform", (3,), {"low": 3.0, "high": 2.0}, "low=3.0 and high=2.0"),
    ("uniform", (3,), {"low": -3e38, "high": 3e38}, "at most 3.40282e+38 above"),
    ("truncated_normal", (3,), {"low": 2.0, "high": 2.0}, "low=2.0 and high=2.0; allowed: a high above low"),
    ("integers", (3, "int8"), {"low": 0, "high": 129}, "low=0 and high=129; allowed for int8"),
    ("integers", (3,), {"low": 1.5, "high": 3}, "low=1.5; it must be an integer"),
    ("bernoulli", (3,), {"p": 1.5}, "p=1.5; allowed: [0, 1]"),
    ("geometric", (3,), {"p": 0.0}, "p=0.0; allowed: (0, 1]"),
    ("gamma", (3,), {"alpha": 0.0}, "alpha=0.0; allowed: (0, "),
    ("poisson", (3,), {"rate": -1.0}, "rate=-1.0"),
    ("binomial", (3,), {"n": 2.5}, "n=2.5; allowed: whole numbers"),
    ("permutation", (-1,), {}, "n=-1"),
    ("permutation", (300, "int8"), {}, "dtype int8 of a permutation of 300 numbers; allowed: int16"),
    ("discrete", ([1.0, -1.0],), {}, "weights=[1.0, -1.0]; allowed: one axis of finite numbers of 0 or more"),
    ("discrete", ([0.0],), {}, "weights=[0.0]"),
    ("discrete", ([1.0, 2.0], 3), {"replace": False}, "3 indices of 2 without replacement"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options", "text"), BAD)
def test_bad_input(
    device: an.Device, name: str, arguments: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    method = getattr(device.random, name)
    for _ in range(2):
        with pytest.raises(an.InvalidRequest, match=re.escape(text)):
            method(*arguments, **{"seed": 1, **options})


def test_numbers_are_held_against_their_limits_by_each_call(device: an.Device) -> None:
    """Also by calls of a structure that is known: a bound may be right beside another one only."""
    device.random.uniform(3, low=2.0, high=3.0, seed=5, offset=2)
    with pytest.raises(an.InvalidRequest, match=re.escape("low=4.0 and high=3.0")):
        device.random.uniform(3, low=4.0, high=3.0, seed=5, offset=2)
    device.random.integers(3, low=2, high=5, seed=5)
    with pytest.raises(an.InvalidRequest, match="low=6 and high=5"):
        device.random.integers(3, low=6, high=5, seed=5)
    with pytest.raises(an.InvalidRequest, match="a generator alone"):
        device.random.normal(3, offset=2)


def test_arrays_that_do_not_fit(device: an.Device) -> None:
    x = device.zeros(4, "float32")
    for options, text in (
        ({"mean": x, "out": x}, "out overlaps mean"),
        ({"mean": x, "shape": 3}, "shape=3 with arrays of shapes mean (4,)"),
        ({"mean": device.zeros(4, "int32")}, "mean has dtype int32; allowed: float32, float64"),
        ({"out": x, "shape": 3}, "out has dtype float32 and shape (4,); allowed here: float32 of (3,)"),
        ({"offset": x, "shape": 3}, "offset has dtype float32 and shape (4,)"),
    ):
        with pytest.raises(an.InvalidRequest, match=re.escape(text)):
            device.random.normal(seed=1, **options)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="contiguous array"):
        device.random.shuffle(device.zeros((4, 4), "float32")[:, ::2], seed=1)


def test_a_generator_that_is_used_up() -> None:
    g = an.Generator(1)
    g.take(2**64 - 1)
    with pytest.raises(an.InvalidRequest, match="count=2 after 18446744073709551615 positions; allowed: 1 or fewer"):
        g.take(2)
    assert g.take(1).offset == 2**64 - 1
