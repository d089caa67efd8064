"""Methods of the FFT actor for short-time transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .forms import ISTFT, STFT, alignment

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["FramesMethods"]


class FramesMethods:
    """Transforms of frames of a signal; arguments and errors are those of `StftRequest` and `IstftRequest`."""

    _calls: Any

    def stft(
        self, x: GpuRef, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
        window: GpuRef | None = None, *, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
        onesided: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the transforms of a signal's frames, as `torch.stft`; (..., frequencies, frames).

        Examples
        --------
        >>> x = device.put(np.sin(2 * np.pi * np.arange(64) / 8))
        >>> spectra = device.fft.stft(x, 16, window=device.put(np.hanning(16)))
        >>> abs(spectra.numpy()).argmax(axis=0)[2:-2].tolist() == [2] * 13
        True
        """
        made: GpuRef = self._calls.send(
            self, STFT,
            (x, window, out, n_fft, hop_length, win_length, center, pad_mode, normalized, onesided, alignment(x, out)),
        )  # fmt: skip
        return made

    def istft(
        self, x: GpuRef, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
        window: GpuRef | None = None, *, center: bool = True, normalized: bool = False, onesided: bool = True,
        length: int | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the signal whose frames have these transforms: the inverse of `stft`."""
        made: GpuRef = self._calls.send(
            self, ISTFT,
            (x, window, out, n_fft, hop_length, win_length, center, normalized, onesided, length, alignment(x, out)),
        )  # fmt: skip
        return made
