"""Fused operations on a GPU, beside a copy of as many bytes and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup, Unavailable, gpu_peers
from bench.harness.bandwidth import TORCH_COPY, add_copies, compare_copies, size, swept
from bench.harness.common import device
from bench.harness.gpu import ordinal

__all__ = ["BARS", "CASES"]

#: Softmax cross entropy in both directions: as many rows as the others have, and rows of vocabularies (GPT-2, Qwen).
_LOSSES = {
    "atomr softmax cross entropy, both directions": 0,
    "atomr softmax cross entropy, rows of 50304": 50304,
    "atomr softmax cross entropy, rows of 151936": 151936,
}
#: Arrays of these are so many times as large, for there to be rows for each multiprocessor.
_TIMES = 6
#: Steps of AdamW on smaller arrays: one, and a list of as many bytes.
_LIST = "atomr fused, adamw, a list of 16"
_STEPS = ("atomr fused, adamw, 2048 x 2048", _LIST)
_EXTENT, _PARTS = 2048, 16
#: What is timed, with the bytes that it reads and writes for an element of x.
KINDS = {
    "atomr fused, silu": 4.0,
    "atomr fused, squared_relu": 4.0,
    "atomr fused, swiglu": 6.0,
    "atomr fused, geglu": 6.0,
    "atomr fused, swiglu backward": 10.0,
    "atomr fused, residual + rms_norm": 8.0,
    "atomr fused, rms_norm": 4.0,
    "atomr fused, residual + layer_norm": 8.0,
    "atomr fused, layer_norm": 4.0,
    "atomr fused, rms_norm backward": 6.0,
    "atomr fused, adamw, master weights": 28.0,
    **dict.fromkeys(_STEPS, 28.0),
    "atomr fused, sgd with momentum, master weights": 20.0,
    "atomr fused, rope": 4.0,
    "atomr fused, dropout": 4.0,
    **dict.fromkeys(_LOSSES, 4.0),
}
#: Eager PyTorch for the same, with the bytes that one pass would move.
TORCH = {"torch silu(x) * y": 6.0, "torch layer_norm": 4.0, "torch dropout": 4.0}


def _request(dev: Any, name: str, shape: tuple[int, int]) -> Any:
    """Return the request of a kind, with its outputs."""
    import numpy as np

    import atomr_native as an

    x, y, z, out = (dev.full(shape, 0.5, "bfloat16") for _ in range(4))
    weight = dev.full(shape[1:], 1.0, "float32")
    if name in ("atomr fused, silu", "atomr fused, squared_relu"):
        return an.ActivationRequest(x=x, curve=name.partition(", ")[2], out=out)
    if name in ("atomr fused, swiglu", "atomr fused, geglu"):
        return an.ActivationRequest(x=x, up=y, curve="silu" if "swiglu" in name else "gelu", gated=True, out=out)
    if name == "atomr fused, swiglu backward":
        return an.ActivationGradientRequest(dy=x, x=y, up=z, gated=True, out=out, up_out=dev.zeros(shape, "bfloat16"))
    if name == "atomr fused, residual + rms_norm":
        return an.NormRequest(x=x, weight=weight, residual=y, out=out, residual_out=z)
    if name == "atomr fused, rms_norm":
        return an.NormRequest(x=x, weight=weight, out=out)
    if name == "atomr fused, residual + layer_norm":
        return an.NormRequest(x=x, weight=weight, layer=True, residual=y, out=out, residual_out=z)
    if name == "atomr fused, layer_norm":
        return an.NormRequest(x=x, weight=weight, layer=True, out=out)
    if name == "atomr fused, rms_norm backward":
        return an.NormGradientRequest(dy=x, x=y, weight=weight, out=out, weight_out=dev.zeros(shape[1:], "float32"))
    if name == _LIST:
        rows = (shape[0] // _PARTS, shape[1])
        param, grad = ([dev.full(rows, 0.5, "bfloat16") for _ in range(_PARTS)] for _ in range(2))
        m, v, master = ([dev.zeros(rows, "float32") for _ in range(_PARTS)] for _ in range(3))
        return an.AdamWListRequest(param=param, grad=grad, m=m, v=v, master=master, step=1)
    if name == "atomr fused, adamw, master weights" or name in _STEPS:
        m, v, master = (dev.zeros(shape, "float32") for _ in range(3))
        return an.AdamWRequest(param=x, grad=y, m=m, v=v, master=master, step=1)
    if name == "atomr fused, sgd with momentum, master weights":
        return an.SgdRequest(param=x, grad=y, m=dev.zeros(shape, "float32"), master=dev.zeros(shape, "float32"))
    if name == "atomr fused, rope":
        heads = (shape[0], shape[1] // 128, 128)
        positions = dev.put(np.arange(shape[0], dtype=np.int32))
        return an.RopeRequest(x=x.reshape(heads), positions=positions, out=out.reshape(heads))
    return an.DropoutRequest(x=x, p=0.1, seed=1, out=out)


def _loss(dev: Any, shape: tuple[int, int]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what sends one planned message of softmax cross entropy, and what waits for it."""
    logits, grad = (dev.full(shape, 0.5, "bfloat16") for _ in range(2))
    labels, loss = dev.zeros(shape[:1], "int32"), dev.zeros((), "float32")
    plan = dev.elementwise.plan_softmax_cross_entropy(logits, labels, grad_out=grad, loss_out=loss).wait(60.0)
    return partial(plan.tell, logits, labels, grad, loss), grad.wait


def _planned(dev: Any, request: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what sends one planned message, and what waits for it."""
    from atomr_native.errors import Unsupported

    try:
        plan = dev.fused.plan(request).wait(60.0)
    except Unsupported as error:
        raise Unavailable(str(error)) from error
    operands = {o.name: o.given for o in request.lowered.operands}
    written = operands[plan.signature.outputs[0]]
    return partial(plan.tell, *(operands[name] for name in plan.signature.operands)), written.wait


def _torch(torch: Any, name: str, shape: tuple[int, int]) -> Callable[[], object]:
    """Return a call of eager PyTorch."""
    functional = torch.nn.functional
    x, y = (torch.full(shape, 0.5, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    weight = torch.ones(shape[1:], dtype=torch.bfloat16, device="cuda")
    calls: dict[str, Callable[[], object]] = {
        "torch silu(x) * y": lambda: functional.silu(x) * y,
        "torch layer_norm": lambda: functional.layer_norm(x, shape[1:], weight),
        "torch dropout": lambda: functional.dropout(x, 0.1),
    }
    return calls[name]


def fused(setup: Setup) -> None:
    """Time in which 64 MiB are read or written, by fused operations on a 8192 x 4096 bfloat16 array.

    Rows of vocabularies are of arrays six times as large, and their times divided by six.  AdamW also of 2048 x 2048,
    as one array and as a list of 16, with master weights.  200 planned messages, one wait.  Counted is what one pass
    moves: gradients of weights read more than that.  Copies are `Device.copy`, and `Tensor.copy_`.  torch: the same by
    its eager functions.
    """
    turns, shape = size(setup)
    elements = shape[0] * shape[1]
    add_copies(setup, turns, shape)
    for name, moved in KINDS.items():
        with setup.attempt(name):
            dev = device(setup, "process")
            classes = _LOSSES.get(name, 0)
            wide = (max(1, _TIMES * elements // classes), classes) if classes else shape
            if name in _STEPS:
                wide = (min(_EXTENT, shape[0]), min(_EXTENT, shape[1]))
            tell, wait = _loss(dev, wide) if name in _LOSSES else _planned(dev, _request(dev, name, wide))
            setup.add(name, swept(tell, wait, turns, moved * wide[0] * wide[1]))
    compare_copies(setup, KINDS)
    for name, moved in TORCH.items():
        with setup.attempt(name, kind="peer"):
            setup.need()
            torch = gpu_peers.torch(ordinal(setup))
            call = _torch(torch, name, shape)
            setup.add(name, swept(call, torch.cuda.synchronize, turns, moved * elements))
    for name, peer in zip(("swiglu", "layer_norm", "dropout"), TORCH, strict=True):
        setup.ratio(f"atomr fused, {name}", peer)


BARS = (
    *(
        Bar("fused operations, time of a copy", "gpu_fused", name, 1.176, "x", TORCH_COPY, name.partition(" ")[2])
        for name in KINDS
        if name not in _STEPS
    ),
    *(
        Bar("optimizer's step, time of a copy", "gpu_fused", name, 1.136, "x", TORCH_COPY, name.partition(", ")[2])
        for name in _STEPS
    ),
)
CASES = (Case("gpu_fused", "Fused operations: time to move 64 MiB", fused, devices=("cuda",)),)
