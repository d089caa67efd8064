"""Attributes of the Fourier transforms in plan specifications."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...plans.spec import Attributes, Extent, ShippedCode
from ...protocol.binaries import Binary
from ...protocol.typed import one_of

__all__ = ["CosineAttributes", "FftAttributes", "FramesAttributes", "MappedAttributes", "ShiftAttributes"]


class FftAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fft.transform`` and ``fft.half``.

    Attributes
    ----------
    transform : str
        As `FftRequest` has it.
    axes : tuple of int
        Axes of x, from 0 on; the last one is halved in the complex array of a real transform.
    lengths : tuple of int
        Points along each of `axes`.
    norm : str
        As `FftRequest` has it.
    overwrite, hermitian : bool
        As `FftRequest` has them.
    aligned : (bool, bool)
        Whether x and out start at multiples of a complex element's size, of 16 bits each part in ``fft.half``.
    converts : bool
        Of ``fft.half``, `HalfFftRequest.convert`.
    """

    transform: Annotated[str, one_of("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")]
    axes: tuple[Extent, ...]
    lengths: tuple[Annotated[int, Meta(ge=1)], ...]
    norm: Annotated[str, one_of("backward", "ortho", "forward", "none")]
    overwrite: bool = False
    hermitian: bool = False
    aligned: tuple[bool, bool] = (True, True)
    converts: bool = True


class MappedAttributes(FftAttributes, frozen=True, kw_only=True):
    """Of ``fft.mapped``, a transform with functions of the user's.

    Attributes
    ----------
    load, store : tuple of str or None
        The names of a function's parameters after the first two; None without the function.
    scalar_names : tuple of str
        Of the message's numbers.
    functions : tuple of (str, Binary)
        ``"load"`` and ``"store"``, pickled, on the host device.
    shipped : ShippedCode or None
        The kernels made of them, on GPUs.
    callbacks : tuple of (str, Binary)
        LTO-IR for cuFFT, on GPUs; without those that cannot be linked into its kernels.
    apart : str
        Why one is missing.
    sources : tuple of (str, str, str)
        ``"load"`` or ``"store"``, the function's name, and CUDA C++.
    """

    load: tuple[str, ...] | None = None
    store: tuple[str, ...] | None = None
    scalar_names: tuple[str, ...] = ()
    functions: tuple[tuple[str, Binary], ...] = ()
    shipped: ShippedCode | None = None
    callbacks: tuple[tuple[str, Binary], ...] = ()
    apart: str = ""
    sources: tuple[tuple[str, str, str], ...] = ()


class CosineAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fft.cosine``.

    Attributes
    ----------
    transform, norm : str
    type : int
        As `DctRequest` has them.
    axes, lengths : tuple of int
        Axes of x, from 0 on, and points along each.
    orthogonalize : bool
    """

    transform: Annotated[str, one_of("dct", "idct", "dst", "idst")]
    type: Annotated[int, Meta(ge=1, le=4)]
    axes: tuple[Extent, ...]
    lengths: tuple[Annotated[int, Meta(ge=1)], ...]
    norm: Annotated[str, one_of("backward", "ortho", "forward", "none")]
    orthogonalize: bool


class FramesAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fft.stft`` and ``fft.istft``.

    Attributes
    ----------
    n_fft, hop, width : int
        Points of a frame, samples from one to the next, and points of the window.
    center : bool
    pad : str
        As `StftRequest` has `pad_mode`.
    norm : str
        ``"ortho"`` for `normalized` results.
    onesided : bool
    aligned : (bool, bool)
        As `FftAttributes` has it.
    """

    n_fft: Annotated[int, Meta(ge=1)]
    hop: Annotated[int, Meta(ge=1)]
    width: Annotated[int, Meta(ge=1)]
    center: bool
    pad: Annotated[str, one_of("reflect", "constant")]
    norm: Annotated[str, one_of("backward", "ortho")]
    onesided: bool
    aligned: tuple[bool, bool] = (True, True)


class ShiftAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fft.shift``.

    Attributes
    ----------
    shifts : tuple of int
        Of each axis, by how many elements it is shifted forwards, below its length.
    """

    shifts: tuple[Extent, ...]
