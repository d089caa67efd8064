"""From a plan specification of ``blas.*`` to a call of cuBLAS, which is column-major.

A row-major matrix lies in memory as the transpose of a column-major one.  So each result that is row-major is computed
as its transpose, with sides and operands turned accordingly; nothing is copied.  What would need a conjugation without
a transpose is `Unsupported`.  Of batches the library knows those of gemm and gemv that step evenly, and those of small
trsm by arrays of addresses; other routines are called once for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from ..._lib import cublas
from ..._lib.cublas import CONSTANTS, Blas
from ...builders.blocks import fold_axes
from ...builders.context import Built
from ...builders.cuda.addresses import address_bytes, stepping_kernel
from ...builders.cuda.context import CudaContext, library_file
from ...builders.cuda.native import NativeStruct
from ...builders.cuda.sequence import SequenceProgram, Source, Step
from ...builders.cuda.target import Target
from ...dtypes import as_dtype
from ...errors import Unsupported
from ...plans.spec import OperandSpec, PlanSpec
from ...plans.workspace_limits import PREFERRED_WORKSPACE
from .attributes import BlasAttributes
from .spec import own_axes

__all__ = ["BlasCall", "blas_call", "blas_program", "build_blas"]

_TYPES: Final = {"float32": "FLOAT", "float64": "DOUBLE", "complex64": "COMPLEX", "complex128": "DOUBLE_COMPLEX"}
_LARGEST: Final = 2**31 - 1
#: Routines that work element by element, without scratch memory.
_WITHOUT_SCRATCH: Final = frozenset(("axpy", "scal", "ger", "geam"))
#: The largest triangle for which a batched trsm goes to the library's kernel for batches, which is made for small ones.
_SMALL: Final = 256
_N, _T, _C = (CONSTANTS[f"CUBLAS_OP_{op}"] for op in "NTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlasCall(NativeStruct):
    """A call of cuBLAS with the members of ``atomr_blas_spec``, see ``cython/libraries/cublas/call.h``."""

    routine: int
    type: int
    conjugated: int = 0
    side: int = 0
    uplo: int = 0
    trans_a: int = 0
    trans_b: int = 0
    diag: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    step: tuple[int, ...]
    operand: tuple[int, ...]
    alpha: int
    beta: int
    alpha_imag: int
    beta_imag: int
    batch: int
    jump: tuple[int, ...]
    pointers: int = -1
    scratch: int = 0
    scratch_bytes: int = 0
    n_operands: int
    n_scalars: int


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix as it lies: whether it is the transpose of what cuBLAS sees, and its leading dimension."""

    index: int
    shape: tuple[int, int]
    turned: bool
    ld: int


def _vector(given: OperandSpec) -> int:
    return given.strides[0] // as_dtype(given.dtype).itemsize if given.shape[0] > 1 else 1


def _matrix(at: tuple[int, OperandSpec], prefer: bool) -> _Matrix:
    """Describe a matrix; where it may be either, it is turned if `prefer` says so."""
    index, given = at
    size = as_dtype(given.dtype).itemsize
    (rows, columns), (row, column) = given.shape, (step // size for step in given.strides)

    def leading(inner: int, outer: int, step: int, stride: int) -> int:
        if inner > 1 and step != 1:
            return 0
        if outer < 2:
            return max(inner, 1)
        return stride if stride >= max(inner, 1) else 0

    by_rows, by_columns = leading(columns, rows, column, row), leading(rows, columns, row, column)
    if not by_rows and not by_columns:
        raise Unsupported(
            f"{given.name} of shape {given.shape} and strides {(row, column)} (in elements) has no dense "
            f"axis; cuBLAS takes a matrix with stride 1 along one axis; copy it into a new array"
        )
    turned = bool(by_rows) and (prefer or not by_columns)
    return _Matrix(index, (rows, columns), turned, by_rows if turned else by_columns)


#: Operands of one of a batch, with their places in the message, by name.
Given = dict[str, tuple[int, OperandSpec]]


def _flag(name: str, transposed: bool, conjugated: bool, turned: bool, wanted: bool) -> int:
    """Return the operation on a stored matrix that gives op(matrix), or its transpose if that is `wanted`."""
    flip = transposed ^ turned ^ wanted
    if conjugated and not flip:
        raise Unsupported(
            f"{name} would have to be conjugated without a transpose, which cuBLAS does not; conjugate it first, or "
            f"pass out in the other order"
        )
    return (_C if conjugated else _T) if flip else _N


def _fold(spec: PlanSpec[BlasAttributes], routine: str) -> tuple[int, list[int], Given]:
    """Return how many there are in a batch, bytes from one to the next by operand, and the operands of one."""
    batch = spec.attributes.batch
    jumps: list[tuple[int, ...]] = []
    given: Given = {}
    for i, o in enumerate(spec.operands):
        rest = len(o.shape) - own_axes(routine, o.name)
        lead = tuple(0 if n == 1 else s for n, s in zip(o.shape[:rest], o.strides[:rest], strict=True))
        jumps.append(((0,) * (len(batch) - len(lead)) + lead)[-len(batch) :] if batch else ())
        given[o.name] = i, replace(o, shape=o.shape[rest:], strides=o.strides[rest:])
    if 0 in batch:
        return 0, [0] * len(jumps), given
    # The order in a batch means nothing, so let the memory of out give one.
    order = sorted(range(len(batch)), key=lambda axis: -jumps[-1][axis])
    extents, steps = fold_axes(
        tuple(batch[axis] for axis in order), tuple(tuple(j[axis] for axis in order) for j in jumps)
    )
    if len(extents) > 1:
        raise Unsupported(
            f"{routine} of a batch {batch} in which not every operand steps evenly (strides of its axes in bytes: "
            f"{', '.join(f'{name} {jumps[i]}' for name, (i, _) in given.items())}); send one message for each index of "
            f"an axis, or copy operands into C order, broadcast ones included"
        )
    return (extents[0] if extents else 1), [s[0] if s else 0 for s in steps], given


def build_blas(spec: PlanSpec[BlasAttributes], context: CudaContext) -> Built:
    """Build ``blas.*``: one call of cuBLAS, or a sequence of calls."""
    call = blas_call(spec, workspace_bytes=context.workspace_limit)
    if call is None:  # nothing to do
        return Built("noop")
    cublas.load(library_file("cublas"))
    native = Blas(context.backend, call)
    program = blas_program(call, native, context.target)
    return Built(program, program.workspace, program.notes) if program else Built(native, native.workspace)


def blas_program(call: BlasCall, native: Any, target: Target) -> SequenceProgram | None:
    """Return the plan of a call that reads addresses from arrays: what writes them, and `native`; else None."""
    if call.pointers < 0:
        return None
    arrays: Source = ("workspace", 0)
    matrices: tuple[Source, ...] = tuple(("operand", index) for index in call.operand[:2])
    operands: tuple[Source, ...] = tuple(("operand", i) for i in range(call.n_operands - 1))
    steps = (
        Step(stepping_kernel([(n,) for n in call.jump[:2]], (call.batch,), target), (*matrices, arrays)),
        Step(native, (*operands, arrays), tuple(("scalar", j) for j in range(call.n_scalars))),
    )
    note = f"{call.batch} calls in one by arrays of addresses"
    return SequenceProgram(steps, 2 * address_bytes(call.batch) + call.scratch_bytes, (note,))


def blas_call(spec: PlanSpec[BlasAttributes], *, workspace_bytes: int = PREFERRED_WORKSPACE) -> BlasCall | None:
    """Return the call of cuBLAS for a specification, or None where there is nothing to do.

    Parameters
    ----------
    workspace_bytes
        The most of the lane's workspace that the plan may use.

    Raises
    ------
    Unsupported
        For layouts that cuBLAS cannot take.
    """
    routine, how = spec.op.removeprefix("blas."), spec.attributes
    count, jumps, given = _fold(spec, routine)
    out_at, out = given["out"]
    if not count:
        return None
    for name, (_, o) in given.items():
        if any(extent > _LARGEST for extent in o.shape):
            raise Unsupported(f"{name} has shape {o.shape}; cuBLAS counts in 32 bits, so at most {_LARGEST}")
    words: dict[str, Any] = {"diag": int(how.unit)}
    steps, operands, apart = [0, 0, 0], [-1, -1, -1], [0, 0, 0]
    complex_ = how.dtype.startswith("complex")
    conj, conj_b = how.conj and complex_, how.conj_b and complex_

    def put(place: int, index: int, step: int) -> None:
        operands[place], steps[place], apart[place] = index, step, jumps[index]

    if routine in ("axpy", "scal", "dot", "nrm2"):
        order = {"axpy": ("x", "out"), "scal": ("out",), "dot": ("x", "y", "out"), "nrm2": ("x", "out")}[routine]
        for place, name in enumerate(order):
            index, o = given[name]
            put(place, index, 0 if routine in ("dot", "nrm2") and name == "out" else _vector(o))
        words |= {"n": given[order[0]][1].shape[0], "conjugated": int(conj)}
        if not words["n"] and routine in ("axpy", "scal"):
            return None
    elif routine == "gemv":
        a = _matrix(given["a"], False)
        if not out.shape[0]:
            return None
        if not given["x"][1].shape[0]:
            return _scaled(spec, given, complex_, (count, jumps[out_at]))
        rows, columns = a.shape[::-1] if a.turned else a.shape
        words |= {"trans_a": _flag("a", how.trans, conj, a.turned, False), "m": rows, "n": columns}
        put(0, a.index, a.ld)
        put(1, given["x"][0], _vector(given["x"][1]))
        put(2, out_at, _vector(out))
    elif 0 in out.shape:
        return None
    elif routine == "ger":
        a = _matrix((out_at, out), False)
        if a.turned and conj:
            raise Unsupported("ger with conj into a row-major matrix; pass out column-major, such as empty((n, m)).T")
        x, y = ("y", "x") if a.turned else ("x", "y")
        words |= {"m": given[x][1].shape[0], "n": given[y][1].shape[0], "conjugated": int(conj)}
        put(0, given[x][0], _vector(given[x][1]))
        put(1, given[y][0], _vector(given[y][1]))
        put(2, a.index, a.ld)
    elif routine == "syrk":
        c = _matrix((out_at, out), True)
        a = _matrix(given["a"], True)
        trans = _flag("a", how.trans, False, a.turned, False)
        words |= {
            "uplo": int(how.lower == c.turned), "trans_a": trans, "n": c.shape[0],
            "k": a.shape[0 if how.trans else 1],
        }  # fmt: skip
        put(0, a.index, a.ld)
        put(1, c.index, c.ld)
    else:
        _matrices(routine, how, given, words, put, conj, conj_b)
    alpha_imag, beta_imag = (2, 3) if complex_ else (-1, -1)
    small = routine == "trsm" and count > 1 and given["a"][1].shape[0] <= _SMALL
    arrays = 2 * address_bytes(count) if small else 0
    scratch = (
        0 if routine in _WITHOUT_SCRATCH else max(0, min(PREFERRED_WORKSPACE, workspace_bytes - arrays)) // 256 * 256
    )
    return BlasCall(
        routine=CONSTANTS[f"ATOMR_BLAS_{routine.upper()}"],
        type=CONSTANTS[f"ATOMR_BLAS_{_TYPES[how.dtype]}"],
        **words,
        step=tuple(steps),
        operand=tuple(operands),
        alpha=0,
        beta=1,
        alpha_imag=alpha_imag,
        beta_imag=beta_imag,
        batch=count,
        jump=tuple(apart),
        pointers=len(spec.operands) if small else -1,
        scratch=arrays,
        scratch_bytes=scratch,
        n_operands=len(spec.operands) + small,
        n_scalars=len(spec.scalars),
    )


def _scaled(spec: PlanSpec[BlasAttributes], given: Given, complex_: bool, batch: tuple[int, int]) -> BlasCall:
    """Return what an empty product leaves of gemv: out times beta."""
    (index, out), how = given["out"], spec.attributes
    if not how.adds:
        raise Unsupported("gemv of a matrix without columns and beta=0: cuBLAS writes nothing then; use device.zeros")
    return BlasCall(
        routine=CONSTANTS["ATOMR_BLAS_SCAL"],
        type=CONSTANTS[f"ATOMR_BLAS_{_TYPES[how.dtype]}"],
        n=out.shape[0],
        step=(_vector(out), 0, 0),
        operand=(index, -1, -1),
        alpha=1,
        beta=-1,
        alpha_imag=3 if complex_ else -1,
        beta_imag=-1,
        batch=batch[0],
        jump=(batch[1], 0, 0),
        n_operands=len(spec.operands),
        n_scalars=len(spec.scalars),
    )


def _matrices(
    routine: str, how: BlasAttributes, given: Given, words: dict[str, Any], put: Any, conj: bool, conj_b: bool
) -> None:
    """Fill in gemm, symm, trmm, trsm and geam, whose result may have to be computed as its transpose."""
    c = _matrix(given["out"], True)
    a = _matrix(given["a"], c.turned)
    m, n = c.shape[::-1] if c.turned else c.shape
    words |= {"m": m, "n": n}
    if routine == "geam":
        # Without B, its place takes A, times beta=0.
        b = _matrix(given["b"], c.turned) if "b" in given else a
        trans_b, conj_b = (how.trans_b, conj_b) if "b" in given else (how.trans, conj)
        words["trans_a"] = _flag("a", how.trans, conj, a.turned, c.turned)
        words["trans_b"] = _flag("b", trans_b, conj_b, b.turned, c.turned)
        for place, matrix in enumerate((a, b, c)):
            put(place, matrix.index, matrix.ld)
        return
    if routine == "gemm":
        b = _matrix(given["b"], c.turned)
        flags = [
            _flag("a", how.trans, conj, a.turned, c.turned), _flag("b", how.trans_b, conj_b, b.turned, c.turned)
        ]  # fmt: skip
        turn = -1 if c.turned else 1  # the transpose of a product begins with that of B
        words["k"] = a.shape[0 if how.trans else 1]
        words["trans_a"], words["trans_b"] = flags[::turn]
        for place, matrix in enumerate((*(a, b)[::turn], c)):
            put(place, matrix.index, matrix.ld)
        return
    words["side"] = int((how.side == "right") != c.turned)
    words["uplo"] = int(how.lower == a.turned)
    if routine != "symm":
        words["trans_a"] = _flag("a", how.trans, conj, a.turned, c.turned)
    put(0, a.index, a.ld)
    if routine == "trsm":
        put(1, c.index, c.ld)
        return
    b = _matrix(given["b"], c.turned)
    if b.turned != c.turned:
        order = "row-major" if c.turned else "column-major"
        raise Unsupported(
            f"{routine} takes b and out in one order; out is {order}: pass b so, or out in the other order"
        )
    put(1, b.index, b.ld)
    put(2, c.index, c.ld)
