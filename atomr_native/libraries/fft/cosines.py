"""Methods of the FFT actor for cosine and sine transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .forms import COSINE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from ...arrays.gpu_ref import GpuRef

    Integers: TypeAlias = int | Sequence[int] | None

__all__ = ["CosineMethods"]


class CosineMethods:
    """Cosine and sine transforms of real arrays; arguments and errors are those of `DctRequest`."""

    _calls: Any

    def dct(
        self, x: GpuRef, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the cosine transform along an axis, as `scipy.fft.dct`.

        Examples
        --------
        >>> device.fft.dct(device.put(np.ones(4)), norm="ortho").numpy().round(6)
        array([2., 0., 0., 0.])
        """
        return self._cosine("dct", x, type, n, axis, norm, orthogonalize, out)

    def idct(
        self, x: GpuRef, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `dct` along an axis."""
        return self._cosine("idct", x, type, n, axis, norm, orthogonalize, out)

    def dst(
        self, x: GpuRef, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the sine transform along an axis, as `scipy.fft.dst`."""
        return self._cosine("dst", x, type, n, axis, norm, orthogonalize, out)

    def idst(
        self, x: GpuRef, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `dst` along an axis."""
        return self._cosine("idst", x, type, n, axis, norm, orthogonalize, out)

    def dctn(
        self, x: GpuRef, type: int = 2, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the cosine transform along axes, by default all."""
        return self._cosine("dct", x, type, s, axes, norm, orthogonalize, out)

    def idctn(
        self, x: GpuRef, type: int = 2, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `dctn`."""
        return self._cosine("idct", x, type, s, axes, norm, orthogonalize, out)

    def dstn(
        self, x: GpuRef, type: int = 2, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the sine transform along axes, by default all."""
        return self._cosine("dst", x, type, s, axes, norm, orthogonalize, out)

    def idstn(
        self, x: GpuRef, type: int = 2, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        orthogonalize: bool | None = None, out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `dstn`."""
        return self._cosine("idst", x, type, s, axes, norm, orthogonalize, out)

    def _cosine(
        self, transform: str, x: GpuRef, type: int, s: Integers, axes: Integers, norm: str | None,
        orthogonalize: bool | None, out: GpuRef | None,
    ) -> GpuRef:  # fmt: skip
        if isinstance(s, list):
            s = tuple(s)
        if isinstance(axes, list):
            axes = tuple(axes)
        made: GpuRef = self._calls.send(self, COSINE, (x, out, transform, type, s, axes, norm, orthogonalize))
        return made
