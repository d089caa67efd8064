"""The interface of every placement, and the common handshake."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from ...errors import Unsupported
from ...protocol.messages import ABI, package_version
from ..control import ControlClient

__all__ = ["Notifications", "Worker"]


class Worker(Protocol):
    """A worker, from the supervisor's point of view.

    Poll `filenos()` for reading and call `pump()` when one is ready.
    """

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None in thread placement."""

    @property
    def client(self) -> ControlClient:
        """Requests to the worker."""

    @property
    def pidfd(self) -> int:
        """Readable once the worker is dead; -1 in thread placement, and after `close`."""

    @property
    def status(self) -> int | None:
        """Exit status once reaped, negative for a signal; None before, and for a thread."""

    def output_tail(self) -> str:
        """Return the last lines that the worker printed; "" for a thread."""

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; a readable one means work for `pump`."""

    def pump(self) -> bool:
        """Process output, answers and death, without waiting; return False once the worker has ended."""

    def alive(self) -> bool:
        """Whether the worker still runs."""

    def kill(self) -> None:
        """End the worker at once, as far as its placement can.  Returns without waiting.  Idempotent."""

    def reap(self, timeout: float) -> str:
        """Wait up to `timeout` seconds for the worker's end and say how it ended."""

    def close(self, timeout: float = 5.0) -> str:
        """End the worker, gracefully if it can within `timeout` seconds, and release everything.  Idempotent."""

    def abandon(self) -> None:
        """In a forked child: close this copy's descriptors without touching the worker."""


class Notifications:
    """Processes a worker's notifications: its greeting, and its log.

    Parameters
    ----------
    device
        Records go to the logger ``atomr_native.worker.<device>``.
    """

    def __init__(self, device: str) -> None:
        self.log = logging.getLogger(f"atomr_native.worker.{device}")
        self.hello: dict[str, Any] | None = None

    def __call__(self, fields: dict[str, Any]) -> None:
        """Handle one notification; its content is untrusted."""
        op = fields.get("op")
        if op == "log":
            self._forward(fields)
        elif op == "hello" and self.hello is None:
            self.hello = fields
        else:
            self.log.warning("unknown notification %.100r", op)

    def _forward(self, fields: dict[str, Any]) -> None:
        level, name, text = fields.get("level"), fields.get("name"), fields.get("message")
        number = min(max(level, logging.DEBUG), logging.CRITICAL) if type(level) is int else logging.WARNING
        source = printable(name)[:200] if isinstance(name, str) else "?"
        message = printable(text) if isinstance(text, str) else repr(text)[:200]
        self.log.log(number, "%s: %s", source, message, extra={"worker_logger": source})

    def check_hello(self) -> None:
        """Raise `Unsupported` if the worker's version differs from this process's version."""
        hello = self.hello or {}
        theirs, ours = (hello.get("version"), hello.get("abi")), (package_version(), ABI)
        if theirs != ours:
            raise Unsupported(
                f"the worker runs atomr_native {theirs[0]!s:.100} with control protocol {theirs[1]!s:.20}, "
                f"this process {ours[0]} with {ours[1]}: two versions are installed, "
                "or one was replaced while the program ran; keep one and restart the program"
            )


def printable(text: str) -> str:
    """Return `text` with lone surrogates escaped, for any log file."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
