"""Attributes of the Fourier transforms in plan specifications."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...plans.spec import Attributes, Extent
from ...protocol.typed import one_of

__all__ = ["FftAttributes", "ShiftAttributes"]


class FftAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fft.transform``.

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
        Whether x and out start at multiples of a complex element's size.
    """

    transform: Annotated[str, one_of("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")]
    axes: tuple[Extent, ...]
    lengths: tuple[Annotated[int, Meta(ge=1)], ...]
    norm: Annotated[str, one_of("backward", "ortho", "forward", "none")]
    overwrite: bool = False
    hermitian: bool = False
    aligned: tuple[bool, bool] = (True, True)


class ShiftAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fft.shift``.

    Attributes
    ----------
    shifts : tuple of int
        Of each axis, by how many elements it is shifted forwards, below its length.
    """

    shifts: tuple[Extent, ...]
