"""How the arrays of a process are reached."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["Way", "machine"]


@cache
def machine() -> str:
    """Return a name of this machine: processes with the same name reach each other by sockets of the file system."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = os.uname().nodename
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


@dataclass(frozen=True)
class Way:
    """The addresses of a `Server`.

    Attributes
    ----------
    ident : str
        Its name, unique in the world; that of its socket in Linux's abstract namespace.
    machine : str
        That of its process.
    host, port
        Of its TCP socket.
    secret : bytes
        Both ends prove that they know it.
    nixl : bool
        Whether its process uses NIXL.
    """

    ident: str
    machine: str
    host: str
    port: int
    secret: bytes = field(repr=False)
    nixl: bool = False

    @property
    def near(self) -> bool:
        """Whether descriptors can be passed."""
        return self.machine == machine()

    @property
    def local(self) -> bytes:
        """Its address on its own machine."""
        return local_address(self.ident)


def local_address(ident: str) -> bytes:
    """Return the address of a server's socket in the abstract namespace."""
    return b"\0atomr_native-move-" + ident.encode()
