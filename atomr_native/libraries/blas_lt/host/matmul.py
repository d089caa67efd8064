"""Matmul on the host device: NumPy's BLAS for the products, cache-sized blocks for the rest.

Large products run on all threads of the BLAS that NumPy brings.  16-bit operands are widened to float32, which is how
GPUs accumulate them; `alpha`, `beta` and epilogue are applied in the accumulation type, and D is rounded once.
Blocks are fixed when the plan is built, so a result is a function of its operands alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....builders.blocks import Index, blocks, fold_axes
from ....builders.context import Built, HostContext
from ....dtypes import as_dtype
from ....errors import InvalidRequest
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import GroupedAttributes, MatmulAttributes
from ..grouped import member_specs
from .custom_epilogue import build_custom
from .gelu import gelu, times_gelu_gradient
from .general import build_general, is_general
from .threads import sized

__all__ = ["build_grouped", "build_matmul"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

#: Elements of a block of products held in the accumulation type, and the fewest rows of one: a product of fewer rows
#: spends its time in packing B.
_PRODUCT = 1 << 18
_ROWS = 256
#: Elements of a block of the epilogue, so that its temporaries stay in the second-level cache.
_EPILOGUE = 1 << 15


@dataclass(frozen=True, slots=True)
class _Build:
    """All that a run needs besides data and scalars."""

    operands: dict[str, OperandSpec]
    trans_a: bool
    trans_b: bool
    epilogue: str
    activation: str
    added: str
    acc: np.dtype[Any]
    #: Batch axes; none where they fold into the rows.
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    folded: bool
    #: Products go straight into D, which has the accumulation type and a layout that BLAS writes.
    direct: bool
    copy_a: bool
    copy_b: bool
    one_b: bool

    @property
    def backward(self) -> bool:
        return self.epilogue.startswith(("drelu", "dgelu"))


def _is_blas(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Return whether BLAS takes the last two axes where they are: one of them dense, the other stepping over it."""
    rows, columns = shape[-2:]
    row, column = strides[-2:]
    if columns < 2 or rows < 2:
        return (rows < 2 and (columns < 2 or column == itemsize)) or (columns < 2 and row == itemsize)
    return (column == itemsize and row >= columns * itemsize) or (row == itemsize and column >= rows * itemsize)


def _swap(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*axes[:-2], axes[-1], axes[-2])


def _fold_rows(
    operands: Mapping[str, OperandSpec], trans_a: bool
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return shape and strides of each row operand with batches folded into rows, or nothing if one does not fold."""
    result: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for name in ("a", "c", "out", "aux"):
        if name not in operands:
            continue
        shape, strides = operands[name].shape, operands[name].strides
        if name == "a" and trans_a:
            shape, strides = _swap(shape), _swap(strides)
        rows, (steps,) = fold_axes(shape[:-1], (strides[:-1],))
        if len(rows) != 1:
            return {}
        result[name] = ((rows[0], shape[-1]), (steps[0], strides[-1]))
    return result


def _prepare(spec: PlanSpec[MatmulAttributes]) -> _Build:
    operands, how = {o.name: o for o in spec.operands}, spec.attributes
    a, b, out = operands["a"], operands["b"], operands["out"]
    acc, epilogue, trans_a = as_dtype(how.compute), how.epilogue, how.trans_a
    batch, n = out.shape[:-2], out.shape[-1]
    layouts = {name: (o.shape, o.strides) for name, o in operands.items()}
    if trans_a:
        layouts["a"] = (_swap(a.shape), _swap(a.strides))
    # (..., M, K) by one (K, N) is one product of all rows, if every array lets its batches fold into its rows.
    one_b = math.prod(b.shape[:-2]) == 1
    folds: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    if batch and one_b and a.shape[:-2] == batch and "bias_grad" not in operands and 0 not in out.shape:
        bias = operands.get("bias")
        folds = _fold_rows(operands, trans_a) if bias is None or len(bias.shape) == 1 else {}
        layouts |= folds
    return _Build(
        operands=operands,
        trans_a=trans_a,
        trans_b=how.trans_b,
        epilogue=epilogue,
        activation="gelu" if "gelu" in epilogue else "relu" if "relu" in epilogue else "",
        added=how.added,
        acc=acc,
        batch=() if folds else batch,
        m=layouts["out"][0][-2],
        n=n,
        k=layouts["a"][0][-1],
        folded=bool(folds),
        direct=as_dtype(out.dtype) == acc and how.added != "out" and _is_blas(*layouts["out"], acc.itemsize),
        copy_a=as_dtype(a.dtype) != acc or not _is_blas(*layouts["a"], acc.itemsize),
        copy_b=as_dtype(b.dtype) != acc or not _is_blas(b.shape, b.strides, acc.itemsize),
        one_b=one_b,
    )


class _Frame:
    """A block of D and what belongs to it.

    `rows` are views with the block's leading axes (batches and rows); `shared` have one row for each batch.
    """

    __slots__ = ("nbatch", "rows", "shared")

    def __init__(self, rows: dict[str, Array], shared: dict[str, Array], nbatch: int) -> None:
        self.rows = rows
        self.shared = shared
        self.nbatch = nbatch

    def cut(self, index: Index) -> _Frame:
        """Return the block at `index` of the leading axes."""
        if not index:
            return self
        batch = index[: self.nbatch]
        return _Frame(
            {name: view[index] for name, view in self.rows.items()},
            {name: view[batch] for name, view in self.shared.items()},
            self.nbatch - sum(isinstance(i, int) for i in batch),
        )


class _Epilogue:
    """The epilogue of one run, applied to blocks of products in the accumulation type."""

    __slots__ = ("alpha", "beta", "bias", "build", "idle", "limit")

    def __init__(self, build: _Build, alpha: float, beta: float, bias: Array | None) -> None:
        self.build = build
        self.alpha = build.acc.type(alpha)
        self.beta = build.acc.type(beta)
        self.bias = bias
        self.idle = alpha == 1.0 and beta == 0.0 and not build.activation and bias is None
        self.limit = max(1, _EPILOGUE // max(build.n, 1))

    def apply(self, frame: _Frame) -> None:
        """Turn ``frame.rows["x"]``, op(A) @ op(B), into D; it is stored if the frame has an ``out`` apart."""
        if self.idle and "bias" not in frame.shared:
            if "out" in frame.rows:
                np.copyto(frame.rows["out"], frame.rows["x"], casting="unsafe")
            return
        for index in blocks(frame.rows["x"].shape[:-1], self.limit):
            self._block(frame.cut(index))

    def _block(self, frame: _Frame) -> None:
        build, rows, shared = self.build, frame.rows, frame.shared
        x, out = rows["x"], rows.get("out")
        if self.alpha != 1.0:
            np.multiply(x, self.alpha, out=x)
        if self.beta != 0.0:
            c = rows["out" if build.added == "out" else "c"]  # "out": the block of D still holds C
            np.add(x, np.multiply(c, self.beta, dtype=build.acc), out=x)
        if self.bias is not None:
            np.add(x, self.bias, out=x)
        elif "bias" in shared:
            np.add(x, shared["bias"], out=x)
        if build.backward:
            if build.activation == "gelu":
                times_gelu_gradient(x, rows["aux"].astype(build.acc))
            else:
                packed = rows["aux"][..., : -(-build.n // 8)]
                mask = np.unpackbits(packed, axis=-1, count=build.n, bitorder="little")
                np.copyto(x, 0, where=mask == 0)
            if "sums" in shared:
                sums = shared["sums"]
                np.add(sums, np.add.reduce(x, axis=-2, keepdims=True, dtype=sums.dtype), out=sums)
        elif build.activation == "gelu":
            if "aux" in rows:
                np.copyto(rows["aux"], x, casting="unsafe")
            gelu(x)
        elif build.activation == "relu":
            if "aux" in rows:
                aux, bits = rows["aux"], np.packbits(x > 0, axis=-1, bitorder="little")
                aux[..., : bits.shape[-1]] = bits
                aux[..., bits.shape[-1] :] = 0
            np.maximum(x, 0, out=x)
        if out is not None:
            np.copyto(out, x, casting="unsafe")


def _products(build: _Build, a: Array, b: Array, frame: _Frame, epilogue: _Epilogue) -> None:
    """Make products block by block in a temporary, and store them through the epilogue."""
    nbatch, limit = len(build.batch), max(_ROWS, _PRODUCT // max(build.n, 1))
    lead = (*build.batch, build.m)
    if nbatch:
        a = np.broadcast_to(a, (*build.batch, build.m, build.k))
        b = b.reshape(b.shape[-2:]) if build.one_b else np.broadcast_to(b, (*build.batch, build.k, build.n))
    part: Array | None = None
    loaded: Index | None = None
    space = np.empty(min(math.prod(lead), limit) * build.n, build.acc)
    for index in blocks(lead, limit):
        batch = index[:nbatch]
        if part is None or (not build.one_b and batch != loaded):
            part = b if build.one_b else b[batch]
            part = part.astype(build.acc) if build.copy_b else part
            loaded = batch
        left = a[index]
        block = frame.cut(index)
        shape = block.rows["out"].shape
        x = space[: math.prod(shape)].reshape(shape)
        np.matmul(left.astype(build.acc) if build.copy_a else left, part, out=x)
        epilogue.apply(_Frame({**block.rows, "x": x}, block.shared, block.nbatch))


def build_matmul(spec: PlanSpec[MatmulAttributes], _context: HostContext) -> Built:
    """Build ``blas_lt.matmul``."""
    return Built(_product(spec))


def _product(spec: PlanSpec[MatmulAttributes]) -> Run:
    """Return ``run(arrays, (alpha, beta))`` for a plan specification of ``blas_lt.matmul``.

    The run writes D, and aux and bias gradient where the epilogue has them.  It allocates blocks of about a megabyte,
    and for operands that BLAS cannot take as they are, one copy of B and of a block of A (of A, where products go
    straight into D).
    """
    if spec.attributes.custom is not None:
        return build_custom(spec, spec.attributes.custom, _product)
    if is_general(spec):
        return build_general(spec)
    build = _prepare(spec)
    at = {name: i for i, name in enumerate(build.operands)}
    index_a, index_b, index_out = at["a"], at["b"], at["out"]
    trans_a, trans_b, n, batch = build.trans_a, build.trans_b, build.n, build.batch
    row_names: list[str] = [name for name in ("c", "out", "aux") if name in at and not (name == "out" and build.direct)]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        alpha, beta = scalars
        if build.added == "none" and beta != 0.0:
            raise InvalidRequest(f"beta={beta}, but the plan was made with beta=0 and has no c; allowed: 0")
        a, b, out = arrays[index_a], arrays[index_b], arrays[index_out]
        if trans_a:
            a = a.swapaxes(-1, -2)
        if trans_b:
            b = b.swapaxes(-1, -2)
        if build.epilogue in ("bgrada", "bgradb"):  # in float64, since NumPy adds rows one after the other
            (summed, axis), wide = (a, -1) if build.epilogue == "bgrada" else (b, -2), np.result_type(build.acc, "f8")
            np.copyto(arrays[at["bias_grad"]], np.add.reduce(summed, axis=axis, dtype=wide), casting="unsafe")
        bias, shared = None, {}
        if "bias" in at:
            bias = arrays[at["bias"]].astype(build.acc, copy=False)
            if bias.ndim > 1:
                shared["bias"], bias = bias[..., None, :], None
        if build.epilogue.endswith("_bgrad"):
            shared["sums"] = np.zeros((*batch, 1, n), np.result_type(build.acc, "f8"))
        rows = {name: arrays[at[name]] for name in row_names}
        if build.folded:
            a = a.reshape(build.m, build.k)
            b = b.reshape(b.shape[-2:])
            out = out.reshape(build.m, n)
            rows = {name: view.reshape(build.m, view.shape[-1]) for name, view in rows.items()}
        epilogue = _Epilogue(build, alpha, beta, bias)
        if build.direct:
            np.matmul(a.astype(build.acc) if build.copy_a else a, b.astype(build.acc) if build.copy_b else b, out=out)
            epilogue.apply(_Frame({**rows, "x": out}, shared, len(batch)))
        else:
            _products(build, a, b, _Frame(rows, shared, len(batch)), epilogue)
        if "sums" in shared:
            np.copyto(arrays[at["bias_grad"]], shared["sums"][..., 0, :], casting="unsafe")

    return sized(run, build.m * build.n * build.k)


def build_grouped(spec: PlanSpec[GroupedAttributes], _context: HostContext) -> Built:
    """Return the run of ``blas_lt.grouped``: its members', one after the other."""
    members = [(_product(one), places) for one, places in member_specs(spec)]

    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        for one, places in members:
            one(tuple(arrays[i] for i in places), scalars)

    return Built(run)
