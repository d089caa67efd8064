"""Convolutions of ResNet-50 and of a 3D U-Net by cuDNN, forward, fused and backward, beside torch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.calls import Operation
from bench.libraries.cudnn._rows import add_ours, add_torch, at_most, calls_of, numbers, operation, tensor

__all__ = ["BARS", "CASES"]


class Shape(NamedTuple):
    """A convolution with as many paddings as keep the size, before strides: float16, channels innermost."""

    images: int
    channels: int
    filters: int
    size: tuple[int, ...]
    window: int
    stride: int = 1

    @property
    def title(self) -> str:
        """For people."""
        size, window = (" x ".join(map(str, one)) for one in (self.size, (self.window,) * len(self.size)))
        return f"{self.images} x {self.channels} x {size}, {self.filters} of {window}, stride {self.stride}"

    @property
    def results(self) -> tuple[int, ...]:
        """The size of the result."""
        return tuple(-(-n // self.stride) for n in self.size)

    @property
    def flops(self) -> float:
        """Operations, in each direction."""
        places = self.images * math.prod(self.results)
        return 2.0 * places * self.filters * self.channels * self.window ** len(self.size)


SHAPES = (
    Shape(32, 512, 2048, (7, 7), 1),
    Shape(32, 256, 64, (56, 56), 1),
    Shape(32, 64, 64, (56, 56), 3),
    Shape(32, 128, 128, (56, 56), 3, 2),
    Shape(1, 32, 32, (64, 64, 64), 3),
)
_SMALL = Shape(1, 16, 16, (8, 8, 8), 3, 2)
KINDS = ("forward", "fused", "data gradient", "filter gradient")
_TYPE = "float16"


def _ours(kind: str, shape: Shape, tune: bool, dev: Any) -> Operation:
    import atomr_native as an

    window = (shape.window,) * len(shape.size)
    how: dict[str, Any] = {"stride": shape.stride, "padding": shape.window // 2, "channels_last": True, "tune": tune}
    x = dev.put(numbers((shape.images, *shape.size, shape.channels), _TYPE))
    w = dev.put(numbers((shape.filters, *window, shape.channels), _TYPE))
    y = dev.put(numbers((shape.images, *shape.results, shape.filters), _TYPE))
    if kind == "data gradient":
        return operation(dev, an.ConvolutionDataGradientRequest(dy=y, w=w, out=x, size=shape.size, **how), "out")
    if kind == "filter gradient":
        return operation(dev, an.ConvolutionFilterGradientRequest(x=x, dy=y, out=w, size=window, **how), "out")
    added = {"bias": dev.put(numbers((shape.filters,), _TYPE)), "activation": "relu"} if kind == "fused" else {}
    return operation(dev, an.ConvolutionRequest(x=x, w=w, out=y, **added, **how), "out")


def _peer(kind: str, shape: Shape, torch: Any) -> Callable[[], object]:
    torch.backends.cudnn.benchmark = True
    axes = len(shape.size)
    layout = torch.channels_last if axes == 2 else torch.channels_last_3d
    window = (shape.window,) * axes

    def put(*sizes: int) -> Any:
        return tensor(torch, sizes, _TYPE).to(memory_format=layout)

    x, w = put(shape.images, shape.channels, *shape.size), put(shape.filters, shape.channels, *window)
    y = put(shape.images, shape.filters, *shape.results)
    options = ([shape.stride] * axes, [shape.window // 2] * axes, [1] * axes)
    masks = {"data gradient": [True, False, False], "filter gradient": [False, True, False]}
    if kind in masks:
        return partial(torch.ops.aten.convolution_backward, y, x, w, None, *options, False, [0] * axes, 1, masks[kind])
    if kind == "forward":
        return partial(torch.ops.aten.convolution, x, w, None, *options, False, [0] * axes, 1)
    bias = tensor(torch, (shape.filters,), _TYPE)

    def fused() -> Any:
        return torch.relu_(torch.ops.aten.convolution(x, w, bias, *options, False, [0] * axes, 1))

    return fused


def gpu(setup: Setup) -> None:
    """Convolutions in float16, channels innermost: forward, with bias and ReLU, and both gradients, on a GPU.

    As many as take a few milliseconds, until the last is done. Both sides measure cuDNN's engines first: ``tune=True``,
    and torch with ``benchmark`` on. torch's fused ones are a convolution with bias, then ``relu_``.
    """
    tune = setup.effort is Effort.FULL
    for shape in SHAPES:
        for kind in KINDS:
            what, count, run = f"{kind} of {shape.title}", calls_of(shape.flops), at_most(setup, shape, _SMALL)
            add_ours(setup, f"atomr {what}", partial(_ours, kind, run, tune), count, flops=shape.flops)
            add_torch(setup, f"torch {what}", partial(_peer, kind, run), count, flops=shape.flops)
            setup.ratio(f"atomr {what}", f"torch {what}")
        setup.ratio(f"atomr fused of {shape.title}", f"atomr forward of {shape.title}")


BARS = (
    *(
        Bar("convolutions over torch with benchmark", "gpu_cudnn_convolutions", f"atomr {kind} of {shape.title}", 1.0,
            "x", f"torch {kind} of {shape.title}", part=f"{kind} of {shape.title}")
        for shape in SHAPES
        for kind in KINDS
    ),
    *(
        Bar("fused convolutions over plain ones", "gpu_cudnn_convolutions", f"atomr fused of {shape.title}", 1.05, "x",
            f"atomr forward of {shape.title}", part=shape.title)
        for shape in SHAPES
    ),
)  # fmt: skip
CASES = (Case("gpu_cudnn_convolutions", "Convolutions on a GPU", gpu, devices=("cuda",)),)
