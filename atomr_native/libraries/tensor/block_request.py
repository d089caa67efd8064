"""The request of contractions of tensors of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import check_choice
from ..._support.public import public
from ...arrays.operands import Fresh, check_input, check_output
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported
from ...plans.lowering import Lowered, Operand, Request, read, written
from .attributes import ROUTES, BlockAttributes
from .blocks import BlockTensor, Coordinates, Sections, block_offsets, block_products
from .modes import Subscripts, parse
from .request import factors_of, frozen
from .spec import check_scale, conjugates, is_array, is_zero
from .types import EMULATED, accumulator, common_dtype, compute_mode, result_dtype

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401  (named by the base class)

__all__ = ["BlockContractionRequest"]

#: Products of two blocks in a message, each of which is enqueued on its own.
_MOST: Final = 4096


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockContractionRequest(Request["GpuRef"]):
    """A contraction of two tensors of blocks, ``D = alpha * A B + beta * C``, checked when it is made.

    Parameters
    ----------
    subscripts : str or sequence
        ``"ij,jk->ik"``, as of `EinsumRequest`; a mode is in a tensor once, and one that a single tensor has is in the
        output.
    a, b : BlockTensor
        Whose modes have the same sections where they share them.
    c : BlockTensor, optional
        Added with factor `beta`; with the result's sections, blocks and dtype.
    out : BlockTensor, optional
        Where the result goes: its blocks are computed, and no others.  Its values may be C's, no others.
    blocks : sequence of sequence of int, optional
        Blocks of a new result that are computed: by default all that are not zero, sorted.
    alpha, beta : number
        Factors, which travel with the message.
    conj : bool or (bool, bool)
        Whether tensors are conjugated.
    compute, route : str
        As of `EinsumRequest`, for each product of two blocks.

    Raises
    ------
    InvalidRequest
        With the mode, block or value, and the allowed ones.
    Unsupported
        For more than 4096 products of two blocks.

    Notes
    -----
    The message's result is the values of `result`.

    Examples
    --------
    >>> part = an.BlockTensor.of(np.diag([1.0, 2.0]), [(1, 1), (1, 1)])
    >>> a = an.BlockTensor(device.put(part.values), part.sections, part.blocks)
    >>> request = an.BlockContractionRequest(subscripts="ij,jk->ik", a=a, b=a, alpha=3)
    >>> device.tensor.tell(request).numpy()
    array([ 3., 12.])
    """

    subscripts: Any
    a: BlockTensor
    b: BlockTensor
    c: BlockTensor | None = None
    out: BlockTensor | None = None
    blocks: Any = None
    alpha: Any = 1
    beta: Any = 0
    conj: Any = False
    compute: str | None = None
    route: str = "auto"

    def __post_init__(self) -> None:
        for name in ("subscripts", "conj", "blocks"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        for name in ("a", "b", "c", "out"):
            given = getattr(self, name)
            if not isinstance(given, BlockTensor) and (given is not None or name in "ab"):
                raise InvalidRequest(f"{name} is a {type(given).__name__}; allowed: a BlockTensor")
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message: values of a and b, [c], out."""
        tensors = (self.a, self.b)
        subscripts = parse(self.subscripts, [len(x.sections) for x in tensors])
        _check_modes(subscripts)
        sections = _sections_of(subscripts, tensors)
        own = tuple(sections[m] for m in subscripts.output)
        terms = block_products(subscripts.inputs, subscripts.output, [x.blocks for x in tensors])
        blocks = self._blocks(own, terms)
        count = sum(len(terms.get(block, ())) for block in blocks)
        if count > _MOST:
            raise Unsupported(
                f"{count} products of two blocks; at most {_MOST} are one message; merge blocks, or send several with "
                f"blocks= of each",
                rule="tensor.block_products",
                lifted_by=("blocks",),
            )
        for name, x in zip("ab", tensors, strict=True):
            _check_values(name, x)
        common = common_dtype([x.values for x in tensors])
        dtype = "float32" if common.startswith("float8") else common
        fresh = Fresh((block_offsets(own, blocks)[-1],), result_dtype(None, common))
        compute = compute_mode(self.compute, dtype)
        check_choice("route", self.route, ROUTES)
        if compute in EMULATED and self.route in ("blas_lt", "kernel"):
            raise InvalidRequest(f"route={self.route!r} with compute={compute!r}; allowed: 'auto', 'cutensor'")
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if is_array(value):
                raise InvalidRequest(f"{name} is an array; allowed: a number")
            scale = check_scale(name, value, accumulator(dtype))
        added = self._added(own, blocks, fresh)
        operands: list[Operand] = [read(f"x{i}", x.values) for i, x in enumerate(tensors)]
        if added == "c" and self.c is not None:
            operands.append(read("c", self.c.values))
        out = None if self.out is None else self.out.values
        operands.append(written("out", out, fresh, updated=added == "out"))
        unread = (("c", self.c.values),) if self.c is not None and added == "none" else ()
        return Lowered(
            op="tensor.blocks",
            operands=tuple(operands),
            collect=itemgetter("out"),
            attributes=BlockAttributes(
                inputs=subscripts.inputs,
                output=subscripts.output,
                sections=sections,
                blocks=(self.a.blocks, self.b.blocks, blocks),
                conj=conjugates(self.conj, 2),
                dtype=dtype,
                compute=compute,
                route=self.route,
                added=added,
                zero=is_zero(self.alpha),
            ),
            unread=unread,
            **factors_of(self, scale),
        )

    def result(self, values: Any) -> BlockTensor:
        """Return the tensor of the values that the message's result is."""
        how: Any = self.lowered.attributes
        return BlockTensor(values, tuple(how.sections[m] for m in how.output), how.blocks[2])

    def _blocks(self, sections: Sections, terms: dict[tuple[int, ...], Any]) -> Coordinates:
        """Check the blocks of the result; return them."""
        if self.out is None:
            if self.blocks is None:
                return tuple(sorted(terms))
            counts = [len(extents) for extents in sections]
            valid = isinstance(self.blocks, tuple) and all(
                isinstance(one, tuple)
                and len(one) == len(counts)
                and all(0 <= i < n for i, n in zip(one, counts, strict=True))
                for one in self.blocks
            )
            if not valid or len(set(self.blocks)) != len(self.blocks):
                raise InvalidRequest(f"blocks={self.blocks!r}; allowed: different coordinates below {counts}")
            found: Coordinates = self.blocks
            return found
        if self.blocks is not None and self.blocks != self.out.blocks:
            raise InvalidRequest("blocks and out are given, with different blocks; allowed: one of both")
        if self.out.sections != sections:
            raise InvalidRequest(f"out has sections {self.out.sections}; allowed: {sections}")
        return self.out.blocks

    def _added(self, sections: Sections, blocks: Coordinates, fresh: Fresh) -> str:
        """Check C, beta and out; return where C is."""
        for name, x in (("c", self.c), ("out", self.out)):
            if x is None:
                continue
            if (x.sections, x.blocks) != (sections, blocks):
                raise InvalidRequest(
                    f"{name} has other sections or blocks than the result; allowed: {len(blocks)} equal ones"
                )
            _check_values(name, x)
            if as_dtype(x.values.dtype) != fresh.dtype:
                raise InvalidRequest(
                    f"{name} is {dtype_name(as_dtype(x.values.dtype))}; allowed: {dtype_name(fresh.dtype)}"
                )
        if is_zero(self.beta):
            return "none"
        if self.c is None:
            raise InvalidRequest(f"beta={self.beta!r} without c; allowed: beta=0, or the tensor c that it scales")
        return "out" if self.out is not None and self.c.values is self.out.values else "c"


def _check_values(name: str, x: BlockTensor) -> None:
    values = check_output(name, x.values) if name == "out" else check_input(name, x.values)
    if values.shape[0] > 1 and values.strides[0] != as_dtype(values.dtype).itemsize:
        raise InvalidRequest(f"values of {name} have a stride of {values.strides[0]} bytes; allowed: contiguous ones")


def _check_modes(subscripts: Subscripts) -> None:
    for i, modes in enumerate(subscripts.inputs):
        for mode in modes:
            if modes.count(mode) > 1:
                raise InvalidRequest(f"mode {subscripts.names[mode]!r} is in operand {i} twice; allowed: once")
            if mode not in subscripts.inputs[1 - i] and mode not in subscripts.output:
                raise InvalidRequest(
                    f"mode {subscripts.names[mode]!r} is in operand {i} alone; allowed: in the output, too, or in both "
                    f"operands"
                )


def _sections_of(subscripts: Subscripts, tensors: Sequence[BlockTensor]) -> Sections:
    """Return the sections of each mode; both tensors must have the same."""
    found: dict[int, tuple[int, ...]] = {}
    for i, (modes, x) in enumerate(zip(subscripts.inputs, tensors, strict=True)):
        for mode, extents in zip(modes, x.sections, strict=True):
            if found.setdefault(mode, extents) != extents:
                raise InvalidRequest(
                    f"mode {subscripts.names[mode]!r} has sections {found[mode]} in operand 0 and {extents} in "
                    f"operand {i}; allowed: equal ones"
                )
    return tuple(found[m] for m in range(len(found)))
