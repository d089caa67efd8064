"""Grouped products on the fake driver: kernels in C read the parameters that CUTLASS's kernels would be given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fake_cuda
import fake_cutlass
import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
RNG = np.random.default_rng(8)


@pytest.fixture(scope="module")
def seen(fake_environment: dict[str, str]) -> Iterator[fake_cutlass.Seen]:
    with pytest.MonkeyPatch.context() as patch, fake_cuda.using(fake_environment):
        yield fake_cutlass.install(patch)


@pytest.fixture(scope="module")
def device(seen: fake_cutlass.Seen) -> Iterator[an.Device]:
    with an.System(allow_crash=True) as system:
        yield system.device("cuda:0")


@pytest.mark.parametrize(("arch", "compute"), [("sm_80", "float32"), ("sm_90a", "tf32")])
def test_groups_of_both_generations(device: an.Device, seen: fake_cutlass.Seen, arch: str, compute: str) -> None:
    a, b, c = (RNG.standard_normal(shape).astype("f4") for shape in ((9, 32), (3, 32, 16), (9, 16)))
    each, column = (RNG.standard_normal(shape).astype("f4") for shape in ((3, 1, 16), (9, 1)))
    scale = np.array([2, 3, 4], "f4").reshape(3, 1, 1)
    ends = device.put(np.array([4, 4, 7], "i8" if arch == "sm_80" else "i4"))
    out = np.full((9, 16), 5, "f4")

    def sent(device: an.Device, ends: an.GpuRef) -> np.ndarray[Any, Any]:
        weights = device.put(np.ascontiguousarray(b.swapaxes(1, 2))).mT
        operands = {"each": device.put(each), "column": device.put(column), "scale": device.put(scale)}
        placed = device.put(out)
        device.cutlass.grouped_gemm(
            device.put(a), weights, ends, c=device.put(c), out=placed, alpha=0.5, compute=compute, operands=operands,
            epilogue="relu(alpha * acc + each) * column * scale + c * 0.25",
        )  # fmt: skip
        return placed.numpy()

    found = sent(device, ends)
    assert (seen[-1].family, seen[-1].arch, seen[-1].offsets) == ("grouped", arch, str(ends.dtype))
    host = device.system.device("host")
    for given in (ends.numpy(), np.array([2, 3, 9], ends.dtype)):  # other ends, the same plan
        found = sent(device, device.put(given))
        np.testing.assert_allclose(found, sent(host, host.put(given)), rtol=1e-4, atol=1e-4)
    assert len([one for one in seen if one.arch == arch]) == 1


def test_layouts_that_no_kernel_reads(device: an.Device) -> None:
    a, b = device.zeros((8, 9), "float32"), device.zeros((2, 8, 4), "float32")
    ends = device.put(np.array([2, 9], "i4"))
    with pytest.raises(an.Unsupported, match=r"a of shape \(9, 8\) .*rows must be contiguous") as caught:
        device.cutlass.grouped_gemm(a.T, b, ends)
    assert caught.value.rule == "cutlass.layout"
    with pytest.raises(an.Unsupported, match="offsets of shape"):
        device.cutlass.grouped_gemm(device.zeros((9, 8), "float32"), b, device.zeros((4,), "int32")[::2])
    config = an.GemmConfig(arch="sm_90a")
    with pytest.raises(an.Unsupported, match="a is aligned to 4 bytes; allowed: 16"):
        device.cutlass.grouped_gemm(device.zeros((9, 7), "float32"), b[:, :7], ends, compute="tf32", config=config)


def test_nothing_is_a_product_of_no_rows(device: an.Device) -> None:
    ends = device.zeros((2,), "int32")
    made = device.cutlass.grouped_gemm(device.zeros((0, 4), "float32"), device.zeros((2, 4, 4), "float32"), ends)
    assert made.numpy().shape == (0, 4)


def test_a_recorded_program_reads_the_ends_of_each_launch(device: an.Device) -> None:
    a, b = RNG.standard_normal((6, 8)).astype("f4"), RNG.standard_normal((2, 8, 4)).astype("f4")
    rows, weights, out = device.put(a), device.put(b), device.zeros((6, 4), "float32")
    ends = device.put(np.array([1, 6], "i4"))
    with device.record() as recording:
        device.cutlass.grouped_gemm(rows, weights, recording.operand("ends", ends), out=out)
    for given in ([1, 6], [6, 6], [0, 6], [4, 6]):
        recording.plan.tell(ends=device.put(np.array(given, "i4")))
        want = np.concatenate((a[: given[0]] @ b[0], a[given[0] :] @ b[1]))
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)
