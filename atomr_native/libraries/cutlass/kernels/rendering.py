"""Sources of kernels: what all families share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .kernel import Kernel, walk

__all__ = ["BUILDER", "ENTRY", "SETUP", "Rendered", "preparation", "source_of"]

#: Names of the kernel, of the function that builds its parameters, and of a kernel that runs before it.
ENTRY: Final = "atomr_kernel"
BUILDER: Final = "atomr_build"
SETUP: Final = "atomr_setup"
#: What elements of a reduction begin with.
_BEGINNINGS: Final = {"add": "0", "max": "-cutlass::platform::numeric_limits<{0}>::infinity()"}
_C_TYPES: Final = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}


def preparation(kernel: Kernel, *, zeroes: bool) -> tuple[str, tuple[str, ...]]:
    """Return a kernel that runs first, and what it takes; nothing where none is needed.

    Its threads set the start of the workspace to 0, 16 bytes each, and elements of reductions to their first values.
    """
    takes: dict[str, None] = dict.fromkeys(("workspace", "zeroed")) if zeroes else {}
    lines = []
    if zeroes:
        lines.append("if (place * 16 < zeroed) reinterpret_cast<uint4*>(workspace)[place] = uint4{0, 0, 0, 0};")
    for node in walk(kernel.tree):
        if node.op.startswith("reduce_"):
            takes |= dict.fromkeys((node.name, f"count_{node.name}"))
            type_ = _C_TYPES[node.dtype]
            first = _BEGINNINGS[node.value].format(type_)
            lines.append(
                f"if (place < count_{node.name}) reinterpret_cast<{type_}*>({node.name})[place] = {type_}({first});"
            )
    if not lines:
        return "", ()
    given = ", ".join(f"unsigned long long {name}" for name in takes)
    text = "\n  ".join(dict.fromkeys(lines))
    return (
        f"""
extern "C" __global__ void {SETUP}({given}) {{
  unsigned long long place = blockIdx.x * (unsigned long long)(blockDim.x) + threadIdx.x;
  {text}
}}
""",
        tuple(takes),
    )


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
        What the kernel `SETUP` takes, which runs first, see `preparation` and grouped90.py; empty without one: 8 bytes
        each, the address of an operand or of the workspace, or a number.
    brief : bool
        Whether its float32 arithmetic may be short, since all results have 16 bits or less: subnormal numbers are 0.
    """

    source: str
    entry: str
    builder: str
    fields: tuple[tuple[str, str], ...]
    pointers: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    scalars: tuple[str, ...]
    setup: tuple[str, ...] = ()
    brief: bool = False


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
