"""A block of ResNet-50 with a bottleneck: as a recorded program of messages, and by torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.libraries.cudnn._rows import numbers, tensor

__all__ = ["flops", "inference", "torch_block", "torch_inference", "torch_training", "training"]

_TYPE = "float16"
#: Paddings of the three convolutions, and the windows that go with them.
_PADDINGS = (0, 1, 0)


def _filters(channels: int) -> tuple[tuple[int, int, int], ...]:
    """Filters, window and channels of the three convolutions."""
    narrow = channels // 4
    return ((narrow, 1, channels), (narrow, 3, narrow), (channels, 1, narrow))


def flops(images: int, channels: int, rows: int, *, backward: bool) -> float:
    """Operations of the block's convolutions."""
    one = sum(2.0 * images * rows**2 * f * k**2 * c for f, k, c in _filters(channels))
    return 3 * one if backward else one


def _put(dev: Any, images: int, channels: int, rows: int) -> tuple[Any, list[Any]]:
    x = dev.put(numbers((images, rows, rows, channels), _TYPE))
    return x, [dev.put(numbers((f, k, k, c), _TYPE)) for f, k, c in _filters(channels)]


def inference(dev: Any, images: int, channels: int, rows: int, *, tune: bool) -> tuple[Any, Any]:
    """The block with its norms folded into filters and biases: three convolutions, the last with the residual."""
    x, w = _put(dev, images, channels, rows)
    bias = [dev.put(numbers(one.shape[:1], _TYPE)) for one in w]
    out = dev.empty(x.shape, _TYPE)
    with dev.record() as g:
        given = h = g.operand("x", x)
        for i, padding in enumerate(_PADDINGS):
            last = {"residual": given, "beta": 1.0, "out": out} if i == 2 else {}
            how = {"padding": padding, "channels_last": True, "activation": "relu", "tune": tune}
            h = dev.cudnn.convolution(h, w[i], bias[i], **last, **how)
        del h
    return g.plan, x


def training(dev: Any, images: int, channels: int, rows: int, *, tune: bool) -> tuple[Any, Any]:
    """The block with batch norms of the batch's own statistics, forward and backward."""
    dnn, (x, w) = dev.cudnn, _put(dev, images, channels, rows)
    scale, bias = ([dev.put(numbers(one.shape[:1], "float32")) for one in w] for _ in range(2))
    dy, dx = dev.put(numbers(x.shape, _TYPE)), dev.empty(x.shape, _TYPE)
    slopes = [[dev.empty(one.shape, one.dtype) for one in group] for group in (w, scale, bias)]
    last = {"channels_last": True}
    tuned = {"tune": tune, **last}
    with dev.record() as g:
        given = h = g.operand("x", x)
        kept = []
        for i, padding in enumerate(_PADDINGS):
            made = dnn.convolution(h, w[i], padding=padding, **tuned)
            normed, mean, inverse = dnn.norm("batch", made, scale[i], bias[i], **last)
            if i == 2:
                y = dev.elementwise.run("out = maximum(n + x, 0.0)", n=normed, x=given)
            else:
                y = dnn.activation(normed, "relu")
            kept.append((h, made, mean, inverse, y))
            h = y
        slope = dy
        for i in reversed(range(3)):
            before, made, mean, inverse, y = kept[i]
            slope = dnn.activation_backward(slope, y, "relu", out=dx if i == 2 else None)  # which x gets, too
            back, dscale, dbias = dnn.norm_backward("batch", slope, made, scale[i], inverse, mean, **last)
            dev.copy(dscale, out=slopes[1][i])
            dev.copy(dbias, out=slopes[2][i])
            how = {"padding": _PADDINGS[i], **tuned}
            dnn.convolution_backward_filter(before, back, w[i].shape[1:3], out=slopes[0][i], **how)
            to = {"out": dx, "beta": 1.0} if i == 0 else {}
            slope = dnn.convolution_backward_data(back, w[i], (rows, rows), **to, **how)
        del h, made, normed, mean, inverse, y, kept, slope, before, back, dscale, dbias
    return g.plan, x


def torch_block(torch: Any, x: Any, w: list[Any], scale: list[Any], bias: list[Any], *, folded: bool) -> Any:
    """The block by torch."""
    functional, h = torch.nn.functional, x
    for i, padding in enumerate(_PADDINGS):
        h = functional.conv2d(h, w[i], bias[i] if folded else None, padding=padding)
        if not folded:
            h = functional.batch_norm(h, None, None, scale[i], bias[i], training=True)
        h = torch.relu(h + x if i == 2 else h)
    return h


def _torch_put(torch: Any, images: int, channels: int, rows: int) -> tuple[Any, list[Any]]:
    torch.backends.cudnn.benchmark = True

    def put(*sizes: int) -> Any:
        return tensor(torch, sizes, _TYPE).to(memory_format=torch.channels_last)

    return put(images, channels, rows, rows), [put(f, c, k, k) for f, k, c in _filters(channels)]


def torch_inference(
    images: int, channels: int, rows: int, torch: Any, *, compiled: bool = False
) -> Callable[[], object]:
    """A call of the block without gradients."""
    x, w = _torch_put(torch, images, channels, rows)
    bias = [tensor(torch, one.shape[:1], _TYPE) for one in w]
    block = partial(torch_block, torch, folded=True)
    made = torch.compile(block) if compiled else block

    def call() -> Any:
        with torch.no_grad():
            return made(x, w, [], bias)

    return call


def torch_training(
    images: int, channels: int, rows: int, torch: Any, *, compiled: bool = False
) -> Callable[[], object]:
    """A call of the block, and of its gradients by everything."""
    x, w = _torch_put(torch, images, channels, rows)
    scale, bias = ([tensor(torch, one.shape[:1], "float32") for one in w] for _ in range(2))
    slope = torch.ones_like(x)
    inputs = [x, *w, *scale, *bias]
    for one in inputs:
        one.requires_grad_()
    block = partial(torch_block, torch, folded=False)
    made = torch.compile(block) if compiled else block

    def call() -> Any:
        return torch.autograd.grad(made(x, w, scale, bias), inputs, slope)

    return call
