"""By which network interface GPUs of several machines meet."""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress

__all__ = ["interface_of", "meet_at"]

_SIOCGIFADDR = 0x8915


def interface_of(address: str) -> str | None:
    """Return the network interface of an address of this machine; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                found = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("16s24x", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None


def meet_at(environment: dict[str, str], address: str) -> None:
    """Have NCCL in workers with this environment meet by the interface of an address, unless the user has chosen."""
    name = interface_of(address)
    if name is not None:
        environment.setdefault("NCCL_SOCKET_IFNAME", f"={name}")
