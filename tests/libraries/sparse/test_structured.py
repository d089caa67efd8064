"""Matrices with two numbers in each four, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from typing import Any

import numpy as np
import pytest
import scripts
from actions import eventually
from fake_cuda import compiling_here, using

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.sparse.cuda.structured import fastest, fused
from atomr_native.libraries.sparse.structured.figures import FIGURES, Figure, near
from atomr_native.libraries.sparse.structured.matrix import compressed_bytes
from atomr_native.libraries.sparse.structured.spec import OUTPUTS

RNG = np.random.default_rng(24)
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-23, "int8": 0.5, "int32": 0.5}
FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    made = cuda_system.device(request.param)
    try:
        made.sparse.structured(made.zeros((32, 32), "float16")).compressed.wait()
    except an.Unsupported as error:
        pytest.skip(str(error))
    return made


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "int8":
        return RNG.integers(-9, 10, shape).astype(np.int8)
    return RNG.standard_normal(shape).astype(DTYPES[dtype])


def wide(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x).astype(np.float64)


def strips(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Keep the two of largest magnitude of each four, by sorting."""
    groups = x.reshape(-1, 4)
    size = np.abs(wide(groups))
    size[np.isnan(size)] = np.inf
    kept = np.argsort(-size, axis=1, kind="stable")[:, :2]
    made = np.zeros_like(groups)
    np.put_along_axis(made, kept, np.take_along_axis(groups, kept, axis=1), axis=1)
    return made.reshape(x.shape)


PAIRS = [np.isin(range(4), pair) for pair in itertools.combinations(range(4), 2)]
MASKS = [mask for mask in map(np.array, itertools.product(PAIRS, repeat=4)) if (mask.sum(axis=0) == 2).all()]


def sum_of_tile(tile: np.ndarray[Any, Any]) -> float:
    return max(float((np.abs(wide(tile)) * mask).sum()) for mask in MASKS)


@pytest.mark.parametrize("dtype", ["int8", *FLOATS, "float32"])
def test_pruning_keeps_the_largest(device: an.Device, dtype: str) -> None:
    x = random((12, 20), dtype)
    found = device.sparse.prune_24(device.put(x)).numpy()
    np.testing.assert_array_equal(found, strips(x))
    tiles = device.sparse.prune_24(device.put(x), method="tile").numpy()
    assert ((tiles == x) | (tiles == 0)).all()
    for i, j in itertools.product(range(0, 12, 4), range(0, 20, 4)):
        tile, kept = x[i : i + 4, j : j + 4], tiles[i : i + 4, j : j + 4]
        assert max((kept != 0).sum(axis=0).max(), (kept != 0).sum(axis=1).max()) <= 2
        assert np.abs(wide(kept)).sum() == pytest.approx(sum_of_tile(tile), rel=1e-6)
    for turned in (tiles, np.ascontiguousarray(tiles.T)):
        device.sparse.check_24(device.put(turned))


def test_ties_zeros_nan_and_views(device: an.Device) -> None:
    x = np.array([[1, -1, 1, 1, 0, 0, 0, 0], [0, 0, 3, 0, 0, 5, 0, 2], [np.nan, 9, np.inf, 1, 1, 2, 3, -np.inf],
                  [2, 2, 2, 2, 1, 2, 1, 2]], "float32")  # fmt: skip
    given = device.put(x)
    found = device.sparse.prune_24(given).numpy()
    np.testing.assert_array_equal(found[0], [1, -1, 0, 0, 0, 0, 0, 0])  # of equal ones the first
    np.testing.assert_array_equal(found[1], x[1])  # already so
    np.testing.assert_array_equal(found[2], [np.nan, 0, np.inf, 0, 0, 0, 3, -np.inf])
    np.testing.assert_array_equal(found[3], [2, 2, 0, 0, 0, 2, 0, 2])
    flipped = device.sparse.prune_24(given.T[:, :]).numpy()
    np.testing.assert_array_equal(flipped, strips(np.ascontiguousarray(x.T)))
    out = device.zeros((4, 8), "float32")
    assert device.sparse.prune_24(given, out=out) is out
    assert device.sparse.prune_24(device.zeros((0, 8), "int8")).shape == (0, 8)
    # Equal bits on each device where sums are equal: the first of the best patterns.
    ones = device.sparse.prune_24(device.put(np.ones((4, 4), "float16")), method="tile").numpy()
    np.testing.assert_array_equal(ones, [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]])


def test_a_check_names_the_first(device: an.Device) -> None:
    x = np.zeros((32, 64), "float16")
    x[:, ::4] = x[:, 1::4] = 1
    device.sparse.check_24(device.put(x))
    x[5, 10] = x[7, 30] = -2
    with pytest.raises(an.InvalidRequest, match=r"x\[5, 8:12\] has more than two numbers.*allowed: two"):
        device.sparse.structured(device.put(x))
    assert device.sparse.structured(device.put(x), check=False).shape == (32, 64)


def bound(
    x: np.ndarray[Any, Any], a: np.ndarray[Any, Any], want: np.ndarray[Any, Any], out: str
) -> np.ndarray[Any, Any]:
    """Roundings of the result, and of sums: float32, of which Hopper keeps about 14 bits for 8-bit floats."""
    sums = np.abs(wide(x)) @ np.abs(wide(a)).T
    rounding = EPS[out] * (np.abs(want) if out not in ("int8", "int32") else 1)
    return 2.1 * rounding + sums * (2.0**-12 if "float8" in str(a.dtype) else 2.0**-20) + 1e-6


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("float16", "float16"), ("bfloat16", "bfloat16"), ("int8", "int32"), ("int8", "int8"), ("int8", "float16"),
        ("int8", "bfloat16"), ("float8_e4m3fn", "bfloat16"), ("float8_e4m3fn", "float16"), ("float8_e5m2", "float32"),
    ],
)  # fmt: skip
def test_products(device: an.Device, dtype: str, out: str) -> None:
    a = device.sparse.structured(device.put(random((64, 96), dtype)), prune="strip")
    pruned = a.dense.numpy()
    x = random((48, 96), dtype)
    given = device.put(x)
    sums = wide(x) @ wide(pruned).T
    found = device.sparse.linear_24(given, a, out_dtype=out, route="structured", alpha=0.25)
    assert found.dtype == DTYPES[out]
    want = np.clip(0.25 * sums, -128, 127) if out == "int8" else 0.25 * sums
    assert (np.abs(wide(found.numpy()) - want) <= bound(x, pruned, want, out)).all()
    bias = np.arange(64).astype(DTYPES["float32" if dtype == "int8" else out]) / 4
    old = random((48, 64), "int8" if out.startswith("int") else out).astype(DTYPES[out])
    if out == "int8" and device.kind != "host":
        with pytest.raises(an.Unsupported, match=r"to int8 with the bias, .*allowed: out_dtype int32, float16"):
            device.sparse.linear_24(given, a, bias=device.put(bias), out_dtype=out, route="structured").wait()
        return
    for activation in ("none", "relu", "gelu") if not out.startswith("int") else ("none", "relu"):
        made = device.sparse.linear_24(
            given, a, bias=device.put(bias), activation=activation, alpha=0.125, beta=2.0, out=device.put(old),
            route="structured",
        ).numpy()  # fmt: skip
        want = 0.125 * sums + 2 * wide(old) + wide(bias)
        if activation == "relu":
            want = np.maximum(want, 0)
        if activation == "gelu":
            want = 0.5 * want * (1 + np.tanh(np.sqrt(2 / np.pi) * (want + 0.044715 * want**3)))
        limits = (np.clip(want, -128, 127) if out == "int8" else want)  # fmt: skip
        assert (np.abs(wide(made) - limits) <= 2 * bound(x, pruned, limits, out) + EPS[out] * np.abs(wide(bias))).all()


@pytest.mark.parametrize("x_order", ["C", "F", "gaps"])
@pytest.mark.parametrize("out_order", ["C", "F", "gaps"])
def test_layouts(device: an.Device, x_order: str, out_order: str) -> None:
    a = device.sparse.structured(device.put(random((32, 48), "float16")), prune="tile", dense=False)
    assert repr(a) == "<StructuredMatrix (32, 48) float16, compressed only>"
    x = random((16, 48), "float16")
    given = device.put(x)
    if x_order == "F":
        given = device.put(np.ascontiguousarray(x.T)).T
    if x_order == "gaps":
        given = device.put(np.hstack([x, x]))[:, :48]
    out = {"C": lambda: device.zeros((16, 32), "float16"), "F": lambda: device.zeros((32, 16), "float16").T,
           "gaps": lambda: device.zeros((16, 64), "float16")[:, :32]}[out_order]()  # fmt: skip
    device.sparse.linear_24(given, a, out=out)
    plain = device.sparse.linear_24(device.put(x), a).numpy()
    np.testing.assert_allclose(wide(out.numpy()), wide(plain), atol=2e-2)
    assert np.abs(wide(plain)).max() > 1


def test_programs_and_repetitions_give_equal_bits(device: an.Device) -> None:
    a = device.sparse.structured(device.put(random((64, 64), "float16")), prune="strip")
    x, bias = device.put(random((16, 64), "float16")), device.put(random((64,), "float16"))
    out = device.zeros((16, 64), "float16")

    @device.graph
    def step(x: an.GpuRef, out: an.GpuRef) -> None:
        h = device.sparse.linear_24(x, a, bias=bias, activation="gelu", route="structured")
        device.sparse.linear_24(h, a, activation="relu", route="structured", out=out)

    step(x, out)
    want = out.numpy()
    plan = step.plan(x, out)
    for _ in range(3):
        out.fill(0)
        plan.tell(x, out=out)
        np.testing.assert_array_equal(out.numpy(), want)
    actors = [an.Sparse(device, f"sparse-bits-{i}") for i in range(8)]
    found = [actor.linear_24(x, a, bias=bias, route="structured") for actor in actors]
    for one in found[1:]:
        np.testing.assert_array_equal(one.numpy(), found[0].numpy())


def test_zeros_and_what_is_not_stored(device: an.Device) -> None:
    a = np.zeros((32, 32), "float16")
    a[3, 5] = 2.0
    made = device.sparse.structured(device.put(a))
    x = np.ones((8, 32), "float16")
    x[0, 5] = np.nan
    x[1, 5] = np.inf
    y = device.sparse.linear_24(device.put(x), made, route="structured").numpy()
    assert np.isnan(y[0, 3])
    assert y[1, 3] == np.inf
    assert y[2, 3] == 2
    empty = device.sparse.linear_24(device.zeros((0, 32), "float16"), made, route="structured")
    assert empty.numpy().shape == (0, 32)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float8_e4m3fn"])
def test_factors_of_rows_and_scales(device: an.Device, dtype: str) -> None:
    out = "float16"
    a = device.sparse.structured(device.put(random((64, 64), dtype)), prune="strip")
    x, old = random((16, 64), dtype), random((16, 64), out)
    sums = wide(x) @ wide(a.dense.numpy()).T
    row, other = (RNG.uniform(0.1, 0.3, 64).astype(np.float32) for _ in range(2))
    one = np.float32([0.5])
    cases: list[tuple[dict[str, Any], float, np.ndarray[Any, Any]]] = [
        ({"row_alpha": row}, 0.0, row * sums),
        ({"row_alpha": row, "alpha": 2.0}, 2.0, 2 * row * sums + 2 * wide(old)),
        ({"row_alpha": row, "row_beta": other}, 1.0, row * sums + other * wide(old)),
        ({"row_beta": other}, 2.0, sums + 2 * other * wide(old)),
        ({"scale_a": row, "scale_x": one}, 0.0, 0.5 * row * sums),
        ({"scale_a": one.reshape(())}, 0.0, 0.5 * sums),
        ({"scale_x": one, "row_alpha": row, "scale_a": other}, 0.0, 0.5 * row * other * sums),
    ]
    for options, beta, want in cases:
        given = {name: device.put(v) if isinstance(v, np.ndarray) else v for name, v in options.items()}
        target = device.put(old) if beta else None
        found = device.sparse.linear_24(
            device.put(x), a, beta=beta, out=target, out_dtype=None if beta else out, route="structured", **given
        )
        allowed = bound(x, a.dense.numpy(), want, out) + 4 * EPS[out] * np.abs(wide(old))
        assert (np.abs(wide(found.numpy()) - want) <= allowed).all(), options


def test_plans_of_several_lanes_have_their_own_bias(device: an.Device) -> None:
    a = device.sparse.structured(device.put(np.eye(32, dtype="float16")))
    x = device.zeros((8, 32), "float16")
    biases = [device.put(np.full(32, i, "float16")) for i in range(4)]
    request = an.StructuredProductRequest(compressed=a.compressed, shape=a.shape, dtype=a.dtype, x=x, bias=biases[0])
    plan = device.sparse.plan(request)
    found: list[tuple[int, np.ndarray[Any, Any]]] = []

    def send(which: int) -> None:
        actor = an.Sparse(device, f"sparse-{which}")
        for i in range(8):
            out = actor.linear_24(x, a, bias=biases[(which + i) % 4], route="structured")
            found.append(((which + i) % 4, out.numpy()))

    threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 32
    for number, out in found:
        np.testing.assert_array_equal(out, np.full((8, 32), number, "float16"))
    out = device.zeros((8, 32), "float16")
    plan.tell(a.compressed, x, biases[3], out=out)
    assert (out.numpy() == 3).all()


def test_routes(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = device.sparse.structured(device.put(random((64, 64), "float16")), prune="strip")
    bare = an.StructuredMatrix(kept.shape, kept.dtype, kept.compressed)
    x = device.put(random((16, 64), "float16"))
    assert device.sparse.route_24(kept, x) == ("dense", "no product of float16 near 64 x 64 x 16 was measured")
    with monkeypatch.context() as patch:
        patch.setitem(FIGURES, ("float16", "float16"), {(128, 64, 16): Figure((3,), 94.0, 100.0)})
        assert device.sparse.route_24(kept, x) == ("structured", "128 x 64 x 16 took 94 us compressed and 100 us dense")
        for options, name in (
            ({"bias": device.put(random((64,), "float16"))}, "bias"),
            ({"activation": "relu"}, "relu"),
        ):
            assert device.sparse.route_24(kept, x, **options) == (
                "dense", f"no product with {name} was measured to be faster compressed",
            )  # fmt: skip
        patch.setitem(FIGURES, ("float16", "float16"), {(64, 64, 8): Figure((3,), 96.0, 100.0)})
        assert device.sparse.route_24(kept, x) == ("dense", "64 x 64 x 8 took 96 us compressed and 100 us dense")
    assert device.sparse.route_24(bare, x) == ("structured", "the dense matrix was not kept")
    row = device.put(np.ones(64, "float32"))
    assert device.sparse.route_24(kept, x, row_alpha=row) == ("structured", "row_alpha is given")
    odd = device.put(random((7, 64), "float16"))
    assert device.sparse.route_24(kept, odd) == ("dense", "x has shape (7, 64) of float16; allowed: multiples of 8")
    with pytest.raises(an.InvalidRequest, match=r"x has shape \(7, 64\) of float16; allowed: multiples of 8"):
        device.sparse.linear_24(odd, bare)
    with pytest.raises(an.InvalidRequest, match="compressed only; allowed: 'auto', 'structured'"):
        device.sparse.linear_24(x, bare, route="dense")
    assert device.sparse.linear_24(odd, kept).shape == (7, 64)
    bias = device.put(random((64,), "float16"))
    for options in ({}, {"bias": bias, "activation": "gelu"}, {"activation": "relu"}, {"alpha": 2.0}):
        both = [wide(device.sparse.linear_24(x, kept, route=way, **options).numpy()) for way in ("dense", "structured")]
        np.testing.assert_allclose(*both, atol=2e-2)


def test_tuning_is_on_scratch_and_kept(device: an.Device) -> None:
    a = device.sparse.structured(device.put(random((32, 64), "float16")), prune="strip")
    x = device.put(random((16, 64), "float16"))
    want = device.sparse.linear_24(x, a, route="structured").numpy()
    before = [array.numpy().tobytes() for array in (x, a.compressed)]
    bias = device.put(np.zeros(32, "float16"))
    try:
        device.sparse.linear_24(x, a, tune=True, route="structured")
    except an.Unsupported as error:
        if (error.rule, device.kind) != ("sparse.structured_tuning", "cuda"):
            raise
        pytest.skip(str(error))
    for extra in ({}, {"bias": bias}):
        found = device.sparse.linear_24(x, a, tune=True, route="structured", **extra)
        np.testing.assert_allclose(wide(found.numpy()), wide(want), atol=2e-2)
    assert [array.numpy().tobytes() for array in (x, a.compressed)] == before
    request = an.StructuredProductRequest(
        compressed=a.compressed, shape=a.shape, dtype=a.dtype, x=x, tune="known", activation="gelu"
    )
    notes = device.sparse.plan(request).notes
    assert notes == (() if device.kind == "host" else ("a kernel behind the product does GELU",))


def test_a_version_that_cannot_be_measured(fake_environment: dict[str, str]) -> None:
    with using(fake_environment):
        scripts.run("""
import numpy as np
import atomr_native as an
from atomr_native.libraries.sparse.cuda import structured

structured.UNMEASURED = (1000,)
with an.System(standby="off", isolation="thread") as system:
    device = system.device("cuda:0")
    a = device.sparse.structured(device.put(np.eye(32, dtype="float16")))
    x = device.put(np.ones((16, 32), "float16"))
    try:
        device.sparse.linear_24(x, a, tune=True, route="structured")
    except an.Unsupported as error:
        assert error.rule == "sparse.structured_tuning"
        assert "cuSPARSELt 0.10.0 ends the worker" in str(error)
    else:
        raise AssertionError
    assert (device.sparse.linear_24(x, a, tune="known", route="structured").numpy() == 1).all()
""")


def test_a_version_whose_fastest_algorithms_are_known(fake_environment: dict[str, str]) -> None:
    """Products take them; a number that the library does not take leaves its own choice."""
    with using(fake_environment):
        scripts.run("""
import numpy as np
import atomr_native as an
from atomr_native.libraries.sparse.cuda import structured
from atomr_native.libraries.sparse.structured import figures

structured.VERSION = 1000
for dtype, numbers in (("float16", (77, 2)), ("bfloat16", (99,))):
    figures.FIGURES[dtype, dtype] = {(32, 32, 16): figures.Figure(numbers, 1.0, 2.0)}
known = "algorithm 2, which was among the fastest for such products"
with an.System(standby="off", isolation="thread") as system:
    device = system.device("cuda:0")
    for dtype, options, wanted in (
        ("float16", {}, known),
        ("float16", {"tune": "known"}, known),
        ("float16", {"activation": "gelu", "bias": device.ones((32,), "float16")}, known),
        ("float16", {"activation": "relu"}, known),
        ("float16", {"out": device.zeros((32, 16), "float16").T}, ""),
        ("bfloat16", {}, ""),
    ):
        a = device.sparse.structured(device.copy(device.put(np.eye(32, dtype="float32")), dtype=dtype))
        x = device.copy(device.put(np.full((16, 32), 2.0, "float32")), dtype=dtype)
        request = an.StructuredProductRequest(compressed=a.compressed, shape=a.shape, dtype=a.dtype, x=x, **options)
        assert device.sparse.plan(request).wait(60).tuning == wanted, (dtype, options)
        if options.get("activation") == "relu":
            assert device.sparse.plan(request).notes == ("a kernel behind the product does ReLU",)
        found = device.sparse.tell(request).numpy().astype("f4")
        assert (abs(found - (3 if "bias" in options else 2)) < 0.01).all(), (dtype, options)
""")


def test_figures_of_products_that_are_near() -> None:
    known = {(4096, 4096, 256): Figure((7,), 1.0, 2.0), (4096, 4096, 512): Figure((), 3.0, 2.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FIGURES, ("float16", "float16"), known)

        def nearest(*extents: int) -> Any:
            found = near("float16", "float16", extents)
            return found and found[0][2]

        assert [nearest(4096, 4096, n) for n in (120, 128, 256, 360, 368, 1024, 1032)] == [
            None, 256, 256, 256, 512, 512, None,
        ]  # fmt: skip
        assert [nearest(m, 4096, 256) for m in (2040, 2048, 8192, 8208)] == [None, 256, 256, None]
        assert near("float16", "float16", (4096, 0, 256)) is None
        assert near("int8", "int8", (4096, 4096, 256)) is None

        def spec(rows: int, **options: Any) -> Any:
            return an.StructuredProductRequest(
                compressed=np.zeros(compressed_bytes((4096, 4096), "float16"), "u1"), shape=(4096, 4096),
                dtype="float16", x=np.zeros((rows, 4096), "f2"), **options,
            ).lowered.spec()  # fmt: skip

        assert [fastest(spec(rows), 800) for rows in (120, 256, 512)] == [(), (7,), ()]
        assert fastest(spec(256), 801) == ()
        assert fastest(spec(256, out=np.zeros((4096, 256), "f2").T), 800) == ()
        for rows in (120, 256, 512):
            biased = fused(spec(rows, bias=np.zeros(4096, "f2"), activation="relu"), 800)
            assert (biased.bias, biased.relu) == ((False, False) if rows == 256 else (True, True))


def test_figures_are_of_what_can_be() -> None:
    for (dtype, out), known in FIGURES.items():
        assert out in OUTPUTS[dtype]
        for extents, figure in known.items():
            assert all(extent % 32 == 0 for extent in extents), extents
            assert min(figure.compressed, figure.dense) > 0
            assert all(number > 0 for number in figure.algorithms), (extents, figure)


def test_a_version_that_takes_a_bias(fake_environment: dict[str, str]) -> None:
    """The bias belongs to the library's descriptor there."""
    with using(fake_environment):
        scripts.run("""
import numpy as np
import atomr_native as an
from atomr_native.libraries.sparse.cuda import structured

structured.FUSED_BIAS[("int8", "int8")] = (1000,)
with an.System(standby="off", isolation="thread") as system:
    device = system.device("cuda:0")
    a = device.sparse.structured(device.put(np.eye(32, dtype="int8")))
    x = device.put(np.full((16, 32), -3, "int8"))
    biases = [device.put(np.full(32, value, "float32")) for value in (2, 5, 400)]
    for i in (0, 1, 1, 2, 0):
        out = device.sparse.linear_24(x, a, bias=biases[i], activation="relu", out_dtype="int8", route="structured")
        assert (out.numpy() == min(max(0, (2, 5, 400)[i] - 3), 127)).all(), i
    request = an.StructuredProductRequest(
        compressed=a.compressed, shape=a.shape, dtype=a.dtype, x=x, bias=biases[0], out_dtype="int8"
    )
    assert device.sparse.plan(request).notes == ()
""")


def test_plans_and_the_handle_end_with_their_device(fake_environment: dict[str, str]) -> None:
    """In this process: the worker of a thread leaves nothing behind."""
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUSPARSELT"])
    alive = [ctypes.c_uint.in_dll(library, f"fake_structured_{name}") for name in ("handles", "objects")]
    before = [count.value for count in alive]
    with using(fake_environment), compiling_here(), an.System(isolation="thread", standby="off") as system:
        device = system.device("cuda:0")
        a = device.sparse.structured(device.zeros((32, 32), "float16"), check=False)
        assert device.sparse.linear_24(device.zeros((8, 32), "float16"), a, route="structured").numpy().any() == 0
        assert [count.value for count in alive] == [before[0] + 1, before[1] + 6]
    gc.collect()
    eventually(lambda: [count.value for count in alive] == before)


def test_without_the_library(fake_environment: dict[str, str]) -> None:
    with using({**fake_environment, "ATOMR_NATIVE_CUSPARSELT": "/nowhere/libcusparseLt.so.0"}), an.System() as system:
        device = system.device("cuda:0")
        x = device.sparse.prune_24(device.put(np.ones((32, 32), "float16")))  # needs none
        with pytest.raises(an.Unsupported, match=r"cuSPARSELt.*pip install nvidia-cusparselt-cu13"):
            device.sparse.compress_24(x).wait()


def test_views_that_start_anywhere_are_refused(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    a = device.sparse.structured(device.put(np.eye(32, dtype="float16")), dense=False)
    memory = device.zeros(8 * 32 + 4, "float16")
    shifted = memory[4:].reshape(8, 32)
    with pytest.raises(an.Unsupported, match=r"aligned to 8 bytes only; allowed: views that start at multiples of 16"):
        device.sparse.linear_24(shifted, a).wait()
    assert device.sparse.linear_24(memory[:256].reshape(8, 32), a).numpy().shape == (8, 32)
