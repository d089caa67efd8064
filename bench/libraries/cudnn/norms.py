"""Norms of cuDNN and their gradients beside torch's, and beside a copy of as many bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.calls import Operation
from bench.harness.common import device
from bench.harness.gpu import Sends, sustained
from bench.libraries.cudnn._rows import add_ours, add_torch, numbers, operation, tensor

__all__ = ["BARS", "CASES"]

#: Shapes of float16 arrays by kind: rows and columns, or images with the channels innermost.
SHAPES: dict[str, tuple[int, ...]] = {
    "layer": (16384, 2048),
    "rms": (16384, 2048),
    "batch": (32, 56, 56, 256),
    "group": (32, 56, 56, 256),
}
GROUPS = 32
_ROWS = ("layer", "rms")
_TYPE, _COUNT = "float16", 200
_SMALL: dict[int, tuple[int, ...]] = {2: (16, 64), 4: (2, 4, 4, 64)}


def _how(kind: str) -> dict[str, Any]:
    how: dict[str, Any] = {} if kind in _ROWS else {"channels_last": True}
    return how | ({"groups": GROUPS} if kind == "group" else {})


def _given(dev: Any, kind: str, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    x, columns = dev.put(numbers(shape, _TYPE, 1.0)), shape[-1:]
    dtype = _TYPE if kind in _ROWS else "float32"
    return x, dev.ones(columns, dtype), dev.zeros(columns, dtype)


def _forward(kind: str, shape: tuple[int, ...], dev: Any) -> Operation:
    import atomr_native as an

    x, scale, bias = _given(dev, kind, shape)
    added = {} if kind == "rms" else {"bias": bias}
    return operation(dev, an.NormalizationRequest(kind=kind, x=x, scale=scale, **added, **_how(kind)), "out")


def _backward(kind: str, shape: tuple[int, ...], dev: Any) -> Operation:
    import atomr_native as an

    x, scale, bias = _given(dev, kind, shape)
    _, *statistics = dev.cudnn.norm(kind, x, scale, None if kind == "rms" else bias, **_how(kind))
    names = ("inverse",) if kind == "rms" else ("mean", "inverse")
    given = dict(zip(names, statistics, strict=True))
    return operation(
        dev, an.NormalizationGradientRequest(kind=kind, dy=x, x=x, scale=scale, **given, **_how(kind)), "out"
    )


def _peer(kind: str, shape: tuple[int, ...], torch: Any, *, backward: bool) -> Callable[[], object]:
    functional, columns = torch.nn.functional, shape[-1:]
    x = tensor(torch, shape, _TYPE, 1.0)
    if kind not in _ROWS:
        x = x.permute(0, 3, 1, 2)
    dtype = getattr(torch, _TYPE if kind in (*_ROWS, "group") else "float32")
    scale, bias = (make(columns, dtype=dtype, device="cuda") for make in (torch.ones, torch.zeros))
    calls: dict[str, Callable[[], Any]] = {
        "layer": lambda: functional.layer_norm(x, columns, scale, bias),
        "rms": lambda: functional.rms_norm(x, columns, scale),
        "batch": lambda: functional.batch_norm(x, None, None, scale, bias, training=True),
        "group": lambda: functional.group_norm(x, GROUPS, scale, bias),
    }
    if not backward:
        return calls[kind]
    inputs = [one.requires_grad_() for one in ((x, scale) if kind == "rms" else (x, scale, bias))]
    y = calls[kind]()
    return partial(torch.autograd.grad, y, inputs, x.detach(), retain_graph=True)


def _copies(setup: Setup, shape: tuple[int, ...]) -> Sends:
    dev = device(setup, "process")
    x, out = dev.put(numbers(shape, _TYPE)), dev.empty(shape, _TYPE)
    with dev.record() as g:
        dev.copy(g.operand("x", x), out=out)
    plan = g.plan

    def tells(count: int) -> None:
        for _ in range(count):
            plan.tell(x)

    for _ in range(3):  # the second records the launch
        plan.ask(x).result()
    return Sends(plan, (x,), tells, partial(plan.ask, x))


def _title(kind: str, what: str) -> str:
    return f"{what} of {kind} norm"


def gpu(setup: Setup) -> None:
    """Norms of 16384 rows of 2048, and of 32 images of 56 x 56 x 256, in float16: with statistics, and the gradients.

    200 messages, until the last is done. *copy*: of an array as large, as a recorded message. torch: `layer_norm`,
    `rms_norm`, `batch_norm`, `group_norm`, and their gradients by ``autograd``.
    """
    for shape in dict.fromkeys(SHAPES.values()):
        with setup.attempt(name := _copy(shape)):
            run = shape if setup.effort is Effort.FULL else _SMALL[len(shape)]
            setup.add(name, sustained([_copies(setup, run)], setup.count(_COUNT)))
    for kind, shape in SHAPES.items():
        run = shape if setup.effort is Effort.FULL else _SMALL[len(shape)]
        for what, make in (("forward", _forward), ("gradient", _backward)):
            title = _title(kind, what)
            add_ours(setup, f"atomr {title}", partial(make, kind, run), _COUNT)
            add_torch(setup, f"torch {title}", partial(_peer, kind, run, backward=what == "gradient"), _COUNT)
            setup.ratio(f"atomr {title}", f"torch {title}")
        setup.ratio(f"atomr {_title(kind, 'forward')}", _copy(shape))


def _copy(shape: tuple[int, ...]) -> str:
    return f"atomr copy of {math.prod(shape) * 2 >> 20} MiB"


BARS = (
    *(
        Bar(f"{what} of norms over torch", "gpu_cudnn_norms", f"atomr {_title(kind, what)}", 1.0, "x",
            f"torch {_title(kind, what)}", part=kind)
        for what in ("forward", "gradient")
        for kind in SHAPES
    ),
    *(
        Bar("norms over a copy", "gpu_cudnn_norms", f"atomr {_title(kind, 'forward')}", 1 / 0.85, "x", _copy(shape),
            part=kind)
        for kind, shape in SHAPES.items()
    ),
)  # fmt: skip
CASES = (Case("gpu_cudnn_norms", "Norms on a GPU", gpu, devices=("cuda",)),)
