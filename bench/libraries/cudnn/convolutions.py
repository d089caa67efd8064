"""Convolutions of ResNet-50 and of a 3D U-Net by cuDNN, forward, fused and backward, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.gpu import add_peer

__all__ = ["CASES"]

EVERY = 50


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


SHAPES = (
    Shape(32, 64, 64, (56, 56), 3),
    Shape(32, 256, 64, (56, 56), 1),
    Shape(32, 128, 128, (56, 56), 3, 2),
    Shape(32, 512, 2048, (7, 7), 1),
    Shape(1, 32, 32, (64, 64, 64), 3),
)
KINDS = ("forward", "fused", "data gradient", "filter gradient")


def _numbers(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return (np.random.default_rng(0).standard_normal(shape) * 0.1).astype("float16")


def _ours(kind: str, shape: Shape, dev: Any) -> Operation:
    import atomr_native as an

    window = (shape.window,) * len(shape.size)
    how: dict[str, Any] = {"stride": shape.stride, "padding": shape.window // 2, "channels_last": True}
    x = dev.put(_numbers((shape.images, *shape.size, shape.channels)))
    w = dev.put(_numbers((shape.filters, *window, shape.channels)))
    y = dev.put(_numbers((shape.images, *shape.results, shape.filters)))
    if kind == "data gradient":
        given: dict[str, Any] = {"dy": y, "w": w, "out": x}
        request: Any = an.ConvolutionDataGradientRequest(**given, size=shape.size, **how)
        return Operation(dev.cudnn.plan(request), given, partial(dev.cudnn.tell, request), x)
    if kind == "filter gradient":
        given = {"x": x, "dy": y, "out": w}
        request = an.ConvolutionFilterGradientRequest(**given, size=window, **how)
        return Operation(dev.cudnn.plan(request), given, partial(dev.cudnn.tell, request), w)
    given = {"x": x, "w": w, "out": y}
    if kind == "fused":
        given["bias"] = dev.put(_numbers((shape.filters,)))
        how["activation"] = "relu"
    request = an.ConvolutionRequest(**given, **how)
    return Operation(dev.cudnn.plan(request), given, partial(dev.cudnn.tell, request), y)


def _peer(kind: str, shape: Shape, ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    torch.backends.cudnn.benchmark = True
    axes = len(shape.size)
    layout = torch.channels_last if axes == 2 else torch.channels_last_3d
    window = (shape.window,) * axes

    def put(*sizes: int) -> Any:
        return torch.from_numpy(_numbers(sizes)).to("cuda", memory_format=layout)

    x, w = put(shape.images, shape.channels, *shape.size), put(shape.filters, shape.channels, *window)
    y = put(shape.images, shape.filters, *shape.results)
    bias = torch.from_numpy(_numbers((shape.filters,))).to("cuda")
    options = ([shape.stride] * axes, [shape.window // 2] * axes, [1] * axes)
    masks = {"data gradient": [True, False, False], "filter gradient": [False, True, False]}
    call: Callable[[], Any]
    if kind in masks:
        call = partial(torch.ops.aten.convolution_backward, y, x, w, None, *options, False, [0] * axes, 1, masks[kind])
    else:
        added = bias if kind == "fused" else None

        def call() -> Any:
            made = torch.ops.aten.convolution(x, w, added, *options, False, [0] * axes, 1)
            return torch.relu_(made) if kind == "fused" else made

    return gpu_peers.Calls({kind: call}, torch.cuda.synchronize)


def gpu(setup: Setup) -> None:
    """Convolutions in float16, channels innermost: forward, with bias and ReLU, and both gradients, on a GPU.

    torch: with ``benchmark`` on, the fused ones as a convolution with bias and ``relu_``.
    """
    for shape in SHAPES:
        for kind in KINDS:
            what = f"{kind} of {shape.title}"
            add_calls(setup, what, partial(_ours, kind, shape), many=500, few=100)
            add_peer(
                setup, f"torch {what}, sustained", partial(_peer, kind, shape), kind, setup.count(500), every=EVERY
            )
            setup.ratio(f"atomr {what}, sustained, process", f"torch {what}, sustained")
        fused, plain = (f"atomr {kind} of {shape.title}, sustained, process" for kind in ("fused", "forward"))
        setup.ratio(fused, plain)


CASES = (Case("gpu_cudnn_convolutions", "Convolutions on a GPU", gpu, devices=("cuda",)),)
