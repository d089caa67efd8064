"""Content digests of Python functions for kernel compilers, equal in every process.

A digest is computed before compilation.  It covers the function's bytecode and everything reachable from it: globals,
closure values, attributes of modules, called functions.  A function that refers to an object without comparable content
has no digest, and is compiled each time.
"""

from __future__ import annotations

import enum
import hashlib
import struct
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from .bytecode import all_names, global_names

__all__ = ["Digest", "NoContent", "known_by_name"]

#: Packages identified by version, which must also be part of the key; their members are identified by name.
_BY_NAME: Final = frozenset(
    ("builtins", "cmath", "llvmlite", "math", "ml_dtypes", "numba", "numba_cuda", "numpy", "operator", "_operator")
)
_PLAIN: Final = (type(None), bool, int, str, bytes, type(Ellipsis), range)


class NoContent(Exception):
    """An object without comparable content; the message names it."""


def known_by_name(module: str | None) -> bool:
    """Return whether a module belongs to a package identified by version."""
    return (module or "").partition(".")[0] in _BY_NAME


class Digest:
    """A digest of a sequence of values.

    Parameters
    ----------
    special : callable
        Called first, with a digest and a value; returns whether it has added the value.
    lines : bool
        Whether file names and line numbers are part of the digest.
    """

    def __init__(self, special: Callable[[Digest, Any], bool], *, lines: bool) -> None:
        self._hash = hashlib.sha256()
        self._special = special
        self._lines = lines
        # Keeps the objects themselves, so their ids are not reused.
        self._seen: dict[int, tuple[int, object]] = {}
        self._modules: dict[tuple[int, int], tuple[object, object]] = {}

    def digest(self) -> bytes:
        """Return the digest of the added values."""
        return self._hash.digest()

    def add(self, tag: str, data: bytes | str = b"") -> None:
        """Add data with a tag for its kind."""
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self._hash.update(f"{tag} {len(content)}\n".encode() + content)

    def values(self, tag: str, values: Iterable[Any]) -> None:
        """Add values and their count.

        Raises
        ------
        NoContent
        """
        listed = list(values)
        self.add(tag, str(len(listed)))
        for one in listed:
            self.value(one)

    def value(self, value: Any) -> None:
        """Add a value.

        Raises
        ------
        NoContent
        """
        if isinstance(value, enum.Enum):
            self.add("member", f"{type(value).__module__}.{type(value).__qualname__}.{value.name}")
            self.value(value.value)
        elif isinstance(value, enum.EnumMeta):
            self.values("members", value)
        elif type(value) in _PLAIN:
            self.add(type(value).__name__, repr(value))
        elif type(value) is float:
            self.add("float", struct.pack("<d", value))
        elif type(value) is complex:
            self.add("complex", struct.pack("<dd", value.real, value.imag))
        elif isinstance(value, np.generic | np.ndarray | np.dtype):
            self._numpy(value)
        elif type(value) is frozenset:
            self.values("frozenset", sorted(value, key=repr))
        elif type(value) is slice:
            self.values("slice", (value.start, value.stop, value.step))
        elif isinstance(value, tuple):
            self._tuple(value)
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif not self._again(value) and not self._special(self, value):
            self._object(value)

    def _again(self, value: object) -> bool:
        """Return whether an object was seen before, and if so, add a reference to it."""
        found = self._seen.get(id(value))
        if found is None:
            self._seen[id(value)] = len(self._seen), value
            return False
        self.add("again", str(found[0]))
        return True

    def _numpy(self, value: Any) -> None:
        dtype = value if isinstance(value, np.dtype) else value.dtype
        if dtype.hasobject or (isinstance(value, np.ndarray) and type(value) is not np.ndarray):
            raise NoContent(f"a {type(value).__name__} of dtype {dtype}")
        self.add("dtype", f"{dtype!r} {dtype.itemsize} {dtype.alignment}")
        if value is not dtype:
            shape, order = np.shape(value), getattr(value, "strides", ())
            self.add(type(value).__name__, f"{shape} {order}")
            self.add("elements", value.tobytes())

    def _tuple(self, value: tuple[Any, ...]) -> None:
        kind = type(value)
        if kind is not tuple:
            fields = getattr(kind, "_fields", None)
            if fields is None:
                raise NoContent(f"a {kind.__name__}")
            self.add("named", f"{kind.__module__}.{kind.__qualname__} {fields}")
        self.values("tuple", value)

    def _code(self, code: types.CodeType) -> None:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        self.add("code", repr((counts, code.co_name, code.co_names, code.co_varnames)))
        self.add("variables", repr((code.co_freevars, code.co_cellvars)))
        self.add("bytecode", code.co_code)
        self.add("exceptions", getattr(code, "co_exceptiontable", b""))
        self.values("constants", code.co_consts)
        if self._lines:
            self.add("lines", f"{code.co_filename} {code.co_firstlineno} {list(code.co_lines())}")

    def function(self, function: types.FunctionType) -> None:
        """Add a Python function, with everything that it can reach.

        Raises
        ------
        NoContent
        """
        self.add("function", f"{function.__module__}.{function.__qualname__}")
        self.value(function.__code__)
        self.values("defaults", function.__defaults__ or ())
        self.values("keywords", sorted((function.__kwdefaults__ or {}).items()))
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                raise NoContent(f"{function.__qualname__} has a variable without a value") from None
            self._reached(content, function.__code__)
        for name in sorted(global_names(function.__code__)):
            if name in function.__globals__:
                self.add("global", name)
                self._reached(function.__globals__[name], function.__code__)

    def _reached(self, value: Any, code: types.CodeType) -> None:
        """Add a value that a function can reach; of a module, the attributes that the function may use."""
        if not isinstance(value, types.ModuleType):
            self.value(value)
            return
        self.add("module", value.__name__)
        key = id(value), id(code)
        if known_by_name(value.__name__) or key in self._modules:
            return
        self._modules[key] = value, code
        for name in sorted(all_names(code)):
            if name in vars(value):
                self.add("attribute", name)
                self._reached(vars(value)[name], code)

    def _object(self, value: Any) -> None:
        """Add a function or a class: by name, if its package is identified by version."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(value, np.ufunc):
            name = str(value.__name__)
            if getattr(np, name, None) is not value:
                raise NoContent(f"the ufunc {name}")
            module = "numpy"
        named = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc)
        if named and known_by_name(module) and "<" not in str(name):
            self.add("name", f"{module}.{name}")
        elif isinstance(value, types.FunctionType):
            self.function(value)
        else:
            raise NoContent(f"a {type(value).__module__}.{type(value).__qualname__}")
