"""Steps that are matrix products: in which order their modes merge, and which operands are copied for that."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...._lib.cublaslt import CONSTANTS
from ....builders.cuda.product import ProductDescription
from ....dtypes import as_dtype
from ..modes import Modes
from ..products import Groups
from ..types import EIGHT
from .arrays import Array, folded

__all__ = ["Product", "find_product", "product_outputs"]

_TYPES: Final = {
    "float64": "CUDA_R_64F", "float32": "CUDA_R_32F", "float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF",
    "complex64": "CUDA_C_32F", "complex128": "CUDA_C_64F", "float8_e4m3fn": "CUDA_R_8F_E4M3",
    "float8_e5m2": "CUDA_R_8F_E5M2",
}  # fmt: skip
_COMPUTE: Final = {
    "float64": "64F", "float32": "32F", "tf32": "32F_FAST_TF32", "bfloat16": "32F_FAST_16BF",
    "float16": "32F_FAST_16F", "complex64": "32F", "complex128": "64F", EIGHT: "32F",
}  # fmt: skip
_SCALE: Final = {"float16": "float32", "bfloat16": "float32", EIGHT: "float32"}
#: Bytes, and elements of float8, at whose multiples rows and matrices begin.
_ALIGNED: Final = 16
_N, _T, _C = (CONSTANTS[f"CUBLAS_OP_{op}"] for op in "NTC")
_COLUMNS = CONSTANTS["CUBLASLT_ORDER_COL"]
#: Rows and columns of a matrix below which one product with copies is better than many; and modes of rows or columns
#: beyond which no batch is looked for.
_LEAST_MOVED: Final = 64
_MOST_MOVED: Final = 6
#: The tiles of a result, and the elements along their sides, that keep a device busy.
_LEAST_TILES: Final = 96
_TILE: Final = 128
#: cuBLASLt counts extents and batches in 32 bits.
_LARGEST: Final = 2**31 - 1


def product_outputs(dtype: str) -> tuple[str, ...]:
    """Return the dtypes in which cuBLASLt stores products of a dtype; the last is that of their sums."""
    if dtype == EIGHT:
        return ("bfloat16", "float16", "float32")
    return (dtype, "float32") if dtype in _SCALE else (dtype,)


@dataclass(frozen=True, slots=True)
class _Side:
    """A matrix of each index of the batch: strides along its outer modes, the sum's modes, and the batch."""

    outer: int
    k: int
    batch: int


@dataclass(frozen=True, slots=True)
class Product:
    """A product ``(batch, m, k) @ (batch, k, n)`` whose modes have an order.

    Attributes
    ----------
    groups : Groups
        Modes in the order in which they merge.
    copied : tuple of bool
        Whether A, B and D lie otherwise, so that copies stand for them.
    moved : tuple of tuple of int
        Modes of the batch that B does not have, and those that A does not have: rows and columns of the product that
        are taken one after the other, each with the same matrix of the other operand.
    """

    groups: Groups
    copied: tuple[bool, bool, bool]
    moved: tuple[Modes, Modes] = ((), ())

    def layout(self, which: int) -> Modes:
        """Return the modes of a copy of A, B or D, in the order in which it is contiguous."""
        g = self.groups
        absent = (self.moved[1], self.moved[0], ())[which]
        batch = tuple(mode for mode in g.batch if mode not in absent)
        return batch + (g.m + g.k, g.n + g.k, g.m + g.n)[which]

    def elements(self, which: int, extents: Sequence[int]) -> int:
        """Return how many elements A, B or D has."""
        return math.prod(extents[mode] for mode in self.layout(which))

    def lie_alike(self, d: Array | None, c: Array, extents: Sequence[int]) -> bool:
        """Whether C has the orientation of D."""
        g = self.groups
        sides = [None if x is None else _side(x, g.m, g.n, g.batch, extents) for x in (d, c)]
        m, n = (math.prod(extents[i] for i in modes) for modes in (g.m, g.n))
        return any(
            all(s is not None and _leading(s, m, n, rows=rows) is not None for s in sides) for rows in (True, False)
        )

    def describe(
        self, a: Array, b: Array, d: Array, c: Array | None, extents: Sequence[int], *,
        conj: tuple[bool, bool], dtype: str, compute: str, limit: int, epilogue: str = "default",
        bias: Array | None = None,
    ) -> tuple[ProductDescription, tuple[Array, ...]] | None:  # fmt: skip
        """Return cuBLASLt's description and its operands in order; None if it counts too far, or has no such bias."""
        g = self.groups
        m, n, k, batch = (math.prod(extents[i] for i in modes) for modes in (g.m, g.n, g.k, g.batch))
        if max(m, n, k, batch) > _LARGEST:
            return None
        left, right, result = (_side(a, g.m, g.k, g.batch, extents), _side(b, g.n, g.k, g.batch, extents),
                               _side(d, g.m, g.n, g.batch, extents))  # fmt: skip
        if left is None or right is None or result is None:
            return None
        by_rows = _leading(result, m, n, rows=True) is not None
        added = result if c is None else _side(c, g.m, g.n, g.batch, extents)
        if added is None:
            return None
        lds = [_leading(s, m, n, rows=by_rows) for s in (result, added)]
        if None in lds:
            return None
        first, second = (b, a) if by_rows else (a, b)
        sides = (right, left) if by_rows else (left, right)
        outers = (n, m) if by_rows else (m, n)
        flags = conj[::-1] if by_rows else conj
        inputs = [
            _input(s, outer, k, i == 0, flag)
            for i, (s, outer, flag) in enumerate(zip(sides, outers, flags, strict=True))
        ]
        if inputs[0] is None or inputs[1] is None:
            return None
        (op_a, ld_a), (op_b, ld_b) = inputs[0], inputs[1]
        (ld_d, ld_c) = lds
        is_complex = dtype.startswith("complex")
        scale = _SCALE.get(dtype, dtype)
        more = () if c is None or c.place == d.place else (c,)
        step_bias = 0
        if bias is not None:
            step = self._bias_step(bias, extents, by_rows=by_rows)
            if step is None or bias.dtype != d.dtype:
                return None
            step_bias, more = step, (*more, bias)
        description = ProductDescription(
            m=n if by_rows else m,
            n=m if by_rows else n,
            k=k,
            batch=batch,
            type_a=CONSTANTS[_TYPES[first.dtype if dtype == EIGHT else dtype]],
            type_b=CONSTANTS[_TYPES[second.dtype if dtype == EIGHT else dtype]],
            type_c=CONSTANTS[_TYPES[d.dtype]],
            type_d=CONSTANTS[_TYPES[d.dtype]],
            compute=CONSTANTS[f"CUBLAS_COMPUTE_{_COMPUTE[scale if compute == dtype else compute]}"],
            scale=CONSTANTS[_TYPES[scale]],
            trans_a=op_a,
            trans_b=op_b,
            order_a=_COLUMNS,
            order_b=_COLUMNS,
            ld_a=ld_a,
            ld_b=ld_b,
            ld_c=ld_c or 0,
            ld_d=ld_d or 0,
            step_a=sides[0].batch,
            step_b=sides[1].batch,
            step_c=added.batch,
            step_d=result.batch,
            epilogue=CONSTANTS[f"CUBLASLT_EPILOGUE_{epilogue.upper()}"],
            bias=-1 if bias is None else 2 + len(more),
            step_bias=step_bias,
            reduced_precision=int(d.dtype == scale),
            c=-1 if c is None else 2 if c.place == d.place else 3,
            alpha_imag=2 if is_complex else -1,
            beta_imag=3 if is_complex else -1,
            n_operands=3 + len(more),
            n_scalars=4 if is_complex else 2,
            workspace_bytes=limit,
        )
        return description, (first, second, d, *more)

    def _bias_step(self, bias: Array, extents: Sequence[int], *, by_rows: bool) -> int | None:
        """Return the elements between the biases of two products; None if they are no vectors along D's dense side."""
        g = self.groups
        dense, other = (g.n, g.m) if by_rows else (g.m, g.n)
        steps = [folded(bias, modes, extents) for modes in (dense, other, g.batch)]
        least = 1 if math.prod(extents[i] for i in dense) > 1 else 0
        if steps[0] != least or steps[1] != 0 or steps[2] is None or steps[2] < 0:
            return None
        return steps[2]


def _side(array: Array, outer: Modes, inner: Modes, batch: Modes, extents: Sequence[int]) -> _Side | None:
    strides = [folded(array, modes, extents) for modes in (outer, inner, batch)]
    if None in strides:
        return None
    return _Side(*(stride or 0 for stride in strides))


def _leading(side: _Side, m: int, n: int, *, rows: bool) -> int | None:
    """Return the leading dimension of D, of which rows (or columns) are dense; None if they are not."""
    (inner, step), (outer, leading) = ((n, side.k), (m, side.outer)) if rows else ((m, side.outer), (n, side.k))
    if inner > 1 and step != 1:
        return None
    if outer < 2:
        return max(inner, 1)
    return leading if leading >= max(inner, 1) else None


def _input(side: _Side, outer: int, k: int, first: bool, conj: bool) -> tuple[int, int] | None:
    """Return how cuBLASLt reads a matrix: its operation and leading dimension; None if it does not.

    Its first operand is (outer, k) to it, and not transposed where the outer axis is dense; its second is (k, outer).
    """
    by_outer = _dense(outer, side.outer, k, side.k)
    by_k = _dense(k, side.k, outer, side.outer)
    plain, turned = (by_outer, by_k) if first else (by_k, by_outer)
    if conj:
        return (_C, turned) if turned else None
    if plain:
        return _N, plain
    return (_T, turned) if turned else None


def _dense(inner: int, step: int, outer: int, leading: int) -> int:
    if inner > 1 and step != 1:
        return 0
    if outer < 2:
        return max(inner, 1)
    return leading if leading >= max(inner, 1) else 0


def _ordered(modes: Modes, array: Array) -> Modes:
    """Return modes in the order of an array's memory."""
    return tuple(sorted(modes, key=lambda m: -abs(array.stride(m))))


def _orders(groups: Groups, a: Array, b: Array, d: Array | None) -> Iterator[Groups]:
    """Yield the groups with their modes in the order of each array that has them."""

    def choices(modes: Modes, *arrays: Array | None) -> list[Modes]:
        return list(dict.fromkeys(_ordered(modes, array) for array in arrays if array is not None))

    for batch, m, n, k in itertools.product(
        choices(groups.batch, d, a, b), choices(groups.m, a, d), choices(groups.n, b, d), choices(groups.k, a, b)
    ):
        yield Groups(batch, m, n, k, groups.alone)


def _moved(groups: Groups, a: Array, b: Array, d: Array | None) -> Iterator[tuple[Groups, tuple[Modes, Modes]]]:
    """Yield the groups with some rows, or some columns, in the batch: neighbours in the result, but not all."""
    for is_a, own, array in ((True, groups.m, a), (False, groups.n, b)):
        order = _ordered(own, array if d is None else d)
        if len(order) > _MOST_MOVED:
            continue
        for first, last in itertools.combinations(range(len(order) + 1), 2):
            run, rest = order[first:last], order[:first] + order[last:]
            if rest:
                batch = groups.batch + run
                m, n = (rest, groups.n) if is_a else (groups.m, rest)
                yield Groups(batch, m, n, groups.k, groups.alone), ((run, ()) if is_a else ((), run))


def _copies(
    order: Groups, a: Array, b: Array, d: Array | None, extents: Sequence[int], conj: tuple[bool, bool], dtype: str
) -> tuple[bool, bool, bool]:
    """Return whether A, B and D lie otherwise than a product with its modes in this order reads and writes them."""
    m, n, k = (math.prod(extents[i] for i in modes) for modes in (order.m, order.n, order.k))
    by_rows = True
    lies = True
    if d is not None:
        side = _side(d, order.m, order.n, order.batch, extents)
        lies = side is not None and d.dtype in product_outputs(dtype)
        if side is not None and lies:
            by_rows = _leading(side, m, n, rows=True) is not None
            lies = by_rows or _leading(side, m, n, rows=False) is not None
            lies = lies and side.batch >= 0
        by_rows = by_rows or not lies
    copies = []
    for array, outer, count, is_a, flag in ((a, order.m, m, True, conj[0]), (b, order.n, n, False, conj[1])):
        side = _side(array, outer, order.k, order.batch, extents)
        alike = array.dtype.startswith(EIGHT) if dtype == EIGHT else array.dtype == dtype
        copy = not alike or side is None or side.batch < 0
        if side is not None and not copy and dtype == EIGHT:  # along the sum it is dense
            leading = _dense(k, side.k, count, side.outer)
            copy = not leading or leading % _ALIGNED != 0 or side.batch % _ALIGNED != 0
        elif side is not None and not copy:
            copy = _input(side, count, k, is_a != by_rows, flag and dtype.startswith("complex")) is None
        copies.append(copy)
    return copies[0], copies[1], not lies


def find_product(
    groups: Groups, a: Array, b: Array, d: Array | None, extents: Sequence[int], *,
    conj: tuple[bool, bool], dtype: str, moves: bool = True,
) -> Product:  # fmt: skip
    """Return the order of modes with which the fewest bytes are copied.

    Parameters
    ----------
    groups
        The modes, none of which only one operand has besides rows and columns.
    a, b
        The operands.
    d
        The result, if its layout is given.
    extents
        Of all modes.
    conj, dtype
        Whether operands are conjugated; the dtype of the product.
    moves
        Whether rows or columns may be a batch, with one matrix of the other operand.
    """
    size = 1 if dtype == EIGHT else as_dtype(dtype).itemsize

    def count(modes: Modes) -> int:
        return math.prod(extents[mode] for mode in modes)

    def made(order: Groups, moved: tuple[Modes, Modes]) -> tuple[int, int, Product]:
        product = Product(order, _copies(order, a, b, d, extents, conj, dtype), moved)
        copied = sum(product.elements(which, extents) for which in range(3) if product.copied[which])
        return size * copied, count(moved[0]) * count(moved[1]), product

    found = [made(order, ((), ())) for order in _orders(groups, a, b, d)]
    if moves and min(cost for cost, _, _ in found):
        for other, moved in _moved(groups, a, b, d):
            tiles = count(other.batch) * -(-count(other.m) // _TILE) * -(-count(other.n) // _TILE)
            if min(count(other.m), count(other.n)) >= _LEAST_MOVED and tiles >= _LEAST_TILES:
                found += [made(order, moved) for order in _orders(other, a, b, d)]
    return min(found, key=lambda way: way[:2])[2]
