"""Methods of handles that compute: short forms of `atomr_native.array_api` on the array's own device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .numpy_functions import call_function, call_ufunc

if TYPE_CHECKING:
    from ..device import Device
    from .gpu_ref import GpuRef
    from .owner import ArrayFunctions

__all__ = ["ArrayMethods"]

Axis: TypeAlias = int | tuple[int, ...] | None


class ArrayMethods:
    """The computing methods of `GpuRef`: each enqueues, and returns a new handle at once."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def _functions(self) -> ArrayFunctions: ...

    def astype(self, dtype: object, *, copy: bool = True) -> GpuRef:
        """Return a copy with another element type, as `Device.copy`; with ``copy=False`` itself where that is the same.

        Examples
        --------
        >>> device.put(np.array([1.5, 2.5])).astype("int32").numpy()
        array([1, 2], dtype=int32)
        """
        made: GpuRef = self._functions.astype(self, dtype, copy=copy)
        return made

    def clip(self, min: Any = None, max: Any = None) -> GpuRef:
        """Return the elements within bounds, each a number, an array that broadcasts, or None.

        Examples
        --------
        >>> device.put(np.arange(4.0)).clip(1, 2).numpy()
        array([1., 1., 2., 2.])
        """
        made: GpuRef = self._functions.clip(self, min, max)
        return made

    def sum(self, axis: Axis = None, *, dtype: object = None, keepdims: bool = False) -> GpuRef:
        """Return the sum over an axis, several, or all.

        Examples
        --------
        >>> device.put(np.ones((2, 3))).sum(axis=1, keepdims=True).numpy()
        array([[3.],
               [3.]])
        """
        made: GpuRef = self._functions.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)
        return made

    def prod(self, axis: Axis = None, *, dtype: object = None, keepdims: bool = False) -> GpuRef:
        """Return the product over an axis, several, or all; otherwise as `sum`."""
        made: GpuRef = self._functions.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)
        return made

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> GpuRef:
        """Return the mean over an axis, several, or all; of integers as float64."""
        made: GpuRef = self._functions.mean(self, axis=axis, keepdims=keepdims)
        return made

    def var(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> GpuRef:
        """Return the variance over an axis, several, or all: squares are divided by their number less `correction`."""
        made: GpuRef = self._functions.var(self, axis=axis, correction=correction, keepdims=keepdims)
        return made

    def std(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> GpuRef:
        """Return the standard deviation over an axis, several, or all; see `var`."""
        made: GpuRef = self._functions.std(self, axis=axis, correction=correction, keepdims=keepdims)
        return made

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> GpuRef:
        """Return the smallest element over an axis, several, or all; NaN wins.

        Raises
        ------
        InvalidRequest
            Over no elements.
        """
        made: GpuRef = self._functions.min(self, axis=axis, keepdims=keepdims)
        return made

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> GpuRef:
        """Return the largest element over an axis, several, or all; otherwise as `min`."""
        made: GpuRef = self._functions.max(self, axis=axis, keepdims=keepdims)
        return made

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> GpuRef:
        """Return the index of the first smallest element along an axis, or in the flat array, as int64."""
        made: GpuRef = self._functions.argmin(self, axis=axis, keepdims=keepdims)
        return made

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> GpuRef:
        """Return the index of the first largest element along an axis, or in the flat array, as int64."""
        made: GpuRef = self._functions.argmax(self, axis=axis, keepdims=keepdims)
        return made

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> GpuRef:
        """Return whether an element is not zero, over an axis, several, or all.

        Examples
        --------
        >>> bool((device.put(np.arange(3)) > 1).any())  # waits
        True
        """
        made: GpuRef = self._functions.any(self, axis=axis, keepdims=keepdims)
        return made

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> GpuRef:
        """Return whether no element is zero, over an axis, several, or all."""
        made: GpuRef = self._functions.all(self, axis=axis, keepdims=keepdims)
        return made

    def take(self, indices: GpuRef, axis: int | None = None) -> GpuRef:
        """Return the elements at integer indices along an axis, or of the flat array; enqueues.

        An index out of bounds fails the message.

        Examples
        --------
        >>> device.put(np.arange(0, 40, 10)).take(device.put(np.array([3, 0]))).numpy()
        array([30,  0])
        """
        made: GpuRef = self._functions.take_any(self, indices, axis)
        return made

    @property
    def mT(self) -> GpuRef:  # noqa: N802 - the standard's name
        """View with its last two axes exchanged."""
        made: GpuRef = self._functions.matrix_transpose(self)
        return made

    def to_device(self, device: Device, /, *, stream: object = None) -> GpuRef:
        """Return the array on a device: itself, or a copy by `Device.copy`; `stream` must be None."""
        made: GpuRef = self._functions.to_device(self, device, stream=stream)
        return made

    # ---- protocols

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return `atomr_native.array_api` for the array's device, which functions that create arrays then use."""
        return self._functions.namespace_of(self, api_version)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Send a function or operator of NumPy to the device, if it has it; nothing is copied to the host."""
        return call_ufunc(self._functions, ufunc, method, inputs, options)

    def __array_function__(
        self, func: Callable[..., Any], _types: object, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Send a function of NumPy to the device, if it has it; nothing is copied to the host."""
        return call_function(self._functions, func, args, options)
