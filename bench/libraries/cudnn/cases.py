"""cuDNN: convolutions and attention, and beside them torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bench.harness import Case, Effort, Setup
from bench.harness.calls import Operation, add_calls
from bench.libraries.cudnn._rows import add_ours, add_torch, numbers, operation, tensor

__all__ = ["CASES"]

#: Images, channels and rows, of convolutions 3 x 3 in float16 with as many filters.
CONVOLUTION = (4, 64, 14)
#: Batch, heads, tokens and elements of attention in bfloat16.
ATTENTION = (1, 8, 512, 128)
#: Steps, sequences, inputs and hidden elements of LSTMs of two layers in float16.
NETWORKS: tuple[tuple[int, int, int, int], ...] = ((16, 8, 128, 128), (128, 64, 1024, 1024))
#: Steps, sequences, classes and labels of CTC losses with gradients in float32.
LOSSES: tuple[tuple[int, int, int, int], ...] = ((256, 32, 64, 40),)
_SMALL = (8, 2, 16, 16)


def _convolution(n: int, channels: int, rows: int, dtype: str) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        x = dev.put(numbers((n, rows, rows, channels), dtype))
        w, bias = dev.put(numbers((channels, 3, 3, channels), dtype)), dev.put(numbers((channels,), dtype))
        out = dev.zeros((n, rows, rows, channels), dtype)
        how: dict[str, Any] = {"padding": 1, "channels_last": True, "activation": "relu"}
        made = operation(dev, an.ConvolutionRequest(x=x, w=w, bias=bias, out=out, **how), "out")
        return replace(made, call=partial(dev.cudnn.convolution, x, w, bias, out=out, **how))

    return make


def _attention(b: int, h: int, s: int, d: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        q, k, v = (dev.put(numbers((b, h, s, d), "bfloat16")) for _ in range(3))
        made = operation(dev, an.AttentionRequest(q=q, k=k, v=v, mask="causal"), "out")
        return replace(made, call=partial(dev.cudnn.attention, q, k, v, out=made.operands["out"], mask="causal"))

    return make


def _network(steps: int, batch: int, inputs: int, hidden: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        x = dev.put(numbers((steps, batch, inputs), "float16"))
        weights = dev.put(numbers((an.RecurrentWeights("lstm", inputs, hidden, layers=2).size,), "float16"))
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

        x = dev.put(numbers((steps, batch, classes), "float32"))
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
    add_calls(setup, _title(1, 8, 8), _convolution(1, 8, 8, "float32"))


def _torch_convolution(torch: Any) -> Callable[[], object]:
    torch.backends.cudnn.benchmark = True
    n, channels, rows = CONVOLUTION
    layout = torch.channels_last
    x = tensor(torch, (n, channels, rows, rows), "float16").to(memory_format=layout)
    w = tensor(torch, (channels, channels, 3, 3), "float16").to(memory_format=layout)
    bias = tensor(torch, (channels,), "float16")
    return lambda: torch.relu_(torch.nn.functional.conv2d(x, w, bias, padding=1))


def _torch_attention(torch: Any) -> Callable[[], object]:
    q = tensor(torch, ATTENTION, "bfloat16")
    return partial(torch.nn.functional.scaled_dot_product_attention, q, q, q, is_causal=True)


def _torch_network(shape: tuple[int, ...], torch: Any) -> Callable[[], object]:
    steps, batch, inputs, hidden = shape
    network = torch.nn.LSTM(inputs, hidden, 2).to("cuda", torch.float16).requires_grad_(requires_grad=False)
    return partial(network, tensor(torch, (steps, batch, inputs), "float16"))


def _torch_loss(shape: tuple[int, ...], torch: Any) -> Callable[[], object]:
    """Return the loss with its gradient by scores before the softmax."""
    steps, batch, classes, count = shape
    x = tensor(torch, (steps, batch, classes), "float32").requires_grad_()
    labels = torch.randint(1, classes, (batch, count), dtype=torch.int32, device="cuda")
    lengths = [torch.full((batch,), n, dtype=torch.int32, device="cuda") for n in (steps, count)]

    def call() -> Any:
        logs = torch.log_softmax(x, 2)
        loss = torch.nn.functional.ctc_loss(logs, labels, *lengths, reduction="sum")
        return torch.autograd.grad(loss, x)

    return call


def gpu(setup: Setup) -> None:
    """A convolution in float16 with bias and ReLU, attention in bfloat16, LSTMs and CTC, on a GPU.

    The first two as on the host device, the others until the last of some is done. torch: ``conv2d`` with ``benchmark``
    on, then ``relu_``; ``scaled_dot_product_attention``; ``nn.LSTM``; ``log_softmax`` and ``ctc_loss`` with the
    gradient by ``autograd``.
    """
    quick = setup.effort is not Effort.FULL
    images, attention = ((1, 8, 4), (1, 2, 16, 16)) if quick else (CONVOLUTION, ATTENTION)
    small: tuple[tuple[str, Callable[[Any], Operation], Callable[[Any], Callable[[], object]]], ...] = (
        (_title(*CONVOLUTION), _convolution(*images, "float16"), _torch_convolution),
        (f"causal attention, {' x '.join(map(str, ATTENTION))}", _attention(*attention), _torch_attention),
    )
    for what, make, peer in small:
        add_calls(setup, what, make, many=1000, few=200)
        add_torch(setup, f"torch {what}, sustained", peer, 1000)
        setup.ratio(f"atomr {what}, sustained, process", f"torch {what}, sustained")
    for kinds, title, ours, theirs in (
        (NETWORKS, "LSTM of 2 layers", _network, _torch_network),
        (LOSSES, "CTC loss and gradient", _loss, _torch_loss),
    ):
        for shape in kinds:
            what, run = f"{title}, {' x '.join(map(str, shape))}", _SMALL if quick else shape
            add_ours(setup, f"atomr {what}", ours(*run), 50)
            add_torch(setup, f"torch {what}", partial(theirs, run), 50)
            setup.ratio(f"atomr {what}", f"torch {what}")


CASES = (
    Case("cudnn", "Neural networks", host),
    Case("gpu_cudnn", "Neural networks on a GPU", gpu, devices=("cuda",)),
)
