"""From a Python function to its form for a worker: machine code for a GPU, the pickled function for the simulator."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

import numpy as np

from ..errors import LibraryError, NestedCall, Unsupported
from ..protocol.binaries import Binary
from . import cubin as _cubin
from . import link_parts
from .link_parts import LinkPart
from .linking import link
from .numba import api, cache, compiler, copies
from .nvrtc import arch_of

__all__ = ["MachineCode", "link", "machine_code", "pickled"]

_REGISTERS: Final = 65536  # registers of a multiprocessor, for all threads of a block


def _registers(options: dict[str, Any]) -> int | None:
    """Return the register limit of a kernel's options."""
    limit: int | None = options["max_registers"]
    bounds = options.get("launch_bounds")
    if bounds:
        threads, blocks = (bounds, 1) if isinstance(bounds, int) else (*bounds, 1)[:2]
        fitting = max(16, min(255, _REGISTERS // (int(threads) * max(1, int(blocks))) // 8 * 8))
        limit = fitting if limit is None else min(limit, fitting)
    return limit


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A kernel for one architecture.

    Attributes
    ----------
    entry : str
        Its name in the code.
    code : Binary
        Machine code.
    sites : tuple of str
        With checks, the places in the source by their numbers in a report, which is then the kernel's last argument.
    cooperative : bool
        Whether its blocks wait for each other, so all must run at once.
    awaits : bool
        Whether it waits for the previous launch before it touches memory.
    """

    entry: str
    code: Binary
    sites: tuple[str, ...] = ()
    cooperative: bool = False
    awaits: bool = False


def machine_code(
    function: FunctionType,
    types: tuple[Any, ...],
    capability: tuple[int, int],
    options: dict[str, Any],
    *,
    checks: bool = False,
) -> MachineCode:
    """Compile a kernel for a compute capability, optionally with checked indices.  Waits for the compiler.

    Raises
    ------
    LibraryError, Unsupported
        See `cache.ltoir` and `link`.
    """
    sites: tuple[str, ...] = ()
    if checks:
        from .numba.index_checks import with_checks  # registers its checks with Numba

        function, sites = with_checks(function, types)
        types = (*types, api.array_type(np.dtype(np.int64), 1, "C"))
    made = cache.ltoir(function, types, capability, options)
    links = tuple(dict.fromkeys((*options.get("link", ()), *made.links)))
    arch = arch_of(capability)
    parts: list[bytes | LinkPart] = [
        LinkPart(made.kind, made.code),
        *(link_parts.prepared(part, arch) for part in links),
    ]
    if made.cooperative:
        parts.append(compiler.device_runtime())
    cubin = link(parts, arch, max_registers=_registers(options))
    if made.entry not in _cubin.kernels(cubin):
        raise LibraryError(
            "nvjitlink",
            0,
            "NoEntry",
            "linking a kernel",
            f"the code lacks the kernel {made.entry}, which Numba compiled",
        )
    awaits = not _cubin.why_no_overlap(cubin, made.entry)  # from 9.0 on, unless a compiler moved the wait
    return MachineCode(made.entry, Binary(cubin), sites, made.cooperative, awaits)


@functools.lru_cache(maxsize=1024)
def pickled(function: FunctionType, stand_ins: tuple[tuple[str, FunctionType], ...] = ()) -> bytes:
    """Return a function, pickled by value with its device functions and other references.

    Declared functions are replaced by their stand-ins.

    Raises
    ------
    Unsupported
        If a referenced object cannot be sent to a worker.
    NestedCall
        In a callback, inside of such a call of the same thread.
    """
    try:
        return copies.pickled(function, dict(stand_ins))
    except NestedCall:
        raise
    except Exception as error:
        raise Unsupported(
            f"kernel {function.__name__} refers to an object that cannot be sent to the worker: {error}"
        ) from None
