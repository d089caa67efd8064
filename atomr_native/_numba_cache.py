"""Numba kernels as LTO-IR, from the disk cache wherever their content was compiled before, by whatever program.

Numba numbers the functions that a process compiles, and the numbers are in its code: so what it has made tells nothing
about what another process would make.  The key is taken of the function before.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from . import _numba, _numba_compile
from ._content import Digest, NoContent, known_by_name
from ._kernel_links import LinkPart
from ._numba_compile import Compiled
from .disk_cache import cached

__all__ = ["ltoir"]

_log = logging.getLogger("atomr_native")
_COMPILERS: Final = ("numba", "numba-cuda", "llvmlite", "numpy", "ml_dtypes")
_KIND: Final = "numba"
_FORMAT: Final = 4


def ltoir(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> Compiled:
    """Return a kernel as LTO-IR, from the disk cache or compiled now; see `_numba_compile.compile_ltoir`."""

    def make() -> Compiled:
        return _numba_compile.compile_ltoir(function, arguments, capability, options)

    try:
        key = _key(function, arguments, capability, options)
    except NoContent as reason:
        _log.debug("kernel %s is compiled in every process: it refers to %s", function.__name__, reason)
        return make()
    return _loaded(cached(_KIND, (key,), lambda: _dumped(make())))


def _key(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> bytes:
    """Return a digest of everything that the code depends on.

    Raises
    ------
    NoContent
    """
    chosen = {name: options[name] for name in sorted(_numba_compile.OPTIONS)}
    digest = Digest(_numba_object, lines=bool(chosen["lineinfo"] or chosen["debug"]))
    digest.add("format", str(_FORMAT))
    digest.add("compiler", repr(_compiler()))
    settings = sorted(i for i in os.environ.items() if i[0].startswith("NUMBA_") and i[0] != "NUMBA_CACHE_DIR")
    digest.add("target", repr((capability, chosen, settings)))
    digest.add("types", repr([_described(t) for t in arguments]))
    digest.function(function)
    for overload in sorted(_overloads(), key=lambda f: (str(f.__module__), f.__qualname__)):
        digest.function(overload)
    return digest.digest()


def _described(type_: Any) -> tuple[Any, ...]:
    """Return what a type is: that of a named tuple does not always say how its members are called."""
    members = [_described(member) for member in type_] if isinstance(type_, _numba.types.BaseTuple) else []
    return str(type_), getattr(type_, "fields", ()) if members else (), members


@functools.cache
def _compiler() -> tuple[object, ...]:
    """Return what compiles: versions, and the file of NVVM."""
    found: list[object] = [sys.implementation.cache_tag, sys.version_info[:3]]
    for name in _COMPILERS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    path = _numba_compile.nvvm_file()
    if path is not None:
        stat = Path(path).stat()
        found.append((Path(path).name, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _numba_object(digest: Digest, value: Any) -> bool:
    """Add what Numba has made: device functions, declared ones, types, and intrinsics of its own."""
    if isinstance(value, _numba.CUDADispatcher | _numba.CPUDispatcher):
        options = sorted((name, option) for name, option in value.targetoptions.items() if name != "link")
        digest.add("compiled", f"{type(value).__name__} {options}")
        if isinstance(value, _numba.CUDADispatcher):
            digest.add("signatures", repr(_numba.device_signatures(value)))
        for part in value.targetoptions.get("link") or ():
            _add_part(digest, _numba_compile.link_part(part))
        digest.function(value.py_func)
    elif isinstance(value, _numba.ExternFunction):
        digest.add("declared", f"{value.name} {value.sig}")
        for how, parts in _numba_compile.declared(value):
            digest.add("called", how)
            for part in parts:
                _add_part(digest, part)
    elif isinstance(value, _numba.types.Type) and known_by_name(type(value).__module__) and "0x" not in str(value):
        digest.add("type", f"{type(value).__qualname__} {value}")
    elif isinstance(value, _numba.Intrinsic) and known_by_name(value.__module__):
        digest.add("intrinsic", f"{value.__module__}.{value.__qualname__}")
    else:
        return False
    return True


def _add_part(digest: Digest, part: LinkPart) -> None:
    digest.add("part", repr((part.kind, part.name, part.folder)))
    digest.add("content", part.data)


def _overloads() -> Iterator[FunctionType]:
    """Return what others than Numba have registered as implementations of functions.

    Raises
    ------
    NoContent
        If something is no function.
    """
    for registry in _numba_compile.registries():
        for template in (*registry.functions, *registry.attributes):
            made = getattr(template, "_overload_func", None)
            # Numba makes some functions that name no module, and ours are reached from what calls them.
            named = template.__module__ if made is None else made.__module__ or made.__globals__.get("__name__")
            if known_by_name(named) or named == "abc" or (named or "").startswith(f"{__package__}."):
                continue
            if not isinstance(made, FunctionType):
                raise NoContent(f"{template}, which is registered with Numba")
            yield made


def _dumped(made: Compiled) -> bytes:
    parts = [(part.kind, part.name, part.folder, len(part.data)) for part in made.links]
    head = json.dumps([made.entry, made.cooperative, made.kind, parts]).encode()
    return b"".join((len(head).to_bytes(8, "little"), head, *(part.data for part in made.links), made.code))


def _loaded(value: bytes) -> Compiled:
    at = 8 + int.from_bytes(value[:8], "little")
    entry, cooperative, code_kind, parts = json.loads(value[8:at])
    links = []
    for kind, name, folder, size in parts:
        links.append(LinkPart(kind, value[at : at + size], name, folder))
        at += size
    return Compiled(value[at:], entry, tuple(links), cooperative, code_kind)
