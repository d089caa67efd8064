"""Numbers that a plan is made with: the defaults of its messages, in every library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries import LIBRARIES, load_actor
from atomr_native.libraries.elementwise.request import ElementwiseRequest
from atomr_native.libraries.sparse.combine import CombineRequest
from atomr_native.libraries.sparse.structured.matrix import compressed_bytes

F = np.ones((4, 4), np.float32)
Z = np.ones((4, 4), np.complex64)
V = np.ones(4, np.float32)
Q = np.ones((1, 2, 4, 8), np.float16)
BLOCKS = an.BlockTensor.of(F, [(2, 2), (2, 2)])
#: The unit matrix of four rows, but for its values.
CSR: Any = {
    "format": "csr", "shape": (4, 4), "indices": np.arange(4, dtype="i4"), "offsets": np.arange(5, dtype="i4"),
}  # fmt: skip
PLACES = np.zeros(2, np.int64)

#: Requests with numbers other than those by which immediate calls share their plans.
REQUESTS: list[Any] = [
    an.BlasRequest(routine="gemm", a=F, b=F, alpha=2.5),
    an.BlasRequest(routine="gemm", a=F, b=F, out=F.copy(), alpha=2.5, beta=-0.5),
    an.BlasRequest(routine="gemm", a=Z, b=Z, out=Z.copy(), alpha=2.5 + 1j, beta=0.5j),
    an.BlasRequest(routine="scal", out=V, alpha=3),
    an.MatmulRequest(a=F, b=F, c=F, alpha=2.5, beta=0.5),
    an.MatmulRequest(a=Z, b=Z, alpha=2.5j),
    an.GroupedRequest(a=[F, F], b=[F, F], options={"alpha": 2.5}),
    an.GroupedRequest(a=[Z, Z], b=[Z, Z], c=[Z, Z], options={"alpha": 1 - 2j, "beta": 2.0}),
    ElementwiseRequest(program="a * s + n", operands={"a": V, "s": 2.5, "n": 3}),
    an.AdamWRequest(
        param=V.copy(), grad=V, m=V.copy(), v=V.copy(),
        step=7, lr=0.5, beta1=0.25, beta2=0.75, eps=1e-3, weight_decay=0.125,
    ),
    an.AdamWListRequest(
        param=[V.copy()], grad=[V], m=[V.copy()], v=[V.copy()],
        step=7, lr=0.5, beta1=0.25, beta2=0.75, eps=1e-3, weight_decay=0.125,
    ),
    an.SgdListRequest(
        param={"w": V.copy()}, grad={"w": V}, m={"w": V.copy()}, lr=0.5, momentum=0.25, weight_decay=0.125
    ),
    an.SgdRequest(param=V.copy(), grad=V, m=V.copy(), lr=0.5, momentum=0.25, weight_decay=0.125),
    an.DropoutRequest(x=V, p=0.25, seed=5, offset=9),
    an.RandomRequest(distribution="normal", shape=4, parameters=(0.5, V), seed=5, stream=2, offset=9),
    an.ChoiceRequest(weights=V, shape=2, seed=2**64 - 5, stream=2, offset=9),
    an.PermutationRequest(n=4, seed=5, stream=2, offset=9),
    an.ShuffleRequest(x=V, seed=5, stream=2, offset=2**63),
    an.NormRequest(x=F, weight=V, eps=0.25),
    an.NormGradientRequest(dy=F, x=F, weight=V, eps=0.25),
    an.RopeRequest(x=np.ones((4, 2, 4), np.float32), positions=np.arange(4), theta=50.0),
    an.EinsumRequest(subscripts="ij,jk->ik", operands=[F, F], c=F, alpha=2.5, beta=-0.5),
    an.EinsumRequest(subscripts="ij,jk->ik", operands=[Z, Z], alpha=2.5j),
    an.TensorReduceRequest(op="sum", subscripts="ij->i", x=F, alpha=2.5),
    an.TensorElementwiseRequest(subscripts="ij,j->ji", operands=[F, V], alpha=2.5, beta=-0.5),
    an.GemmRequest(a=F, b=F, c=F, alpha=2.5, beta=0.5, epilogue="alpha * acc + beta * c + s", operands={"s": 3.5}),
    an.GroupedGemmRequest(
        a=F, b=F[None], offsets=np.ones(1, "int32"), c=F, alpha=2.5, beta=0.5, epilogue="alpha * acc + beta * c + s",
        operands={"s": 3.5},
    ),
    an.FusedConvolutionRequest(
        operation="forward", a=F.reshape(1, 1, 4, 4), b=F.reshape(4, 1, 1, 4), c=np.ones((1, 1, 4, 4), np.float32),
        alpha=2.5, beta=0.5, epilogue="alpha * acc + beta * c + s", operands={"s": 3.5},
    ),
    an.BlockContractionRequest(subscripts="ij,jk->ik", a=BLOCKS, b=BLOCKS, c=BLOCKS, alpha=2.5, beta=-0.5),
    an.AttentionRequest(q=Q, k=Q, v=Q, dropout=0.25, seed=5, offset=9),
    an.AttentionGradientRequest(
        q=Q, k=Q, v=Q, y=Q, dy=Q, statistics=np.ones((1, 2, 4), np.float32), dropout=0.25, seed=5, offset=9
    ),
    an.RecurrentRequest(
        kind="tanh", x=np.ones((3, 2, 4), np.float32), weights=np.ones(115, np.float32), hidden=5, layers=2,
        dropout=0.25, seed=5, offset=9, training=True, reserve=np.zeros(64, np.uint8),
    ),
    an.StructuredProductRequest(
        compressed=np.zeros(compressed_bytes((32, 32), "float16"), np.uint8), shape=(32, 32), dtype="float16",
        x=np.ones((16, 32), np.float16), out=np.ones((16, 32), np.float16), alpha=2.5, beta=0.5,
    ),
    an.SparseProductRequest(**CSR, values=V, routine="spmv", x=V, out=V.copy(), alpha=2.5, beta=-0.5),
    an.SparseProductRequest(**CSR, values=Z[0], routine="spmm", x=Z, alpha=2.5j),
    an.SparseSolveRequest(**CSR, values=V, b=V, alpha=2.5),
    CombineRequest(routine="sum", a=V, b=V, left=PLACES, right=PLACES, starts=PLACES, alpha=2.5, beta=-0.5),
]  # fmt: skip


def number_fields(kind: type, form: Any) -> list[str]:
    return [name for name, letter in zip(form.names, form.kinds, strict=True) if letter == ord("n")]


def test_the_requests_are_those_of_all_libraries() -> None:
    """A library whose requests take numbers is tested here, too."""
    wanted = set()
    for library in LIBRARIES.values():
        forms = getattr(load_actor(library.name), "_forms", {}) if library.actor else {}
        wanted |= {kind for kind, form in forms.items() if b"n" in form.kinds or kind is ElementwiseRequest}
    assert wanted == {type(request) for request in REQUESTS}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{type(r).__name__}")
def test_the_defaults_are_the_numbers_of_the_request(request_: Any) -> None:
    """They are what an immediate call with these numbers sends."""
    kinds = {kind: form for name in LIBRARIES if LIBRARIES[name].actor
             for kind, form in getattr(load_actor(name), "_forms", {}).items()}  # fmt: skip
    lowered = request_.lowered
    form = kinds[type(request_)]
    values = dict(enumerate(form.pack(request_))) | dict(zip(form.names, form.pack(request_), strict=False))
    names = tuple(scalar.name for scalar in lowered.scalars) if lowered.numbers is None else lowered.numbers
    sent = tuple(values[name] for name in names)
    if lowered.convert is not None:
        sent = lowered.convert(*sent)
    spec = lowered.spec()
    assert lowered.signature(spec).defaults == sent
    assert lowered.signature(spec) != lowered.signature(spec, shared=True) or not lowered.scalars[0].default


def whole(device: an.Device, *shape: int, dtype: str = "float32") -> an.GpuRef:
    return device.full(shape, 1, dtype)


def test_blas(device: an.Device) -> None:
    a, out = whole(device, 4, 4), whole(device, 4, 4)
    plan = device.blas.plan("gemm", a=a, b=a, out=out, alpha=2.5, beta=0.5)
    plan.tell(a, a, out=out)
    assert (out.numpy() == 10.5).all()
    plan.tell(a, a, out=out, alpha=1.0)
    assert (out.numpy() == 9.25).all()
    plan.tell(a, a, out=out)
    assert (out.numpy() == 14.625).all()
    device.blas.gemm(a, a, out=out)  # whose plan is another one
    assert (out.numpy() == 4).all()


def test_grouped_products(device: an.Device) -> None:
    a, out = whole(device, 4, 4), device.empty((4, 4))
    plan = device.blas_lt.grouped_plan([a], [a], out=[out], alpha=2.5)
    plan.tell(a, a, out0=out)
    assert (out.numpy() == 10).all()
    plan.tell(a, a, out0=out, alpha=0.5)
    assert (out.numpy() == 2).all()


@pytest.mark.parametrize("library", ["blas", "blas_lt"])
def test_complex_factors(device: an.Device, library: str) -> None:
    """A number that is told replaces all of the default; its imaginary part may be told alone."""
    a, out = whole(device, 2, 2, dtype="complex64"), device.empty((2, 2), "complex64")
    plan = (
        device.blas.plan("gemm", a=a, b=a, alpha=1 + 2j)
        if library == "blas"
        else device.blas_lt.plan(a, a, alpha=1 + 2j)
    )
    told: list[tuple[dict[str, Any], complex]] = [
        ({}, 1 + 2j), ({"alpha": 2.0}, 2), ({"alpha": 3j}, 3j), ({"alpha": np.complex64(1 - 1j)}, 1 - 1j),
        ({"alpha": np.float32(4)}, 4), ({"alpha_imag": 5.0}, 1 + 5j), ({"alpha": 2, "alpha_imag": 5.0}, 2 + 5j),
        ({"alpha_imag": 5.0, "alpha": 2}, 2 + 5j), ({}, 1 + 2j),
    ]  # fmt: skip
    for numbers, alpha in told:
        plan.tell(a, a, out=out, **numbers)
        assert (out.numpy() == 2 * alpha).all(), numbers
    for wrong in ("1j", None, a):
        with pytest.raises(an.InvalidRequest, match=r"'alpha'.*complex"):
            plan.tell(a, a, out=out, alpha=wrong)


def test_real_factors_stay_real(device: an.Device) -> None:
    a, out = whole(device, 2, 2), device.empty((2, 2))
    plan = device.blas.plan("gemm", a=a, b=a)
    with pytest.raises(an.InvalidRequest, match="real number"):
        plan.tell(a, a, out=out, alpha=1j)


def test_zeros_of_both_signs(device: an.Device) -> None:
    """Equal numbers that are not the same are defaults of different plans."""
    a, out = whole(device, 2), device.empty((2,))
    for zero in (0.0, -0.0):
        device.elementwise.plan("a * s", a=a, s=zero).tell(a, out=out)
        assert np.signbit(out.numpy()).tolist() == [np.signbit(zero)] * 2
