"""Sources of kernels: what all families share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["BUILDER", "ENTRY", "SETUP", "ZEROING", "Rendered", "source_of"]

#: Names of the kernel, of the function that builds its parameters, and of a kernel that runs before it.
ENTRY: Final = "atomr_kernel"
BUILDER: Final = "atomr_build"
SETUP: Final = "atomr_setup"
#: A kernel that sets the start of the workspace to 0, with a thread for each 16 bytes, and what it takes.
ZEROING: Final = (
    f"""
extern "C" __global__ void {SETUP}(unsigned long long workspace, unsigned long long zeroed) {{
  unsigned long long place = (blockIdx.x * (unsigned long long)(blockDim.x) + threadIdx.x) * 16;
  if (place < zeroed) *reinterpret_cast<uint4*>(workspace + place) = uint4{{0, 0, 0, 0}};
}}
""",
    ("workspace", "zeroed"),
)
_C_TYPES: Final = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The source of a kernel, and of the builder of its parameters.

    Attributes
    ----------
    source : str
    entry, builder : str
        Names of the two.
    fields : tuple of (str, str)
        Numbers that the builder takes, in order: name and dtype.
    pointers : tuple of str
        Addresses that follow them.
    functions : tuple of (str, int)
        Device functions that the kernel calls: symbol and number of arguments.
    scalars : tuple of str
        Fields that a message decides: they are places in the parameters, and nothing else depends on them.
    setup : tuple of str
        What the kernel `SETUP` takes, which runs before the kernel with a thread for each group, or for each 16 bytes
        that it sets to 0; empty without one: 8 bytes each, the address of an operand or of the workspace, or a number.
    """

    source: str
    entry: str
    builder: str
    fields: tuple[tuple[str, str], ...]
    pointers: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    scalars: tuple[str, ...]
    setup: tuple[str, ...] = ()


def source_of(
    includes: Sequence[str],
    body: str,
    kernel: str,
    build: str,
    fields: Sequence[tuple[str, str]],
    pointers: Sequence[str],
    functions: Sequence[tuple[str, int]],
    scalars: Sequence[str],
    setup: Sequence[str] = (),
) -> Rendered:
    """Return the source of a kernel.

    Parameters
    ----------
    includes : sequence of str
        Headers of CUTLASS.
    body : str
        Types and functions.
    kernel : str
        The kernel.
    build : str
        The body of the builder, a function of ``p``, the fields and pointers, and ``out``, an `atomr::Built`.
    fields, pointers, functions, scalars, setup
        As in `Rendered`.
    """
    listed = tuple(dict.fromkeys(fields))
    addresses = tuple(dict.fromkeys(pointers))
    # The widest first: then the fields lie one after the other without gaps.
    wide = [(name, dtype) for name, dtype in listed if dtype in ("int64", "float64")]
    narrow = [(name, dtype) for name, dtype in listed if dtype not in ("int64", "float64")]
    ordered = (*wide, *narrow)
    members = [f"  unsigned long long {name};" for name in addresses]
    members += [f"  {_C_TYPES[dtype]} {name};" for name, dtype in ordered]
    lines = [
        '#include "atomr/prelude.h"',
        *(f'#include "{name}"' for name in includes),
        '#include "atomr/built.h"',
        "namespace {",
        "struct Given {",
        *members,
        "};",
        "}",
        body,
        # Kernels that are linked with functions are compiled apart from their builders.
        "#ifndef ATOMR_BUILDER_ONLY",
        kernel,
        "#endif",
        "#ifndef ATOMR_KERNEL_ONLY",
        f'extern "C" __global__ void {BUILDER}(Given p, atomr::Built* out) {{',
        build,
        "}",
        "#endif",
        "",
    ]
    return Rendered(
        "\n".join(lines), ENTRY, BUILDER, ordered, addresses, tuple(functions), tuple(scalars), tuple(setup)
    )
