"""Descriptions of native plans: dataclasses with the members of a C struct, which is filled in by their names."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

__all__ = ["NativeStruct"]


class NativeStruct:
    """Base of dataclasses with the members of a C struct of 64-bit integers.

    Making the native plan raises `InvalidRequest` if a member is missing, or unknown to C.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def fields(self) -> dict[str, Any]:
        """Return the members by name: an integer each, or a tuple of them for an array."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
