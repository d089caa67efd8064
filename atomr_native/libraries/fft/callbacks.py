"""Functions of the user's as LTO-IR, which cuFFT links into its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..._support.disk_cache import cached
from ...errors import LibraryError, Unsupported
from ...plans.spec import PlanSpec
from ...protocol.binaries import Binary
from .attributes import MappedAttributes
from .fusion import elements_of, scale_of, word_of

__all__ = ["callbacks_of", "symbol_of"]

_LENGTH: Final = 8  # bytes of a length in the cached value


def symbol_of(which: str) -> str:
    """Return the name of a function in C++, by which cuFFT declares and calls it."""
    return f"atomr_fft_{which}"


def callbacks_of(
    spec: PlanSpec[MappedAttributes],
    parts: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...],
    capability: tuple[int, int],
) -> tuple[tuple[tuple[str, Binary], ...], str]:
    """Return the functions of a plan as LTO-IR, and why there is none.  Waits for the compiler; needs no GPU.

    Those of a plan are compiled together: they are linked into one kernel, and Numba numbers the functions of a
    process.

    Parameters
    ----------
    spec
    parts
        As `atomr_native.libraries.fft.functions.function_parts` returns them.
    capability : tuple of int
    """
    from ...compile import shipped  # as whose kernels they are kept on disk

    options = [(which, _options(spec, which, dict(given))) for which, given in parts]
    described = [(which, _words(spec, which), sorted(given.items(), key=str)) for which, given in options]
    key = repr((described, capability)).encode()

    def make() -> bytes:
        codes = [_compiled(spec, which, given, capability) for which, given in options]
        return b"".join(len(code).to_bytes(_LENGTH, "little") + code for code in codes)

    try:
        data = cached("ltoir", (b"callbacks", key, *shipped.key()), make)
    except (Unsupported, LibraryError) as error:  # kernels of their own need less of the compiler
        return (), error.message.splitlines()[0]
    found, at = [], 0
    for which, _ in options:
        size = int.from_bytes(data[at : at + _LENGTH], "little")
        found.append((which, Binary(data[at + _LENGTH : at + _LENGTH + size])))
        at += _LENGTH + size
    return tuple(found), ""


def _options(spec: PlanSpec[MappedAttributes], which: str, given: dict[str, Any]) -> dict[str, Any]:
    aligned = spec.attributes.aligned[0 if which == "load" else 1]
    return {**given, "elements": elements_of(spec, which), "scale": scale_of(spec, which), "aligned": aligned}


def _words(spec: PlanSpec[MappedAttributes], which: str) -> list[int]:
    """Return where the block of parameters has the pointers and numbers of a function, in its order."""
    names = getattr(spec.attributes, which)
    arrays = {operand.name for operand in spec.operands}
    given = ["x" if which == "load" else "out", *(n for n in names if n in arrays)]
    return [word_of(spec, name) for name in (*given, *(n for n in names if n not in arrays))]


def _compiled(
    spec: PlanSpec[MappedAttributes], which: str, options: Mapping[str, Any], capability: tuple[int, int]
) -> bytes:
    from ...compile.numba.callbacks import callback
    from .kernels.callbacks import body

    function, types = body(which, **options)
    words = _words(spec, which)
    parts = len(types) - len(words) - 1
    return callback(function, types, words, parts, which == "store", symbol_of(which), capability)
