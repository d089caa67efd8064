"""A user's program with types: `make typecheck` holds it against them, and `test_typed_program.py` runs it."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import atomr_native as an
from atomr_native.libraries.blas_lt import epilogues

__all__ = ["main"]


class Scaler(an.Actor):
    """An actor with device memory in its messages."""

    def __init__(self, device: an.Device, factor: float) -> None:
        self.device, self.factor = device, factor

    def receive(self, x: an.GpuRef) -> an.GpuRef:
        """Answer with a multiple of x."""
        scaled: an.GpuRef = self.device.elementwise.run("x * f", x=x, f=self.factor)
        return scaled


def products(device: an.Device) -> None:
    """Send matrix products and plans of them."""
    x, w, b = device.zeros((4, 8), "bfloat16"), device.zeros((8, 16), "bfloat16"), device.zeros(16, "bfloat16")
    lt = device.blas_lt
    y = assert_type(lt.matmul(x, w), an.GpuRef)
    assert_type(lt.matmul(x, w, bias=b, epilogue="gelu_bias", out=None), an.GpuRef)
    assert_type(lt.matmul(x, w, bias=b, epilogue=an.Epilogue.RELU_BIAS), an.GpuRef)
    assert_type(lt.matmul(x, w, epilogue="gelu_aux"), an.MatmulResult)
    assert_type(lt.matmul(x, w, amax=True), an.MatmulResult)
    custom: an.GpuRef = lt.matmul(x, w, epilogue=epilogues.silu)
    assert_type(lt.tell(an.GroupedRequest(a=[x], b=[w], options={"alpha": 2.0})), list[an.GpuRef])
    assert_type(lt.grouped([x], [w], way="each", epilogue="relu"), list[an.GpuRef])
    plan = assert_type(lt.plan(x, w, alpha=2.0, tune="known"), an.Plan)
    plan.tell(x, w, out=y)
    assert_type(plan.ask(x, w, out=y), an.Reply).result(timeout=60)
    assert_type(plan.notes, tuple[str, ...])
    single = y.view("uint16")[:, :4].shape
    assert_type(single, tuple[int, ...])
    assert_type(custom.numpy(), np.ndarray[Any, Any])
    try:
        lt.plan(x, w, epilog="gelu")  # type: ignore[call-arg]
        raise AssertionError
    except an.InvalidRequest as error:
        assert "did you mean 'epilogue'?" in str(error)  # noqa: PT017
    v = device.zeros((4, 4))
    assert_type(device.blas.gemv(v, v[0], alpha=2.0, trans=True), an.GpuRef)
    try:
        device.blas.gemv(v, v[0], lower=True, alfa=2.0)  # type: ignore[call-arg]
        raise AssertionError
    except an.InvalidRequest as error:
        assert "did you mean 'alpha'?" in str(error)  # noqa: PT017


def rest(device: an.Device) -> None:
    """Send quantisations and fused operations."""
    x, w, rows = device.full((4, 8), 2.0), device.full(8, 1.0), device.zeros((3, 2, 4))
    made = assert_type(device.float8.quantize(x, scaling="outer"), an.QuantizeResult)
    back = device.float8.tell(an.DequantizeRequest(q=made.q, scale=made.scale))
    assert_type(back, an.GpuRef).wait(60)
    assert_type(device.float8.tell(an.QuantizeRequest(x=x)), an.QuantizeResult)
    assert_type(device.float8.outputs(x, transposed=True).transposed, an.GpuRef | None)
    assert_type(device.float8.delayed(length=4).members, dict[str, an.GpuRef])
    fused = device.fused
    assert_type(fused.rms_norm(x, w), an.GpuRef)
    assert_type(fused.rms_norm(x, w, residual=x).residual, an.GpuRef)
    assert_type(fused.rms_norm(x, w, x, 1e-6), an.NormResult)
    assert_type(fused.layer_norm(x, w, w), an.GpuRef)
    assert_type(fused.layer_norm(x, w, None, x), an.NormResult)
    assert_type(fused.layer_norm(x, w, residual=x), an.NormResult)
    assert_type(fused.layer_norm_backward(x, x, w).bias, an.GpuRef | None)
    assert_type(fused.swiglu_backward(x, x, x).gate, an.GpuRef)
    assert_type(fused.tell(an.RopeRequest(x=rows, positions=device.zeros(3, "int32"))), an.GpuRef)
    assert_type(device.elementwise.softmax_cross_entropy(x, device.zeros(4, "int64")).loss, an.GpuRef)
    numbers = assert_type(an.Generator(7).split(2), list[an.Generator])
    assert_type(device.random.normal((2, 3), "float16", std=w[:3], generator=numbers[0]), an.GpuRef)
    assert_type(device.random.discrete([1.0, 2.0], 3, replace=True, seed=1), an.GpuRef)
    assert_type(device.random.tell(an.PermutationRequest(n=3, seed=1)), an.GpuRef)
    assert_type(device.fft.irfft2(device.fft.rfft2(x), (4, 4), axes=(0, 1), overwrite=True), an.GpuRef)
    assert_type(device.fft.tell(an.FftRequest(transform="fft", x=x)), an.GpuRef)
    assert_type(device.fft.transform("rfft", x, load=lambda value, _: value, operands={}), an.GpuRef)
    assert_type(device.fft.tell(an.IstftRequest(x=device.fft.stft(x, 4), n_fft=4)), an.GpuRef)
    assert_type(device.fft.tell(an.DctRequest(x=device.fft.dct(x, 3))), an.GpuRef)
    assert_type(device.fft.tell(an.FftShiftRequest(x=device.fft.rfftfreq(5))), an.GpuRef)
    assert_type(device.fft.convolve(x, device.fft.correlate(x, x, "same"), axes=(0, 1)), an.GpuRef)
    assert_type(an.gather(back, timeout=60), list[Any])


def main() -> None:
    """Run on the host device, in this process."""
    with an.System(isolation="thread", standby="off") as system:
        device = system.device("host")
        products(device)
        rest(device)
        scaler = assert_type(system.spawn(Scaler, device, 2.0), an.ActorRef)
        answer = assert_type(scaler.ask(device.put(np.ones(3)), timeout=60), an.Answer)
        assert answer.result().numpy().sum() == 6.0


if __name__ == "__main__":
    main()
