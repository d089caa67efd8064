"""Batches whose matrices do not step evenly: cuBLASLt reads the addresses from arrays, which a kernel writes before.

An outer product of batches (broadcast along different axes), a slice of a batch's middle axis: no stride leads from
each matrix to the next one.  Nothing is copied.  The library's batches by addresses have no epilogue, and want matrices
that start at multiples of 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from ....builders.blocks import fold_axes
from ....builders.cuda.addresses import address_bytes, stepping_kernel
from ....builders.cuda.sequence import Source, Step
from ....errors import Unsupported
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import MatmulAttributes
from .description import UnevenBatch, matmul_description

if TYPE_CHECKING:
    from ....builders.cuda.target import Target
    from ....builders.cuda.workspace import Layout
    from .native import MatmulDescription

__all__ = ["ADDRESSED", "Addresses", "by_addresses"]

#: Bytes at whose multiples matrices start.
ADDRESSED: Final = 16
#: Operands that a product by addresses may have, besides its factors on the device, which all matrices share.
_MATRICES: Final = ("a", "b", "c", "out")
_SHARED: Final = ("alpha", "beta")


@dataclass(frozen=True, slots=True)
class Addresses:
    """A batch by addresses.

    Attributes
    ----------
    description : MatmulDescription
        The library's call; its last operand is the arrays of addresses.
    write : Step
        The step that writes them.
    arrays : Source
        Their place.
    note : str
        The plan's note.
    """

    description: MatmulDescription
    write: Step
    arrays: Source
    note: str


def _jumps(operand: OperandSpec, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return the bytes from one index of each axis of the batch to the next."""
    lead = operand.shape[:-2]
    own = [0 if extent == 1 else step for extent, step in zip(lead, operand.strides[: len(lead)], strict=True)]
    return (*[0] * (len(batch) - len(own)), *own)


def by_addresses(
    spec: PlanSpec[MatmulAttributes],
    sources: Mapping[str, Source],
    layout: Layout,
    target: Target,
    *,
    version: int,
    zero: int,
    refusal: UnevenBatch,
) -> Addresses:
    """Return a matmul whose batch has uneven steps as a matmul that reads addresses.

    Parameters
    ----------
    spec, version, zero
        As for `matmul_description`.
    sources
        Where the operands are, by name.
    layout
        The workspace, of which the arrays take a part.
    refusal
        The error of `matmul_description`.

    Raises
    ------
    Unsupported
        If it has an epilogue or scales, or unaligned matrices.
    """
    operands = spec.operands
    if spec.attributes.epilogue != "default" or not {o.name for o in operands} <= {*_MATRICES, *_SHARED}:
        raise refusal
    batch = next(o for o in operands if o.name == "out").shape[:-2]
    count = math.prod(batch)
    arrays = layout.take(4 * address_bytes(count))
    single = tuple(
        structs.replace(o, shape=o.shape[-2:], strides=o.strides[-2:]) if o.name in _MATRICES else o for o in operands
    )
    one = matmul_description(
        structs.replace(spec, operands=single),
        version=version,
        arch=target.arch,
        workspace_bytes=layout.left(),
        zero=zero,
    )
    roles = [operands[i] for i in (one.a, one.b, one.c if one.c >= 0 else one.d, one.d)]
    extents, jumps = fold_axes(batch, tuple(_jumps(o, batch) for o in roles))
    apart = 0
    for jump in (step for steps in jumps for step in steps):
        apart |= jump
    if apart % ADDRESSED:
        raise Unsupported(
            f"{refusal.message}; it can read addresses of matrices that start at multiples of {ADDRESSED} bytes, and "
            f"these are apart by multiples of {apart & -apart} bytes",
            rule="blas_lt.matrix_alignment",
            lifted_by=("layout", "copies"),
        )
    places = tuple(sources[o.name] for o in roles)
    return Addresses(
        replace(one, batch=count, pointers=len(operands), members=1, apart=apart, n_operands=len(operands) + 1),
        Step(stepping_kernel(jumps, extents, target), (*places, arrays)),
        arrays,
        f"cuBLASLt reads the addresses of {count} matrices from arrays, since {refusal.message}",
    )
