"""Quantisation to float8 on a GPU, beside copies of as many bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup, Unavailable, gpu_peers
from bench.harness.bandwidth import TORCH_COPY, add_copies, compare_copies, size, swept
from bench.harness.common import device
from bench.harness.gpu import ordinal

__all__ = ["BARS", "CASES"]

#: What is timed: name, options of `quantize`, bytes that are read and written for each element.
KINDS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("atomr float8, tensor, scale given", {}, 3.0),
    ("atomr float8, tensor, delayed", {}, 3.0),
    ("atomr float8, tensor, just in time", {}, 5.0),
    ("atomr float8, tensor, given, transposed", {"transposed": True}, 4.0),
    ("atomr float8, outer", {"scaling": "outer"}, 3.0),
    ("atomr float8, vec128", {"scaling": "vec128"}, 3.0 + 4 / 128),
    ("atomr float8, blk128", {"scaling": "blk128"}, 3.0),
    ("atomr float8, blk128, transposed", {"scaling": "blk128", "transposed": True}, 4.0),
)
TORCH = "torch (x * s).clamp().to(float8_e4m3fn)"


def _quantize(dev: Any, x: Any, name: str, options: dict[str, Any]) -> tuple[Callable[[], object], Any]:
    """Return what sends one planned quantisation, and an output to wait for."""
    from atomr_native import Unsupported

    float8 = dev.float8
    options = dict(options)
    inputs = [x]
    outputs: dict[str, Any] = {}
    if "given" in name:
        options["scale"] = dev.full((), 1.0)
        inputs.append(options["scale"])
    if "delayed" in name:
        options["state"] = float8.delayed(length=1024)
        outputs |= {f"state_{key}": ref for key, ref in options["state"].members.items()}
    made = float8.outputs(x, **options)
    try:
        plan = float8.plan(x, **options).wait(60.0)
    except Unsupported as error:  # no compiler for the library's kernels
        raise Unavailable(str(error)) from error
    outputs["out"] = made.q
    if "given" not in name:
        outputs["scale_out"] = made.scale
    if made.transposed is not None:
        outputs["transposed_out"] = made.transposed
        if options.get("scaling") == "blk128":
            outputs["transposed_scale_out"] = made.transposed_scale
    return partial(plan.tell, *inputs, **outputs), made.q


def quantize(setup: Setup) -> None:
    """Time in which 64 MiB are read or written, by quantisations of a 8192 x 4096 bfloat16 matrix to float8_e4m3fn.

    200 planned messages, one wait. Of each element two bytes are read and one is written, and where the scale is made
    just in time it is read twice. The copies move 128 MiB each: `Device.copy`, and `Tensor.copy_`. torch: multiply by a
    scale, clamp, cast, with what that moves counted as if it were one pass, as here with a scale that is given.
    """
    turns, (rows, columns) = size(setup)
    elements = rows * columns
    add_copies(setup, turns, (rows, columns))
    for name, options, moved in KINDS:
        with setup.attempt(name):
            dev = device(setup, "process")
            x = dev.full((rows, columns), 0.5, "bfloat16")
            tell, last = _quantize(dev, x, name, options)
            setup.add(name, swept(tell, last.wait, turns, moved * elements))
    with setup.attempt(TORCH, kind="peer"):
        setup.need()
        torch = gpu_peers.torch(ordinal(setup))
        y = torch.ones((rows, columns), dtype=torch.bfloat16, device="cuda")

        def cast() -> object:
            return (y * 2.0).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)

        setup.add(TORCH, swept(cast, torch.cuda.synchronize, turns, 3.0 * elements))
    compare_copies(setup, (name for name, _, _ in KINDS))
    setup.ratio("atomr float8, tensor, scale given", TORCH)


BARS = (
    *(
        Bar("float8 quantisation, time of a copy", "gpu_float8", name, 1.176, "x", TORCH_COPY, name.partition(", ")[2])
        for name, _, _ in KINDS
    ),
)
CASES = (Case("gpu_float8", "Quantisation to float8: time to move 64 MiB", quantize, devices=("cuda",)),)
