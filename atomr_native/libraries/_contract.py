"""The descriptor of a library folder: its actor, operations, public names, and native libraries.

A descriptor is data: it names modules and functions as text and imports none of them, so that reading all descriptors
costs a program nothing.  `atomr_native.libraries` computes from them everything central.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, Literal

from msgspec import Struct, field

__all__ = ["FREE", "Aliasing", "Library", "NativeLibrary", "Operation", "load"]

#: Attributes of any names and values, without a type.
FREE: Final = "*"


class Aliasing(IntEnum):
    """Which operands of a message may share memory; the native sender refuses every other overlap.

    The numbers are those of `PlanRef.apart` in ``cython/runtime/sender_plans.pxi``.
    """

    #: Nothing is checked: the operation bears every overlap, or only its user knows.
    UNCHECKED = 0
    #: An output shares no memory with another operand.
    DISJOINT = 1
    #: An output may be the very view of an input, element by element; other overlaps are refused.
    SAME_VIEW = 2


class Operation(Struct, frozen=True):
    """One operation of a library, as plan specifications name it.

    Attributes
    ----------
    name : str
        The whole name, ``"blas_lt.matmul"``.  A name that ends in ``".*"`` stands for all names of that prefix.
    aliasing : Aliasing
        Which operands may share memory.  Required: a library that forgets it does not load.
    host, cuda : str
        Its builders, ``"host.matmul:build_matmul"``, relative to the library's folder; empty if the operation does not
        exist on that kind of device.
    missing : str
        The reason for an absent builder; required if a builder is absent.
    essential : bool
        Whether a device is of no use without it: such an operation is never quarantined.
    attributes : str
        The type of its plans' attributes, ``"attributes:MatmulAttributes"``, a subclass of
        `atomr_native.plans.spec.Attributes`; empty if it has none, `FREE` for pairs of any names and values.
    """

    name: str
    aliasing: Aliasing
    host: str = ""
    cuda: str = ""
    missing: str = ""
    essential: bool = False
    attributes: str = ""


class NativeLibrary(Struct, frozen=True):
    """A shared library of NVIDIA's that a library actor drives, by ``atomr_native._lib.<key in lower case>``.

    Attributes
    ----------
    key : str
        Its name for ``cuda-pathfinder``, ``"cublasLt"``.
    title : str
        Its name for people, ``"cuBLASLt"``.
    packages : mapping of str to str
        The pip package that brings it, by CUDA major: ``{"cu12": "nvidia-cublas-cu12", "cu13": "nvidia-cublas"}``.
    preload : bool
        Whether a standby worker loads it ahead of time.
    """

    key: str
    title: str
    packages: Mapping[str, str]
    preload: bool = False


class Library(Struct, frozen=True):
    """Descriptor of a library folder, ``LIBRARY`` in its ``__init__.py``.

    Attributes
    ----------
    name : str
        The folder, the attribute of `Device`, and the name of the actor's mailbox.
    summary : str
        One sentence, the docstring of the device's attribute.
    actor : str
        The actor's class, ``"actor:BlasLt"``; empty for a library without an actor of its own.
    operations : tuple of Operation
    exports : mapping of str to str
        Public names of `atomr_native`, each with the module of the library that defines it.
    native : tuple of NativeLibrary
    heat_up : str
        A function of the native device, ``"cuda.heat:heat_up"``, by which a hot standby does the work of first calls.
    mailbox : bool
        Whether a mailbox of every device has the library's name.
    opens : str
        When the actor's mailbox opens: with the device, or at first use.
    """

    name: str
    summary: str
    actor: str
    operations: tuple[Operation, ...]
    exports: Mapping[str, str] = field(default_factory=dict)
    native: tuple[NativeLibrary, ...] = ()
    heat_up: str = ""
    mailbox: bool = True
    opens: Literal["with the device", "at first use"] = "at first use"


def load(library: str, place: str) -> Any:
    """Return the object that ``"module:name"`` names in a library's folder.  Imports the module."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{library}.{module}"), name)
