"""From a plan specification of ``blas_lt.matmul`` to cuBLASLt's terms: column-major, strides in elements.

Pure functions of layouts; no library is loaded and nothing is enqueued.

cuBLASLt is column-major, so a row-major D is computed as its transpose: ``D^T = op(B)^T @ op(A)^T``.  Its first operand
is then our B and its second our A; N counts its rows.  Its bias (a vector over rows), bias gradient and ReLU
mask (columns of bits) want this order, since ours go along N.  A column-major D (``out=y.T``) is computed as it is, for
epilogues that have none of these.  A matrix is taken where it lies: one axis dense, the other stepping over it, and
the operation's transpose flags say which.  Nothing is ever copied; a layout that does not fit is `Unsupported`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...._lib.cublaslt import CONSTANTS
from ....builders.blocks import fold_axes
from ....errors import Unsupported
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import MatmulAttributes
from .native import MatmulDescription
from .rules import check_dense_along_k, check_rules, prefers_k, scale_mode
from .tables import COMPUTE, TYPES

__all__ = ["MatmulDescription", "UnevenBatch", "matmul_description"]

_N, _T, _C = (CONSTANTS[f"CUBLAS_OP_{op}"] for op in "NTC")
_COL, _ROW = CONSTANTS["CUBLASLT_ORDER_COL"], CONSTANTS["CUBLASLT_ORDER_ROW"]

#: Extents and batch counts are 32-bit numbers in cuBLASLt's kernels.
_LARGEST = 2**31 - 1
#: Epilogues that treat rows and columns of D alike.
_SYMMETRIC = ("default", "relu", "gelu", "gelu_aux", "dgelu", "bgrada", "bgradb")
_MASK_BITS = 128
#: Operands shared by all matrices of a batch.
_SINGLE = ("a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta", "amax")
_GELU_STEP = 8

#: Extents and byte strides of some axes.
Axes = tuple[tuple[int, ...], tuple[int, ...]]


class UnevenBatch(Unsupported):
    """A batch in which no stride leads from each matrix of an operand to the next."""


class _Operand(OperandSpec, frozen=True):
    """An operand of the specification, the message's number `index`; strides in elements (of a ReLU mask in bytes)."""

    index: int = 0

    def matrix(self, transposed: bool) -> Axes:
        """Return extents and strides of the last two axes, swapped if asked to."""
        step = -1 if transposed else 1
        return self.shape[-2:][::step], self.strides[-2:][::step]

    def describe(self) -> str:
        """Return name, shape and strides, for messages."""
        return f"{self.name} of shape {self.shape} and strides {self.strides} (in elements)"


def _operand(index: int, given: OperandSpec) -> _Operand:
    size = TYPES[given.dtype][1] if given.dtype in TYPES else 1
    for axis, (extent, stride) in enumerate(zip(given.shape, given.strides, strict=True)):
        if extent > 1 and (stride < 0 or stride % size):
            raise Unsupported(
                f"{given.name} has stride {stride} bytes at axis {axis}; cuBLASLt takes strides that are 0 or "
                f"positive multiples of the element size {size}; copy it into a new array",
                rule="blas_lt.strides",
                lifted_by=("layout",),
            )
    strides = tuple(s // size for s in given.strides)
    return _Operand(given.name, given.dtype, given.shape, strides, given.access, index)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The batch as one axis of `count` matrices, with the step of each operand in its strides' unit."""

    count: int
    steps: dict[str, int]


def _fold_batch(batch: tuple[int, ...], operands: dict[str, _Operand]) -> _Batch:
    """Fold all batch axes into one for every operand at once, or refuse."""
    strides: dict[str, tuple[int, ...]] = {}
    for name, operand in operands.items():
        if name in _SINGLE:
            continue
        own = 1 if name in ("bias", "bias_grad") else 2  # axes that are not batch axes
        lead = operand.shape[:-own]
        own_steps = tuple(0 if n == 1 else s for n, s in zip(lead, operand.strides[: len(lead)], strict=True))
        strides[name] = (0,) * (len(batch) - len(lead)) + own_steps
    # Matrices of a batch have no order, so let D's memory give one.
    order = sorted(range(len(batch)), key=lambda axis: -strides["out"][axis])
    extents, steps = fold_axes(
        tuple(batch[axis] for axis in order), tuple(tuple(s[axis] for axis in order) for s in strides.values())
    )
    if len(extents) > 1:
        listed = "; ".join(f"{name} {step}" for name, step in strides.items())
        raise UnevenBatch(
            f"batch {batch} does not have one stride for each operand (strides of the batch axes in elements: "
            f"{listed}); cuBLASLt's strided batches step evenly, or not at all",
            rule="blas_lt.uneven_batch",
            lifted_by=("layout", "copies"),
        )
    if not batch or extents == (1,):
        return _Batch(math.prod(batch), dict.fromkeys(operands, 0))
    return _Batch(extents[0], dict(zip(strides, (s[0] for s in steps), strict=True)))


def _fold_rows(how: MatmulAttributes, batch: tuple[int, ...], operands: dict[str, _Operand]) -> dict[str, Axes]:
    """Return (rows, columns) and strides of a, c, out and aux with the batch folded into rows; {} if it does not fold.

    Many matrices by one B are one product: a single larger matmul instead of a batch of small ones.
    """
    a, b, bias = operands["a"], operands["b"], operands.get("bias")
    if math.prod(batch) < 2 or math.prod(b.shape[:-2]) != 1 or a.shape[:-2] != batch or "bias_grad" in operands:
        return {}
    if bias is not None and math.prod(bias.shape[:-1]) != 1:
        return {}
    folded: dict[str, Axes] = {}
    for name in ("a", "c", "out", "aux"):
        if name not in operands:
            continue
        operand = operands[name]
        (rows, columns), (row, column) = operand.matrix(name == "a" and how.trans_a)
        extents, (steps,) = fold_axes((*operand.shape[:-2], rows), ((*operand.strides[:-2], row),))
        if len(extents) != 1 or extents[0] > _LARGEST:
            return {}
        axes = (extents[0], columns), (steps[0], column)
        # Folding may cost what a single row allows: a column-major D, or any stride along K.
        if not _leading(axes, dense=1) and not (name == "a" and _leading(axes, dense=0)):
            return {}
        folded[name] = axes
    return folded


def _leading(axes: Axes, dense: int) -> int:
    """Return the leading dimension if axis `dense` (0: rows, 1: columns) has stride 1 and the other steps over it.

    0 if not.  Where the other axis has one element, its stride does not matter.
    """
    (inner, outer) = (axes[0][dense], axes[0][1 - dense])
    (step, leading) = (axes[1][dense], axes[1][1 - dense])
    if inner > 1 and step != 1:
        return 0
    if outer < 2:
        return max(inner, 1)
    return leading if leading >= max(inner, 1) else 0


@dataclass(frozen=True, slots=True)
class _Input:
    """How cuBLASLt reads A or B."""

    trans: int
    order: int
    ld: int


def _input(operand: _Operand, axes: Axes, outer: int, first: bool, summed: bool, conjugated: bool, arch: str) -> _Input:
    """Return how cuBLASLt reads an input.

    `axes` are those of op(operand); `outer` is the axis that is not K.  cuBLASLt's first operand is (outer, K) to it,
    and not transposed where the outer axis is dense; its second is (K, outer), and not transposed where K is.
    `summed`: its sum over K is a bias gradient, which the library computes with op N of the first operand and op T of
    the second; a second operand that would need op N is declared row-major instead.
    """
    by_outer, by_k = _leading(axes, dense=outer), _leading(axes, dense=1 - outer)
    if conjugated:  # with a transpose only; an axis of one element may be either
        transposed = by_k if first else by_outer
        if transposed:
            return _Input(_C, _COL, transposed)
        raise Unsupported(
            f"{operand.describe()} conjugated: cuBLASLt conjugates only with a transpose, which this layout does not "
            f"need; conjugate it first",
            rule="blas_lt.conjugate_without_transpose",
            lifted_by=("layout", "copies"),
        )
    check_dense_along_k(operand.name, bool(by_k), operand.dtype, arch)
    if prefers_k(operand.dtype) and by_k:
        return _Input(_T, _COL, by_k) if first else _Input(_N, _COL, by_k)
    if not by_outer and not by_k:
        raise Unsupported(
            f"{operand.describe()} has no dense axis among its last two, or they overlap; cuBLASLt takes a matrix with "
            f"stride 1 along one axis and a stride of at least that axis' extent along the other; copy it into a new "
            f"array",
            rule="blas_lt.dense_axis",
            lifted_by=("layout", "copies"),
        )
    if first:
        return _Input(_N, _COL, by_outer) if by_outer else _Input(_T, _COL, by_k)
    if summed:
        return _Input(_T, _COL, by_outer) if by_outer else _Input(_T, _ROW, by_k)
    return _Input(_N, _COL, by_k) if by_k else _Input(_T, _COL, by_outer)


def _vector(operand: _Operand, step: int) -> int:
    if operand.shape[-1] > 1 and operand.strides[-1] != 1:
        raise Unsupported(
            f"{operand.describe()} is not dense; cuBLASLt takes bias and bias gradient with stride 1; copy it into "
            f"a new array",
            rule="blas_lt.dense_bias",
            lifted_by=("layout",),
        )
    return step


def _mask(operand: _Operand, axes: Axes, batch: _Batch, n: int, writes: bool) -> tuple[int, int, int]:
    """Return (leading dimension and batch step in bits, bytes to clear) of a ReLU mask."""
    (rows, width), step, ld = axes[0], batch.steps["aux"], _leading(axes, dense=1)
    if not ld or ld * 8 % _MASK_BITS or step * 8 % _MASK_BITS:
        raise Unsupported(
            f"{operand.describe()}: cuBLASLt takes a ReLU mask with dense rows that start every multiple of 16 bytes; "
            f"leave aux out to have it allocated so, or copy it",
            rule="blas_lt.mask_layout",
            lifted_by=("layout",),
        )
    if not writes or n % _MASK_BITS == 0:
        return ld * 8, step * 8, 0
    if (rows > 1 and ld != width) or (batch.count > 1 and step != rows * width):
        raise Unsupported(
            f"{operand.describe()} with N={n}, no multiple of 128: the bits after N are cleared in one piece, so the "
            f"mask must be C-contiguous; leave aux out to have it allocated so",
            rule="blas_lt.mask_contiguous",
            lifted_by=("layout", "shape"),
        )
    return ld * 8, step * 8, batch.count * rows * width


def _gelu_aux(operand: _Operand, axes: Axes, batch: _Batch, dense: int) -> tuple[int, int]:
    """Return leading dimension and batch step of GELU's aux."""
    inner, outer, step = axes[0][dense], axes[0][1 - dense], batch.steps["aux"]
    ld = _leading(axes, dense)
    if ld and outer < 2:
        ld = -(-inner // _GELU_STEP) * _GELU_STEP  # nothing lies there
    if not ld or ld % _GELU_STEP or step % _GELU_STEP:
        raise Unsupported(
            f"{operand.describe()}: cuBLASLt takes aux of GELU with D's order and with steps from row to row and from "
            f"matrix to matrix that are multiples of {_GELU_STEP} elements; give aux (and the backward pass) a view "
            f"such as device.empty((..., M, ceil(N / 8) * 8))[..., :N], or pad N to a multiple of 8",
            rule="blas_lt.aux_layout",
            lifted_by=("layout", "shape"),
        )
    return ld, step


def _check_sizes(extents: dict[str, int]) -> None:
    for name, extent in extents.items():
        if extent > _LARGEST:
            raise Unsupported(
                f"{name}={extent}; cuBLASLt counts in 32 bits, so at most {_LARGEST}; split the matmul along that axis",
                rule="blas_lt.extent",
                lifted_by=("shape",),
            )


def _orient(epilogue: str, operands: dict[str, _Operand], matrices: dict[str, Axes]) -> tuple[bool, dict[str, int]]:
    """Return (whether D is row-major, leading dimensions of out and c)."""
    names: list[str] = [name for name in ("out", "c") if name in operands]
    for rows in (True, False):
        if not rows and epilogue not in _SYMMETRIC:
            break
        found = {name: _leading(matrices[name], dense=1 if rows else 0) for name in names}
        if all(found.values()):
            return rows, found
    listed = " and ".join(operands[name].describe() for name in names)
    either = "one axis" if epilogue in _SYMMETRIC else f"the last axis, with epilogue {epilogue!r},"
    raise Unsupported(
        f"{listed}: cuBLASLt takes D and C with stride 1 along {either} (the same for both) and a stride of at least "
        f"that axis' extent along the other; leave out=None, or copy c",
        rule="blas_lt.output_layout",
        lifted_by=("layout",),
    )


def _type_c(operands: dict[str, _Operand]) -> str:
    """Return the dtype of C, which the library wants to know even where it is not read."""
    if "c" in operands:
        return operands["c"].dtype
    out = operands["out"].dtype
    return out if TYPES[out][1] > 1 or out == "int8" else "bfloat16"


def _other(operand: _Operand, out: _Operand) -> int:
    """Return the cudaDataType of a bias or GELU's aux, -1 where it is D's, as the library takes by itself."""
    return -1 if operand.dtype in (out.dtype, "uint8") else TYPES[operand.dtype][0]


def _scale_layout(operands: dict[str, _Operand], name: str) -> Axes:
    scale = operands.get(f"{name}_scale")
    return ((), ()) if scale is None else (scale.shape, scale.strides)


def matmul_description(
    spec: PlanSpec[MatmulAttributes], *, version: int = 0, arch: str = "", workspace_bytes: int = 0, zero: int = 0
) -> MatmulDescription:
    """Turn a ``blas_lt.matmul`` plan specification into cuBLASLt's terms.

    Parameters
    ----------
    spec
        As `MatmulRequest` lowers to it.
    version, arch
        ``cublasLtGetVersion()`` and the device's architecture (``"sm_90a"``), for rules that they lift; 0 and "" if
        unknown.
    workspace_bytes
        The most workspace that an algorithm may use.
    zero
        Address of 16 zero bytes of device memory, for alpha on the device with beta=0.

    Raises
    ------
    UnevenBatch
        For a batch that has no single stride for each operand.
    Unsupported
        For layouts, dtypes, extents and epilogues that cuBLASLt cannot take; the message names the rule and what
        lifts it.  Rules that depend on the device are the library's: its heuristic refuses when the plan is made.
    """
    operands, how = {given.name: _operand(i, given) for i, given in enumerate(spec.operands)}, spec.attributes
    epilogue, out = how.epilogue, operands["out"]
    batch = out.shape[:-2]
    matrices: dict[str, Axes] = {name: operands[name].matrix(False) for name in ("out", "c", "aux") if name in operands}
    matrices["a"] = operands["a"].matrix(how.trans_a)
    matrices["b"] = operands["b"].matrix(how.trans_b)
    (m, k), n = matrices["a"][0], out.shape[-1]
    check_rules(how, {name: (o.dtype, o.shape) for name, o in operands.items()}, (m, n, k), version, arch)
    if 0 in out.shape:  # nothing to do, and strides of nothing mean nothing
        matrices = dict.fromkeys(matrices, ((1, 1), (1, 1)))
        batched = _Batch(0, dict.fromkeys(operands, 0))
    elif folded := _fold_rows(how, batch, operands):
        matrices |= folded
        m = matrices["out"][0][0]
        batched = _Batch(1, dict.fromkeys(operands, 0))
    else:
        batched = _fold_batch(batch, operands)
    _check_sizes({"M": m, "N": n, "K": k, "the batch": batched.count})

    by_rows, leading = _orient(epilogue, operands, matrices)
    summed = {"bgrada": "a", "bgradb": "b"}.get(epilogue, "")
    first, second = ("b", "a") if by_rows else ("a", "b")  # cuBLASLt's operands; D's transpose begins with B's
    outer = {"a": 0, "b": 1}
    inputs = [
        _input(
            operands[name],
            matrices[name],
            outer[name],
            name == first,
            name == summed,
            how.conj_a if name == "a" else how.conj_b,
            arch,
        )
        for name in (first, second)
    ]
    code = CONSTANTS[f"CUBLASLT_EPILOGUE_{epilogue.upper()}"]
    if summed:
        code = CONSTANTS["CUBLASLT_EPILOGUE_BGRADA" if summed == first else "CUBLASLT_EPILOGUE_BGRADB"]

    scaling = dict(zip("ab", how.scaling, strict=True))
    modes = {
        name: scale_mode(name, kind, *_scale_layout(operands, name), m if name == "a" else n, k)
        for name, kind in scaling.items()
    }

    step_bias = ld_aux = step_aux = clear_aux = 0
    for name in ("bias", "bias_grad"):
        if name in operands and batched.count:
            step_bias = _vector(operands[name], batched.steps[name])
    if "aux" in operands and batched.count:
        aux = operands["aux"]
        if aux.dtype == "uint8":
            writes = epilogue.startswith("relu")
            ld_aux, step_aux, clear_aux = _mask(aux, matrices["aux"], batched, n, writes)
        else:
            ld_aux, step_aux = _gelu_aux(aux, matrices["aux"], batched, dense=1 if by_rows else 0)

    steps = batched.steps
    index = {name: operand.index for name, operand in operands.items()}
    c_at = "c" if how.added == "c" else "out"
    return MatmulDescription(
        m=n if by_rows else m,
        n=m if by_rows else n,
        k=k,
        batch=batched.count,
        type_a=TYPES[operands[first].dtype][0],
        type_b=TYPES[operands[second].dtype][0],
        type_c=TYPES[_type_c(operands)][0],
        type_d=TYPES[out.dtype][0],
        type_bias=next((_other(operands[name], out) for name in ("bias", "bias_grad") if name in operands), -1),
        type_aux=_other(operands["aux"], out) if "aux" in operands else -1,
        compute=CONSTANTS[COMPUTE[how.mode]],
        scale=TYPES[how.scale][0],
        trans_a=inputs[0].trans,
        trans_b=inputs[1].trans,
        order_a=inputs[0].order,
        order_b=inputs[1].order,
        ld_a=inputs[0].ld,
        ld_b=inputs[1].ld,
        ld_c=leading[c_at],
        ld_d=leading["out"],
        step_a=steps[first],
        step_b=steps[second],
        step_c=steps[c_at],
        step_d=steps["out"],
        epilogue=code,
        step_bias=step_bias,
        ld_aux=ld_aux,
        step_aux=step_aux,
        clear_aux=clear_aux,
        fast_accum=int(how.fast_accum),
        reduced_precision=int(how.reduced_precision or out.dtype in (how.compute, how.scale)),
        mode_a=modes[first],
        mode_b=modes[second],
        a=index[first],
        b=index[second],
        c=-1 if how.added == "none" else index[c_at],
        d=index["out"],
        bias=index.get("bias", -1),
        aux=index.get("aux", -1),
        bias_grad=index.get("bias_grad", -1),
        a_scale=index.get(f"{first}_scale", -1),
        b_scale=index.get(f"{second}_scale", -1),
        d_scale=index.get("d_scale", -1),
        amax=index.get("amax", -1),
        alpha_at=index.get("alpha", -1),
        beta_at=index.get("beta", -1),
        alpha=0,
        beta=1,
        alpha_imag=2 if len(spec.scalars) == 4 else -1,
        beta_imag=3 if len(spec.scalars) == 4 else -1,
        zero=zero,
        n_operands=len(operands),
        n_scalars=len(spec.scalars),
        workspace_bytes=workspace_bytes,
    )
