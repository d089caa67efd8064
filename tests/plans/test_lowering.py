"""Requests lower themselves: once, without keeping memory alive, and the same after they were copied."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.blas_lt import request as blas_lt
from atomr_native.libraries.elementwise.request import ElementwiseRequest, ReduceRequest, SoftmaxCrossEntropyRequest
from atomr_native.libraries.sparse.structured.matrix import compressed_bytes
from atomr_native.plans.lowering import Lowered, Request


def weighted(value: Any, _: Any, window: Any, gain: Any) -> Any:
    return value * window * gain


def doubled(value: Any) -> Any:
    return value * 2


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def half(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float16)


def eye() -> dict[str, Any]:
    """The unit matrix of four rows."""
    return {
        "format": "csr", "shape": (4, 4), "values": floats(4), "indices": np.arange(4, dtype="i4"),
        "offsets": np.arange(5, dtype="i4"),
    }  # fmt: skip


def codes(*shape: int) -> np.ndarray:
    return np.ones(shape, DTYPES["float8_e4m3fn"])


def blocks() -> an.BlockTensor:
    return an.BlockTensor.of(floats(4, 4), [(2, 2), (2, 2)])


def state() -> an.DelayedScaling:
    history: Any = floats(4)
    return an.DelayedScaling(history=history, position=np.zeros(1, np.int32), scale=floats(1))  # type: ignore[arg-type]


def twice(acc: Any, bias: Any) -> Any:
    return acc + bias + bias


TWICE = an.CustomEpilogue(twice, {"bias": "row"}, bias_grad=True)
X = floats(4, 4)
REQUESTS: dict[str, Callable[[], Request[Any]]] = {
    "matmul": lambda: an.MatmulRequest(a=floats(4, 4), b=floats(4, 4), epilogue="gelu_aux", amax=True),
    "custom": lambda: an.MatmulRequest(a=X, b=floats(4, 4), epilogue=TWICE, operands={"bias": floats(4)}),
    "grouped": lambda: an.GroupedRequest(a=[floats(4, 4), floats(2, 4)], b=[X, X], options={"trans_b": True}),
    "blas": lambda: an.BlasRequest(routine="gemv", a=floats(4, 4), x=floats(4)),
    "program": lambda: ElementwiseRequest(program="w = a * s; b = w", operands={"w": X, "a": floats(4, 4), "s": 2,
                                                                                 "b": floats(4, 4)}),
    "alias": lambda: ElementwiseRequest(program="a + 1", operands={"a": X}, out=X),
    "reduce": lambda: ReduceRequest(op="sum", x=floats(4, 4), axis=1),
    "loss": lambda: SoftmaxCrossEntropyRequest(logits=floats(4, 3), labels=np.zeros(4, np.int32)),
    "quantize": lambda: an.QuantizeRequest(x=floats(4, 4), state=state(), transposed=True),
    "dequantize": lambda: an.DequantizeRequest(q=codes(4), scale=floats(1)),
    "activation": lambda: an.ActivationRequest(x=floats(4, 4), gated=True),
    "activation gradient": lambda: an.ActivationGradientRequest(dy=floats(4), x=floats(4), up=floats(4), gated=True),
    "norm": lambda: an.NormRequest(x=floats(4, 4), weight=floats(4), residual=floats(4, 4)),
    "norm gradient": lambda: an.NormGradientRequest(dy=floats(4, 4), x=floats(4, 4), weight=floats(4)),
    "adamw": lambda: an.AdamWRequest(param=floats(4), grad=floats(4), m=floats(4), v=floats(4), step=1),
    "adamw, list": lambda: an.AdamWListRequest(
        param=[floats(4)], grad=[floats(4)], m=[floats(4)], v=[floats(4)], step=1
    ),
    "sgd, list": lambda: an.SgdListRequest(param=(floats(4),), grad=(floats(4),), m=(floats(4),)),
    "sgd": lambda: an.SgdRequest(param=floats(4), grad=floats(4), m=floats(4)),
    "rope": lambda: an.RopeRequest(x=floats(4, 1, 4), positions=np.arange(4)),
    "dropout": lambda: an.DropoutRequest(x=floats(4), p=0.5, seed=1),
    "random": lambda: an.RandomRequest(distribution="normal", parameters=(floats(4), 1.0), seed=1, out=floats(4)),
    "choice": lambda: an.ChoiceRequest(weights=floats(4), shape=2, seed=1, offset=np.arange(1)),
    "permutation": lambda: an.PermutationRequest(n=4, seed=1, out=np.zeros(4, np.int32)),
    "shuffle": lambda: an.ShuffleRequest(x=floats(4), seed=1),
    "transform": lambda: an.FftRequest(transform="rfft", x=floats(4, 4)),
    "half transform": lambda: an.HalfFftRequest(transform="rfft", x=half(4, 4)),
    "mapped transform": lambda: an.FftRequest(
        transform="rfft", x=floats(4, 4), load=weighted, operands={"window": floats(4), "gain": 2.0}
    ),
    "cosines": lambda: an.DctRequest(x=floats(4, 4), type=3),
    "frames": lambda: an.StftRequest(x=floats(32), n_fft=8, window=floats(8)),
    "signal": lambda: an.IstftRequest(x=np.zeros((5, 3), np.complex64), n_fft=8),
    "shift": lambda: an.FftShiftRequest(x=floats(4, 4)),
    "solver": lambda: an.SolverRequest(routine="solve", a=floats(4, 4), b=floats(4, 2)),
    "decomposition": lambda: an.DecompositionRequest(routine="svd", a=floats(4, 3)),
    "expression": lambda: an.EinsumRequest(subscripts="ij,jk->ik", operands=[floats(4, 3), floats(3, 2)], alpha=2.0),
    "tensor reduction": lambda: an.TensorReduceRequest(op="norm2", subscripts="ij->i", x=floats(4, 3)),
    "tensors": lambda: an.TensorElementwiseRequest(subscripts="ij,j->ji", operands=[floats(4, 3), floats(3)], beta=2.0),
    "sparse product": lambda: an.SparseProductRequest(**eye(), routine="spmv", x=floats(4), alpha=2.0),
    "epilogue tree": lambda: an.GemmRequest(
        a=floats(4, 4), b=floats(4, 4), epilogue="pre = acc + x * s; out = relu(pre)",
        operands={"x": floats(4), "s": 2.0}, outputs={"pre": floats(4, 4)},
    ),
    "grouped product": lambda: an.GroupedGemmRequest(
        a=floats(4, 4), b=floats(2, 4, 3), offsets=np.array([1, 4]), epilogue="acc * x + s",
        operands={"x": floats(4, 1), "s": 2.0},
    ),
    "semiring": lambda: an.SparseSemiringRequest(
        **{k: v for k, v in eye().items() if k != "format"}, x=floats(4), multiply=np.add, add=np.minimum, start=np.inf
    ),
    "incomplete factors": lambda: an.SparseFactorRequest(
        routine="ilu0", **{name: value for name, value in eye().items() if name != "format"}
    ),
    "triangle": lambda: an.SparseSolveRequest(**eye(), b=floats(4, 2), unit=True),
    "convolution": lambda: an.ConvolutionRequest(x=floats(1, 2, 5, 5), w=floats(3, 2, 3, 3), bias=floats(3)),
    "gradient of images": lambda: an.ConvolutionDataGradientRequest(
        dy=floats(1, 3, 3, 3), w=floats(3, 2, 3, 3), size=(5, 5)
    ),
    "gradient of filters": lambda: an.ConvolutionFilterGradientRequest(
        x=floats(1, 2, 5, 5), dy=floats(1, 3, 3, 3), size=(3, 3)
    ),
    "pooling": lambda: an.PoolingRequest(x=floats(1, 2, 4, 4), mode="max", window=2),
    "gradient of pooling": lambda: an.PoolingGradientRequest(
        dy=floats(1, 2, 2, 2), size=4, mode="average", window=2
    ),
    "images' norm": lambda: an.NormalizationRequest(
        kind="instance", x=floats(1, 2, 4, 4), scale=floats(2), bias=floats(2)
    ),
    "gradient of images' norm": lambda: an.NormalizationGradientRequest(
        kind="instance", dy=floats(1, 2, 4, 4), x=floats(1, 2, 4, 4), scale=floats(2), mean=floats(1, 2),
        inverse=floats(1, 2),
    ),
    "groups' norm": lambda: an.NormalizationRequest(
        kind="group", groups=2, x=floats(1, 2, 4, 4), scale=floats(2), bias=floats(2)
    ),
    "graph": lambda: an.GraphRequest(function=doubled, operands=(floats(2, 3),)),
    "softmax": lambda: an.SoftmaxRequest(x=floats(2, 3)),
    "gradient of softmax": lambda: an.SoftmaxGradientRequest(dy=floats(2, 3), y=floats(2, 3), log=True),
    "response norm": lambda: an.ResponseNormalizationRequest(x=floats(1, 2, 4)),
    "gradient of a response norm": lambda: an.ResponseNormalizationGradientRequest(
        x=floats(1, 2, 4), y=floats(1, 2, 4), dy=floats(1, 2, 4)
    ),
    "attention": lambda: an.AttentionRequest(q=half(1, 2, 4, 8), k=half(1, 2, 4, 8), v=half(1, 2, 4, 8)),
    "gradient of attention": lambda: an.AttentionGradientRequest(
        q=half(1, 2, 4, 8), k=half(1, 2, 4, 8), v=half(1, 2, 4, 8), y=half(1, 2, 4, 8), dy=half(1, 2, 4, 8),
        statistics=floats(1, 2, 4),
    ),
    "gradients of float8 attention": lambda: an.Float8AttentionGradientRequest(
        **{name: codes(1, 1, 2, 16) for name in ("q", "k", "v", "y", "dy")},
        statistics=floats(1, 1, 2),
        **{
            f"{name}_scale": floats(1)
            for name in ("q", "k", "v", "y", "dy", "weights", "slopes", "dq", "dk", "dv")
        },
    ),
    "float8 attention": lambda: an.Float8AttentionRequest(
        q=codes(1, 2, 4, 16), k=codes(1, 2, 4, 16), v=codes(1, 2, 4, 16), q_scale=floats(1), k_scale=floats(1),
        v_scale=floats(1), weights_scale=floats(1), out_scale=floats(1),
    ),
    "recurrent network": lambda: an.RecurrentRequest(kind="tanh", x=floats(3, 2, 4), weights=floats(55), hidden=5),
    "gradient of a recurrent network": lambda: an.RecurrentGradientRequest(
        kind="tanh", x=floats(3, 2, 4), weights=floats(55), hidden=5, y=floats(3, 2, 5), dy=floats(3, 2, 5),
        reserve=np.zeros(64, np.uint8),
    ),
    "loss of sequences": lambda: an.CtcLossRequest(
        x=floats(4, 1, 3), labels=np.ones((1, 2), np.int32), input_lengths=np.full(1, 4, np.int32),
        label_lengths=np.full(1, 2, np.int32),
    ),
    "convolution with an epilogue": lambda: an.FusedConvolutionRequest(
        operation="forward", a=floats(1, 4, 4, 4), b=floats(4, 3, 3, 4), epilogue="relu(acc)"
    ),
    "pruning of fours": lambda: an.StructuredPruneRequest(x=half(32, 32)),
    "compression": lambda: an.StructuredCompressRequest(x=half(32, 32)),
    "structured product": lambda: an.StructuredProductRequest(
        compressed=np.zeros(compressed_bytes((32, 32), "float16"), np.uint8), shape=(32, 32), dtype="float16",
        x=half(16, 32),
    ),
    "range of eigenvalues": lambda: an.EigenRangeRequest(a=np.eye(3), subset_by_index=(0, 1)),
    "refined solve": lambda: an.RefinementRequest(a=np.eye(3), b=np.ones(3)),
    "product of blocks": lambda: an.BlockContractionRequest(subscripts="ij,jk->ik", a=blocks(), b=blocks()),
    "curve": lambda: an.ActivationFunctionRequest(x=floats(1, 2, 4, 4), activation="relu"),
    "gradient of a curve": lambda: an.ActivationFunctionGradientRequest(
        dy=floats(1, 2, 4, 4), x=floats(1, 2, 4, 4), activation="relu"
    ),
}  # fmt: skip


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_every_public_request_is_among_these() -> None:
    public = {getattr(an, name) for name in an.__all__}
    requests = {one for one in public if inspect.isclass(one) and issubclass(one, Request)}
    assert requests <= {type(make()) for make in REQUESTS.values()}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_lowered_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(REQUESTS[name]())
    calls: list[Lowered] = []
    lowering = kind.lowering

    def counted(self: Any) -> Lowered:
        calls.append(lowering(self))
        return calls[-1]

    monkeypatch.setattr(kind, "lowering", counted)
    request = REQUESTS[name]()
    assert [request.lowered, request.lowered] == [calls[0]] * 2
    assert len(calls) == 1


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_keeps_its_arrays_no_longer_than_it_lives(name: str, no_collection: None) -> None:
    request = REQUESTS[name]()
    arrays = [o.given for o in request.lowered.operands if o.given is not None and o.given is not X]
    seen = [weakref.ref(array) for array in arrays]
    assert seen or name == "alias"
    del request, arrays
    assert not [ref for ref in seen if ref() is not None]


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "custom"])  # whose copy is another function
def test_copies_lower_themselves_to_the_same(name: str) -> None:
    if name == "mapped transform":
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    request = REQUESTS[name]()
    spec = request.lowered.spec()
    for again in (copy.copy(request), pickle.loads(pickle.dumps(request))):
        assert type(again) is type(request)
        if name != "alias" or again.out is X:  # a pickle tells no views of one array apart
            assert again.lowered.spec() == spec
        assert again.lowered.signature(spec) == request.lowered.signature(spec)


def test_public_classes_are_pickled_by_their_public_names() -> None:
    for name in an.__all__:
        kind = getattr(an, name)
        if inspect.isclass(kind) and kind.__module__ == "atomr_native":
            assert pickle.loads(pickle.dumps(kind)) is kind
    assert an.MatmulRequest.__module__ == an.BlasLt.__module__ == an.Epilogue.__module__ == "atomr_native"
    assert b"libraries" not in pickle.dumps(an.NormRequest)


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System(isolation="thread", standby="off") as system:
        yield system.device("host")


def test_a_call_of_a_new_structure_resolves_its_problem_once(
    device: an.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = []
    resolve = blas_lt.resolve_matmul
    monkeypatch.setattr(blas_lt, "resolve_matmul", lambda request: resolved.append(request) or resolve(request))
    x, w = device.zeros((3, 7)), device.zeros((7, 5))
    device.blas_lt.matmul(x, w)
    device.blas_lt.matmul(x, w)
    assert len(resolved) == 1
    device.blas_lt.plan(x, w, tune="known")
    assert len(resolved) == 2


def test_a_request_is_sent_as_it_is_now(device: an.Device) -> None:
    """Lists and dicts in a request may change after it was made."""
    x, y = device.full((2, 2), 1.0), device.full((2, 2), 3.0)
    group = an.GroupedRequest(a=[x], b=[x])
    group.a[0] = y  # type: ignore[index]
    (made,) = device.blas_lt.tell(group)
    assert made.numpy().max() == 6
    program = ElementwiseRequest(program="a + b", operands={"a": x, "b": x})
    program.operands["b"] = y  # type: ignore[index]
    assert device.elementwise.tell(program).numpy().max() == 4

    class Named(an.GroupedRequest):
        pass

    named = Named(a=[x], b=[x])
    named.a[0] = y  # type: ignore[index]
    assert device.blas_lt.tell(named)[0].numpy().max() == 6
    with pytest.raises(an.InvalidRequest, match="BlasLt does not accept BlasRequest; allowed: MatmulRequest"):
        device.blas_lt.tell(an.BlasRequest(routine="scal", out=x))


def test_arrays_that_are_not_read_must_be_handles_too(device: an.Device) -> None:
    x = device.zeros((2, 2))
    with pytest.raises(an.InvalidRequest, match="c is a ndarray"):
        device.blas_lt.matmul(x, x, c=np.zeros((2, 2), np.float32))  # type: ignore[arg-type]
    assert device.blas_lt.matmul(x, x, c=device.zeros((2, 2))).shape == (2, 2)
