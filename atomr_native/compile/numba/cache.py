"""Numba kernels as LTO-IR, from the disk cache if any program has compiled their content before.

Numba numbers the functions that a process compiles, and its code contains the numbers, so compiled code differs between
processes.  Therefore the key is computed from the function before compilation.
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

from ..._support.disk_cache import cached
from ..content import Digest, NoContent, known_by_name
from ..link_parts import LinkPart
from . import access, api, compiler
from .compiler import Compiled
from .single import in_dtype

__all__ = ["device_ltoir", "ltoir", "read_only"]

_log = logging.getLogger("atomr_native")
_COMPILERS: Final = ("numba", "numba-cuda", "llvmlite", "numpy", "ml_dtypes")
_KIND: Final = "numba"
_PROOFS: Final = "access"
_FORMAT: Final = 5


def ltoir(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> Compiled:
    """Return a kernel as LTO-IR, from the disk cache or compiled now; see `compiler.compile_ltoir`."""

    def make() -> Compiled:
        return compiler.compile_ltoir(function, arguments, capability, options)

    try:
        key = _key(function, arguments, capability, options)
    except NoContent as reason:
        _log.debug("kernel %s is compiled in every process: it refers to %s", function.__name__, reason)
        return make()
    return _loaded(cached(_KIND, (key,), lambda: _dumped(make())))


def device_ltoir(
    function: FunctionType, arguments: Sequence[str], name: str, capability: tuple[int, int], *, brief: bool = False
) -> bytes:
    """Return a function of scalars as LTO-IR with the C interface, from the disk cache or compiled now.

    Its constants are as wide as its arguments; see `single.in_dtype`.

    Parameters
    ----------
    function : FunctionType
    arguments : sequence of str
        ``"float32"`` or ``"float64"`` each; the result has the first one's dtype.
    name : str
        Symbol of the function.
    capability : tuple of int
    brief : bool
        Whether its arithmetic is short, see `compiler.device_function`.

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    Unsupported
        If NVVM is not installed.
    """
    signature = f"{arguments[0]}({', '.join(arguments)})"

    def make() -> bytes:
        return compiler.device_function(in_dtype(function, arguments[0]), signature, name, capability, brief=brief)

    try:
        key = _key(function, [api.scalar_type(one) for one in arguments], capability, compiler.OPTIONS)
    except NoContent as reason:
        _log.debug("function %s is compiled in every process: it refers to %s", function.__name__, reason)
        return make()
    return cached("ltoir", (b"short device" if brief else b"device", name.encode(), key), make)


def read_only(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> frozenset[str]:
    """Return the parameters that a kernel only reads, from the disk cache or proven now; see `access.read_only`."""
    try:
        key = _key(function, arguments, capability, options)
    except NoContent:
        return access.read_only(function, arguments, capability)
    made = cached(
        _PROOFS, (key,), lambda: json.dumps(sorted(access.read_only(function, arguments, capability))).encode()
    )
    return frozenset(json.loads(made))


def _key(
    function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> bytes:
    """Return a digest of all dependencies of the code.

    Raises
    ------
    NoContent
    """
    chosen = {name: options[name] for name in sorted(compiler.OPTIONS)}
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
    """Return a description of a type; a named tuple's text does not always contain its field names."""
    members = [_described(member) for member in type_] if isinstance(type_, api.types.BaseTuple) else []
    return str(type_), getattr(type_, "fields", ()) if members else (), members


@functools.cache
def _compiler() -> tuple[object, ...]:
    """Return the compilers: versions, and the file of NVVM."""
    found: list[object] = [sys.implementation.cache_tag, sys.version_info[:3]]
    for name in _COMPILERS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    path = compiler.nvvm_file()
    if path is not None:
        stat = Path(path).stat()
        found.append((Path(path).name, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _numba_object(digest: Digest, value: Any) -> bool:
    """Add Numba's objects: device functions, declared functions, types, and its own intrinsics."""
    if isinstance(value, api.CUDADispatcher | api.CPUDispatcher):
        options = sorted((name, option) for name, option in value.targetoptions.items() if name != "link")
        digest.add("compiled", f"{type(value).__name__} {options}")
        if isinstance(value, api.CUDADispatcher):
            digest.add("signatures", repr(api.device_signatures(value)))
        for part in value.targetoptions.get("link") or ():
            _add_part(digest, compiler.link_part(part))
        digest.function(value.py_func)
    elif isinstance(value, api.ExternFunction):
        digest.add("declared", f"{value.name} {value.sig}")
        for how, parts in compiler.declared(value):
            digest.add("called", how)
            for part in parts:
                _add_part(digest, part)
    elif isinstance(value, api.types.Type) and known_by_name(type(value).__module__) and "0x" not in str(value):
        digest.add("type", f"{type(value).__qualname__} {value}")
    elif isinstance(value, api.Intrinsic) and known_by_name(value.__module__):
        digest.add("intrinsic", f"{value.__module__}.{value.__qualname__}")
    else:
        return False
    return True


def _add_part(digest: Digest, part: LinkPart) -> None:
    digest.add("part", repr((part.kind, part.name, part.folder)))
    digest.add("content", part.data)


def _overloads() -> Iterator[FunctionType]:
    """Return the implementations of functions registered with Numba by other packages.

    Raises
    ------
    NoContent
        If an object is not a function.
    """
    for registry in compiler.registries():
        for template in (*registry.functions, *registry.attributes):
            made = getattr(template, "_overload_func", None)
            # Numba generates some functions without a module, and those of this package are reached from their callers.
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
