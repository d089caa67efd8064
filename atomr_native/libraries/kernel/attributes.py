"""Attributes of users' kernels in plan specifications: the launch, its parameters, and the kernel itself."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from ...plans.spec import Attributes, Extent
from ...protocol.binaries import Binary

__all__ = [
    "ArrayParameter",
    "BytesParameter",
    "CompiledKernel",
    "KernelAttributes",
    "MapParameter",
    "Parameter",
    "PickledKernel",
    "PointerParameter",
    "RecordParameter",
    "ScalarParameter",
    "TupleParameter",
    "WordsParameter",
]

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Dim3: TypeAlias = tuple[Positive, Positive, Positive]


class CompiledKernel(Struct, frozen=True, forbid_unknown_fields=True, tag="compiled"):
    """Machine code, for GPUs.

    Attributes
    ----------
    entry : str
        The kernel's name in the machine code.
    code : Binary
    sites : tuple of str
        Places in the source to which a kernel with checks refers.
    awaits : bool
        Whether it waits for the launch before it by itself.
    """

    entry: str
    code: Binary
    sites: tuple[str, ...] = ()
    awaits: bool = False


class PickledKernel(Struct, frozen=True, forbid_unknown_fields=True, tag="pickled"):
    """A Python function, for the simulator of the host device."""

    function: Binary


class ArrayParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="array"):
    """An operand as an array; `record` describes the dtype of its structs, see `spec.record_dtype`."""

    operand: Extent
    record: Any = None


class PointerParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="pointer"):
    """The address of an operand."""

    operand: Extent


class RecordParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="record"):
    """An operand as a single struct; `dtype` describes it, see `spec.record_dtype`."""

    operand: Extent
    dtype: Any


class MapParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="tensor_map"):
    """A tensor map of an operand, as `TensorMap.described` has it; `alignment` is that of its address, in bytes."""

    operand: Extent
    axes: tuple[tuple[Extent, int, Positive, Positive], ...]
    modes: tuple[Extent, Extent, Extent, Extent, Extent]
    alignment: Positive


class ScalarParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="scalar"):
    """A number of the type `dtype` from the message's scalars, from `scalar` on."""

    scalar: Extent
    dtype: str


class WordsParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="scalars"):
    """A struct whose bytes are the message's scalars, from `scalar` on."""

    scalar: Extent


class BytesParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="bytes"):
    """A struct of these bytes, hexadecimal."""

    data: Annotated[str, Meta(pattern="^([0-9a-f]{2})*$")]


class TupleParameter(Struct, frozen=True, forbid_unknown_fields=True, tag="tuple"):
    """A tuple of parameters; `named` is the name and the fields of a named tuple."""

    items: tuple["Parameter", ...]
    named: tuple[str, tuple[str, ...]] | None = None


Parameter: TypeAlias = (
    ArrayParameter
    | PointerParameter
    | RecordParameter
    | MapParameter
    | ScalarParameter
    | WordsParameter
    | BytesParameter
    | TupleParameter
)


class KernelAttributes(Attributes, frozen=True, kw_only=True):
    """Attributes of ``kernel.*``: one launch.

    Attributes
    ----------
    kernel : CompiledKernel or PickledKernel
    grid, block : tuple of int
        Blocks of the grid and threads of a block, by x, y, z.
    shared : int
        Bytes of dynamic shared memory.
    cluster : tuple of int or None
        Blocks of a cluster, by x, y, z.
    cooperative : bool
        Whether all blocks run at once.
    parameters : tuple of Parameter
    """

    kernel: CompiledKernel | PickledKernel
    grid: Dim3
    block: Dim3
    shared: Extent
    cluster: Dim3 | None
    cooperative: bool
    parameters: tuple[Parameter, ...]
