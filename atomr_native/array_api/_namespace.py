"""The namespace of one device, and what it says of itself."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.owner import owner_of
from ..dtypes import DTYPES
from ..errors import InvalidRequest
from ._creation import CREATION
from ._operands import handle
from ._types import isdtype

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device

__all__ = ["VERSION", "Info", "Namespace", "namespace_of"]

#: The version of the standard.
VERSION = "2024.12"
_VERSIONS = (None, "2021.12", "2022.12", "2023.12", VERSION)
#: Functions that take a device, also those of the extension `fft`.
_CREATING = frozenset({*CREATION, "fftfreq", "rfftfreq"})
_STANDARD = tuple(name for name in DTYPES if name not in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"))


class Info:
    """What a namespace can do, by the standard's ``__array_namespace_info__``.

    Parameters
    ----------
    device : Device or None
        The default device, if the namespace has one.
    """

    def __init__(self, device: Device | None) -> None:
        self._device = device

    def capabilities(self) -> dict[str, Any]:
        """Return which optional parts there are."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device | None:
        """Return the device of new arrays."""
        return self._device

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, np.dtype[Any]]:  # noqa: ARG002
        """Return the dtypes of new arrays, which are those of NumPy."""
        names = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
        return {kind: DTYPES[name] for kind, name in names.items()}

    def devices(self) -> list[Device]:
        """Return the devices of the namespace: the default one."""
        return [] if self._device is None else [self._device]

    def dtypes(self, *, device: Device | None = None, kind: Any = None) -> dict[str, np.dtype[Any]]:  # noqa: ARG002
        """Return the standard's dtypes, of a kind if one is given; arrays may be float16, bfloat16 and float8, too."""
        return {name: DTYPES[name] for name in _STANDARD if kind is None or isdtype(DTYPES[name], kind)}


class Bound:
    """The functions of a module for one device: those that create arrays use it unless another one is given.

    Parameters
    ----------
    device : Device
    module : module
    """

    def __init__(self, device: Device, module: ModuleType) -> None:
        self._device = device
        self._module = module
        self.__name__ = module.__name__

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in ("fft", "linalg"):
            found = Bound(self._device, found) if isinstance(found, ModuleType) else found
        elif name in _CREATING:
            plain = found

            @functools.wraps(plain)
            def found(*args: Any, device: Device | None = None, **options: Any) -> Any:
                if device is None and not (name == "asarray" and _is_handle(args)):
                    device = self._device
                return plain(*args, device=device, **options)

        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<{self.__name__} on {self._device.name}>"


class Namespace(Bound):
    """`atomr_native.array_api` for one device.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        from .. import array_api

        super().__init__(device, array_api)

    def __array_namespace_info__(self) -> Info:
        """Return what the namespace can do."""
        return Info(self._device)


def _is_handle(args: tuple[Any, ...]) -> bool:
    return bool(args) and hasattr(args[0], "allocation")


def namespace_of(x: GpuRef, api_version: str | None = None) -> Namespace:
    """Return the namespace of an array's device, the same object each time."""
    if api_version not in _VERSIONS:
        raise InvalidRequest(f"api_version={api_version!r}; allowed: {', '.join(map(repr, _VERSIONS))}")
    state = owner_of(handle("__array_namespace__", x).device)
    if state.namespace is None:
        state.namespace = Namespace(x.device)
    found: Namespace = state.namespace
    return found
