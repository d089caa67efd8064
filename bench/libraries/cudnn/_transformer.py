"""A block of a transformer, and a step that decodes a token: as recorded programs of messages, and by torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bench.libraries.cudnn._rows import numbers, tensor

__all__ = ["LAYER", "Layer", "decode", "forward", "torch_decode", "torch_forward", "torch_training", "training"]

_TYPE = "bfloat16"
#: Tokens of a page of keys or values.
PAGE = 64


class Layer(NamedTuple):
    """RMS norms, causal attention of heads in groups, SwiGLU and residuals, in bfloat16."""

    width: int
    heads: int
    groups: int
    elements: int
    hidden: int

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes: rows are outputs."""
        packed = (self.heads + 2 * self.groups) * self.elements
        return {
            "qkv": (packed, self.width), "o": (self.width, self.heads * self.elements),
            "up": (2 * self.hidden, self.width), "down": (self.width, self.hidden),
        }  # fmt: skip

    def flops(self, tokens: int, *, backward: bool) -> float:
        """Operations of a sequence of so many tokens."""
        products = sum(2.0 * tokens * n * k for n, k in self.weights.values())
        scores = 2.0 * self.heads * self.elements * tokens**2
        return 3 * products + 3.5 * scores if backward else products + scores


#: A layer of a model of about a billion parameters.
LAYER = Layer(2048, 16, 4, 128, 5632)


def _put(dev: Any, layer: Layer) -> tuple[dict[str, Any], list[Any]]:
    made = {name: dev.put(numbers(shape, _TYPE, 0.02)) for name, shape in layer.weights.items()}
    return made, [dev.ones((layer.width,), _TYPE) for _ in range(2)]


def _parts(layer: Layer, heads: Any) -> list[Any]:
    """Queries, keys and values of an array whose third axis has the heads of all."""
    ends = (layer.heads, layer.heads + layer.groups)
    return [heads[:, :, : ends[0]], heads[:, :, ends[0] : ends[1]], heads[:, :, ends[1] :]]


def _attended(dev: Any, layer: Layer, w: dict[str, Any], norm: Any, x: Any, *, statistics: bool) -> tuple[Any, ...]:
    normed = dev.fused.rms_norm(x, norm)
    qkv = dev.blas_lt.matmul(normed, w["qkv"], trans_b=True)
    parts = _parts(layer, qkv.reshape(1, x.shape[0], -1, layer.elements))
    found = dev.cudnn.attention(*parts, mask="causal", layout="bshd", statistics=statistics)
    return normed, parts, found


def _fed(dev: Any, w: dict[str, Any], norm: Any, x: Any, mixed: Any, out: Any) -> tuple[Any, ...]:
    lt, fused = dev.blas_lt, dev.fused
    normed, middle = fused.rms_norm(lt.matmul(mixed, w["o"], trans_b=True), norm, x)
    both = lt.matmul(normed, w["up"], trans_b=True)
    hidden = fused.swiglu(both)
    lt.matmul(hidden, w["down"], trans_b=True, c=middle, beta=1.0, out=out)
    return normed, middle, both, hidden


def forward(dev: Any, layer: Layer, tokens: int) -> tuple[Any, Any]:
    """The block over a sequence."""
    w, norms = _put(dev, layer)
    x, out = dev.put(numbers((tokens, layer.width), _TYPE)), dev.empty((tokens, layer.width), _TYPE)
    with dev.record() as g:
        given = g.operand("x", x)
        *_, y = _attended(dev, layer, w, norms[0], given, statistics=False)
        _fed(dev, w, norms[1], given, y.reshape(tokens, -1), out)
        del _, y
    return g.plan, x


def training(dev: Any, layer: Layer, tokens: int) -> tuple[Any, Any]:
    """The block over a sequence, and its gradients by the sequence and all weights."""
    lt, fused = dev.blas_lt, dev.fused
    w, norms = _put(dev, layer)
    x, dy = (dev.put(numbers((tokens, layer.width), _TYPE)) for _ in range(2))
    out, dx = (dev.empty((tokens, layer.width), _TYPE) for _ in range(2))
    dw = {name: dev.empty(shape, _TYPE) for name, shape in layer.weights.items()}
    dnorms = [dev.empty((layer.width,), _TYPE) for _ in range(2)]
    how = {"mask": "causal", "layout": "bshd"}
    with dev.record() as g:
        given = g.operand("x", x)
        first, parts, (y, statistics) = _attended(dev, layer, w, norms[0], given, statistics=True)
        mixed = y.reshape(tokens, -1)
        second, middle, both, hidden = _fed(dev, w, norms[1], given, mixed, out)
        lt.matmul(dy, hidden, trans_a=True, out=dw["down"])
        slope = fused.swiglu_backward(lt.matmul(dy, w["down"]), both).gate
        lt.matmul(slope, second, trans_a=True, out=dw["up"])
        dmiddle = fused.rms_norm_backward(lt.matmul(slope, w["up"]), middle, norms[1], dy, weight_out=dnorms[1])[0]
        lt.matmul(dmiddle, mixed, trans_a=True, out=dw["o"])
        back = lt.matmul(dmiddle, w["o"]).reshape(*y.shape)
        dqkv = dev.empty((1, tokens, layer.heads + 2 * layer.groups, layer.elements), _TYPE)
        outs = dict(zip(("dq", "dk", "dv"), _parts(layer, dqkv), strict=True))
        dev.cudnn.attention_backward(*parts, y, statistics, back, **outs, **how)
        slope = dqkv.reshape(tokens, -1)
        lt.matmul(slope, first, trans_a=True, out=dw["qkv"])
        fused.rms_norm_backward(lt.matmul(slope, w["qkv"]), given, norms[0], dmiddle, out=dx, weight_out=dnorms[0])
        del first, parts, y, statistics, mixed, second, middle, both, hidden, slope, dmiddle, back, outs, dqkv
    return g.plan, x


def decode(dev: Any, layer: Layer, batch: int, keys: int) -> tuple[Any, Any]:
    """The block over a token of each sequence, whose key and value are the last of `keys` in pages."""
    import numpy as np

    w, norms = _put(dev, layer)
    x, out = dev.put(numbers((batch, layer.width), _TYPE)), dev.empty((batch, layer.width), _TYPE)
    pages = -(-keys // PAGE)
    sizes = (batch * pages, layer.groups, PAGE, layer.elements)
    caches = [dev.put(numbers(sizes, _TYPE)) for _ in range(2)]
    tables = [dev.put(np.arange(batch * pages, dtype="int32").reshape(batch, pages)) for _ in range(2)]
    lengths = [dev.put(np.full(batch, n, "int32")) for n in (1, keys)]
    given = dict(zip(("k_pages", "v_pages", "q_lengths", "kv_lengths"), (*tables, *lengths), strict=True))
    places = [cache.reshape(batch, pages, *sizes[1:])[:, -1, :, (keys - 1) % PAGE] for cache in caches]
    with dev.record() as g:
        token = g.operand("x", x)
        qkv = dev.blas_lt.matmul(dev.fused.rms_norm(token, norms[0]), w["qkv"], trans_b=True)
        heads = qkv.reshape(batch, layer.heads + 2 * layer.groups, 1, layer.elements)
        k, v = (heads[:, layer.heads + i * layer.groups :][:, : layer.groups, 0] for i in range(2))
        dev.elementwise.run("a = k; b = v", k=k, v=v, a=places[0], b=places[1])
        y = dev.cudnn.attention(heads[:, : layer.heads], *caches, **given)
        _fed(dev, w, norms[1], token, y.reshape(batch, -1), out)
        del qkv, heads, k, v, y
    return g.plan, x


# ---------------------------------------------------------------------------------------------- torch


def _torch_put(torch: Any, layer: Layer) -> tuple[dict[str, Any], list[Any]]:
    made = {name: tensor(torch, shape, _TYPE, 0.02) for name, shape in layer.weights.items()}
    norms = [torch.ones(layer.width, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    return made, norms


def _torch_fed(torch: Any, w: dict[str, Any], norm: Any, x: Any, mixed: Any) -> Any:
    functional = torch.nn.functional
    middle = x + functional.linear(mixed, w["o"])
    gate, up = functional.linear(functional.rms_norm(middle, norm.shape, norm), w["up"]).chunk(2, -1)
    return middle + functional.linear(functional.silu(gate) * up, w["down"])


def _torch_block(torch: Any, layer: Layer, w: dict[str, Any], norms: list[Any], x: Any) -> Any:
    functional = torch.nn.functional
    qkv = functional.linear(functional.rms_norm(x, norms[0].shape, norms[0]), w["qkv"])
    heads = qkv.view(1, x.shape[0], -1, layer.elements).transpose(1, 2)
    q, k, v = heads.split([layer.heads, layer.groups, layer.groups], 1)
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return _torch_fed(torch, w, norms[1], x, y.transpose(1, 2).reshape(x.shape[0], -1))


def torch_forward(layer: Layer, tokens: int, torch: Any, *, compiled: bool = False) -> Callable[[], object]:
    """A call of the block without gradients."""
    w, norms = _torch_put(torch, layer)
    x = tensor(torch, (tokens, layer.width), _TYPE)
    block = partial(_torch_block, torch, layer)
    made = torch.compile(block) if compiled else block

    def call() -> Any:
        with torch.no_grad():
            return made(w, norms, x)

    return call


def torch_training(layer: Layer, tokens: int, torch: Any, *, compiled: bool = False) -> Callable[[], object]:
    """A call of the block, and of its gradients by everything."""
    w, norms = _torch_put(torch, layer)
    x = tensor(torch, (tokens, layer.width), _TYPE)
    slope = torch.ones_like(x)
    inputs = [x, *w.values(), *norms]
    for one in inputs:
        one.requires_grad_()
    block = partial(_torch_block, torch, layer)
    made = torch.compile(block) if compiled else block

    def call() -> Any:
        return torch.autograd.grad(made(w, norms, x), inputs, slope)

    return call


def torch_decode(layer: Layer, batch: int, keys: int, torch: Any) -> Callable[[], object]:
    """A call of the block over a token of each sequence; keys and values lie in arrays without pages."""
    w, norms = _torch_put(torch, layer)
    functional = torch.nn.functional
    x = tensor(torch, (batch, layer.width), _TYPE)
    caches = [tensor(torch, (batch, layer.groups, keys, layer.elements), _TYPE) for _ in range(2)]

    def call() -> Any:
        with torch.no_grad():
            qkv = functional.linear(functional.rms_norm(x, norms[0].shape, norms[0]), w["qkv"])
            heads = qkv.view(batch, -1, 1, layer.elements)
            q, *new = heads.split([layer.heads, layer.groups, layer.groups], 1)
            for cache, one in zip(caches, new, strict=True):
                cache[:, :, -1:].copy_(one)
            y = functional.scaled_dot_product_attention(q, *caches, enable_gqa=True)
            return _torch_fed(torch, w, norms[1], x, y.reshape(batch, -1))

    return call
