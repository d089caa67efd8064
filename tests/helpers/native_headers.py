"""What NVIDIA's headers say: prototypes, types, values of constants, sizes of structs.

Prototypes come from what gcc's preprocessor makes of a header, so macros have done their work, and pycparser reads it:
pure Python, and it knows typedefs, which a regular expression does not.  libclang would do as well, for 60 MB;
cxxheaderparser keeps types as text.  Values and sizes come from a C program that gcc compiles against the header.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cuda_wheels import AS_C, find, lacking
from pycparser import c_ast, c_generator, c_parser

__all__ = ["Header", "HeaderError", "NotInstalledError", "Signature", "headers"]

#: What is no C11 in the system's headers; for the parser alone, so the wrong size of a type does no harm.
_PARSABLE = {
    "__attribute__(x)": "", "__asm__(x)": "", "__extension__": "", "__inline": "", "__inline__": "", "__restrict": "",
    "__builtin_va_list": "int", "_Float128": "double",
}  # fmt: skip
#: Names of <stddef.h> and <stdint.h>, which our headers include.
_STANDARD = re.compile(r"size_t|ptrdiff_t|u?int(8|16|32|64|ptr)_t")
_KEYWORDS = {"void", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "_Bool"}


class HeaderError(Exception):
    """A header lacks a name, or has it differently from another header."""


class NotInstalledError(HeaderError):
    """There is no header to read, or none that it includes, or no gcc to read it with."""


@dataclass(frozen=True)
class Signature:
    """A function of a header."""

    result: str
    arguments: tuple[str, ...]
    #: Result and types of the arguments, without the names of these.
    types: tuple[str, ...]
    #: The typedefs that it mentions, in their order.
    mentioned: tuple[str, ...]


class _Mentioned(c_ast.NodeVisitor):
    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def visit_IdentifierType(self, node: Any) -> None:  # noqa: N802  (pycparser's name)
        self.names |= {name: None for name in node.names if name not in _KEYWORDS and not _STANDARD.fullmatch(name)}


def _mentioned(node: Any) -> tuple[str, ...]:
    visitor = _Mentioned()
    visitor.visit(node)
    return tuple(visitor.names)


def _gcc(arguments: Iterable[str], text: str) -> str:
    gcc = shutil.which("gcc")
    if gcc is None:
        raise NotInstalledError("gcc is not installed")
    done = subprocess.run([gcc, "-std=c11", *AS_C, *arguments], input=text, text=True, capture_output=True, check=False)
    if reason := lacking(done.stderr):
        raise NotInstalledError(reason)
    if done.returncode:
        raise HeaderError(f"gcc refuses {text.splitlines()[0]}:\n{done.stderr}")
    return done.stdout


class Header:
    """A header of a CUDA major."""

    def __init__(self, name: str, major: int, folders: tuple[Path, ...], defines: Iterable[str] = ()) -> None:
        self.name, self.major, self.folders, self._defines = name, major, folders, tuple(defines)
        self._includes = tuple(f"-I{folder}" for folder in folders)

    def __str__(self) -> str:
        return f"{self.name} of CUDA {self.major} ({self.folders[0]})"

    def check(self) -> None:
        """Raise NotInstalledError where a header is missing that this one includes."""
        _ = self._macros

    def _preprocess(self, *arguments: str) -> str:
        return _gcc(["-E", "-P", "-x", "c", "-", *arguments, *self._includes], f"#include <{self.name}>\n")

    @cached_property
    def _tree(self) -> Any:
        defines = [f"-D{name}={value}" for name, value in _PARSABLE.items()] + [f"-D{name}" for name in self._defines]
        return c_parser.CParser().parse(self._preprocess(*defines))

    @cached_property
    def _typedefs(self) -> dict[str, Any]:
        return {node.name: node for node in self._tree.ext if isinstance(node, c_ast.Typedef)}

    @cached_property
    def _functions(self) -> dict[str, Any]:
        declared = (node for node in self._tree.ext if isinstance(node, c_ast.Decl))
        return {node.name: node.type for node in declared if isinstance(node.type, c_ast.FuncDecl)}

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that it declares."""
        return frozenset(self._functions)

    @cached_property
    def _macros(self) -> dict[str, str]:
        lines = re.findall(r"^#define (\w+) (.*)$", self._preprocess("-dM"), re.M)
        return {name: body.strip() for name, body in lines}

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that it names."""
        return frozenset(self._typedefs)

    def renamed(self, function: str) -> str | None:
        """Return the name that the header's macros give to a function, or None."""
        body = self._macros.get(function, function)
        return body if body != function and body in self._functions else None

    @cached_property
    def constants(self) -> frozenset[str]:
        """The names that may have a value: enumerators and macros."""
        found = set(self._macros)

        class Enumerators(c_ast.NodeVisitor):
            def visit_Enumerator(self, node: Any) -> None:  # noqa: N802  (pycparser's name)
                found.add(node.name)

        Enumerators().visit(self._tree)
        return frozenset(found)

    def signature(self, function: str) -> Signature:
        """Return a function's result and arguments."""
        generate = c_generator.CGenerator().visit
        node = self._functions[function]
        parameters = node.args.params if node.args else []
        arguments = tuple(generate(parameter).replace("* const", "*const") for parameter in parameters)
        types = []
        for parameter in parameters:
            # Names of parameters differ between versions, and mean nothing.
            inner = parameter.type
            while not isinstance(inner, c_ast.TypeDecl):
                inner = inner.type
            named, inner.declname = inner.declname, None
            types.append(generate(c_ast.Typename(None, parameter.quals, None, parameter.type)))
            inner.declname = named
        result = generate(c_ast.Typename(None, [], None, _unnamed(node.type)))
        return Signature(result, arguments, (result, *types), _mentioned(node))

    def declaration(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return our declaration of a type, and the types that it mentions; of a struct, its name alone.

        Enums become ``int``, and what a handle points to becomes incomplete: neither is anything that we use.
        """
        if name not in self._typedefs:
            raise HeaderError(f"{self} has no type {name}")
        kind = self._typedefs[name].type
        while isinstance(kind, c_ast.TypeDecl) and isinstance(kind.type, c_ast.IdentifierType):
            words = kind.type.names
            if words[0] not in self._typedefs or _STANDARD.fullmatch(words[0]):
                return f"typedef {' '.join(words)} {name};", ()
            kind = self._typedefs[words[0]].type
        if isinstance(kind, c_ast.TypeDecl) and isinstance(kind.type, c_ast.Enum):
            return f"typedef int {name};", ()
        if isinstance(kind, c_ast.PtrDecl) and (tag := self._tag(kind.type)):
            constant = "const " if "const" in kind.type.quals else ""
            return f"typedef {constant}struct {tag} *{name};", ()
        if isinstance(kind, c_ast.TypeDecl):
            tag = kind.type.name
            return (name if self._complete(kind.type) else f"typedef struct {tag} {name};"), ()
        text = c_generator.CGenerator().visit(c_ast.Typedef(name, [], ["typedef"], _unnamed(kind, name)))
        return f"{text};", _mentioned(kind)

    def _complete(self, struct: Any) -> bool:
        bodies = (node.type for node in self._tree.ext if isinstance(node, c_ast.Decl))
        return struct.decls is not None or any(
            isinstance(body, type(struct)) and body.name == struct.name and body.decls is not None for body in bodies
        )

    def _tag(self, kind: Any) -> str | None:
        """Return the tag for the struct that a handle points to, or None if it points to no struct."""
        name = None
        while isinstance(kind, c_ast.TypeDecl) and isinstance(kind.type, c_ast.IdentifierType):
            name = kind.type.names[0]
            if name not in self._typedefs:
                return None
            kind = self._typedefs[name].type
        is_struct = isinstance(kind, c_ast.TypeDecl) and isinstance(kind.type, c_ast.Struct)
        return (kind.type.name or name) if is_struct else None

    def values(self, expressions: Iterable[str]) -> dict[str, int]:
        """Return the values of integer expressions, as a compiled program prints them."""
        listed = list(expressions)
        lines = "".join(f'    printf("%lld\\n", (long long)({expression}));\n' for expression in listed)
        with tempfile.TemporaryDirectory() as folder:
            program = f"#include <{self.name}>\n#include <stdio.h>\nint main(void) {{\n{lines}    return 0;\n}}\n"
            _gcc(["-x", "c", "-", "-o", f"{folder}/values", *self._includes], program)
            done = subprocess.run([f"{folder}/values"], capture_output=True, text=True, check=True)
        return dict(zip(listed, map(int, done.stdout.split()), strict=True))


def _unnamed(node: Any, name: str | None = None) -> Any:
    """Return a type with another name, or none, at its heart."""
    if isinstance(node, c_ast.TypeDecl):
        return c_ast.TypeDecl(name, node.quals, node.align, node.type)
    if isinstance(node, c_ast.PtrDecl):
        return c_ast.PtrDecl(node.quals, _unnamed(node.type, name))
    if isinstance(node, c_ast.FuncDecl):
        return c_ast.FuncDecl(node.args, _unnamed(node.type, name))
    return c_ast.ArrayDecl(_unnamed(node.type, name), node.dim, node.dim_quals)


def headers(name: str, defines: Iterable[str] = ()) -> list[Header]:
    """Return a header as every installed CUDA major has it, the newest first.

    The wheels of CUDA 13 share one folder; elsewhere a library has its own, beside those with the headers it includes.
    """
    toolkits: dict[int, Path] = {}
    for path in find("cuda.h"):
        version = re.search(r"^#define CUDA_VERSION (\d+)", path.read_text(errors="replace"), re.M)
        if version:
            toolkits.setdefault(int(version[1]) // 1000, path.parent)
    folders = [Path(str(path).removesuffix(name)) for path in find(Path(name).name) if str(path).endswith("/" + name)]
    found = []
    for major, toolkit in sorted(toolkits.items(), reverse=True):
        if (toolkit / name).is_file():
            found.append(Header(name, major, (toolkit,), defines))
        else:
            own = [folder for folder in folders if folder not in toolkits.values()]
            for folder in own[:1]:
                beside = {*folder.parents[1].glob("*/include"), *toolkits.values()} - {folder, toolkit}
                found.append(Header(name, major, (folder, toolkit, *sorted(beside)), defines))
    if not found:
        raise NotInstalledError(
            f"{name} is not installed: pip install -e '.[test-cuda]', or name folders in ATOMR_NATIVE_CUDA_WHEELS"
        )
    for header in found:
        header.check()
    return found
