"""What PyTorch computes, too: results and gradients of both are the same, on a GPU by torch on the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close

import atomr_native as an

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(33)
Array = np.ndarray[Any, Any]
#: Of the device, the array that lies there, and its tensor: pairs of a result and torch's.
Pairs = list[tuple[Any, Any]]


@pytest.fixture(scope="module")
def torch_is_up() -> None:
    """Have torch open what it keeps for the life of the process: its first gradients on a GPU leave descriptors."""
    if torch.cuda.is_available():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a thread that has no context yet
            x = torch.ones((1, 8, 4, 4), device="cuda", requires_grad=True)
            y = torch.nn.functional.conv2d(x, torch.ones((8, 8, 1, 1), device="cuda")).flatten(1)
            (y @ y.T).sum().backward()
            torch.cuda.synchronize()


@pytest.fixture(scope="module")
def nothing_left(torch_is_up: None, nothing_left: None) -> None:
    """Look for what is left behind after that."""


class Both:
    """Arrays of a device, and the same as leaves of torch."""

    def __init__(self, device: an.Device, dtype: str) -> None:
        self.device, self.dtype = device, dtype
        self.where = "cuda" if device.kind == "cuda" and torch.cuda.is_available() else "cpu"

    def __call__(self, *shape: int, scale: float = 0.5, dtype: str = "") -> tuple[an.GpuRef, Any]:
        made = (RNG.standard_normal(shape) * scale).astype(dtype or self.dtype)
        return self.device.put(made), torch.from_numpy(made.copy()).to(self.where).requires_grad_()


def slopes(y: Any, inputs: Sequence[Any], dy: Any) -> tuple[Any, ...]:
    return tuple(torch.autograd.grad(y, inputs, dy.detach()))


def convolution(b: Both, axes: int, torch_call: Any, **how: Any) -> Pairs:
    size, window = (7, 6, 5)[:axes], (3, 2, 3)[:axes]
    (x, tx), (w, tw), (bias, tb) = b(2, 8, *size), b(16, 8 // how.get("groups", 1), *window), b(16)
    ty = torch_call(tx, tw, tb, **how)
    dy, tdy = b(*ty.shape)
    dnn = b.device.cudnn
    made = [
        dnn.convolution(x, w, bias, **how),
        dnn.convolution_backward_data(dy, w, size, **how),
        dnn.convolution_backward_filter(x, dy, window, **how),
    ]
    return list(zip(made, (ty, *slopes(ty, (tx, tw), tdy)), strict=True))


def pooling(b: Both, mode: str) -> Pairs:
    functional = torch.nn.functional
    x, tx = b(2, 8, 9, 7)
    dnn, how = b.device.cudnn, {"stride": 2, "padding": 1}
    if mode == "max":
        ty = functional.max_pool2d(tx, 3, **how)
        y, index = dnn.pooling(x, mode, 3, index=True, **how)
    else:
        ty = functional.avg_pool2d(tx, 3, **how, count_include_pad=mode == "average")
        y, index = dnn.pooling(x, mode, 3, **how), None
    dy, tdy = b(*ty.shape)
    return [(y, ty), (dnn.pooling_backward(dy, (9, 7), mode, 3, index=index, **how), slopes(ty, (tx,), tdy)[0])]


def norm(b: Both, kind: str) -> Pairs:
    functional, dnn = torch.nn.functional, b.device.cudnn
    image = kind in ("batch", "instance", "group")
    x, tx = b(4, 8, 6, 5) if image else b(6, 32)
    (scale, ts), (bias, tb) = (b(8 if image else 32, dtype="float32" if image else b.dtype) for _ in range(2))
    parameters = [one.to(tx.dtype) if kind == "group" else one for one in (ts, tb)]
    calls: dict[str, Callable[[], Any]] = {
        "batch": lambda: functional.batch_norm(tx, None, None, ts, tb, training=True),
        "instance": lambda: functional.instance_norm(tx, weight=ts.to(tx.dtype), bias=tb.to(tx.dtype)),
        "group": lambda: functional.group_norm(tx, 2, *parameters),
        "layer": lambda: functional.layer_norm(tx, (32,), ts, tb),
        "rms": lambda: functional.rms_norm(tx, (32,), ts, eps=1e-5),
    }
    ty = calls[kind]()
    dy, tdy = b(*ty.shape)
    how: dict[str, Any] = {"groups": 2} if kind == "group" else {}
    y, *mean, inverse = dnn.norm(kind, x, scale, None if kind == "rms" else bias, **how)
    made = dnn.norm_backward(kind, dy, x, scale, inverse, *mean, **how)
    wanted = slopes(ty, (tx, ts) if kind == "rms" else (tx, ts, tb), tdy)
    return [(y, ty), *zip(made, wanted, strict=True)]


def softmax(b: Both, log: bool) -> Pairs:
    (x, tx), (dy, tdy) = b(3, 17, 5), b(3, 17, 5)
    ty = (torch.log_softmax if log else torch.softmax)(tx, 1)
    y = b.device.cudnn.softmax(x, 1, log=log)
    return [(y, ty), (b.device.cudnn.softmax_backward(dy, y, 1, log=log), slopes(ty, (tx,), tdy)[0])]


def response(b: Both) -> Pairs:
    x, tx = b(2, 9, 4, 3)
    ty = torch.nn.functional.local_response_norm(tx, 5, alpha=0.3, beta=0.75, k=2.0)
    return [(b.device.cudnn.response_norm(x, size=5, alpha=0.3, beta=0.75, k=2.0), ty)]


def activation(b: Both, name: str) -> Pairs:
    functional = torch.nn.functional
    (x, tx), (dy, tdy) = b(5, 33), b(5, 33)
    calls = {
        "relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu, "sigmoid": torch.sigmoid,
        "tanh": torch.tanh, "elu": functional.elu, "softplus": functional.softplus,
        "gelu_tanh": lambda one: functional.gelu(one, approximate="tanh"),
    }  # fmt: skip
    ty = calls[name](tx)
    dnn = b.device.cudnn
    return [(dnn.activation(x, name), ty), (dnn.activation_backward(dy, x, name), slopes(ty, (tx,), tdy)[0])]


def attention(b: Both, mask: str, groups: int) -> Pairs:
    (q, tq), (dy, tdy) = b(2, 4, 9, 16), b(2, 4, 9, 16)
    (k, tk), (v, tv) = b(2, groups, 9, 16), b(2, groups, 9, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    ty = attend(tq, tk, tv, is_causal=mask == "causal", enable_gqa=groups != 4)
    y, statistics = b.device.cudnn.attention(q, k, v, mask=mask, statistics=True)
    made = b.device.cudnn.attention_backward(q, k, v, y, statistics, dy, mask=mask)
    return [(y, ty), *zip(made, slopes(ty, (tq, tk, tv), tdy), strict=True)]


def network(b: Both, kind: str) -> Pairs:
    classes = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "tanh": torch.nn.RNN}
    module = classes[kind](3, 8, 2, bidirectional=True).to(b.where)
    weights = an.RecurrentWeights(kind, inputs=3, hidden=8, layers=2, bidirectional=True)
    values = np.empty(weights.size, "float32")
    for name, part in weights.parts(values).items():
        part[...] = dict(module.named_parameters())[name].detach().cpu().numpy()
    (x, tx), (dy, tdy) = b(5, 4, 3), b(5, 4, 16)
    ty, last = module(tx)
    w = b.device.put(values)
    how: dict[str, Any] = {"hidden": 8, "layers": 2, "bidirectional": True}
    y, *states, reserve = b.device.cudnn.rnn(kind, x, w, training=True, **how)
    dx, *_ = b.device.cudnn.rnn_backward(kind, x, w, y, dy, reserve, **how)
    wanted = last if kind == "lstm" else (last,)
    return [(y, ty), *zip(states, wanted, strict=True), (dx, slopes(ty, (tx,), tdy)[0])]


def loss(b: Both) -> Pairs:
    x, tx = b(12, 2, 5)
    labels, ends, counts = (
        np.array([[1, 2, 2], [3, 1, 4]], "int32"),
        np.array([12, 9], "int32"),
        np.array([3, 2], "int32"),
    )
    given = [torch.from_numpy(one).to(b.where) for one in (labels, ends, counts)]
    ty = torch.nn.functional.ctc_loss(torch.log_softmax(tx, 2), *given, reduction="none")
    costs, dx = b.device.cudnn.ctc_loss(x, *map(b.device.put, (labels, ends, counts)), gradient=True)
    return [(costs, ty), (dx, slopes(ty, (tx,), torch.ones_like(ty))[0])]


_F = torch.nn.functional
CASES: dict[str, tuple[str, Callable[[Both], Pairs]]] = {
    "convolution, 1 axis": ("float32", lambda b: convolution(b, 1, _F.conv1d, stride=2, padding=1)),
    "convolution, dilated": ("float16", lambda b: convolution(b, 2, _F.conv2d, padding=2, dilation=2)),
    "convolution, groups": ("float32", lambda b: convolution(b, 2, _F.conv2d, padding=1, groups=4)),
    "convolution, 3 axes": ("float16", lambda b: convolution(b, 3, _F.conv3d, padding=1)),
    **{
        f"pooling, {m}": ("float32", lambda b, m=m: pooling(b, m))
        for m in ("max", "average", "average_exclude_padding")
    },
    **{f"{k} norm": ("float32", lambda b, k=k: norm(b, k)) for k in ("batch", "instance", "group", "layer", "rms")},
    "softmax": ("float32", lambda b: softmax(b, log=False)),
    "logarithm of softmax": ("float16", lambda b: softmax(b, log=True)),
    "response norm": ("float32", response),
    **{
        f"activation, {name}": ("float32", lambda b, name=name: activation(b, name))
        for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "elu", "softplus")
    },
    "attention": ("float16", lambda b: attention(b, "none", 4)),
    "attention, causal, groups": ("float16", lambda b: attention(b, "causal", 2)),
    **{f"network, {k}": ("float32", lambda b, k=k: network(b, k)) for k in ("lstm", "gru", "tanh")},
    "CTC loss": ("float32", loss),
}  # type: ignore[dict-item]


@pytest.mark.parametrize("name", CASES)
def test_torch_agrees(device: an.Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    dtype, case = CASES[name]
    for found, wanted in case(Both(device, dtype)):
        want = wanted.detach().float().cpu().numpy().astype(np.float64)
        assert found.shape == want.shape
        # Both round, and sum in another order.
        assert_close(found.numpy(), want, dtype, 4.0)
