"""Convolutions on the fake driver: kernels in C read the parameters that CUTLASS's kernels would be given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fake_cuda
import fake_cutlass
import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.cutlass.choice import kernel_of

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def seen(fake_environment: dict[str, str]) -> Iterator[fake_cutlass.Seen]:
    with pytest.MonkeyPatch.context() as patch, fake_cuda.using(fake_environment):
        yield fake_cutlass.install(patch)


@pytest.fixture(scope="module")
def device(seen: fake_cutlass.Seen) -> Iterator[an.Device]:
    with an.System(allow_crash=True) as system:
        yield system.device("cuda:0")


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("f4")


@pytest.mark.parametrize(
    ("size", "filters", "how", "spatial"),
    [
        ((5, 6), (3, 2), {"stride": (1, 1), "padding": (1, 0)}, 2),
        ((7, 5), (3, 2), {"stride": (2, 1), "padding": 1, "dilation": (1, 2)}, 3),  # the gradient by x has no other
        ((3, 4, 5), (2, 1, 3), {"stride": (1, 2, 2), "padding": (1, 0, 1)}, 3),
    ],
)
def test_convolutions_are_those_of_the_host(
    device: an.Device,
    seen: fake_cutlass.Seen,
    size: tuple[int, ...],
    filters: tuple[int, ...],
    how: dict[str, Any],
    spatial: int,
) -> None:
    host = device.system.device("host")
    x, w, scale, bias = normal(2, *size, 4), normal(8, *filters, 4), normal(1), normal(8)
    y = host.cutlass.convolution(host.put(x), host.put(w), **how).numpy()
    dy, pixels = normal(*y.shape), normal(*y.shape[:-1], 1)
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for one in (device, host):
        put, send = one.put, one.cutlass
        operands = {"bias": put(bias), "pixels": put(pixels), "scale": put(scale)}
        total = put(x)
        made = [
            send.convolution(
                put(x), put(w), c=put(y), operands=operands, alpha=0.5,
                epilogue="relu(alpha * acc + bias) * pixels * scale + c", **how,
            ),
            send.convolution_backward_data(put(dy), put(w), size, c=total, out=total, beta=2.0, **how),
            send.convolution_backward_filter(
                put(x), put(dy), filters, epilogue="acc + row", operands={"row": put(w[:1])}, **how
            ),
        ]  # fmt: skip
        found[one.kind] = [array.numpy() for array in made]
    for mine, want in zip(found["cuda"], found["host"], strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-4)
    assert [(one.operation, one.spatial) for one in seen[-3:]] == [
        ("forward", len(size)), ("data_gradient", spatial), ("filter_gradient", len(size))
    ]  # fmt: skip


def test_what_no_kernel_computes(device: an.Device) -> None:
    x, w = device.zeros((1, 4, 4, 8), "float16"), device.zeros((4, 2, 2, 8), "float16")
    dy = device.zeros((1, 2, 2, 4), "float16")
    with pytest.raises(an.Unsupported, match="data_gradient with strides whose channels of dy are 8 bytes"):
        device.cutlass.convolution_backward_data(dy, w, (4, 4), stride=2)
    with pytest.raises(an.Unsupported, match="channels of x are 2 bytes; allowed: multiples of 4") as caught:
        device.cutlass.convolution(device.zeros((1, 4, 4, 3), "float16"), device.zeros((4, 2, 2, 3), "float16"))
    assert caught.value.rule == "cutlass.kernel"
    with pytest.raises(an.Unsupported, match=r"x of shape \(1, 4, 4, 8\) .*dense, with its channels innermost"):
        device.cutlass.convolution(x.transpose(0, 2, 1, 3), w)
    with pytest.raises(an.Unsupported, match="CUTLASS has no convolution of sm_90a; allowed: 'sm_80'"):
        device.cutlass.convolution(x, w, config=an.GemmConfig(arch="sm_90a"))


def test_blocks_share_long_sums_of_the_gradient_by_filters() -> None:
    dy, x = np.empty((32, 56, 56, 64), "f2"), np.empty((32, 56, 56, 64), "f2")
    for config, splits in ((None, 14), (an.GemmConfig(splits=3), 3), (an.GemmConfig(decomposition="tiles"), 1)):
        request = an.FusedConvolutionRequest(
            operation="filter_gradient", a=dy, b=x, size=(3, 3), padding=1, config=config
        )
        assert kernel_of(request.lowered.spec(), (9, 0)).splits == splits
