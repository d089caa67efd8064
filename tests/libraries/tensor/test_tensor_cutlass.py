"""Expressions that one kernel of CUTLASS computes with their tail: by request, and by rules that were measured."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import fake_cuda
import fake_cutlass
import numpy as np
import pytest

import atomr_native as an
from atomr_native._support.traced import evaluate
from atomr_native.libraries.cutlass import code
from atomr_native.libraries.tensor import stand_in
from atomr_native.plans.lowering import Target

RNG = np.random.default_rng(11)
ASKED = ("one kernel of CUTLASS, since route='cutlass'",)
HAS_CUTLASS = importlib.util.find_spec("cutlass_library") is not None


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def gate(result: Any, gate: Any) -> Any:
    return result / (1 + np.exp(-gate))


def mixed(result: Any, row: Any, n1: Any, full: Any) -> Any:
    return np.where(full > 0, (result + row) * n1, full)


def relu_bias(result: Any, bias: Any) -> Any:
    return np.maximum(result + bias, 0)


def bias(result: Any, bias: Any) -> Any:
    return result + bias


def relu(result: Any) -> Any:
    return np.maximum(result, 0)


#: What these are in C, of the fake's kernels.
IN_C = {gate: "x0 / (1 + __builtin_exp(-x1))", mixed: "x3 > 0 ? (x0 + x1) * x2 : x3", relu: "x0 > 0 ? x0 : 0"}


@pytest.fixture(scope="module")
def device(fake_environment: dict[str, str]) -> Iterator[an.Device]:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
    with pytest.MonkeyPatch.context() as patch, fake_cuda.using(fake_environment):
        fake_cutlass.install(patch)
        with an.System() as system:
            yield system.device("cuda:0")


@pytest.fixture
def in_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let the fake's kernels have a tail in C."""
    made = stand_in._function

    def tell(tail: Any) -> None:
        def function(tree: Any) -> Any:
            found: Any = made(tree)
            found.in_c = IN_C[tail]
            return found

        monkeypatch.setattr(stand_in, "_function", function)

    return tell


EXPRESSIONS = {
    "rows": ("ij,jk->ik", (6, 24), (24, 10), {}),
    "columns": ("ji,kj->ik", (24, 6), (10, 24), {}),
    "the result's columns": ("ij,jk->ki", (6, 24), (24, 10), {}),
    "a batch": ("bij,bjk->bik", (3, 6, 24), (3, 24, 10), {}),
    "merged modes": ("abij,jikl->abkl", (2, 3, 4, 6), (6, 4, 5, 2), {"swap": True}),
}


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_products_of_all_layouts(device: an.Device, in_c: Callable[[Any], None], case: str) -> None:
    subscripts, first, second, more = EXPRESSIONS[case]
    a, b = values(*first), values(*second)
    refs = [device.put(a), device.put(b)]
    if more:  # modes of the sum must lie alike
        b = values(second[1], second[0], *second[2:]).transpose(1, 0, 2, 3)
        refs[1] = device.put(np.ascontiguousarray(b.transpose(1, 0, 2, 3))).transpose(1, 0, 2, 3)
    want = np.einsum(subscripts, a.astype(float), b.astype(float))
    in_c(gate)
    g = values(*want.shape)
    given: dict[str, Any] = {"tail": gate, "tail_operands": {"gate": device.put(g)}, "route": "cutlass"}
    request = an.EinsumRequest(subscripts=subscripts, operands=refs, **given)
    plan = device.tensor.plan(request)
    assert plan.notes == ASKED
    assert plan.spec.op == "cutlass.gemm"
    for found in (device.tensor.einsum(subscripts, *refs, **given), device.tensor.tell(request)):
        np.testing.assert_allclose(found.numpy(), gate(want, g), rtol=1e-4, atol=1e-4)
    out = device.zeros(want.shape, "float32")
    plan.tell(*refs, given["tail_operands"]["gate"], out=out)
    plan.tell(x0=refs[0], x1=refs[1], gate=given["tail_operands"]["gate"], out=out)
    np.testing.assert_allclose(out.numpy(), gate(want, g), rtol=1e-4, atol=1e-4)
    bare = device.tensor.einsum(subscripts, *refs, route="cutlass")
    np.testing.assert_allclose(bare.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_operands_of_a_tail_are_spread(device: an.Device, in_c: Callable[[Any], None], lead: tuple[int, ...]) -> None:
    """Rows, columns and single elements, of names that the tree's function could have itself."""
    a, b = values(*lead, 6, 24), values(*lead, 24, 10)
    others = {"row": values(10), "n1": values(*lead, 6, 1), "full": values(*lead, 6, 10)}
    in_c(mixed)
    subscripts = "...ij,...jk->...ik"
    given = {name: device.put(one) for name, one in others.items()}
    found = device.tensor.einsum(
        subscripts, device.put(a), device.put(b), tail=mixed, tail_operands=given, route="cutlass"
    )
    want = mixed(a.astype(float) @ b, *(one.astype(float) for one in others.values()))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-4)


def unused(result: Any, first: Any, second: Any) -> Any:
    return np.square(np.minimum(result, 2.5)) + np.maximum(-result, 0.5) * second


IN_C[unused] = "(x0 < 2.5 ? x0 : 2.5) * (x0 < 2.5 ? x0 : 2.5) + (-x0 > 0.5 ? -x0 : 0.5) * x2"


@pytest.mark.parametrize("used", [False, True])
def test_tails_of_functors_and_of_unused_operands(
    device: an.Device, in_c: Callable[[Any], None], used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail of CUTLASS's own operations is compiled without a Python function, unless an operand is left over."""
    a, b, first, second = values(6, 24), values(24, 10), values(10), values(6, 10)
    given = {"first": device.put(first), "second": device.put(second)}
    if used:
        monkeypatch.setattr(stand_in, "_function", None)
        given.pop("first")
    else:
        in_c(unused)

    def tail(result: Any, **others: Any) -> Any:
        return unused(result, None, others["second"])

    found = device.tensor.einsum(
        "ij,jk->ik", device.put(a), device.put(b), tail=tail, tail_operands=given, route="cutlass"
    )
    np.testing.assert_allclose(found.numpy(), unused(a.astype(float) @ b, None, second), rtol=1e-4, atol=1e-4)


def test_the_function_of_a_tail() -> None:
    """As the kernel calls it, of numbers, by place."""
    x = [values(5).astype(float) for _ in range(4)]
    request = an.EinsumRequest(
        subscripts="ij,jk->ik", operands=(values(5, 2), values(2, 5)), tail=mixed,
        tail_operands=dict(zip(("row", "n1", "full"), x[1:], strict=True)),
    )  # fmt: skip
    tree: Any = request.lowered.attributes.tail  # type: ignore[union-attr]
    function = stand_in._function(tree)
    found = [function(*one) for one in zip(*x, strict=True)]
    np.testing.assert_allclose(found, mixed(*x))
    np.testing.assert_allclose(found, evaluate(tree, dict(zip(("result", "row", "n1", "full"), x, strict=True))))


@pytest.mark.parametrize(
    ("subscripts", "shapes", "how", "words"),
    [
        ("ij,jk,kl->il", ((6, 24), (24, 10), (10, 4)), {}, "several steps"),
        ("ii,ij->ij", ((6, 6), (6, 10)), {}, "diagonals"),
        ("ijk,jl->il", ((6, 24, 3), (24, 10)), {}, "sums over modes of one operand"),
        ("aib,bk->iak", ((2, 6, 24), (24, 10)), {}, "modes that do not merge"),
        ("ij,jk->ik", ((6, 24), (24, 10)), {"alpha": 2}, "factors or C"),
        ("ij,jk->ik", ((6, 24), (24, 10)), {"compute": "bfloat16"}, "compute='bfloat16'"),
        ("ij,jk->ik", ((6, 1), (24, 10)), {}, "x0, which is broadcast"),
        ("ij,jk->ik", ((6, 24), (24, 10)), {"out_dtype": "float64"}, "out has dtype float64"),
    ],
)
def test_refusals(
    device: an.Device, subscripts: str, shapes: tuple[tuple[int, ...], ...], how: dict[str, Any], words: str
) -> None:
    operands = [device.zeros(shape, "float32") for shape in shapes]
    with pytest.raises(an.Unsupported, match=words):
        device.tensor.plan(an.EinsumRequest(subscripts=subscripts, operands=operands, route="cutlass", **how))
    x = device.zeros((6, 6), "float32")
    with pytest.raises(an.Unsupported, match="shares memory"):
        device.tensor.einsum("ij,jk->ik", x, x, out=x, route="cutlass")
    with pytest.raises(an.InvalidRequest, match="'cutlass'"):
        device.tensor.einsum("ij,jk->ik", x, x, route="nvcc")


def test_no_elements_and_the_host_device_have_no_kernel(device: an.Device) -> None:
    empty = device.tensor.einsum("ij,jk->ik", device.zeros((3, 0)), device.zeros((0, 4)), route="cutlass")
    assert not empty.numpy().any()
    host = device.system.device("host")
    x = host.put(values(3, 3))
    made = host.tensor.einsum("ij,jk->ik", x, x, tail=relu, route="cutlass")
    assert np.array_equal(made.numpy(), host.tensor.einsum("ij,jk->ik", x, x, tail=relu).numpy())
    path = host.tensor.einsum_path("ij,jk->ik", x, x, route="cutlass")
    assert path.steps[0].route == "cutlass"


LARGE = (2048, 2048, 2048)
ROW, FULL = np.empty(2048, "f2"), np.empty((2048, 2048), "f2")


@pytest.mark.parametrize(
    ("shape", "dtype", "how", "capability", "reason"),
    [
        (LARGE, "f2", {"tail": gate, "tail_operands": {"gate": FULL}}, (9, 0), "its tail would be a pass of its own"),
        (LARGE, "f2", {"tail": bias, "tail_operands": {"bias": FULL}}, (9, 0), "its tail would be a pass of its own"),
        (LARGE, "f2", {"tail": relu_bias, "tail_operands": {"bias": ROW}}, (9, 0), "a ReLU would be a pass of its own"),
        (LARGE, "f2", {"tail": relu}, (9, 0), "a ReLU would be a pass of its own"),
        (LARGE, "f2", {"tail": bias, "tail_operands": {"bias": ROW}}, (9, 0), ""),  # an epilogue
        (LARGE, "f2", {}, (9, 0), ""),
        (LARGE, "f2", {"tail": relu}, (8, 0), ""),  # on which nothing was measured
        (LARGE, "f2", {"tail": relu, "route": "blas_lt"}, (9, 0), ""),
        (LARGE, "f2", {"tail": relu, "tune": True}, (9, 0), ""),
        (LARGE, "f4", {"tail": relu}, (9, 0), ""),
        ((2048, 2047, 4096), "f2", {"tail": relu}, (9, 0), ""),
        ((2048, 2048, 1024), "f2", {"tail": relu}, (9, 0), ""),
    ],
)  # fmt: skip
def test_large_products_are_routed_where_they_were_measured(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], dtype: str, how: dict[str, Any],
    capability: tuple[int, int], reason: str,
) -> None:  # fmt: skip
    kernel = an.EinsumRequest  # the compiler is not asked
    monkeypatch.setattr(code, "compiled_kernel", lambda *_: None)
    m, n, k = shape
    request = kernel(subscripts="ij,jk->ik", operands=(np.empty((m, k), dtype), np.empty((k, n), dtype)), **how)
    target = Target(capability, 1 << 25)
    measured = stand_in.RULES
    unmeasured = tuple(dataclasses.replace(one, gain=None) for one in stand_in.RULES)
    monkeypatch.setattr(stand_in, "RULES", unmeasured)
    assert stand_in.stand_in(request.lowered, lambda: target) is None
    monkeypatch.setattr(stand_in, "RULES", measured)
    assert (stand_in.stand_in(request.lowered, lambda: target) is not None) == reason.startswith("its tail")
    monkeypatch.setattr(stand_in, "RULES", tuple(dataclasses.replace(one, gain=1.2) for one in unmeasured))
    found = stand_in.stand_in(request.lowered, lambda: target)
    assert (found is not None) == bool(reason)
    if found is not None:
        attributes: Any = found.attributes
        assert attributes.notes == (f"one kernel of CUTLASS, since {reason}",)
        assert [one.name for one in found.operands] == [one.name for one in request.lowered.operands]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUTLASS, reason="nvidia-cutlass is not installed")
def test_tails_in_one_kernel_on_a_gpu() -> None:
    """Matrices, rows and columns, of a batch; and NaN, which stays."""
    with an.System() as system:
        device = system.device("cuda:0")
        a, b = (device.put(values(*shape), dtype="bfloat16") for shape in ((2, 256, 128), (2, 128, 384)))
        product = a.numpy().astype(float) @ b.numpy().astype(float)
        arrays = {"row": values(384), "n1": values(2, 256, 1), "full": values(2, 256, 384)}
        refs = {name: device.put(one, dtype="bfloat16") for name, one in arrays.items()}
        for tail, given in ((mixed, refs), (relu, {})):
            request = an.EinsumRequest(
                subscripts="bij,bjk->bik", operands=(a, b), tail=tail, tail_operands=given, route="cutlass"
            )
            assert device.tensor.plan(request).notes == ASKED
            want = tail(product, *(one.numpy().astype(float) for one in given.values()))
            found = device.tensor.tell(request).numpy().astype(float)
            np.testing.assert_allclose(found, want, rtol=2.0**-7, atol=2.0**-11 * np.abs(product).max())
        bad = device.full((2, 256, 128), np.nan, "bfloat16")
        made = device.tensor.einsum("bij,bjk->bik", bad, b, tail=relu, route="cutlass")
        assert np.isnan(made.numpy().astype(float)).all()
