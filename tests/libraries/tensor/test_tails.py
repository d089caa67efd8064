"""Functions after the last step of an expression, against NumPy in float64, on the host and on CUDA devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import using
from scipy import special

import atomr_native as an
from atomr_native._support.traced import trace
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.tensor.tail import RESULT, before_relu, bias_of

RNG = np.random.default_rng(8)
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.standard_normal(shape).astype(as_dtype(dtype))


def relu_bias(result: Any, bias: Any) -> Any:
    return np.maximum(bias + result, 0)


def add_bias(result: Any, bias: Any) -> Any:
    return result + bias


def relu(result: Any) -> Any:
    return np.maximum(result, 0)


def gelu(result: Any) -> Any:
    return 0.5 * result * (1 + special.erf(result / np.sqrt(2)))


def gated(result: Any, gate: Any, mask: Any) -> Any:
    return np.where(mask != 0, result / (1 + np.exp(-gate)), -1.0)


def close(found: np.ndarray, want: np.ndarray, size: float, eps: float) -> None:
    assert found.shape == want.shape
    assert np.all(np.abs(found.astype(float) - want) <= 60 * eps * (size + np.abs(want)))


def notes(device: an.Device, request: an.EinsumRequest) -> str:
    return " ".join(device.tensor.plan(request).notes)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "dtype"),
    [*(("ij,jk->ik", ((24, 30), (30, 20)), dtype) for dtype in EPS),
     ("bji,bjk->bik", ((3, 30, 24), (3, 30, 20)), "float16")],
)  # fmt: skip
def test_a_bias_and_a_relu_are_an_epilogue(
    device: an.Device, cuda_engine: str, dtype: str, subscripts: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    a, b = (random(shape, dtype) for shape in shapes)
    bias = random((20,), dtype)
    product = np.einsum(subscripts, a.astype(float), b.astype(float))
    given = {"subscripts": subscripts, "operands": [device.put(x) for x in (a, b)]}
    for tail, arrays, want in (
        (relu_bias, {"bias": device.put(bias)}, np.maximum(product + bias.astype(float), 0)),
        (add_bias, {"bias": device.put(bias)}, product + bias.astype(float)),
        (relu, {}, np.maximum(product, 0)),
    ):
        request = an.EinsumRequest(**given, tail=tail, tail_operands=arrays)
        close(device.tensor.tell(request).numpy(), want, 20, EPS[dtype])
        if device.name.startswith("cuda"):
            said = notes(device, request)
            epilogue = {relu_bias: "a bias and a ReLU", add_bias: "a bias", relu: "a ReLU"}[tail]
            if dtype == "float64":  # which has no epilogues
                assert ("a ReLU in place" if tail is relu else "a kernel after it") in said
            elif cuda_engine == "fake":
                assert said.endswith(f": cuBLASLt with {epilogue}")
            else:  # the library may have no such epilogue for a product, or one that makes 0 of NaN
                assert any(f in said for f in (f"with {epilogue}", "a ReLU in place", "a kernel after it"))


#: By the alignment of operands for which the library's algorithm makes 0 of NaN; None: for none.
RELU_NOTES = {
    None: "cuBLASLt with a bias and a ReLU",
    256: "cuBLASLt with a bias, and a ReLU in place",
    **{
        alignment: f"cuBLASLt with a bias and a ReLU for operands at multiples of {least} bytes, else cuBLASLt with a "
        f"bias, and a ReLU in place"
        for alignment, least in ((16, 256), (2, 16))
    },
}


@pytest.mark.parametrize("alignment", [2, 16, 256])
def test_a_relu_that_makes_0_of_nan_is_not_taken(
    fake_environment: dict[str, str], tmp_path: Path, alignment: int
) -> None:
    """Each alignment of operands has an algorithm, of which one is such."""
    environment = {**fake_environment, "ATOMR_NATIVE_CACHE": str(tmp_path), "FAKE_CUDA_LT_RELU": str(alignment)}
    with using(environment), an.System(standby="off") as system:
        device = system.device("cuda:0")
        for m, k, n in ((24, 32, 16), (1, 30, 1), (33, 1, 7)):
            tail = {"tail": relu_bias, "tail_operands": {"bias": device.ones((n,), "float16")}}
            b = random((k, n), "float16")
            plans = set()
            for before in (0, 8, 1):  # operands at multiples of 256, 16 and 2 bytes
                a = random((m, k), "float16")
                a[0, 0] = np.nan
                x = device.put(np.concatenate([np.zeros(before, "float16"), a.ravel()]))[before:].reshape(m, k)
                request = an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, device.put(b)), route="blas_lt", **tail)
                assert notes(device, request).endswith(RELU_NOTES[alignment])
                plans.add(device.tensor.plan(request))
                found = device.tensor.tell(request).numpy()
                assert np.isnan(found[0]).all()
                close(found[1:], np.maximum(a[1:].astype(float) @ b.astype(float) + 1, 0), 40, EPS["float16"])
            assert len(plans) == 1


@pytest.mark.parametrize("first", [False, True])
def test_what_a_run_on_nan_has_shown_is_kept(fake_environment: dict[str, str], tmp_path: Path, first: bool) -> None:
    """Others on the machine know it, unless the file is damaged."""
    for drops, want in ((first, first), (not first, first), (not first, not first)):
        environment = {**fake_environment, "ATOMR_NATIVE_CACHE": str(tmp_path)}
        environment |= {"FAKE_CUDA_LT_RELU": "256"} if drops else {}
        with using(environment), an.System(standby="off") as system:
            device = system.device("cuda:0")
            x = device.ones((24, 24), "float16")
            request = an.EinsumRequest(
                subscripts="ij,jk->ik", operands=(x, x), tail=relu_bias, tail_operands={"bias": x[0]}, route="blas_lt"
            )
            assert notes(device, request).endswith(RELU_NOTES[256 if want else None])
        (kept,) = (tmp_path / "tuning").rglob("*.json")
        assert json.loads(kept.read_text())["value"] == (0 if want else 1)
        if drops != first:
            kept.write_bytes(kept.read_bytes()[:40])


def test_a_way_that_is_not_taken_leaves_no_memory_behind(fake_environment: dict[str, str], tmp_path: Path) -> None:
    """Of the copies of an operand for a ReLU of the library's, which the plan does without."""
    environment = {**fake_environment, "ATOMR_NATIVE_CACHE": str(tmp_path), "FAKE_CUDA_LT_RELU": "256"}
    with using(environment), an.System(standby="off") as system:
        device = system.device("cuda:0")
        operands = [device.ones((16, 24, 32), "float32"), device.ones((32, 24, 16), "float32")]
        found = []
        for deterministic in (False, True):  # which does not try that way
            request = an.EinsumRequest(
                subscripts="ijk,kjl->il", operands=operands, tail=relu, route="blas_lt", deterministic=deterministic
            )
            assert "after copies of" in notes(device, request)
            found.append(device.tensor.plan(request).record.workspace)
        assert found[0] == found[1] > 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_relu_keeps_nan_at_every_alignment(device: an.Device, dtype: str) -> None:
    """The library has an algorithm for each, which may make 0 of NaN; then the plan does it otherwise."""
    for m, k, n in ((24, 32, 40), (128, 128, 128)):
        a, b = random((m, k), dtype), random((k, n), dtype)
        a[0, 0] = np.nan
        want = np.maximum(a[1:].astype(float) @ b.astype(float), 0)
        for before in (0, 1, 8):
            x = device.put(np.concatenate([a.ravel()[:before], a.ravel()]))[before:].reshape(m, k)
            for tail, arrays in ((relu, {}), (relu_bias, {"bias": device.zeros((n,), dtype)})):
                request = an.EinsumRequest(
                    subscripts="ij,jk->ik", operands=(x, device.put(b)), tail=tail, tail_operands=arrays
                )
                found = device.tensor.tell(request).numpy()
                assert np.isnan(found[0]).all()
                close(found[1:], want, 60, EPS[dtype])


def test_equal_bits_do_without_what_a_run_shows(device: an.Device, cuda_engine: str) -> None:
    x = device.put(random((24, 24), "bfloat16"))
    request = an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), tail=relu, deterministic=True)
    if device.name.startswith("cuda"):
        assert notes(device, request).endswith("cuBLASLt, and a ReLU in place")


def test_a_nan_stays_one(device: an.Device) -> None:
    a, b = np.full((20, 30), np.nan, "float32"), np.ones((30, 20), "float32")
    found = device.tensor.einsum("ij,jk->ik", device.put(a), device.put(b), tail=relu)
    assert np.isnan(found.numpy()).all()
    bias = device.put(np.zeros(20, "float32"))
    found = device.tensor.einsum(
        "ij,jk->ik", device.put(a), device.put(b), tail=relu_bias, tail_operands={"bias": bias}
    )
    assert np.isnan(found.numpy()).all()


def test_a_relu_of_a_sum_with_c(device: an.Device) -> None:
    """Of what the product adds, also where alpha is told as 0; and of results that lie otherwise."""
    a, b, c = random((24, 30), "bfloat16"), random((30, 20), "bfloat16"), random((24, 20), "bfloat16")
    given = {"subscripts": "ij,jk->ik", "operands": [device.put(x) for x in (a, b)], "tail": relu}
    request = an.EinsumRequest(**given, c=device.put(c), alpha=2, beta=3)
    plan, out = device.tensor.plan(request), device.zeros((24, 20), "bfloat16")
    product = a.astype(float) @ b.astype(float)
    for alpha, beta in ((2, 3), (0, 3), (2, 0)):
        plan.tell(*given["operands"], device.put(c), out=out, alpha=alpha, beta=beta)
        close(out.numpy(), np.maximum(alpha * product + beta * c.astype(float), 0), 60, EPS["bfloat16"])
    strided = device.zeros((24, 20, 2), "bfloat16")
    device.tensor.tell(an.EinsumRequest(**given, out=strided[:, :, 0]))
    close(strided.numpy()[:, :, 0], np.maximum(product, 0), 20, EPS["bfloat16"])
    assert not strided.numpy()[:, :, 1].any()


@pytest.mark.parametrize("route", ["auto", "kernel", "blas_lt"])
def test_a_function_of_further_operands(device: an.Device, route: str) -> None:
    a, b, gate = random((24, 30), "float32"), random((30, 20), "float32"), random((24, 1), "float32")
    mask, c = RNG.integers(0, 2, (20,)).astype(bool), random((24, 20), "float32")
    given = {"gate": device.put(gate), "mask": device.put(mask)}
    found = device.tensor.contract(
        "ij,jk->ik", device.put(a), device.put(b), c=device.put(c), alpha=2, beta=-1, route=route, tail=gated,
        tail_operands=given,
    )  # fmt: skip
    want = gated(2.0 * a.astype(float) @ b.astype(float) - c, gate.astype(float), mask)
    close(found.numpy(), want, 40, EPS["float32"])


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [("ij->ji", ((40, 50),)), ("ijk->j", ((7, 40, 90),)), ("ii->i", ((9, 9),)), ("i,j->ij", ((8,), (9,))),
     ("ij,jk,kl->il", ((20, 30), (30, 25), (25, 4))), ("ij,jk->ik", ((5, 0), (0, 7)))],
)  # fmt: skip
def test_tails_of_all_steps(device: an.Device, subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Copies through tiles, sums, diagonals, outer products, chains, and sums of no elements."""
    arrays = [random(shape, "float64") for shape in shapes]
    found = device.tensor.einsum(subscripts, *map(device.put, arrays), tail=gelu)
    want = np.asarray(gelu(np.einsum(subscripts, *arrays)))
    close(found.numpy(), want, 200, EPS["float64"])


def test_a_residual_may_be_the_result_itself(device: an.Device) -> None:
    a, x = random((30, 30), "float64"), random((30, 30), "float64")
    ref = device.put(x)
    request = an.EinsumRequest(
        subscripts="ij,jk->ik", operands=(device.put(a), ref), out=ref, tail=add_bias, tail_operands={"bias": ref.T}
    )
    device.tensor.tell(request)
    close(ref.numpy(), a @ x + x.T, 30, EPS["float64"])


def test_slices_and_factors_of_zero(device: an.Device) -> None:
    arrays = [random(shape, "float32") for shape in ((4, 5), (5, 6), (6, 4))]
    refs = list(map(device.put, arrays))
    found = device.tensor.einsum("ij,jk,kl->il", *refs, optimize="left", memory_limit=32, tail=relu)
    close(found.numpy(), np.maximum(np.linalg.multi_dot([x.astype(float) for x in arrays]), 0), 20, EPS["float32"])
    a, b = device.full((20, 30), np.nan, "float32"), device.full((30, 20), 1, "float32")
    one, bias = device.full((20, 30), 1, "float32"), device.full((20,), -2, "float32")
    request = an.EinsumRequest(
        subscripts="ij,jk->ik", operands=(one, b), alpha=2, tail=relu_bias, tail_operands={"bias": bias}
    )
    plan, out = device.tensor.plan(request), device.zeros((20, 20), "float32")
    for _ in range(3):
        plan.tell(a, b, bias, out=out, alpha=0)
        assert (out.numpy() == 0).all()
        plan.tell(one, b, bias, out=out, alpha=1)
        assert (out.numpy() == 28).all()


def test_biases_that_the_library_has_not_are_added_by_a_kernel(device: an.Device) -> None:
    a, b = random((24, 30), "float32"), random((30, 20), "float32")
    refs = [device.put(x) for x in (a, b)]
    whole = device.put(random((24, 40), "float32"))
    for bias in (
        whole[:, :1],
        whole[:, :20],
        whole[0, ::2],
        whole[0, 19::-1],
        whole[0, 0],
        whole[0].astype("float64")[:20],
    ):
        request = an.EinsumRequest(subscripts="ij,jk->ik", operands=refs, tail=add_bias, tail_operands={"bias": bias})
        close(device.tensor.tell(request).numpy(), a.astype(float) @ b + bias.numpy(), 40, EPS["float32"])
        if device.name.startswith("cuda"):
            assert "a kernel after it" in notes(device, request)
    turned = device.tensor.einsum(  # D is dense along its columns, which the bias does not follow
        "ij,jk->ik",
        *refs,
        out=device.zeros((20, 24), "float32").T,
        tail=add_bias,
        tail_operands={"bias": whole[0, :20]},
    )
    close(turned.numpy(), a.astype(float) @ b + whole.numpy()[0, :20], 40, EPS["float32"])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "norm2"])
def test_reductions(device: an.Device, op: str, dtype: str) -> None:
    """Of few elements by a thread, of many by parts; with factors and C, which come before the function."""
    for shape, subscripts, axis in (((6, 5, 7), "ijk->ik", 1), ((3, 40000), "ij->i", 1)):
        x = random(shape, dtype)
        reduced = {"norm2": lambda v, axis: np.sqrt((v * v).sum(axis))}.get(op, getattr(np, op, None))
        value = reduced(x.astype(float), axis)
        bias, c = random(value.shape[-1:], "float32"), random(value.shape, dtype)
        refs = [device.put(a) for a in (x, bias, c)]
        size = float(np.abs(x.astype(float)).sum(axis).max()) * 3 + 10
        made = device.tensor.reduce(
            op, subscripts, refs[0], c=refs[2], alpha=-2, beta=3, tail=relu_bias, tail_operands={"bias": refs[1]}
        )
        want = np.maximum(-2 * value + 3 * c.astype(float) + bias, 0)
        close(made.numpy(), want, size, EPS[dtype])
        close(device.tensor.reduce(op, subscripts, refs[0], tail=gelu).numpy(), gelu(value), size, EPS[dtype])
        over = device.put(c)
        device.tensor.reduce(op, subscripts, refs[0], out=over, tail=add_bias, tail_operands={"bias": over})
        close(over.numpy(), value + c.astype(float), size, EPS[dtype])


def test_a_tail_of_a_reduction_is_no_part_of_what_is_measured(device: an.Device) -> None:
    x, xs = random((40, 50), "float32"), random((40,), "float32")
    refs = [device.put(a) for a in (x, xs)]
    for options in ({"tune": 1e-9}, {"route": "cutensor"}):
        request = an.TensorReduceRequest(
            op="sum", subscripts="ij->i", x=refs[0], tail=lambda result, xs: result * xs, tail_operands={"xs": refs[1]},
            **options,
        )  # fmt: skip
        try:
            found = device.tensor.tell(request).numpy()
        except an.Unsupported as error:
            pytest.skip(str(error))
        close(found, x.astype(float).sum(1) * xs, 400, EPS["float32"])


def test_a_factor_of_zero_leaves_c_to_the_tail(device: an.Device) -> None:
    nan, c = device.full((4, 5), np.nan, "float32"), device.put(np.arange(4, dtype=np.float32))
    made = device.tensor.reduce("sum", "ij->i", nan, c=c, alpha=0, beta=2, tail=lambda result: result + 1)
    assert made.numpy().tolist() == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("given", "text"),
    [({"op": "any", "tail": relu}, "a tail with op='any'; allowed: sum"), ({"tail": 3}, "tail is a int"),
     ({"tail": relu, "x": np.ones((4, 4), int)}, "a tail of int64 values"),
     ({"tail": add_bias, "tail_operands": {"bias": np.ones(3)}}, r"broadcasts to the result's, \[4\]"),
     ({"tail": add_bias, "tail_operands": {"x0": np.ones(4)}}, "the name 'x0'"), ({"tail_operands": 3}, "is a int")],
)  # fmt: skip
def test_refused_tails_of_reductions(given: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        an.TensorReduceRequest(**{"op": "sum", "subscripts": "ij->i", "x": np.ones((4, 4)), **given})


def test_equal_functions_share_a_plan_and_others_do_not() -> None:
    a, bias = np.ones((4, 4)), np.ones(4)
    make = lambda tail, **arrays: an.EinsumRequest(  # noqa: E731
        subscripts="ij,jk->ik", operands=(a, a), tail=tail, tail_operands=arrays
    )
    specs = [
        make(lambda r, bias: r + bias, bias=bias), make(add_bias, bias=bias), make(relu_bias, bias=bias),
        make(lambda r, bias: r * bias, bias=bias), make(lambda r: r * 2.0), make(lambda r: r * 3.0),
        an.EinsumRequest(subscripts="ij,jk->ik", operands=(a, a)),
    ]  # fmt: skip
    found = [request.lowered.spec() for request in specs]
    assert found[0] == found[1]
    assert len(set(found)) == len(found) - 1


def relu_of_first(result: Any, bias: Any, c: Any) -> Any:
    return np.maximum(result + bias, 0)


@pytest.mark.parametrize(
    ("function", "names", "bias"),
    [
        (relu_bias, ("bias",), ""),
        (lambda r, b: b + r, ("b",), "b"),
        (lambda r, b: r + b, ("b",), "b"),
        (lambda r, b: r + b + 0, ("b",), ""),
        (lambda r: r + r, (), ""),
        (relu, (), ""),
        (lambda r: np.maximum(r, 1), (), ""),
        (lambda r: np.minimum(r, 0), (), ""),
        (lambda r, b: r - b, ("b",), ""),
        (lambda r, b: b + b, ("b",), ""),
        (lambda r, b: np.maximum(r, 0), ("b",), ""),
        (lambda r, b: np.maximum(b, 0), ("b",), ""),
        (lambda r, b: np.maximum(r + b, b), ("b",), ""),
        (relu_of_first, ("bias", "c"), ""),
        (lambda r: np.maximum(r, 0) * 2, (), ""),
        (gelu, (), ""),
        (lambda r: r, (), ""),
    ],
)
def test_epilogues_are_known_by_their_trees(function: Any, names: tuple[str, ...], bias: str) -> None:
    tree = trace("tail", lambda r, *others: function(r, *others), (RESULT, *names))
    assert bias_of(tree) == bias
    inner = before_relu(tree)
    before = {relu: "", relu_bias: "bias", relu_of_first: ""}  # the tail has c, which the bias alone does not
    if function in before:
        assert inner is not None
        assert (bias_of(inner) if inner else "") == before[function]
    else:
        assert inner is None or bias_of(inner) == ""


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"tail": 3}, an.InvalidRequest, "tail is a int; allowed: a Python function of result"),
        ({"tail": lambda r: np.arctan2(r, r)}, an.InvalidRequest, "numpy.arctan2 is not one of"),
        ({"tail": lambda r: r if r > 0 else 0 * r}, an.Unsupported, "use numpy.where for branches"),
        ({"tail": add_bias}, an.InvalidRequest, "missing 1 required positional argument: 'bias'"),
        ({"tail": relu, "tail_operands": {"b": np.ones(4)}}, an.InvalidRequest, "unexpected keyword argument 'b'"),
        ({"tail_operands": {"b": np.ones(4)}}, an.InvalidRequest, "tail_operands has b without a tail"),
        ({"tail": add_bias, "tail_operands": {"bias": np.ones(3)}}, an.InvalidRequest,
         r"bias has shape \[3\]; allowed: a shape that broadcasts to the result's, \[4, 4\]"),
        ({"tail": add_bias, "tail_operands": {"bias": np.ones(4) * 1j}}, an.InvalidRequest,
         "bias is complex128; allowed: .*float64"),
        ({"tail": relu, "tail_operands": {"x0": np.ones(4)}}, an.InvalidRequest, "the name 'x0' of tail_operands"),
        ({"tail": relu, "tail_operands": {"out": np.ones(4)}}, an.InvalidRequest, "the name 'out' of tail_operands"),
        ({"tail": relu, "tail_operands": [np.ones(4)]}, an.InvalidRequest, "tail_operands is a list; allowed: a map"),
        ({"tail": relu, "operands": (np.ones((4, 4), int),) * 2}, an.InvalidRequest, "a tail of int64 values; allowed"),
        ({"tail": relu, "operands": (np.ones((4, 4)) * 1j,) * 2}, an.InvalidRequest, "a tail of complex128 values"),
    ],
)  # fmt: skip
def test_refusals(given: dict[str, Any], error: type[Exception], text: str) -> None:
    values = {"subscripts": "ij,jk->ik", "operands": (np.ones((4, 4)),) * 2, **given}
    with pytest.raises(error, match=text):
        an.EinsumRequest(**values)
