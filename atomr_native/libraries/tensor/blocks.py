"""Tensors of blocks, most of which are zero and not stored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import is_integer
from ..._support.public import public
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["BlockTensor", "Coordinates", "Sections", "block_extents", "block_offsets", "block_products"]

#: Of each mode, the extents of its sections.
Sections = tuple[tuple[int, ...], ...]
#: Of each stored block, its section along each mode.
Coordinates = tuple[tuple[int, ...], ...]


def block_extents(sections: Sections, block: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a block."""
    return tuple(extents[i] for extents, i in zip(sections, block, strict=True))


def block_offsets(sections: Sections, blocks: Coordinates) -> tuple[int, ...]:
    """Return where each block begins, in elements, and last how many elements there are."""
    return tuple(itertools.accumulate((math.prod(block_extents(sections, one)) for one in blocks), initial=0))


def block_products(
    inputs: Sequence[Sequence[int]], output: Sequence[int], blocks: Sequence[Coordinates]
) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Return, for each block of the result that is not zero, the pairs of blocks whose products it is the sum of.

    Parameters
    ----------
    inputs, output
        Modes of the two tensors and of the result.
    blocks
        Coordinates of the blocks of both tensors.
    """
    shared = [m for m in inputs[0] if m in inputs[1]]
    by_shared: dict[tuple[int, ...], list[int]] = {}
    for j, block in enumerate(blocks[1]):
        at = dict(zip(inputs[1], block, strict=True))
        by_shared.setdefault(tuple(at[m] for m in shared), []).append(j)
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for i, block in enumerate(blocks[0]):
        at = dict(zip(inputs[0], block, strict=True))
        for j in by_shared.get(tuple(at[m] for m in shared), ()):
            both = at | dict(zip(inputs[1], blocks[1][j], strict=True))
            found.setdefault(tuple(both[m] for m in output), []).append((i, j))
    return found


@public
@dataclass(frozen=True, slots=True)
class BlockTensor:
    """A tensor that is cut into blocks, of which those that are not zero are stored.

    Parameters
    ----------
    values : GpuRef
        The elements of the stored blocks, one block after the other, each in C order: a contiguous vector.
    sections : sequence of sequence of int
        Of each mode the extents of its sections, in elements.
    blocks : sequence of sequence of int
        Of each stored block its section along each mode; each block once.

    Raises
    ------
    InvalidRequest
        With the block or section, and the allowed ones.

    Examples
    --------
    >>> dense = np.diag([1.0, 1.0, 2.0])
    >>> a = an.BlockTensor.of(dense, [(2, 1), (2, 1)])
    >>> a.blocks, a.shape, a.values
    (((0, 0), (1, 1)), (3, 3), array([1., 0., 0., 1., 2.]))
    >>> x = an.BlockTensor(device.put(a.values), a.sections, a.blocks)
    >>> np.array_equal(device.tensor.block_contract("ij,jk->ik", x, x).dense(), dense @ dense)
    True
    """

    values: GpuRef
    sections: Sections
    blocks: Coordinates

    def __post_init__(self) -> None:
        for name in ("sections", "blocks"):
            given = getattr(self, name)
            valid = isinstance(given, Sequence) and all(
                isinstance(part, Sequence) and not isinstance(part, str) and all(map(is_integer, part))
                for part in given
            )
            if not valid:
                raise InvalidRequest(f"{name}={given!r}; allowed: a sequence of sequences of integers")
            object.__setattr__(self, name, tuple(tuple(map(int, part)) for part in given))
        for mode, extents in enumerate(self.sections):
            if any(n < 0 for n in extents):
                raise InvalidRequest(f"sections of mode {mode} are {extents}; allowed: 0 elements or more each")
        seen: set[tuple[int, ...]] = set()
        for block in self.blocks:
            if len(block) != len(self.sections) or not all(
                0 <= i < len(extents) for i, extents in zip(block, self.sections, strict=True)
            ):
                counts = [len(extents) for extents in self.sections]
                raise InvalidRequest(f"block {block}; allowed: coordinates below {counts}, one for each mode")
            if block in seen:
                raise InvalidRequest(f"block {block} is there twice; allowed: once")
            seen.add(block)
        count = block_offsets(self.sections, self.blocks)[-1]
        shape = tuple(getattr(self.values, "shape", ()))
        if shape != (count,):
            raise InvalidRequest(f"values has shape {list(shape)}; allowed: [{count}], the elements of all blocks")

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the whole tensor."""
        return tuple(map(sum, self.sections))

    @classmethod
    def of(cls, array: Any, sections: Sequence[Sequence[int]], blocks: Any = None) -> BlockTensor:
        """Return a tensor of NumPy arrays: the given blocks of an array, by default those that are not all zero.

        Parameters
        ----------
        array : array_like
        sections : sequence of sequence of int
        blocks : sequence of sequence of int, optional

        Raises
        ------
        InvalidRequest
            If the sections do not add up to the array's shape.
        """
        array = np.asarray(array)
        cut = tuple(tuple(map(int, part)) for part in sections)
        if tuple(map(sum, cut)) != array.shape:
            raise InvalidRequest(f"sections of {[sum(part) for part in cut]} elements; allowed: {list(array.shape)}")
        every = itertools.product(*(range(len(part)) for part in cut))
        chosen = [one for one in every if array[_place(cut, one)].any()] if blocks is None else [*map(tuple, blocks)]
        parts = [array[_place(cut, one)].ravel() for one in chosen]
        return cls(np.concatenate(parts) if parts else np.empty(0, array.dtype), cut, tuple(chosen))  # type: ignore[arg-type]

    def dense(self) -> Any:
        """Return the whole tensor as a NumPy array; waits for values on a device."""
        given: Any = self.values
        values = given if isinstance(given, np.ndarray) else given.numpy()
        made = np.zeros(self.shape, values.dtype)
        for block, part in zip(self.blocks, self._parts(values), strict=True):
            made[_place(self.sections, block)] = part
        return made

    def _parts(self, values: Any) -> Iterator[Any]:
        starts = block_offsets(self.sections, self.blocks)
        for block, (start, end) in zip(self.blocks, itertools.pairwise(starts), strict=True):
            yield values[start:end].reshape(block_extents(self.sections, block))


def _place(sections: Sections, block: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of a block in the whole tensor."""
    found = []
    for extents, i in zip(sections, block, strict=True):
        start = sum(extents[:i])
        found.append(slice(start, start + extents[i]))
    return tuple(found)
