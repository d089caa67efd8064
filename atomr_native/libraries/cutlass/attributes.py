"""Attributes of CUTLASS products in plan specifications."""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from ...plans.spec import Attributes, DtypeName
from ...protocol.binaries import Binary
from ...protocol.typed import one_of

__all__ = ["EXTENTS", "OPERANDS", "CompiledKernel", "ConvolutionAttributes", "GemmAttributes", "KernelChoice"]

#: The numbers of a convolution: extents of images, filters and results, then how they meet.
EXTENTS: Final = (
    "images", "depth", "height", "width", "channels",
    "filters", "filter_depth", "filter_height", "filter_width",
    "out_depth", "out_height", "out_width",
    "pad_depth", "pad_height", "pad_width",
    "stride_depth", "stride_height", "stride_width",
    "dilation_depth", "dilation_height", "dilation_width",
)  # fmt: skip

Extents: TypeAlias = tuple[Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1)]]
Node: TypeAlias = tuple[str | int, ...]

#: Names of the two arrays of a convolution, in the order of the product's operands, by operation.
OPERANDS: Final = {"forward": ("x", "w"), "data_gradient": ("dy", "w"), "filter_gradient": ("dy", "x")}


class KernelChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """What the user, or a candidate of a tuned plan, fixed of a kernel; see `GemmConfig`.

    `turned` says whether it is the product of the transposes, whose tiles are as narrow as a product of few rows.
    """

    arch: Annotated[str, one_of("", "sm_80", "sm_90a")] = ""
    tile: Extents | None = None
    cluster: Extents | None = None
    schedule: Annotated[str, one_of("", "cooperative", "pingpong", "multistage")] = ""
    stages: Annotated[int, Meta(ge=0, le=16)] = 0
    swizzle: Annotated[int, Meta(ge=0, le=8)] = 0
    decomposition: Annotated[str, one_of("", "tiles", "stream_k", "split_k")] = ""
    splits: Annotated[int, Meta(ge=0, le=4096)] = 0
    turned: Annotated[str, one_of("", "no", "yes")] = ""


class CompiledKernel(Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel as the worker needs it.

    Attributes
    ----------
    entry : str
    code : Binary
        The cubin.
    builder : Binary
        What fills the kernel's parameters, see ``compile/cutlass/parameters.py``.
    fields : tuple of (str, str)
        Numbers that the builder takes, each with its type.
    pointers : tuple of str
        Addresses that the builder takes.
    scalars : tuple of str
        Those of the fields that are places in the parameters, which messages or the tree's constants fill.
    setup : tuple of str
        What the kernel that runs first takes, see ``kernels/rendering.py``; empty without one.
    splits : int
        Blocks that share the sums of a tile.
    swizzle : int
        Neighbouring rows of tiles that are at work together.
    title : str
        Its form, for people.
    source : str
        The operand that is the kernel's C; empty without one.
    turned : bool
        Whether it computes the product of the transposes.
    """

    entry: str
    code: Binary
    builder: Binary
    fields: tuple[tuple[str, str], ...]
    pointers: tuple[str, ...]
    scalars: tuple[str, ...]
    setup: tuple[str, ...] = ()
    splits: Annotated[int, Meta(ge=1)] = 1
    swizzle: Annotated[int, Meta(ge=1, le=8)] = 1
    title: str = ""
    source: str = ""
    turned: bool = False


class GemmAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``cutlass.gemm``.

    Attributes
    ----------
    nodes : tuple of tuple
        The epilogue, as `epilogue.flat` returns it; names are those of operands and scalars.
    scalars : tuple of str
        Names of the message's numbers, in their order.
    mode : str
        How products are made: ``"float32"``, ``"tf32"``, ``"float64"`` or ``"int32"``.
    in_place : bool
        Whether the tree's ``"c"`` is what ``"out"`` holds.
    fast_accum : bool
    choice : KernelChoice
    functions : tuple of Binary
        The tree's Python functions, pickled, on the host device.
    kernel : CompiledKernel or None
        None on the host device.
    tune : bool
        Whether the plan has the fastest of its candidates.
    candidates : tuple of CompiledKernel
        Other kernels that compute it, if it is tuned.
    transposed : tuple of str
        Operands that the message gives as the transposes of what is multiplied.
    spread : tuple of (str, str)
        Operands that the message gives without an axis of D over which they are spread, and what each is: ``"row"``,
        ``"column"`` or ``"scalar"``.
    views : tuple of (str, str, tuple of int, tuple of int)
        Operands that the message gives by other names, and with other axes: the message's name and the product's, and
        the product's shape, and strides in bytes.
    notes : tuple of str
        Of the plan.
    """

    nodes: tuple[Node, ...]
    scalars: tuple[str, ...]
    mode: Annotated[str, one_of("float32", "tf32", "float64", "int32")]
    in_place: bool
    fast_accum: bool
    compute: DtypeName
    choice: KernelChoice
    functions: tuple[Binary, ...] = ()
    kernel: CompiledKernel | None = None
    tune: bool = False
    candidates: tuple[CompiledKernel, ...] = ()
    transposed: tuple[Annotated[str, one_of("a", "b")], ...] = ()
    spread: tuple[tuple[str, Annotated[str, one_of("row", "column", "scalar")]], ...] = ()
    views: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...] = ()
    notes: tuple[str, ...] = ()


class ConvolutionAttributes(GemmAttributes, frozen=True, kw_only=True):
    """Of ``cutlass.convolution``.

    Attributes
    ----------
    operation : {"forward", "data_gradient", "filter_gradient"}
    spatial : {2, 3}
        Spatial axes.
    extents : tuple of int
        A number for each of `EXTENTS`; those of a depth are as of 1 where there is none.
    """

    operation: Annotated[str, one_of("forward", "data_gradient", "filter_gradient")]
    spatial: Annotated[int, Meta(ge=2, le=3)]
    extents: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=len(EXTENTS), max_length=len(EXTENTS))]

    @property
    def numbers(self) -> dict[str, int]:
        """The extents by their names."""
        return dict(zip(EXTENTS, self.extents, strict=True))
