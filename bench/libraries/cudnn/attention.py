"""Attention of cuDNN over shapes of models, forward and backward, in float8, and decoding, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.gpu import add_peer

__all__ = ["CASES"]

#: Batch, heads of queries and of keys, tokens, elements: causal, in bfloat16.
FORWARD = ((4, 16, 16, 512, 64), (2, 16, 4, 4096, 128), (1, 8, 8, 4096, 256), (1, 16, 16, 16384, 128))
BACKWARD = ((4, 16, 16, 512, 64), (2, 16, 4, 4096, 128))
FLOAT8 = ((2, 16, 16, 4096, 128),)
#: Batches that decode a token each, over 4096 keys in pages of 64, with 32 heads of queries and 8 of keys.
DECODE = (1, 16, 64)
KEYS, PAGE, HEADS, GROUPS, ELEMENTS = 4096, 64, 32, 8, 128
EVERY = 20


def _numbers(shape: tuple[int, ...], dtype: str) -> Any:
    import numpy as np

    from atomr_native.dtypes import DTYPES

    return (np.random.default_rng(0).standard_normal(shape) * 0.5).astype(DTYPES[dtype])


def _operation(dev: Any, request: Any, call: Callable[[], Any]) -> Operation:
    """Return a request's plan with its arrays, and new ones for the rest."""
    operands = {
        o.name: dev.empty(o.spec.shape, o.spec.dtype) if o.given is None else o.given for o in request.lowered.operands
    }
    last = next(operands[name] for name in ("dv", "out") if name in operands)
    return Operation(dev.cudnn.plan(request), operands, call, last)


def _given(dev: Any, shape: tuple[int, ...], dtype: str = "bfloat16") -> tuple[Any, Any, Any]:
    b, h, g, s, d = shape
    q, k, v = (dev.put(_numbers((b, n, s, d), dtype)) for n in (h, g, g))
    return q, k, v


def _forward(shape: tuple[int, ...], dev: Any) -> Operation:
    import atomr_native as an

    q, k, v = _given(dev, shape)
    call = partial(dev.cudnn.attention, q, k, v, mask="causal")
    return _operation(dev, an.AttentionRequest(q=q, k=k, v=v, mask="causal"), call)


def _backward(shape: tuple[int, ...], dev: Any) -> Operation:
    import atomr_native as an

    q, k, v = _given(dev, shape)
    y, statistics = dev.cudnn.attention(q, k, v, mask="causal", statistics=True)
    given = {"q": q, "k": k, "v": v, "y": y, "statistics": statistics, "dy": q}
    call = partial(dev.cudnn.attention_backward, **given, mask="causal")
    return _operation(dev, an.AttentionGradientRequest(**given, mask="causal"), call)


def _float8(shape: tuple[int, ...], dev: Any) -> Operation:
    import numpy as np

    import atomr_native as an

    q, k, v = _given(dev, shape, "float8_e4m3fn")
    names = ("q_scale", "k_scale", "v_scale", "weights_scale", "out_scale")
    given = {"q": q, "k": k, "v": v, **{name: dev.put(np.ones(1, "float32")) for name in names}}
    call = partial(dev.cudnn.attention_float8, **given, mask="causal")
    return _operation(dev, an.Float8AttentionRequest(**given, mask="causal"), call)


def _decode(batch: int, dev: Any) -> Operation:
    import numpy as np

    import atomr_native as an

    pages = KEYS // PAGE
    q = dev.put(_numbers((batch, HEADS, 1, ELEMENTS), "bfloat16"))
    k, v = (dev.put(_numbers((batch * pages, GROUPS, PAGE, ELEMENTS), "bfloat16")) for _ in range(2))
    tables = [dev.put(np.arange(batch * pages, dtype="int32").reshape(batch, pages)) for _ in range(2)]
    lengths = [dev.put(np.full(batch, n, "int32")) for n in (1, KEYS)]
    given = dict(zip(("k_pages", "v_pages", "q_lengths", "kv_lengths"), (*tables, *lengths), strict=True))
    request = an.AttentionRequest(q=q, k=k, v=v, **given)
    return _operation(dev, request, partial(dev.cudnn.attention, q, k, v, **given))


def _peer(kind: str, shape: tuple[int, ...], ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    b, h, g, s, d = shape
    how = {"is_causal": kind != "decode", "enable_gqa": h != g}
    sizes = ((b, h, 1 if kind == "decode" else s, d), (b, g, s, d), (b, g, s, d))
    q, k, v = (torch.from_numpy(_numbers(size, "float32")).to("cuda", torch.bfloat16) for size in sizes)
    attend = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, **how)
    if kind != "backward":
        return gpu_peers.Calls({kind: attend}, torch.cuda.synchronize)
    inputs = [array.requires_grad_() for array in (q, k, v)]
    y = torch.nn.functional.scaled_dot_product_attention(*inputs, **how)
    slope = torch.ones_like(y)
    return gpu_peers.Calls(
        {kind: partial(torch.autograd.grad, y, inputs, slope, retain_graph=True)}, torch.cuda.synchronize
    )


def gpu(setup: Setup) -> None:
    """Causal attention in bfloat16, forward and backward, in float8, and decoding from pages, on a GPU.

    torch: ``scaled_dot_product_attention`` as it chooses, and its gradient by ``autograd``; for float8 in bfloat16, and
    for decoding over arrays without pages.
    """
    cases: list[tuple[str, str, tuple[int, ...], Callable[[Any], Operation]]] = []
    for shape in FORWARD:
        cases.append(("attention", f"causal attention, {_title(shape)}", shape, partial(_forward, shape)))
    for shape in BACKWARD:
        cases.append(("backward", f"gradients of attention, {_title(shape)}", shape, partial(_backward, shape)))
    for shape in FLOAT8:
        cases.append(("float8", f"causal attention in float8, {_title(shape)}", shape, partial(_float8, shape)))
    for batch in DECODE:
        shape = (batch, HEADS, GROUPS, KEYS, ELEMENTS)
        cases.append(("decode", f"decoding of {batch}, {KEYS} keys in pages", shape, partial(_decode, batch)))
    for kind, what, shape, make in cases:
        add_calls(setup, what, make, many=200, few=50)
        add_peer(setup, f"torch {what}, sustained", partial(_peer, kind, shape), kind, setup.count(200), every=EVERY)
        setup.ratio(f"atomr {what}, sustained, process", f"torch {what}, sustained")


def _title(shape: tuple[int, ...]) -> str:
    b, h, g, s, d = shape
    return f"{b} x {h}/{g} x {s} x {d}"


CASES = (Case("gpu_cudnn_attention", "Attention on a GPU", gpu, devices=("cuda",)),)
