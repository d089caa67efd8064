"""Small networks as recorded programs on a GPU: inference and training, beside torch, eager and as a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.common import device
from bench.harness.gpu import ordinal

__all__ = ["BARS", "CASES"]

LAYERS = 8
INFERENCE = tuple((width, batch) for width in (1024, 4096) for batch in (1, 64, 256))
#: Layers and width.
TRAINING = ((4, 512), (6, 2048), (4, 4096))
BATCH = 64
MODES = ("sustained", "asked")
#: Steps of a sample, of inference when it is sustained: a loop's beginning and end take some steps' time.
_STEPS, _SUSTAINED = 100, 400
_SMALL = 128  # the width of a quick run, which only says that it works
_WARM = 5


def _width(setup: Setup, width: int) -> int:
    return width if setup.effort is Effort.FULL else _SMALL


def _arrays(layers: int, width: int, batch: int) -> tuple[Any, list[Any], list[Any]]:
    """Return the input, weights whose rows are outputs, and biases."""
    import numpy as np

    rng = np.random.default_rng(3)
    x = rng.standard_normal((batch, width), dtype=np.float32)
    weights = [rng.standard_normal((width, width), dtype=np.float32) * width**-0.5 for _ in range(layers)]
    return x, weights, [rng.standard_normal(width, dtype=np.float32) for _ in range(layers)]


def inference(dev: Any, layers: int, width: int, batch: int, *, tune: bool = False) -> tuple[Any, Any]:
    """A recorded plan of so many layers ``gelu(x @ w.T + b)`` in bfloat16, and its input."""
    x, weights, biases = _arrays(layers, width, batch)
    w, b = ([dev.put(one, "bfloat16") for one in group] for group in (weights, biases))
    given, out = dev.put(x, "bfloat16"), dev.empty((batch, width), "bfloat16")
    with dev.record() as g:
        h = g.operand("x", given)
        for i in range(layers):
            to = {"out": out} if i == layers - 1 else {}
            h = dev.blas_lt.matmul(h, w[i], trans_b=True, bias=b[i], epilogue="gelu_bias", tune=tune, **to)
    return g.plan, given


def training(dev: Any, layers: int, width: int, batch: int) -> tuple[Any, Any]:
    """A recorded step of such layers, the last without GELU: forward, backward of a squared error, AdamW.

    In bfloat16, with float32 weights and moments.
    """
    x, weights, biases = _arrays(layers, width, batch)
    lt, fused = dev.blas_lt, dev.fused
    given, target = dev.put(x, "bfloat16"), dev.put(x[::-1].copy(), "bfloat16")
    w, b = ([dev.put(one, "bfloat16") for one in group] for group in (weights, biases))
    state = [(p, dev.put(one), dev.zeros(one.shape), dev.zeros(one.shape))
             for p, one in zip([*w, *b], [*weights, *biases], strict=True)]  # fmt: skip
    with dev.record() as g:
        h, step = g.operand("x", given), g.scalar("step", 1)
        kept = []
        for i in range(layers - 1):
            made = lt.matmul(h, w[i], trans_b=True, bias=b[i], epilogue="gelu_aux_bias")
            kept.append((h, made[1]))
            h = made[0]
        kept.append((h, None))
        y = lt.matmul(h, w[-1], trans_b=True, bias=b[-1], epilogue="bias")
        dz = dev.elementwise.run(f"out = (y - t) * {2 / (batch * width)!r}", y=y, t=target)
        grads: list[Any] = [None] * (2 * layers)
        grads[-1] = dz.sum(axis=0)
        for i in reversed(range(layers)):
            grads[i] = lt.matmul(dz, kept[i][0], trans_a=True)
            if i:
                dz, _, grads[layers + i - 1], _ = lt.matmul(dz, w[i], aux=kept[i - 1][1], epilogue="dgelu_bgrad")
        for (p, master, m, v), grad in zip(state, grads, strict=True):
            fused.adamw(p, grad, m, v, step=step, master=master, lr=1e-3)
        del h, y, dz, grads, kept, grad, made
    return g.plan, given


def _ours(setup: Setup, make: Callable[..., tuple[Any, Any]], *shape: int) -> dict[str, Callable[[int], object]]:
    """Loops of messages: told, until the last is done, and asked."""
    plan, x = make(device(setup, "process"), *shape)
    for _ in range(_WARM):
        plan.ask(x).result()

    def sustained(count: int) -> None:
        tell, given = plan.tell, x
        for _ in range(count - 1):
            tell(given)
        plan.ask(given).result()

    def asked(count: int) -> None:
        ask, given = plan.ask, x
        for _ in range(count):
            ask(given).result()

    return {"sustained": sustained, "asked": asked}


def _torch(setup: Setup, what: str, layers: int, width: int, batch: int) -> dict[str, Any]:
    """The same step by torch, and the module."""
    from bench.harness.gpu_peers import torch

    module = torch(ordinal(setup))
    gelu = partial(module.nn.functional.gelu, approximate="tanh")
    linear = module.nn.functional.linear
    x, weights, biases = _arrays(layers, width, batch)
    half = {"device": "cuda", "dtype": module.bfloat16}
    given = module.tensor(x, **half)
    if what == "inference":
        w, b = ([module.tensor(one, **half) for one in group] for group in (weights, biases))

        def infer() -> Any:
            h = given
            with module.no_grad():
                for one, bias in zip(w, b, strict=True):
                    h = module._addmm_activation(bias, h, one.T, use_gelu=True)
            return h

        return {"step": infer, "torch": module}
    w, b = ([module.tensor(one, device="cuda", requires_grad=True) for one in group] for group in (weights, biases))
    target = module.tensor(x[::-1].copy(), **half)
    optimizer = module.optim.AdamW([*w, *b], lr=1e-3, fused=True, capturable=True)

    def train() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with module.autocast("cuda", module.bfloat16, cache_enabled=False):
            h = given
            for i in range(layers):
                h = linear(h, w[i], b[i])
                h = gelu(h) if i < layers - 1 else h
            loss = module.nn.functional.mse_loss(h, target)
        loss.backward()
        optimizer.step()
        return loss

    return {"step": train, "torch": module}


def _torch_loops(made: dict[str, Any], *, graph: bool) -> dict[str, Callable[[int], object]]:
    """Loops of torch's step, eager or as a CUDA graph."""
    module, step = made["torch"], made["step"]
    aside = module.cuda.Stream()
    with module.cuda.stream(aside):
        for _ in range(_WARM):
            step()
    aside.synchronize()
    if graph:
        captured = module.cuda.CUDAGraph()
        with module.cuda.graph(captured):
            kept = step()
        made["kept"] = kept
        made["eager"], step = step, captured.replay  # the graph holds addresses only: the loops keep the tensors
    wait = module.cuda.synchronize

    def sustained(count: int, _kept: object = made) -> None:
        local = step
        for _ in range(count):
            local()
        wait()

    def asked(count: int, _kept: object = made) -> None:
        local, done = step, wait
        for _ in range(count):
            local()
            done()

    return {"sustained": sustained, "asked": asked}


def _sample(loop: Callable[[int], object], count: int) -> Callable[[], float]:
    """Sample: so many steps, microseconds each, after a few that are not counted."""

    def sample() -> float:
        loop(_WARM)
        begun = time.perf_counter_ns()
        loop(count)
        return (time.perf_counter_ns() - begun) / 1e3 / count

    return sample


def _build(setup: Setup, what: str, shapes: dict[str, tuple[int, int, int]]) -> None:
    counts = {mode: setup.count(_SUSTAINED if (what, mode) == ("inference", "sustained") else _STEPS) for mode in MODES}
    make = inference if what == "inference" else training
    ours = {"atomr": make} | ({"atomr tuned": partial(inference, tune=True)} if what == "inference" else {})
    members: dict[tuple[str, str], list[str]] = {}
    for name, (layers, width, batch) in shapes.items():
        shape = (layers, _width(setup, width), batch)
        makers: dict[str, Callable[[], dict[str, Callable[[int], object]]]] = {
            **{who: partial(_ours, setup, made_by, *shape) for who, made_by in ours.items()},
            "torch": lambda shape=shape: _torch_loops(_torch(setup, what, *shape), graph=False),
            "torch graph": lambda shape=shape: _torch_loops(_torch(setup, what, *shape), graph=True),
        }
        for who, loops in makers.items():
            made: dict[str, Callable[[int], object]] = {}
            for mode in MODES:
                title = f"{who}, {name}, {mode}"
                members.setdefault((who, mode), []).append(title)
                with setup.attempt(title, "peer" if who.startswith("torch") else "atomr"):
                    made = made or loops()
                    setup.add(title, _sample(made[mode], counts[mode]))
        _compare(setup, ours, name)
    for (who, mode), titles in members.items():
        setup.mean(f"{who}, mean, {mode}", titles, "peer" if who.startswith("torch") else "atomr")
    _compare(setup, ours, "mean")


def _compare(setup: Setup, ours: Iterable[str], name: str) -> None:
    for who in ours:
        for mode in MODES:
            for peer in ("torch graph", "torch"):
                setup.ratio(f"{who}, {name}, {mode}", f"{peer}, {name}, {mode}")


_INFERENCE = {f"{width}, batch {batch}": (LAYERS, width, batch) for width, batch in INFERENCE}
_TRAINING = {f"{layers} x {width}": (layers, width, BATCH) for layers, width in TRAINING}


def build_inference(setup: Setup) -> None:
    """Time per inference of 8 layers ``gelu(x @ w.T + b)`` in bfloat16, recorded as one message.

    *sustained*: 400, one after the other, until the last is done. *asked*: 100, each waited for. *tuned*: products with
    ``tune=True``. torch: `_addmm_activation`, which fuses bias and GELU, eager and as a `CUDAGraph`. The means are
    geometric ones, of all networks.
    """
    _build(setup, "inference", _INFERENCE)


def build_training(setup: Setup) -> None:
    """Time per training step of layers of one width, recorded as one message: forward, backward, AdamW; batch 64.

    *sustained* and *asked*: 100 steps. bfloat16 with float32 weights and moments; torch: `autocast`, and a fused,
    capturable `AdamW`; eager and as a `CUDAGraph`.
    """
    _build(setup, "training", _TRAINING)


_CASES = (("inference", "gpu_inference", _INFERENCE), ("training", "gpu_training", _TRAINING))
BARS = (
    *(
        Bar(f"{what}, {name}, {mode}", case, f"atomr, {name}, {mode}", 1.0, "x", f"torch graph, {name}, {mode}")
        for what, case, shapes in _CASES
        for name in shapes
        for mode in MODES
    ),
    *(
        Bar(f"{what}, mean, {mode}", case, f"{who}, mean, {mode}", 0.95, "x", f"torch graph, mean, {mode}", part=part)
        for what, case, _ in _CASES
        for who, part in (("atomr", "plain"), ("atomr tuned", "tuned"))
        for mode in MODES
        if who == "atomr" or what == "inference"
    ),
)
CASES = (
    Case("gpu_inference", "Inference of 8 layers, recorded", build_inference, devices=("cuda",)),
    Case("gpu_training", "Training steps of small networks, recorded", build_training, devices=("cuda",)),
)
