from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

__all__: Final = ["Imported", "array_at", "as_numpy", "from_capsule", "to_capsule"]

def to_capsule(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    device_type: int,
    device_id: int,
    *,
    versioned: bool,
    readonly: bool = False,
    copied: bool = False,
) -> object: ...
def from_capsule(capsule: object) -> Imported: ...
def as_numpy(imported: Imported, *, readonly: bool | None = None) -> NDArray[Any]: ...
def array_at(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    readonly: bool = False,
) -> NDArray[Any]: ...

@final
class Imported:
    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device_type(self) -> int: ...
    @property
    def device_id(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def versioned(self) -> bool: ...
    @property
    def copied(self) -> bool: ...
