"""cuDNN: convolutions and attention, and beside them torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.gpu import add_peer

__all__ = ["CASES"]

#: Images, channels and rows, of convolutions 3 x 3 in float16 with as many filters.
CONVOLUTIONS: tuple[tuple[int, int, int], ...] = ((4, 64, 14), (32, 256, 28))
#: Batch, heads, tokens and elements of attention in bfloat16.
ATTENTION: tuple[tuple[int, int, int, int], ...] = ((1, 8, 512, 128), (4, 16, 4096, 128))
#: Steps, sequences, inputs and hidden elements of LSTMs of two layers in float16.
NETWORKS: tuple[tuple[int, int, int, int], ...] = ((16, 8, 128, 128), (128, 64, 1024, 1024))
#: Steps, sequences, classes and labels of CTC losses with gradients in float32.
LOSSES: tuple[tuple[int, int, int, int], ...] = ((256, 32, 64, 40),)
#: Calls of a peer between two waits.
EVERY = 100


def _numbers(shape: tuple[int, ...], dtype: str) -> Any:
    import numpy as np

    from atomr_native.dtypes import DTYPES

    return (np.random.default_rng(0).standard_normal(shape) * 0.1).astype(DTYPES[dtype])


def _convolution(n: int, channels: int, rows: int, dtype: str, activation: str | None) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        x = dev.put(_numbers((n, rows, rows, channels), dtype))
        w, bias = dev.put(_numbers((channels, 3, 3, channels), dtype)), dev.put(_numbers((channels,), dtype))
        out = dev.zeros((n, rows, rows, channels), dtype)
        how = {"padding": 1, "channels_last": True, "activation": activation}
        request = an.ConvolutionRequest(x=x, w=w, bias=bias, out=out, **how)
        operands = {"x": x, "w": w, "bias": bias, "out": out}
        return Operation(
            dev.cudnn.plan(request), operands, partial(dev.cudnn.convolution, x, w, bias, out=out, **how), out
        )

    return make


def _attention(b: int, h: int, s: int, d: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        q, k, v = (dev.put(_numbers((b, h, s, d), "bfloat16")) for _ in range(3))
        out = dev.zeros((b, h, s, d), "bfloat16")
        request = an.AttentionRequest(q=q, k=k, v=v, out=out, mask="causal")
        operands = {"q": q, "k": k, "v": v, "out": out, **dev.cudnn.scratch(request)}
        call = partial(dev.cudnn.attention, q, k, v, out=out, mask="causal")
        return Operation(dev.cudnn.plan(request), operands, call, out)

    return make


def _network(steps: int, batch: int, inputs: int, hidden: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        x = dev.put(_numbers((steps, batch, inputs), "float16"))
        weights = dev.put(_numbers((an.RecurrentWeights("lstm", inputs, hidden, layers=2).size,), "float16"))
        out = dev.zeros((steps, batch, hidden), "float16")
        hy, cy = (dev.zeros((2, batch, hidden), "float16") for _ in range(2))
        request = an.RecurrentRequest(kind="lstm", x=x, weights=weights, hidden=hidden, layers=2, out=out)
        operands = {"x": x, "weights": weights, "out": out, "hy": hy, "cy": cy}
        call = partial(dev.cudnn.rnn, "lstm", x, weights, hidden=hidden, layers=2, out=out)
        return Operation(dev.cudnn.plan(request), operands, call, out)

    return make


def _loss(steps: int, batch: int, classes: int, count: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import numpy as np

        import atomr_native as an

        x = dev.put(_numbers((steps, batch, classes), "float32"))
        labels = dev.put(np.random.default_rng(0).integers(1, classes, (batch, count)).astype("int32"))
        lengths = [dev.put(np.full(batch, n, "int32")) for n in (steps, count)]
        names = ("x", "labels", "input_lengths", "label_lengths")
        given = dict(zip(names, (x, labels, *lengths), strict=True))
        new = {"costs": dev.zeros((batch,), "float32"), "dx": dev.zeros((steps, batch, classes), "float32")}
        request = an.CtcLossRequest(**given, gradient=True)
        call = partial(dev.cudnn.ctc_loss, *given.values(), gradient=True)
        return Operation(dev.cudnn.plan(request), {**given, **new}, call, new["dx"])

    return make


def _title(n: int, channels: int, rows: int) -> str:
    return f"convolution 3 x 3, {n} x {channels} x {rows} x {rows}, bias, ReLU"


def host(setup: Setup) -> None:
    """A small convolution in float32 with bias and ReLU on the host device: told, called, asked and sustained."""
    add_calls(setup, _title(1, 8, 8), _convolution(1, 8, 8, "float32", "relu"))


def _peer(kind: str, shape: tuple[int, ...], ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    functional = torch.nn.functional
    if kind == "attention":
        q = torch.from_numpy(_numbers(shape, "float32")).to("cuda", torch.bfloat16)
        return gpu_peers.Calls(
            {kind: partial(functional.scaled_dot_product_attention, q, q, q, is_causal=True)}, torch.cuda.synchronize
        )
    if kind == "LSTM":
        steps, batch, inputs, hidden = shape
        network = torch.nn.LSTM(inputs, hidden, 2).to("cuda", torch.float16).requires_grad_(requires_grad=False)
        sequences = torch.from_numpy(_numbers((steps, batch, inputs), "float16")).to("cuda")
        return gpu_peers.Calls({kind: partial(network, sequences)}, torch.cuda.synchronize)
    if kind == "CTC":
        return gpu_peers.Calls({kind: _torch_loss(torch, shape)}, torch.cuda.synchronize)
    n, channels, rows = shape
    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last
    x = torch.from_numpy(_numbers((n, channels, rows, rows), "float16")).to("cuda", memory_format=layout)
    w = torch.from_numpy(_numbers((channels, channels, 3, 3), "float16")).to("cuda", memory_format=layout)
    bias = torch.from_numpy(_numbers((channels,), "float16")).to("cuda")

    def call() -> Any:
        return torch.relu_(functional.conv2d(x, w, bias, padding=1))

    return gpu_peers.Calls({kind: call}, torch.cuda.synchronize)


def _torch_loss(torch: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    """Return the loss with its gradient by scores before the softmax."""
    steps, batch, classes, count = shape
    x = torch.from_numpy(_numbers((steps, batch, classes), "float32")).to("cuda").requires_grad_()
    labels = torch.randint(1, classes, (batch, count), dtype=torch.int32, device="cuda")
    lengths = [torch.full((batch,), n, dtype=torch.int32, device="cuda") for n in (steps, count)]

    def call() -> Any:
        logs = torch.log_softmax(x, 2)
        loss = torch.nn.functional.ctc_loss(logs, labels, *lengths, reduction="sum")
        return torch.autograd.grad(loss, x)

    return call


def gpu(setup: Setup) -> None:
    """Convolutions in float16 with bias and ReLU, channels innermost, attention in bfloat16, LSTMs, CTC, on a GPU.

    As on the host device. torch: ``conv2d`` with ``benchmark`` on, then ``relu_``; ``scaled_dot_product_attention``;
    ``nn.LSTM``; ``log_softmax`` and ``ctc_loss`` with the gradient by ``autograd``.
    """
    for shape in CONVOLUTIONS:
        _beside_torch(setup, "convolution", _title(*shape), shape, _convolution(*shape, "float16", "relu"))
    for shape in ATTENTION:
        what = f"causal attention, {' x '.join(map(str, shape))}"
        _beside_torch(setup, "attention", what, shape, _attention(*shape))
    for shape in NETWORKS:
        _beside_torch(setup, "LSTM", f"LSTM of 2 layers, {' x '.join(map(str, shape))}", shape, _network(*shape))
    for shape in LOSSES:
        _beside_torch(setup, "CTC", f"CTC loss and gradient, {' x '.join(map(str, shape))}", shape, _loss(*shape))


def _beside_torch(setup: Setup, kind: str, what: str, shape: tuple[int, ...], make: Callable[[Any], Operation]) -> None:
    add_calls(setup, what, make)
    add_peer(setup, f"torch {what}, sustained", partial(_peer, kind, shape), kind, setup.count(500), every=EVERY)
    setup.ratio(f"atomr {what}, sustained, process", f"torch {what}, sustained")


CASES = (
    Case("cudnn", "Neural networks", host),
    Case("gpu_cudnn", "Neural networks on a GPU", gpu, devices=("cuda",)),
)
