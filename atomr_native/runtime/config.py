"""The options of a System, with their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from .._lib.sender import MIN_CELLS
from .._support.checks import as_flag, check_choice, is_integer, is_real
from .._support.host_memory import default_limit
from .._support.timeouts import seconds_of
from ..errors import InvalidRequest

__all__ = ["SystemConfig", "number"]

_MAX_MAILBOX = 1 << 20


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """The options of a System; see `System`."""

    isolation: Literal["process", "thread"]
    memory_limit: int | Mapping[str, int] | None
    mailbox_size: int
    mailbox: Literal["block", "reject"]
    timeout: float | None
    max_restarts: int
    within: float
    standby: Literal["warm", "hot", "off"]
    watchdog: float | None
    deterministic: bool
    seed: int | None
    spin_us: int
    allow_crash: bool
    debug: bool
    workspace_limit: int | None
    blocking: bool = False
    launch_records: Literal["auto", "all", "off"] = "auto"
    located: bool = False  # errors name the line of the send: `debug`, or only the environment variable

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, option.name, value.item())
        check_choice("isolation", self.isolation, ("process", "thread"))
        check_choice("mailbox", self.mailbox, ("block", "reject"))
        check_choice("standby", self.standby, ("warm", "hot", "off"))
        check_choice("launch_records", self.launch_records, ("auto", "all", "off"))
        for name in ("deterministic", "allow_crash", "debug", "blocking"):
            as_flag(name, getattr(self, name))
        number("mailbox_size", self.mailbox_size, MIN_CELLS, _MAX_MAILBOX, whole=True)
        number("max_restarts", self.max_restarts, 0, 1 << 30, whole=True)
        number("within", self.within, 0, float("inf"))
        number("spin_us", self.spin_us, 0, 1_000_000, whole=True)
        seconds_of(self.timeout)
        if self.watchdog is not None:
            number("watchdog", self.watchdog, 1e-3, 1e9)
        if isinstance(self.memory_limit, Mapping):
            for kind, limit in self.memory_limit.items():
                check_choice("memory_limit", kind, ("host", "cuda"))
                number(f"memory_limit[{kind!r}]", limit, 1, 1 << 47, whole=True)
            object.__setattr__(self, "memory_limit", {kind: int(limit) for kind, limit in self.memory_limit.items()})
        elif self.memory_limit is not None:
            number("memory_limit", self.memory_limit, 1, 1 << 47, whole=True)
        if self.workspace_limit is not None:
            number("workspace_limit", self.workspace_limit, 0, 1 << 40, whole=True)
        if self.seed is not None:
            number("seed", self.seed, 0, (1 << 64) - 1, whole=True)

    @property
    def cells(self) -> int:
        """Mailbox size, rounded up to a power of two."""
        return 1 << (int(self.mailbox_size) - 1).bit_length()

    @property
    def block_ns(self) -> int:
        """Nanoseconds that a sender waits for room; -1: no limit."""
        if self.mailbox == "reject":
            return 0
        return -1 if self.timeout is None else int(min(self.timeout, 9e9) * 1e9)

    def memory_limit_for(self, kind: str) -> int:
        """Return the limit of the memory of a device of this kind, bytes."""
        limit = self._limit(kind)
        if limit is not None:
            return limit
        return default_limit() if kind == "host" else 1 << 47  # until the worker reports the device's memory

    def gpu_limit(self, memory: tuple[int, int] | None, total: int) -> int:
        """Return the limit of a GPU's memory, bytes, given (free, total) at the start of its first worker.

        Nine tenths of the free memory: libraries, kernels and the next worker's context need memory beside the
        segments.
        """
        limit = self._limit("cuda")
        if limit is not None:
            return min(limit, total)
        return (total if memory is None else memory[0]) * 9 // 10

    def _limit(self, kind: str) -> int | None:
        limit = self.memory_limit
        return limit.get(kind) if isinstance(limit, Mapping) else limit


def number(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> float:
    """Return a number within limits as a Python number."""
    known = is_integer(value) if whole else is_real(value)
    if not known or not low <= value <= high:
        what = "an integer" if whole else "a number"
        raise InvalidRequest(f"{name}={value!r}; it must be {what} from {low} to {high}")
    return float(value) if isinstance(value, np.generic) else value
