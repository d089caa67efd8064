"""Blocks of models as recorded programs, beside torch eager, compiled and as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.common import device
from bench.harness.gpu import Sends, sustained
from bench.libraries.cudnn import _resnet as resnet
from bench.libraries.cudnn import _transformer as transformer
from bench.libraries.cudnn._rows import add_torch, calls_of
from bench.libraries.cudnn._transformer import LAYER, Layer

__all__ = ["BARS", "CASES"]

#: Images, channels and rows.
RESNET = ((32, 256, 56), (32, 1024, 14))
TOKENS = (512, 2048, 8192)
#: Sequences that decode a token each, over keys in pages.
DECODE = (1, 16, 64)
KEYS = 4096
_SMALL_LAYER = Layer(64, 2, 1, 32, 64)
_SMALL_IMAGES = (1, 32, 4)
_SMALL_TOKENS = 64

#: A recorded plan with its operand, made on a device; and a call of torch.
Ours = Callable[[Any], tuple[Any, Any]]
Peer = Callable[..., Callable[[], object]]


def _sends(setup: Setup, make: Ours) -> Sends:
    plan, x = make(device(setup, "process"))
    for _ in range(3):  # the second records the launches
        plan.ask(x).result()

    def tells(count: int) -> None:
        tell, given = plan.tell, x
        for _ in range(count):
            tell(given)

    return Sends(plan, (x,), tells, partial(plan.ask, x))


def _add(setup: Setup, what: str, make: Ours, peers: dict[str, tuple[Peer, bool]], flops: float) -> None:
    """Add a block, and torch's ways to compute it: each a call, and whether it is the launch of a graph."""
    count = min(50, calls_of(flops))
    with setup.attempt(f"atomr {what}"):
        setup.add(f"atomr {what}", sustained([_sends(setup, make)], setup.count(count)), flops=flops)
    for who, (peer, graph) in peers.items():
        add_torch(setup, f"{who} {what}", peer, count, graph=graph, flops=flops)
        setup.ratio(f"atomr {what}", f"{who} {what}")


def _means(setup: Setup, names: Sequence[str], others: Sequence[str]) -> None:
    for who in ("atomr", *others):
        setup.mean(f"{who}, mean", [f"{who} {name}" for name in names], "atomr" if who == "atomr" else "peer")
    for who in others:
        setup.ratio("atomr, mean", f"{who}, mean")


def _eager(peer: Peer) -> dict[str, tuple[Peer, bool]]:
    return {"torch": (peer, False), "torch graph": (peer, True)}


def _images(shape: tuple[int, int, int], *, train: bool) -> str:
    return f"block, {' x '.join(map(str, shape))} x {shape[2]}, {'forward and backward' if train else 'inference'}"


def build_resnet(setup: Setup) -> None:
    """Blocks of ResNet-50 in float16, channels innermost: inference with folded norms; the smaller one with gradients.

    Recorded as one message, convolutions with ``tune=True``; a few milliseconds of them, until the last is done. torch:
    channels_last, ``benchmark``, eager and as a `CUDAGraph`.
    """
    names = []
    # Plans of batch norms take seconds each, so gradients are of one block only.
    for shape, train in ((RESNET[0], False), (RESNET[1], False), (RESNET[1], True)):
        run = shape if setup.effort is Effort.FULL else _SMALL_IMAGES
        names.append(_images(shape, train=train))
        make = partial(_resnet_ours, train, run)
        peer = partial(resnet.torch_training if train else resnet.torch_inference, *run)
        _add(setup, names[-1], make, _eager(peer), resnet.flops(*shape, backward=train))
    _means(setup, names, ("torch", "torch graph"))


def _resnet_ours(train: bool, shape: tuple[int, int, int], dev: Any) -> tuple[Any, Any]:
    return (resnet.training if train else resnet.inference)(dev, *shape, tune=shape != _SMALL_IMAGES)


def _tokens(tokens: int, *, train: bool) -> str:
    return f"block, {tokens} tokens, {'forward and backward' if train else 'forward'}"


def _sequence(setup: Setup, tokens: int) -> tuple[Layer, int]:
    return (LAYER, tokens) if setup.effort is Effort.FULL else (_SMALL_LAYER, _SMALL_TOKENS)


def _block(train: bool, layer: Layer, tokens: int, dev: Any) -> tuple[Any, Any]:
    return (transformer.training if train else transformer.forward)(dev, layer, tokens)


def build_transformer(setup: Setup) -> None:
    """A block of a transformer in bfloat16: RMS norms, causal attention, SwiGLU, residuals; with and without gradients.

    Recorded as one message; a few milliseconds of them, until the last is done. torch: eager and as a `CUDAGraph`.
    """
    names = []
    for tokens in TOKENS:
        layer, run = _sequence(setup, tokens)
        for train in (False, True):
            names.append(_tokens(tokens, train=train))
            peer = partial(transformer.torch_training if train else transformer.torch_forward, layer, run)
            flops = LAYER.flops(tokens, backward=train)
            _add(setup, names[-1], partial(_block, train, layer, run), _eager(peer), flops)
    _means(setup, names, ("torch", "torch graph"))


def build_decode(setup: Setup) -> None:
    """A step of the same block that decodes a token of each sequence, over 4096 keys in pages.

    Keys and values of the token go into the pages. Recorded as one message; 50 of them, until the last is done. torch:
    over arrays without pages, eager and as a `CUDAGraph`.
    """
    names = []
    for batch in DECODE:
        layer, tokens = _sequence(setup, KEYS)
        names.append(f"decoding of {batch}")
        make = partial(_decode, layer, batch, tokens)
        peer = partial(transformer.torch_decode, layer, batch, tokens)
        _add(setup, names[-1], make, _eager(peer), LAYER.flops(1, backward=False) * batch)
    _means(setup, names, ("torch", "torch graph"))


def _decode(layer: Layer, batch: int, keys: int, dev: Any) -> tuple[Any, Any]:
    return transformer.decode(dev, layer, batch, keys)


def build_compiled(setup: Setup) -> None:
    """The smaller block of ResNet-50, and the block of a transformer over 2048 tokens, forward and backward.

    torch: by ``torch.compile``, as a `CUDAGraph`.
    """
    shape = RESNET[1] if setup.effort is Effort.FULL else _SMALL_IMAGES
    layer, tokens = _sequence(setup, TOKENS[1])
    images, text = _images(RESNET[1], train=True), _tokens(TOKENS[1], train=True)
    peers: dict[str, Peer] = {
        images: partial(resnet.torch_training, *shape, compiled=True),
        text: partial(transformer.torch_training, layer, tokens, compiled=True),
    }
    makers: dict[str, Ours] = {
        images: partial(_resnet_ours, True, shape),
        text: partial(_block, True, layer, tokens),
    }
    works = {images: resnet.flops(*RESNET[1], backward=True), text: LAYER.flops(TOKENS[1], backward=True)}
    for name, peer in peers.items():
        _add(setup, name, makers[name], {"torch compiled": (peer, True)}, works[name])


BARS = tuple(
    Bar(f"{what} over {who}, mean", case, "atomr, mean", 1.0, "x", f"{who}, mean")
    for case, what in (
        ("gpu_cudnn_resnet", "blocks of ResNet-50"),
        ("gpu_cudnn_transformer", "blocks of a transformer"),
        ("gpu_cudnn_decode", "decode steps"),
    )
    for who in ("torch", "torch graph")
)
CASES = (
    Case("gpu_cudnn_resnet", "Blocks of ResNet-50, recorded", build_resnet, devices=("cuda",)),
    Case("gpu_cudnn_transformer", "Blocks of a transformer, recorded", build_transformer, devices=("cuda",)),
    Case("gpu_cudnn_decode", "Decode steps over pages, recorded", build_decode, devices=("cuda",)),
    Case("gpu_cudnn_compiled", "Blocks beside compiled ones, recorded", build_compiled, devices=("cuda",)),
)
