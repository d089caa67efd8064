"""Attention of cuDNN over shapes of models, forward and backward, in float8, and decoding, beside torch's backends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.calls import Operation
from bench.libraries.cudnn._rows import add_ours, add_torch, at_most, calls_of, numbers, operation, tensor

__all__ = ["BARS", "CASES"]

_TYPE = "bfloat16"


class Shape(NamedTuple):
    """Batch, heads of queries and of keys, tokens, elements."""

    batch: int
    heads: int
    groups: int
    tokens: int
    elements: int
    is_causal: bool = True

    @property
    def title(self) -> str:
        """For people."""
        name = "causal attention" if self.is_causal else "attention"
        return f"{name}, {self.batch} x {self.heads}/{self.groups} x {self.tokens} x {self.elements}"

    @property
    def flops(self) -> float:
        """Operations of the result."""
        products = 4.0 * self.batch * self.heads * self.tokens**2 * self.elements
        return products / 2 if self.is_causal else products


FORWARD = (
    Shape(4, 16, 16, 512, 64),
    Shape(2, 16, 4, 4096, 128),
    Shape(2, 16, 16, 4096, 128, is_causal=False),
    Shape(1, 8, 8, 4096, 256),
    Shape(1, 16, 16, 16384, 128),
)
BACKWARD = (Shape(4, 16, 16, 512, 64), Shape(2, 16, 4, 4096, 128), Shape(1, 8, 8, 4096, 256))
FLOAT8 = Shape(2, 16, 16, 4096, 128, is_causal=False)
_SMALL = Shape(1, 4, 2, 64, 32)
_SMALL_FLOAT8 = Shape(1, 2, 2, 16, 128)
#: Batches that decode a token each, over 4096 keys in pages of 64, with 32 heads of queries and 8 of keys.
DECODE = (1, 16, 64)
KEYS, PAGE, HEADS, GROUPS, ELEMENTS = 4096, 64, 32, 8, 128
#: Backends of torch, by their names there.
BACKENDS = {"cuDNN": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


def _given(dev: Any, shape: Shape, dtype: str = _TYPE) -> dict[str, Any]:
    heads = {"q": shape.heads, "k": shape.groups, "v": shape.groups}
    return {
        name: dev.put(numbers((shape.batch, n, shape.tokens, shape.elements), dtype, 0.5)) for name, n in heads.items()
    }


def _mask(shape: Shape) -> dict[str, Any]:
    return {"mask": "causal" if shape.is_causal else "none"}


def _forward(shape: Shape, dev: Any) -> Operation:
    import atomr_native as an

    return operation(dev, an.AttentionRequest(**_given(dev, shape), **_mask(shape)), "out")


def _backward(shape: Shape, dev: Any) -> Operation:
    import atomr_native as an

    given = _given(dev, shape)
    y, statistics = dev.cudnn.attention(**given, **_mask(shape), statistics=True)
    request = an.AttentionGradientRequest(**given, y=y, statistics=statistics, dy=given["q"], **_mask(shape))
    return operation(dev, request, "dv")


def _float8(shape: Shape, tune: bool, dev: Any) -> Operation:
    import numpy as np

    import atomr_native as an

    names = ("q_scale", "k_scale", "v_scale", "weights_scale", "out_scale")
    scales = {name: dev.put(np.ones(1, "float32")) for name in names}
    given = _given(dev, shape, "float8_e4m3fn")
    return operation(dev, an.Float8AttentionRequest(**given, **scales, **_mask(shape), tune=tune), "out")


def _float8_backward(shape: Shape, tune: bool, dev: Any) -> Operation:
    import numpy as np

    import atomr_native as an

    names = "q k v y dy weights slopes dq dk dv"
    scales = {f"{name}_scale": dev.put(np.ones(1, "float32")) for name in names.split()}
    given = _given(dev, shape, "float8_e4m3fn")
    statistics = dev.full(given["q"].shape[:3], 8.0, "float32")
    given |= {"y": given["q"], "dy": given["q"], "statistics": statistics}
    return operation(dev, an.Float8AttentionGradientRequest(**given, **scales, **_mask(shape), tune=tune), "dv")


def _decode(shape: Shape, dev: Any) -> Operation:
    import numpy as np

    import atomr_native as an

    batch, heads, groups, keys, elements, _ = shape
    pages = keys // PAGE
    q = dev.put(numbers((batch, heads, 1, elements), _TYPE, 0.5))
    k, v = (dev.put(numbers((batch * pages, groups, PAGE, elements), _TYPE, 0.5)) for _ in range(2))
    tables = [dev.put(np.arange(batch * pages, dtype="int32").reshape(batch, pages)) for _ in range(2)]
    lengths = [dev.put(np.full(batch, n, "int32")) for n in (1, keys)]
    given = dict(zip(("k_pages", "v_pages", "q_lengths", "kv_lengths"), (*tables, *lengths), strict=True))
    return operation(dev, an.AttentionRequest(q=q, k=k, v=v, **given), "out")


def _peer(shape: Shape, queries: int, torch: Any) -> partial[Any]:
    b, h, g, s, d, causal = shape
    sizes = ((b, h, queries, d), (b, g, s, d), (b, g, s, d))
    q, k, v = (tensor(torch, size, _TYPE, 0.5) for size in sizes)
    attend = torch.nn.functional.scaled_dot_product_attention
    return partial(attend, q, k, v, is_causal=causal, enable_gqa=h != g)


def _peer_backward(shape: Shape, torch: Any) -> Callable[[], object]:
    forward = _peer(shape, shape.tokens, torch)
    inputs = [array.requires_grad_() for array in forward.args]
    y = forward()
    return partial(torch.autograd.grad, y, inputs, torch.ones_like(y), retain_graph=True)


def _backend(name: str, _torch: Any) -> Any:
    attention = import_module("torch.nn.attention")
    return attention.sdpa_kernel([getattr(attention.SDPBackend, BACKENDS[name])])


def _add(
    setup: Setup, what: str, make: Callable[[Any], Operation], peer: Callable[[Any], Callable[[], object]], flops: float
) -> None:
    count = calls_of(flops)
    add_ours(setup, f"atomr {what}", make, count, flops=flops)
    for name in BACKENDS:
        add_torch(setup, f"torch {name}, {what}", peer, count, within=partial(_backend, name), flops=flops)
        setup.ratio(f"atomr {what}", f"torch {name}, {what}")


def gpu(setup: Setup) -> None:
    """Attention in bfloat16, forward and backward, in float8, and decoding from pages, on a GPU.

    As many as take a few milliseconds, until the last is done; in float8 with ``tune=True``. torch:
    ``scaled_dot_product_attention`` by its backends for cuDNN and flash attention, and its gradient by ``autograd``;
    for decoding over arrays without pages.
    """
    for shape in FORWARD:
        run = at_most(setup, shape, _SMALL)
        _add(setup, shape.title, partial(_forward, run), partial(_peer, run, run.tokens), shape.flops)
    for shape in BACKWARD:
        what, run = f"gradients of {shape.title}", at_most(setup, shape, _SMALL)
        _add(setup, what, partial(_backward, run), partial(_peer_backward, run), 2.5 * shape.flops)
    name = f"atomr {FLOAT8.title}, float8"
    tune = setup.effort is Effort.FULL
    make = partial(_float8, at_most(setup, FLOAT8, _SMALL), tune)
    add_ours(setup, name, make, calls_of(FLOAT8.flops), flops=FLOAT8.flops)
    setup.ratio(name, f"atomr {FLOAT8.title}")
    name, plain = f"atomr gradients of {FLOAT8.title}, float8", f"atomr gradients of {FLOAT8.title}"
    run = at_most(setup, FLOAT8, _SMALL_FLOAT8)
    for title, make in ((name, partial(_float8_backward, run, tune)), (plain, partial(_backward, run))):
        add_ours(setup, title, make, calls_of(2.5 * FLOAT8.flops), flops=2.5 * FLOAT8.flops)
    setup.ratio(name, plain)
    for batch in DECODE:
        run = at_most(setup, Shape(batch, HEADS, GROUPS, KEYS, ELEMENTS, is_causal=False), _SMALL)
        # Memory bounds it: a token's keys and values are read for two operations each of 4 heads.
        flops = 4.0 * batch * HEADS * KEYS * ELEMENTS
        _add(setup, f"decoding of {batch}", partial(_decode, run), partial(_peer, run, 1), flops)


BARS = (
    *(
        Bar(f"attention over torch's {name}", "gpu_cudnn_attention", f"atomr {what}", 1.0, "x", f"torch {name}, {what}",
            part=what)
        for name in BACKENDS
        for what in (*(s.title for s in FORWARD), *(f"gradients of {s.title}" for s in BACKWARD),
                     *(f"decoding of {batch}" for batch in DECODE))
    ),
    Bar("attention in float8 over bfloat16", "gpu_cudnn_attention", f"atomr {FLOAT8.title}, float8", 1 / 1.6, "x",
        f"atomr {FLOAT8.title}"),
)  # fmt: skip
CASES = (Case("gpu_cudnn_attention", "Attention on a GPU", gpu, devices=("cuda",)),)
