"""Group norms over many shapes and layouts against formulas in float64, and their kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, group_norm, random_images

import atomr_native as an
from atomr_native.builders.cuda.cubin import compile_cubin
from atomr_native.builders.cuda.prelude import prelude
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries.cudnn.cuda.group_norm import group_norm_source
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
