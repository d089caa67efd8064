"""Group norms over many shapes and layouts against formulas in float64, and their kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulate import Emulator, available
from cudnn_reference import assert_close, group_norm, random_images

import atomr_native as an
from atomr_native.builders.cuda.cubin import compile_cubin
from atomr_native.builders.cuda.prelude import prelude
from atomr_native.builders.cuda.target import KernelProgram, Target
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.cudnn.cuda.group_norm import group_norm_source
from atomr_native.libraries.cudnn.cuda.group_norm_whole import whole_blocks
from atomr_native.libraries.cudnn.cuda.steps import densified, parts_of

RNG = np.random.default_rng(23)
Array = np.ndarray[Any, Any]
EPSILON = 1e-5

#: Shapes with channels first, groups, dtype.
CASES: dict[str, tuple[tuple[int, ...], int, str]] = {
    "vectors": ((2, 64, 9, 8), 8, "float16"),
    "narrow groups": ((3, 320, 6, 6), 32, "bfloat16"),
    "wide groups": ((1, 4128, 3), 2, "float32"),
    "one group": ((2, 24, 40, 10), 1, "float32"),
    "as many groups as channels": ((2, 12, 5, 7), 12, "float16"),
    "one element": ((5, 12, 1, 1), 3, "float32"),
    "one channel": ((2, 1, 7, 5), 1, "float32"),
    "many channels, one group each": ((2, 600, 2, 2), 600, "float32"),
    "long": ((1, 8, 4096), 2, "float16"),
    "three axes": ((2, 6, 3, 4, 5), 3, "bfloat16"),
    "groups in shared memory": ((70, 32, 16, 12), 8, "float16"),
}


#: Memory orders of each case: channels first or last, or the gradient by the result in the other order than x.
ORDERS = {
    "vectors": ("first", "last", "mixed"),
    "narrow groups": ("first", "last"),
    "wide groups": ("last",),
    "one group": ("last",),
    "as many groups as channels": ("last",),
    "one element": ("first",),
    "one channel": ("first",),
    "many channels, one group each": ("last",),
    "long": ("first",),
    "three axes": ("first", "last", "mixed"),
    "groups in shared memory": ("first", "last"),
}


@pytest.mark.parametrize(("case", "order"), [(case, order) for case, orders in ORDERS.items() for order in orders])
def test_results_and_gradients(device: an.Device, case: str, order: str) -> None:
    """With a scale of a step of two elements; equal messages give equal bits."""
    shape, groups, dtype = CASES[case]
    x, dy = (random_images(RNG, shape, dtype) for _ in range(2))
    scale, bias = (1 + random_images(RNG, (shape[1],), "float32") for _ in range(2))
    wanted = group_norm(*(a.astype(np.float64) for a in (x, dy, scale, bias)), groups)

    def put(a: Array, *, last: bool) -> an.GpuRef:
        if not last:
            return device.put(a)
        axes = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return device.put(np.ascontiguousarray(np.moveaxis(a, 1, -1))).transpose(*axes)

    gx, gdy = put(x, last=order == "last"), put(dy, last=order != "first")
    gscale = device.put(np.repeat(scale, 2))[::2]
    y, mean, inverse = device.cudnn.norm("group", gx, gscale, device.put(bias), groups=groups)
    how = {"groups": groups}
    dx, dscale, dbias = device.cudnn.norm_backward("group", gdy, gx, gscale, inverse, mean, **how)
    bound = 16.0 if dtype == "float32" else 2.0
    assert_close(y.numpy(), wanted[0], dtype, bound)
    assert_close(dx.numpy(), wanted[1], dtype, bound)
    for found, right in ((dscale, wanted[2]), (dbias, wanted[3])):
        np.testing.assert_allclose(found.numpy(), right, rtol=2e-4, atol=2e-4 * np.sqrt(x.size / shape[1]))
    again = device.cudnn.norm_backward("group", gdy, gx, gscale, inverse, mean, **how)
    assert [a.numpy().tobytes() for a in again] == [a.numpy().tobytes() for a in (dx, dscale, dbias)]


@pytest.mark.parametrize("last", [False, True])
def test_a_large_mean_takes_no_digits(device: an.Device, last: bool) -> None:
    """Deviations are a ten-thousandth of the mean."""
    x = (1e4 + RNG.standard_normal((2, 30, 30, 8) if last else (2, 8, 30, 30))).astype("float32")
    one, zero = device.ones(8, "float32"), device.zeros(8, "float32")
    _, mean, inverse = device.cudnn.norm("group", device.put(x), one, zero, groups=2, channels_last=last)
    wide = (np.moveaxis(x, -1, 1) if last else x).astype(np.float64).reshape(2, 2, -1)
    np.testing.assert_allclose(mean.numpy(), wide.mean(2), rtol=1e-6)
    np.testing.assert_allclose(inverse.numpy(), 1 / np.sqrt(wide.var(2) + EPSILON), rtol=1e-3)


def test_no_images(device: an.Device) -> None:
    x = device.zeros((0, 8, 3, 3), "float32")
    one, zero = device.ones(8, "float32"), device.zeros(8, "float32")
    y, mean, inverse = device.cudnn.norm("group", x, one, zero, groups=2)
    assert (y.shape, mean.shape) == ((0, 8, 3, 3), (0, 2))
    dx, dscale, dbias = device.cudnn.norm_backward("group", x, x, one, inverse, mean, groups=2)
    assert dx.shape == x.shape
    assert not dscale.numpy().any()
    assert not dbias.numpy().any()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_compile(compiler_cache: Path, arch: str) -> None:
    for dtype in ("float16", "float32"):
        for shape in ((4, 64, 16, 16), (4, 6, 5, 5))[: 2 if arch == "sm_90a" else 1]:
            for axes in ((0, 1, 2, 3), (0, 2, 3, 1)):
                x = np.zeros([shape[a] for a in axes], dtype)
                v, s = np.ones(shape[1], "float32"), np.ones((4, 2), "float32")
                how: dict[str, Any] = {"kind": "group", "x": x, "scale": v, "groups": 2, "channels_last": axes[1] == 2}
                for request in (
                    an.NormalizationRequest(bias=v, **how),
                    an.NormalizationGradientRequest(dy=x, mean=s, inverse=s, **how),
                ):
                    graph = densified(request.lowered.spec().attributes)
                    (part,) = parts_of(graph)
                    source, _, _ = group_norm_source(graph, part, Target(arch, 132))
                    assert compile_cubin(prelude({dtype, "float32"}) + source, arch)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("shape", "groups", "dtype", "last", "blocks"),
    [((4, 64, 40, 40), 8, "float16", True, 8), ((4, 64, 40, 40), 8, "float16", False, 32),
     ((3, 64, 20, 21), 4, "float32", True, 12), ((3, 48, 20, 21), 8, "bfloat16", False, 24),
     ((3, 24, 40, 15), 2, "float32", False, 6)],
)  # fmt: skip
def test_images_are_read_once(
    tmp_path: Path, shape: tuple[int, ...], groups: int, dtype: str, last: bool, blocks: int
) -> None:
    """By one kernel where a block has room for whole groups; means are large beside deviations."""
    if reason := available():
        pytest.skip(reason)
    x = (10 + random_images(RNG, shape, "float32")).astype(as_dtype(dtype))
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    scale, bias = (random_images(RNG, (shape[1],), "float32") for _ in range(2))
    request = an.NormalizationRequest(
        kind="group", x=given, scale=scale, bias=bias, groups=groups, channels_last=last, epsilon=EPSILON
    )
    graph = densified(request.lowered.spec().attributes)
    (part,) = parts_of(graph)
    source, (launch,), workspace = group_norm_source(graph, part, Target("sm_90a", 2))
    assert launch.grid == (blocks, 1, 1)
    assert 2 * launch.shared < Target("sm_90a").shared_memory
    y, mean, inverse = np.zeros_like(given), *(np.zeros((shape[0], groups), "float32") for _ in range(2))
    by_port = {"x": given, "scale": scale, "bias": bias, "y": y, "mean_out": mean, "inv_variance_out": inverse}
    (node,) = part.nodes
    arrays = {part.bound.index(at): by_port[port] for port, at in node.ports if at in part.bound}
    program = KernelProgram(b"", (launch,), workspace, (), prelude({dtype, "float32"}) + source)
    Emulator(tmp_path).run(program, tuple(arrays[i] for i in range(len(arrays))))
    values = x.astype(np.float64)
    wide = values.reshape(shape[0], groups, -1)
    np.testing.assert_allclose(mean, wide.mean(2), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(wide.var(2) + EPSILON), rtol=1e-5)
    wanted = group_norm(values, values, *(a.astype(np.float64) for a in (scale, bias)), groups)[0]
    assert_close(np.moveaxis(y, -1, 1) if last else y, wanted, dtype, 16.0 if dtype == "float32" else 2.0)


@pytest.mark.plain
def test_what_is_read_twice() -> None:
    """Groups without room, columns that are no power of two, few blocks, and 8 bytes of a row."""
    hopper = Target("sm_90a", 132)
    assert whole_blocks(32, 32, 8, 3136, last=True, vector=8, itemsize=2, target=hopper) is not None
    assert whole_blocks(32, 32, 8, 16000, last=True, vector=8, itemsize=2, target=hopper) is None
    assert whole_blocks(32, 32, 6, 3136, last=True, vector=2, itemsize=2, target=hopper) is None
    assert whole_blocks(4, 32, 8, 3136, last=True, vector=8, itemsize=2, target=hopper) is None
    assert whole_blocks(999, 1, 4, 3136, last=True, vector=4, itemsize=2, target=hopper) is None
    assert whole_blocks(32, 32, 8, 3136, last=True, vector=8, itemsize=2, target=Target("sm_89", 108)) is None
