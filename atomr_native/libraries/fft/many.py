"""Raw layouts of many transforms in flat buffers, as the advanced layouts of cuFFT and FFTW describe them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import as_integer, check_choice
from ..._support.public import public
from ...arrays.gpu_ref import viewed
from ...arrays.operands import check_handle, is_contiguous
from ...errors import InvalidRequest
from .spec import HALVED, TRANSFORMS, numbers_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["FftLayout"]

_MOST = 2**62


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class FftLayout:
    """Where the elements of a batch of transforms lie in two flat buffers: the layout of ``cufftPlanMany``.

    Element (i0, i1, i2) of transform b of the input is at
    ``b * idist + ((i0 * inembed[1] + i1) * inembed[2] + i2) * istride``, counted in elements; of the output likewise.

    Parameters
    ----------
    n : int or tuple of int
        Points along each axis, of any number of axes.
    batch : int
        Transforms, 1 or more.
    inembed, onembed : int or tuple of int, optional
        Elements of each axis in the buffers, of which the first is not used; by default those that are transformed:
        `n`, and ``n[-1] // 2 + 1`` along the last axis of the complex side of a real transform.
    istride, ostride : int
        Elements from one to the next along the last axis, 1 or more; also without embeddings, unlike in cuFFT.
    idist, odist : int, optional
        Elements from one transform to the next, 1 or more; by default the whole of one.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Examples
    --------
    >>> layout = an.FftLayout(n=4, batch=2, istride=2, idist=1, odist=4)  # two signals that alternate
    >>> x, out = device.put(np.array([1, 0, 0, 1, 0, 0, 0, 0], "complex64")), device.zeros((8,), "complex64")
    >>> device.fft.many("fft", layout, x, out).numpy().real.round(3)
    array([ 1.,  1.,  1.,  1.,  1.,  0., -1.,  0.], dtype=float32)
    """

    n: Any
    batch: int = 1
    inembed: Any = None
    istride: int = 1
    idist: int | None = None
    onembed: Any = None
    ostride: int = 1
    odist: int | None = None

    def __post_init__(self) -> None:
        limits = "an integer, or integers, of 1 or more"
        n = numbers_of("n", self.n, limits)
        for name in ("n", "inembed", "onembed"):
            given = getattr(self, name)
            if given is None:
                continue
            values = numbers_of(name, given, limits)
            if min(values) < 1 or len(values) != len(n):
                raise InvalidRequest(f"{name}={given!r}; allowed: {limits}, {len(n)} of them")
            object.__setattr__(self, name, values)
        for name in ("batch", "istride", "ostride", "idist", "odist"):
            if getattr(self, name) is not None:
                as_integer(name, getattr(self, name), 1, _MOST)

    def views(self, transform: str, x: GpuRef, out: GpuRef) -> tuple[GpuRef, GpuRef]:
        """Return the elements of two buffers that a transform reads and writes, of shape (batch, ...), without a copy.

        Parameters
        ----------
        transform : str
            As `FftRequest` has it.
        x, out : GpuRef
            C-contiguous, of any shape.

        Raises
        ------
        InvalidRequest
            If a buffer is not contiguous, or ends before the layout does, or an embedding is too small.
        """
        check_choice("transform", transform, TRANSFORMS)
        halved = HALVED.get(TRANSFORMS[transform], -1)
        sides = (("x", x, "in", self.inembed, self.istride, self.idist),
                 ("out", out, "on", self.onembed, self.ostride, self.odist))  # fmt: skip
        made = []
        for side, (name, array, prefix, embed, stride, dist) in enumerate(sides):
            check_handle(name, array)
            if not is_contiguous(array):
                raise InvalidRequest(f"{name} has strides {array.strides}; allowed: C-contiguous buffers")
            extents = (*self.n[:-1], self.n[-1] // 2 + 1) if side == halved else self.n
            held = extents if embed is None else embed
            for axis in range(1, len(extents)):
                if held[axis] < extents[axis]:
                    raise InvalidRequest(
                        f"{prefix}embed={embed}: {held[axis]} elements along axis {axis}; allowed: {extents[axis]} or "
                        f"more, which {transform} has there"
                    )
            steps = [stride * math.prod(held[axis + 1 :]) for axis in range(len(held))]
            steps.insert(0, stride * math.prod(held) if dist is None else dist)
            shape = (self.batch, *extents)
            last = sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
            size = math.prod(array.shape)
            if last >= size:
                raise InvalidRequest(
                    f"{name} has {size} elements, and the layout reaches element {last}; allowed: {last + 1} or more"
                )
            strides = tuple(step * array.dtype.itemsize for step in steps)
            made.append(viewed(array, _strided(shape, strides)))
        return made[0], made[1]


def _strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    def change(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.lib.stride_tricks.as_strided(array, shape, strides)

    return change
