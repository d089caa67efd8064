"""What a message of cuDNN costs, the first time and again, beside NVIDIA's frontend; and plans from the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from bench.harness import Bar, Case, Effort, Setup, Unavailable
from bench.harness.calls import Operation
from bench.harness.common import device, opened
from bench.harness.gpu import Sends, asked, sustained
from bench.libraries.cudnn._rows import add_torch, numbers, operation, tensor

__all__ = ["BARS", "CASES"]

#: So small that a GPU waits for the messages: images, channels, rows; batch, heads, tokens, elements.
IMAGES = (1, 64, 8)
HEADS = (1, 2, 64, 64)
_SMALL = (1, 1, 8, 16)
#: Of attention whose plans come from the disk.
SAVED = (2, 16, 1024, 128)
_RECORDS = {"first": "off", "replayed": "auto"}
_COUNT, _ASKED = 2000, 500
#: Messages at once, fewer than the GPU's queue takes.
_BURST = 100


def _convolution(dev: Any, *, quick: bool) -> Operation:
    import atomr_native as an

    n, channels, rows = (1, 64, 2) if quick else IMAGES
    x, w = dev.put(numbers((n, rows, rows, channels), "float16")), dev.put(numbers((64, 3, 3, channels), "float16"))
    how: dict[str, Any] = {"padding": 1, "channels_last": True, "activation": "relu"}
    bias = dev.put(numbers((64,), "float16"))
    return operation(dev, an.ConvolutionRequest(x=x, w=w, bias=bias, **how), "out")


def _attention(dev: Any, *, quick: bool) -> Operation:
    import atomr_native as an

    q, k, v = (dev.put(numbers(_SMALL if quick else HEADS, "bfloat16")) for _ in range(3))
    return operation(dev, an.AttentionRequest(q=q, k=k, v=v, mask="causal"), "out")


MESSAGES: dict[str, Callable[..., Operation]] = {"convolution": _convolution, "attention": _attention}


def _frontend(kind: str, torch: Any) -> Callable[[], object]:
    """A call of a graph of NVIDIA's frontend with arrays of torch."""
    try:
        cudnn = import_module("cudnn")
    except ImportError as error:
        raise Unavailable(f"nvidia-cudnn-frontend does not import: {error}") from error
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    data = cudnn.data_type
    io = data.HALF if kind == "convolution" else data.BFLOAT16
    graph = cudnn.pygraph(
        io_data_type=io, intermediate_data_type=data.FLOAT, compute_data_type=data.FLOAT, handle=handle
    )
    if kind == "convolution":
        n, channels, rows = IMAGES
        x, w = (
            tensor(torch, shape, "float16").to(memory_format=torch.channels_last)
            for shape in ((n, channels, rows, rows), (64, channels, 3, 3))
        )
        bias = tensor(torch, (1, 64, 1, 1), "float16").to(memory_format=torch.channels_last)
        given = [graph.tensor_like(one) for one in (x, w, bias)]
        made = graph.conv_fprop(image=given[0], weight=given[1], padding=[1, 1], stride=[1, 1], dilation=[1, 1])
        out = graph.relu(input=graph.bias(input=made, bias=given[2]))
        out.set_output(True)
        arrays, result = [x, w, bias], torch.empty_like(x)
    else:
        arrays = [tensor(torch, HEADS, "bfloat16") for _ in range(3)]
        given = [graph.tensor_like(one) for one in arrays]
        names = dict(zip("qkv", given, strict=True))
        try:
            out, _ = graph.sdpa(**names, generate_stats=False, attn_scale=HEADS[-1] ** -0.5, use_causal_mask=True)
        except TypeError:  # of an older release
            out, _ = graph.sdpa(**names, is_inference=True, attn_scale=HEADS[-1] ** -0.5, use_causal_mask=True)
        result = torch.empty_like(arrays[0])
        out.set_output(True).set_dim(list(result.shape)).set_stride(list(result.stride()))
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    pack = dict(zip((*given, out), (*arrays, result), strict=True))
    return partial(graph.execute, pack, workspace, handle=handle)


def _in_lane(dev: Any, sends: Sends, count: int) -> Callable[[], float]:
    """Sample: the time of the lane's thread, with fewer messages at once than the GPU's queue takes."""

    def busy() -> int:
        spent: int = dev.stats()["actors"]["cudnn"]["busy_ns"]
        return spent

    def burst() -> None:
        sends.tells(_BURST - 1)
        sends.ask().result()

    def sample() -> float:
        burst()
        before = busy()
        for _ in range(turns):
            burst()
        return (busy() - before) / 1e3 / (turns * _BURST)

    turns = max(1, count // _BURST)
    return sample


def messages(setup: Setup) -> None:
    """Time per message of a convolution of 1 x 64 x 8 x 8, and of attention over 64 tokens, with the same operands.

    *in the lane*: what its thread spends on each. *sustained*: 2000 told, until the last is done, where the GPU may
    take longer. *asked*: until the reply. *first*: ``System(launch_records="off")``, so that each message calls cuDNN.
    *replayed*: from launch records. Frontend: `execute` of `nvidia-cudnn-frontend` in Python.
    """
    quick = setup.effort is not Effort.FULL
    for kind, make in MESSAGES.items():
        for label, records in _RECORDS.items():
            made: list[Operation] = []
            for how in ("in the lane", "sustained", "asked"):
                with setup.attempt(name := f"atomr {kind}, {label}, {how}"):
                    dev = device(setup, "process", launch_records=records)
                    if not made:
                        found = make(dev, quick=quick)
                        found.plan.wait(60.0)
                        made.append(replace(found))
                    sends = made[0].sends()
                    for _ in range(5):  # until there is a record
                        sends.ask().result()
                    samples = {
                        "in the lane": partial(_in_lane, dev, sends, setup.count(_COUNT)),
                        "sustained": partial(sustained, [sends], setup.count(_COUNT)),
                        "asked": partial(asked, sends.ask, setup.count(_ASKED)),
                    }
                    setup.add(name, samples[how]())
        add_torch(setup, f"frontend {kind}, sustained", partial(_frontend, kind), _COUNT)
        for label in _RECORDS:
            setup.ratio(f"atomr {kind}, {label}, sustained", f"frontend {kind}, sustained")


def _ready(setup: Setup) -> Mapping[str, float]:
    """Build plans in a worker process of its own, and return milliseconds."""
    import numpy as np

    import atomr_native as an

    with opened(setup.device, "process", {"standby": "off"}) as (_, dev):
        clock = time.perf_counter_ns
        shape = SAVED if setup.effort is Effort.FULL else _SMALL
        q, k, v = (dev.put(numbers(shape, "bfloat16")) for _ in range(3))
        statistics = dev.zeros(shape[:3], "float32")
        x, w = dev.zeros((1, 8, 4, 4), "float16"), dev.zeros((8, 8, 1, 1), "float16")
        begun = clock()
        dev.cudnn.plan(an.ConvolutionRequest(x=x, w=w)).wait(60.0)
        loaded = clock()
        given = {"q": q, "k": k, "v": v, "mask": "causal"}
        forward = an.AttentionRequest(**given, statistics=True)
        plans = [
            dev.cudnn.plan(request)
            for request in (forward, an.AttentionGradientRequest(**given, y=q, statistics=statistics, dy=q))
        ]
        for plan in plans:
            plan.wait(60.0)
        ended = clock()
        assert np.isfinite(dev.cudnn.tell(forward)[0].numpy().astype("float32")).all()
    return {"library and first plan": (loaded - begun) / 1e6, "attention and gradients": (ended - loaded) / 1e6}


def saved(setup: Setup) -> None:
    """Time until plans are ready in a new worker process: of a convolution, then of attention and its gradients.

    Attention of 2 x 16 x 1024 x 128 in bfloat16. A process before has built them, so they come from the disk. The first
    includes loading cuDNN and making a handle.
    """
    with setup.attempt("atomr from the disk"):
        setup.need()
        setup.add("atomr from the disk", partial(_ready, setup))


BARS = (
    *(
        Bar(f"a message of cuDNN in the lane, {label}", "gpu_cudnn_messages", f"atomr {kind}, {label}, in the lane",
            limit, "us", part=kind)
        for label, limit in (("first", 6.0), ("replayed", 3.0))
        for kind in MESSAGES
    ),
    Bar("attention and gradients from the disk", "gpu_cudnn_saved", "atomr from the disk: attention and gradients",
        10.0, "ms"),
)  # fmt: skip
CASES = (
    Case("gpu_cudnn_messages", "Messages of cuDNN, first and again", messages, devices=("cuda",)),
    Case("gpu_cudnn_saved", "Plans of cuDNN from the disk", saved, unit="ms", rounds=5, devices=("cuda",)),
)
