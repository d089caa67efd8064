"""The registry of libraries: one folder each, in the same shape everywhere.

To add a library, add its folder and its name to `_FOLDERS`; CONTRIBUTING.md has the recipe.  From the descriptors
follow the device's attributes, the public names, the builders of both kinds of device, which operands may share memory,
what is never quarantined, what a standby worker loads and what the doctor looks for.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from ._contract import FREE, Aliasing, Library, NativeLibrary, Operation, load

__all__ = [
    "EXPORTS",
    "MAILBOXES",
    "LIBRARIES",
    "OPERATIONS",
    "Aliasing",
    "Library",
    "NativeLibrary",
    "Operation",
    "attributes_of",
    "builder",
    "find_operation",
    "load",
    "load_actor",
    "load_builders",
]

#: In the order in which mailboxes that open with the device open.
_FOLDERS: Final = (
    "core", "memory", "blas_lt", "blas", "elementwise", "float8", "fused", "random", "fft", "solver", "sparse",
    "tensor",
    "cudnn",
    "cutlass",
    "kernel",
    "collective",
    "program",
)  # fmt: skip


def _descriptor(name: str) -> Library:
    library: Library = importlib.import_module(f"{__name__}.{name}").LIBRARY
    if library.name != name:
        raise ImportError(f"libraries/{name}/__init__.py describes {library.name!r}; allowed: {name!r}")
    return library


#: Every library, by name.
LIBRARIES: Final[dict[str, Library]] = {name: _descriptor(name) for name in _FOLDERS}
#: Every operation, by name, with the library that it belongs to.
OPERATIONS: Final[dict[str, tuple[Library, Operation]]] = {
    operation.name: (library, operation) for library in LIBRARIES.values() for operation in library.operations
}
#: Names of the mailboxes that every device has for its libraries.
MAILBOXES: Final = tuple(library.name for library in LIBRARIES.values() if library.mailbox)
#: Public names of `atomr_native` that libraries define, each with its module.
EXPORTS: Final[dict[str, str]] = {
    name: f"libraries.{library.name}.{module}"
    for library in LIBRARIES.values()
    for name, module in library.exports.items()
}


def _find(op: str) -> tuple[Library, Operation] | None:
    return OPERATIONS.get(op) or OPERATIONS.get(f"{op.partition('.')[0]}.*")


#: What an unknown operation is held to, before a worker refuses it.
_UNKNOWN: Final = Operation("", Aliasing.DISJOINT, missing="no library has it", attributes=FREE)


def find_operation(op: str) -> Operation:
    """Return the operation of a plan specification; an unknown name gets the strictest rules."""
    found = _find(op)
    return _UNKNOWN if found is None else found[1]


@functools.cache
def _loaded(library: str, place: str) -> Any:
    """Return what a descriptor names.  Keyed by the descriptor, since users' kernels have operations of any name."""
    return load(library, place)


def builder(op: str, kind: str) -> Callable[..., Any] | None:
    """Return the builder of an operation on a ``"host"`` or ``"cuda"`` device, or None.  Imports the library."""
    found = _find(op)
    place = "" if found is None else getattr(found[1], kind)
    return _loaded(found[0].name, place) if found is not None and place else None


def attributes_of(op: str) -> Any:
    """Return the type of an operation's attributes, as `PlanSpec.from_json` takes it.  Imports the library."""
    found = _find(op)
    if found is None or found[1].attributes == FREE:
        return tuple[tuple[str, Any], ...]
    library, operation = found
    return _loaded(library.name, operation.attributes) if operation.attributes else tuple[()]


def load_builders(kind: str) -> None:
    """Import every builder of a ``"host"`` or ``"cuda"`` device, as a standby worker does ahead of time."""
    for op in OPERATIONS:
        builder(op, kind)


def load_actor(name: str) -> Any:
    """Return the actor class of a library.  Imports it."""
    return load(name, LIBRARIES[name].actor)
