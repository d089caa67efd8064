"""Reads of another machine's host memory by NIXL, where that is installed at both ends.

NIXL moves bytes by the fastest network of the two machines, such as InfiniBand.  The environment variable
``ATOMR_NATIVE_NIXL`` can turn it off (``0``), or demand it (``1``).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from ...errors import InvalidRequest, Unsupported

__all__ = ["Agent", "NixlFailed", "agent", "is_wanted"]

_MODULES = ("nixl._api", "nixl_cu13._api", "nixl_cu12._api")
_SILENCE = 60.0  # seconds after which a transfer has failed


class NixlFailed(Exception):
    """A transfer that did not succeed; another way may."""


@cache
def _module() -> Any:
    """Return NIXL's Python module; None without it."""
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            found = importlib.import_module(name)
            logging.getLogger("nixl").setLevel(logging.WARNING)
            return found
    return None


def is_wanted() -> bool:
    """Whether this process uses NIXL.

    Raises
    ------
    Unsupported
        If the environment demands it, and it is not installed.
    InvalidRequest
        If the environment says anything else.
    """
    said = os.environ.get("ATOMR_NATIVE_NIXL", "")
    if said not in ("", "0", "1"):
        raise InvalidRequest(f"environment variable ATOMR_NATIVE_NIXL={said!r}; allowed: 0, 1")
    if said == "0":
        return False
    if _module() is None:
        if said == "1":
            raise Unsupported(
                "ATOMR_NATIVE_NIXL=1, and NIXL cannot be imported; install the package nixl", rule="ray.nixl",
                lifted_by=("library",),
            )  # fmt: skip
        return False
    return True


class Agent:
    """The part of this process in transfers by NIXL."""

    def __init__(self) -> None:
        module = _module()
        self._lock = threading.Lock()  # NIXL's calls are not safe in several threads
        self._agent = module.nixl_agent(os.urandom(8).hex(), module.nixl_agent_config(backends=["UCX"]))

    @contextlib.contextmanager
    def lent(self, address: int, nbytes: int) -> Iterator[bytes]:
        """Let others read some host memory meanwhile; yields what they need beside its address."""
        with self._lock:
            memory = self._agent.register_memory([(address, nbytes, 0, "")], "DRAM")
            described = bytes(self._agent.get_agent_metadata())
        try:
            yield described
        finally:
            with self._lock:
                self._agent.deregister_memory(memory)

    def read(self, described: bytes, source: int, target: int, nbytes: int) -> None:
        """Copy host memory of another process, which lends it, to this one.  Waits.

        Raises
        ------
        NixlFailed
            If that does not succeed.
        """
        with self._lock, self._failing():
            agent = self._agent
            memory = agent.register_memory([(target, nbytes, 0, "")], "DRAM")
            try:
                name = agent.add_remote_agent(described)
                try:
                    mine, theirs = (agent.get_xfer_descs([(at, nbytes, 0)], "DRAM") for at in (target, source))
                    handle = agent.initialize_xfer("READ", mine, theirs, name, b"")
                    try:
                        self._await(handle)
                    finally:
                        agent.release_xfer_handle(handle)
                finally:
                    agent.remove_remote_agent(name)
            finally:
                agent.deregister_memory(memory)

    def _await(self, handle: Any) -> None:
        end, state = time.monotonic() + _SILENCE, self._agent.transfer(handle)
        while state not in ("DONE", "ERR"):
            if time.monotonic() > end:
                raise NixlFailed(f"no end of a transfer within {_SILENCE:g} s")
            time.sleep(0.0)
            state = self._agent.check_xfer_state(handle)
        if state == "ERR":
            raise NixlFailed("NIXL reports an error")

    @staticmethod
    @contextlib.contextmanager
    def _failing() -> Iterator[None]:
        try:
            yield
        except NixlFailed:
            raise
        except Exception as error:  # NIXL's own, of a compiled module
            raise NixlFailed(f"{type(error).__name__}: {error}") from None


_lock = threading.Lock()
_agent: Agent | None = None


def agent() -> Agent:
    """Return this process's agent, made on first use."""
    global _agent
    with _lock:
        if _agent is None:
            _agent = Agent()
        return _agent
