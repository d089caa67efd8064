"""From a Python function to what a worker loads: machine code for a GPU, the pickled function for the simulator."""

from __future__ import annotations

import base64
import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

import numpy as np

from . import _cubin, _kernel_links, _kernel_spec, _numba, _numba_cache, _numba_compile, _numba_copies
from ._kernel_links import LinkPart
from .disk_cache import cached
from .errors import LibraryError, Unsupported

__all__ = ["MachineCode", "link", "machine_code", "pickled", "types_of"]

_HINT: Final = "`pip install atomr-native[cu13]` (or [cu12], whichever CUDA the driver has) brings it"
_REGISTERS: Final = 65536  # of a multiprocessor, for all threads of a block


def types_of(names: Sequence[str], arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return Numba's types of arguments as `_kernel_spec.classify` describes them."""
    found: list[Any] = []
    for name, (kind, value) in zip(names, arguments, strict=True):
        if kind == "array":
            try:
                found.append(_numba.array_type(value.dtype, value.ndim, _kernel_spec.order_of(value)))
            except Unsupported as error:
                raise Unsupported(f"argument {name}: {error}") from None
        elif kind == "records":
            found.append(_numba.record_array_type(value.dtype, len(value.shape)))
        elif kind == "record":
            found.append(_numba.record_type(value.dtype))
        elif kind == "tuple":
            members = types_of([f"{name}[{i}]" for i in range(len(value.items))], value.items)
            found.append(_numba.tuple_type(members, value.named))
        else:
            found.append(_numba.scalar_type(value.type))
    return tuple(found)


def _linker() -> Any:
    try:
        return importlib.import_module("cuda.core"), importlib.import_module("cuda.bindings.nvjitlink")
    except ImportError as error:
        raise Unsupported(f"linking kernels needs cuda.core and cuda.bindings ({error}); {_HINT}") from None


def link(parts: Sequence[bytes | LinkPart], arch: str, *, max_registers: int | None = None) -> bytes:
    """Link code to machine code through nvJitLink and the disk cache.  Waits for the linker; needs no GPU.

    Parameters
    ----------
    parts : sequence of bytes or LinkPart
        Bytes are LTO-IR.
    arch : str
        ``"sm_90"``, for example.
    max_registers : int, optional
        Of each thread.

    Raises
    ------
    Unsupported
        If nvJitLink is not installed.
    LibraryError
        If the parts do not fit together.
    """
    core, nvjitlink = _linker()
    try:
        version = nvjitlink.version()
    except (RuntimeError, OSError) as error:
        raise Unsupported(f"linking kernels needs the nvJitLink library ({str(error)[:500]}); {_HINT}") from None
    given = [part if isinstance(part, LinkPart) else LinkPart("ltoir", part) for part in parts]
    optimizes = any(part.kind == "ltoir" for part in given)  # and is refused where there is none
    options = core.LinkerOptions(arch=arch, link_time_optimization=optimizes, max_register_count=max_registers)

    def make() -> bytes:
        try:
            linker = core.Linker(*(_kernel_links.object_code(core, part) for part in given), options=options)
            return bytes(linker.link("cubin").code)
        except Exception as error:
            raise LibraryError("nvjitlink", 0, type(error).__name__, f"linking for {arch}", str(error)[:4000]) from None

    contents = [content for part in given for content in (part.kind.encode(), part.data)]
    return cached("cubin", (b"link", arch.encode(), str((version, max_registers)).encode(), *contents), make)


def _registers(options: dict[str, Any]) -> int | None:
    """Return the limit of registers that a kernel's options mean."""
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
    code : str
        Machine code, in base 64.
    sites : tuple of str
        With checks, the places in the source that a report numbers; the kernel then takes a report as last argument.
    cooperative : bool
        Whether its blocks wait for each other, so that all must run at once.
    awaits : bool
        Whether it waits for the launch before it by itself, before it touches memory.
    """

    entry: str
    code: str
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
    """Compile a kernel for a compute capability, with its indices checked if wanted.  Waits for the compiler.

    Raises
    ------
    LibraryError, Unsupported
        See `_numba_cache.ltoir` and `link`.
    """
    sites: tuple[str, ...] = ()
    if checks:
        function, sites = _numba.with_checks(function, types)
        types = (*types, _numba.array_type(np.dtype(np.int64), 1, "C"))
    made = _numba_cache.ltoir(function, types, capability, options)
    links = tuple(dict.fromkeys((*options.get("link", ()), *made.links)))
    # Code that is made for one generation of GPUs only ("a") can be linked into nothing else.
    arch = f"sm_{capability[0]}{capability[1]}{'a' if links and capability[0] >= 9 else ''}"
    parts: list[bytes | LinkPart] = [
        LinkPart(made.kind, made.code),
        *(_kernel_links.prepared(part, arch) for part in links),
    ]
    if made.cooperative:
        parts.append(_numba_compile.device_runtime())
    cubin = link(parts, arch, max_registers=_registers(options))
    if made.entry not in _cubin.kernels(cubin):
        raise LibraryError(
            "nvjitlink", 0, "NoEntry", "linking a kernel", f"the code has no kernel {made.entry}, which Numba has made"
        )
    awaits = not _cubin.why_no_overlap(cubin, made.entry)  # as Numba's do from 9.0 on; and no compiler has moved it
    return MachineCode(made.entry, base64.b64encode(cubin).decode(), sites, made.cooperative, awaits)


@functools.lru_cache(maxsize=1024)
def pickled(function: FunctionType, stand_ins: tuple[tuple[str, FunctionType], ...] = ()) -> str:
    """Return a function in base 64, by value: with its device functions, and what else it refers to.

    Functions that it declares become their stand-ins.

    Raises
    ------
    Unsupported
        If something that it refers to cannot travel to a worker.
    """
    try:
        return base64.b64encode(_numba_copies.pickled(function, dict(stand_ins))).decode()
    except Exception as error:
        raise Unsupported(f"kernel {function.__name__} refers to what cannot be sent to the worker: {error}") from None
