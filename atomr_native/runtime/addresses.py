"""Addresses of devices: a kind and an index, such as ``host:1`` and ``cuda:0``."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from ..errors import InvalidRequest

__all__ = ["HOST_DEVICES", "Address", "address_of"]

#: Host devices of one System.
HOST_DEVICES: Final = 16
_FORM: Final = re.compile(r"host|(host|cuda):(0|[1-9]\d{0,2})")
_ALLOWED: Final = f"'host' (which is 'host:0'), 'host:1' to 'host:{HOST_DEVICES - 1}', 'cuda:0', 'cuda:1', ..."


class Address(NamedTuple):
    """Where a device is.

    Attributes
    ----------
    kind : {"host", "cuda"}
    number : int
        Its number among the devices of this kind.
    """

    kind: Literal["host", "cuda"]
    number: int

    @property
    def name(self) -> str:
        """The name of the device: ``"host"`` for the first host device."""
        return "host" if self == ("host", 0) else f"{self.kind}:{self.number}"


def address_of(name: object) -> Address:
    """Return the address that a name stands for.

    Raises
    ------
    InvalidRequest
        If no device has such a name; the message lists the allowed names.
    """
    found = _FORM.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidRequest(f"unknown device {name!r}; allowed: {_ALLOWED}")
    address = Address("cuda" if found[1] == "cuda" else "host", int(found[2] or 0))
    if address.kind == "host" and address.number >= HOST_DEVICES:
        raise InvalidRequest(f"unknown device {name!r}; allowed: {_ALLOWED}")
    return address
