"""Write the constants and functions that are used of NVIDIA's libraries, with values and prototypes of their headers.

Each ``.toml`` file below ``cython/`` lists names; the header of the same name beside it is written from that list by
``python tests/helpers/native_tables.py``, as ``make tables`` does.  In a list:

``header``
    The header to read, with ``defines`` for it, if needed.
``prefix``
    Of the macros that are written: ``ATOMR_<prefix>_CONSTANTS``, ``_STRUCTS``, ``_FUNCTIONS`` and ``_OPTIONAL``.
``constants``
    Enumerators and macros.
``needed``, ``optional``
    Functions by the names that libraries export.  Every header must have the needed functions.
``earlier``
    Those of them for which a newer header has a later function under the same name.
``structs``
    Structs that are declared by hand, with the members that are used; their sizes are written.  Those in prototypes
    must be listed.

``{S,D}`` in a name stands for several names, as in a shell.  All installed CUDA majors must agree.
"""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from native_headers import Header, HeaderError, NotInstalledError, Signature, headers

__all__ = ["CYTHON", "Names", "lists", "names", "source", "stale"]

CYTHON = Path(__file__).resolve().parents[2] / "cython"
_WIDTH = 119
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Names:
    """A list of names."""

    path: Path
    header: str
    prefix: str
    defines: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    structs: tuple[str, ...] = ()

    @property
    def output(self) -> Path:
        """The header that is written."""
        return self.path.with_suffix(".h")

    @property
    def functions(self) -> tuple[str, ...]:
        """All functions, in the order of the table."""
        return self.needed + self.optional


def _expand(name: str) -> list[str]:
    before, brace, rest = name.partition("{")
    if not brace:
        return [name]
    inside, _, after = rest.partition("}")
    return [before + word + end for word in inside.split(",") for end in _expand(after)]


def names(path: Path) -> Names:
    """Return a list as its file has it."""
    read = tomllib.loads(path.read_text(encoding="utf-8"))
    allowed = set(Names.__dataclass_fields__) - {"path"}
    if wrong := [*(set(read) - allowed), *({"header", "prefix"} - set(read))]:
        raise HeaderError(f"{path}: {', '.join(sorted(wrong))} unknown or missing; a list has {sorted(allowed)}")
    text = {"header", "prefix"}
    for key, value in read.items():
        if not isinstance(value, str if key in text else list):
            raise HeaderError(f"{path}: {key} is {value!r}; it is {'one text' if key in text else 'a list of names'}")
        if isinstance(value, list):
            read[key] = tuple(one for name in value for one in _expand(name))
    listed = Names(path, **read)
    for key in ("constants", "functions", "structs"):
        found = getattr(listed, key)
        if twice := sorted({name for name in found if found.count(name) > 1}):
            raise HeaderError(f"{path}: {', '.join(twice)} twice among the {key}")
    return listed


def lists() -> list[Names]:
    """Return all lists."""
    return [names(path) for path in sorted(CYTHON.rglob("*.toml"))]


def _require(header: Header, kind: str, listed: Iterable[str], known: frozenset[str]) -> None:
    for name in listed:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise HeaderError(f"{header} has no {kind} {name}{f'; near: {near}' if near else ''}")


def _agreed(found: list[Header], kind: str, name: str, read: Callable[[Header], _Value]) -> _Value:
    """Return what all headers say, or fail with what each does."""
    said = {str(header): read(header) for header in found}
    if len({repr(value) for value in said.values()}) > 1:
        each = "; ".join(f"{value} in {header}" for header, value in said.items())
        raise HeaderError(f"{kind} {name} differs: {each}")
    return next(iter(said.values()))


def _check(listed: Names, header: Header) -> None:
    _require(header, "constant", listed.constants, header.constants)
    _require(header, "struct", listed.structs, header.types)
    _require(header, "function", listed.needed, header.functions)
    for name in listed.functions:
        later = header.renamed(name)
        if later and name not in listed.earlier:
            raise HeaderError(f"{header} renames {name} to {later}: list {later}, or {name} in `earlier`, too")


def _numbers(listed: Names, found: list[Header]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the values of constants, and the sizes of structs."""
    size = {name: f"sizeof({name})" for name in listed.structs}
    each = {header: header.values([*listed.constants, *size.values()]) for header in found}
    values = {name: _agreed(found, "constant", name, lambda h, n=name: each[h][n]) for name in listed.constants}
    for name, value in values.items():
        if not -(2**31) <= value < 2**31:
            raise HeaderError(f"{found[0]}: constant {name} is {value}; the table holds numbers of 32 bits")
    return values, {name: _agreed(found, "size of", name, lambda h, t=text: each[h][t]) for name, text in size.items()}


def _signatures(listed: Names, found: list[Header]) -> dict[str, Signature]:
    signatures = {}
    for name in listed.functions:
        having = [header for header in found if name in header.functions]
        if not having:
            _require(found[0], "function", [name], found[0].functions)
        _agreed(having, "function", name, lambda h, n=name: h.signature(n).types)
        signatures[name] = having[0].signature(name)
    return signatures


def _types(listed: Names, found: list[Header], signatures: dict[str, Signature]) -> list[str]:
    """Return declarations of the types in prototypes, without structs."""
    declared: dict[str, str] = {}

    def declare(name: str, having: list[Header]) -> None:
        if name in declared or name in listed.structs:
            return
        text, mentioned = _agreed(having, "type", name, lambda h: h.declaration(name))
        if text == name:
            raise HeaderError(f"{having[0]}: {name} is a struct; declare it by hand, and list it in `structs`")
        for inner in mentioned:
            declare(inner, having)
        declared[name] = text

    for function, signature in signatures.items():
        for name in signature.mentioned:
            declare(name, [header for header in found if function in header.functions])
    return list(declared.values())


def _function(name: str, signature: Signature) -> list[str]:
    """Return the lines of an entry, broken between arguments."""
    arguments = [f"{text}," for text in signature.arguments[:-1]] + [*signature.arguments[-1:]]
    line = f"    F({signature.result}, {name}, ({' '.join(arguments)}))"
    if len(line) <= _WIDTH - 2:
        return [line]
    lines, line = [f"    F({signature.result}, {name},"], "      ("
    for argument in arguments:
        word = argument if argument.endswith(",") else f"{argument}))"
        if len(line) + len(word) + 1 > _WIDTH - 2:
            lines.append(line)
            line = "      "
        line += word if line.endswith("(") else f" {word}"
    return [*lines, line]


def _macro(name: str, parameter: str, entries: Iterable[str]) -> str:
    lines = [f"#define ATOMR_{name}({parameter})", *entries]
    return "".join(f"{line:<{_WIDTH - 1}}\\\n" for line in lines[:-1]) + lines[-1] + "\n"


def source(listed: Names, found: list[Header] | None = None) -> str:
    """Return the header for a list, from the installed headers of NVIDIA, or those found."""
    found = headers(listed.header, listed.defines) if found is None else found
    for header in found:
        _check(listed, header)
    values, sizes = _numbers(listed, found)
    signatures = _signatures(listed, found)
    types = _types(listed, found, signatures)
    guard = "ATOMR_" + re.sub(r"\W", "_", listed.output.relative_to(CYTHON).as_posix()).upper()
    text = f"/* The parts of {listed.header} that {listed.path.name} lists; written by `make tables`. */\n"
    text += f'#ifndef {guard}\n#define {guard}\n\n#include "cuda/fields.h"\n'
    if types:
        text += "\n" + "".join(f"{line}\n" for line in types)
    if values:
        text += "\n" + _macro(f"{listed.prefix}_CONSTANTS", "C", (f"    C({n}, {v})" for n, v in values.items()))
        text += f"\nenum {{ ATOMR_{listed.prefix}_CONSTANTS(ATOMR_ENUMERATOR) }};\n"
    if sizes:
        text += "\n" + _macro(f"{listed.prefix}_STRUCTS", "S", (f"    S({n}, {v})" for n, v in sizes.items()))
    for kind, functions in (("FUNCTIONS", listed.needed), ("OPTIONAL", listed.optional)):
        if functions:
            lines = [line for name in functions for line in _function(name, signatures[name])]
            text += "\n" + _macro(f"{listed.prefix}_{kind}", "F", lines)
    return text + "\n#endif\n"


def stale(listed: Names) -> bool:
    """Return whether a checked-in header is not as its list and the installed headers say."""
    return not listed.output.exists() or listed.output.read_text(encoding="utf-8") != source(listed)


if __name__ == "__main__":
    try:
        for each in lists():
            try:
                each.output.write_text(source(each), encoding="utf-8")
            except NotInstalledError as error:  # wheels of NCCL are not for every machine
                print(f"{each.output} stays as it is: {error}", file=sys.stderr)  # noqa: T201
    except HeaderError as error:
        sys.exit(str(error))
