"""Batches whose matrices do not step evenly: cuBLASLt reads the addresses from arrays, which a kernel writes before.

An outer product of batches (broadcast along different axes), a slice of a batch's middle axis: no stride leads from
each matrix to the next one.  Nothing is copied.  The library's batches by addresses have no epilogue, and want matrices
that start at multiples of 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...errors import Unsupported
from ..host._blocks import fold_axes
from .addresses import address_bytes, stepping_kernel
from .matmul import matmul_description
from .sequence import Source, Step

if TYPE_CHECKING:
    from .lt_description import MatmulDescription
    from .target import Target
    from .workspace_layout import Layout

__all__ = ["ADDRESSED", "Addresses", "by_addresses"]

#: Bytes at whose multiples matrices start.
ADDRESSED: Final = 16
#: What a product by addresses may have, besides its factors on the device, which all matrices share.
_MATRICES: Final = ("a", "b", "c", "out")
_SHARED: Final = ("alpha", "beta")


@dataclass(frozen=True, slots=True)
class Addresses:
    """A batch by addresses.

    Attributes
    ----------
    description : MatmulDescription
        The library's call; its last operand are the arrays of addresses.
    write : Step
        What writes them.
    arrays : Source
        Where they are.
    note : str
        What is done, and why.
    """

    description: MatmulDescription
    write: Step
    arrays: Source
    note: str


def _jumps(operand: dict[str, Any], batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return the bytes from one index of each axis of the batch to the next."""
    lead = operand["shape"][:-2]
    own = [0 if extent == 1 else int(step) for extent, step in zip(lead, operand["strides"][: len(lead)], strict=True)]
    return (*[0] * (len(batch) - len(own)), *own)


def by_addresses(
    spec: dict[str, Any],
    sources: Mapping[str, Source],
    layout: Layout,
    target: Target,
    *,
    version: int,
    zero: int,
    why: str,
) -> Addresses:
    """Return a matmul whose batch has no even steps as one that reads addresses.

    Parameters
    ----------
    spec, version, zero
        As for `matmul_description`.
    sources
        Where the operands are, by name.
    layout
        The workspace, of which the arrays take a part.
    why
        What `matmul_description` said.

    Raises
    ------
    Unsupported
        If it has an epilogue or scales, or matrices that start anywhere.
    """
    operands: list[dict[str, Any]] = spec["operands"]
    if spec["epilogue"] != "default" or not {o["name"] for o in operands} <= {*_MATRICES, *_SHARED}:
        raise Unsupported(why)
    batch = tuple(next(o for o in operands if o["name"] == "out")["shape"][:-2])
    count = math.prod(batch)
    arrays = layout.take(4 * address_bytes(count))
    single = [
        {**o, "shape": o["shape"][-2:], "strides": o["strides"][-2:]} if o["name"] in _MATRICES else o for o in operands
    ]
    one = matmul_description(
        {**spec, "operands": single}, version=version, arch=target.arch, workspace_bytes=layout.left(), zero=zero
    )
    roles = [operands[i] for i in (one.a, one.b, one.c if one.c >= 0 else one.d, one.d)]
    extents, jumps = fold_axes(batch, tuple(_jumps(o, batch) for o in roles))
    apart = 0
    for jump in (step for steps in jumps for step in steps):
        apart |= jump
    if apart % ADDRESSED:
        raise Unsupported(
            f"{why}; it can read addresses of matrices that start at multiples of {ADDRESSED} bytes, and these are "
            f"apart by multiples of {apart & -apart} bytes"
        )
    places = tuple(sources[o["name"]] for o in roles)
    return Addresses(
        replace(one, batch=count, pointers=len(operands), members=1, apart=apart, n_operands=len(operands) + 1),
        Step(stepping_kernel(jumps, extents, target), (*places, arrays)),
        arrays,
        f"cuBLASLt reads the addresses of {count} matrices from arrays, since {why}",
    )
