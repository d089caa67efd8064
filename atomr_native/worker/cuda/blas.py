"""From a plan specification of ``blas.*`` to a call of cuBLAS, which is column-major.

A row-major matrix lies in memory as the transpose of a column-major one.  So each result that is row-major is computed
as its transpose, with sides and operands turned accordingly; nothing is copied.  What would need a conjugation without
a transpose is `Unsupported`.  Of batches the library knows those of gemm and gemv that step evenly, and those of small
trsm by arrays of addresses; other routines are called once for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..._blas_spec import own_axes
from ...dtypes import as_dtype
from ...errors import Unsupported
from ..host._blocks import fold_axes
from .addresses import address_bytes, stepping_kernel
from .sequence import SequenceProgram, Source, Step
from .target import Target

__all__ = ["ROUTINES", "blas_program", "blas_words"]

#: In the order of the enumeration in ``cublas.h``.
ROUTINES: Final = ("axpy", "scal", "dot", "nrm2", "gemv", "ger", "symm", "syrk", "trmm", "trsm", "geam", "gemm")
_TYPES: Final = ("float32", "float64", "complex64", "complex128")
_LARGEST: Final = 2**31 - 1
#: Where the words of a call say which operand the arrays of addresses are.
_POINTERS: Final = -3
#: The largest triangle for which a batched trsm goes to the library's kernel for batches, which is made for small ones.
_SMALL: Final = 256
_N, _T, _C = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix as it lies: whether it is the transpose of what cuBLAS sees, and its leading dimension."""

    index: int
    shape: tuple[int, int]
    turned: bool
    ld: int


def _vector(given: dict[str, Any]) -> int:
    size = as_dtype(given["dtype"]).itemsize
    return int(given["strides"][0]) // size if given["shape"][0] > 1 else 1


def _matrix(at: tuple[int, dict[str, Any]], prefer: bool) -> _Matrix:
    """Describe a matrix; where it may be either, it is turned if `prefer` says so."""
    index, given = at
    size = as_dtype(given["dtype"]).itemsize
    (rows, columns), (row, column) = given["shape"], (step // size for step in given["strides"])

    def leading(inner: int, outer: int, step: int, stride: int) -> int:
        if inner > 1 and step != 1:
            return 0
        if outer < 2:
            return max(inner, 1)
        return stride if stride >= max(inner, 1) else 0

    by_rows, by_columns = leading(columns, rows, column, row), leading(rows, columns, row, column)
    if not by_rows and not by_columns:
        raise Unsupported(
            f"{given['name']} of shape {tuple(given['shape'])} and strides {(row, column)} (in elements) has no dense "
            f"axis; cuBLAS takes a matrix with stride 1 along one axis; copy it into a new array"
        )
    turned = bool(by_rows) and (prefer or not by_columns)
    return _Matrix(index, (rows, columns), turned, by_rows if turned else by_columns)


def _flag(name: str, transposed: bool, conjugated: bool, turned: bool, wanted: bool) -> int:
    """Return the operation on a stored matrix that gives op(matrix), or its transpose if that is `wanted`."""
    flip = transposed ^ turned ^ wanted
    if conjugated and not flip:
        raise Unsupported(
            f"{name} would have to be conjugated without a transpose, which cuBLAS does not; conjugate it first, or "
            f"pass out in the other order"
        )
    return (_C if conjugated else _T) if flip else _N


def _fold(spec: dict[str, Any], routine: str) -> tuple[int, list[int], dict[str, tuple[int, dict[str, Any]]]]:
    """Return how many there are in a batch, bytes from one to the next by operand, and the operands of one."""
    batch = tuple(spec["batch"])
    jumps, given = [], {}
    for i, o in enumerate(spec["operands"]):
        rest = len(o["shape"]) - own_axes(routine, o["name"])
        lead = tuple(0 if n == 1 else s for n, s in zip(o["shape"][:rest], o["strides"][:rest], strict=True))
        jumps.append(((0,) * (len(batch) - len(lead)) + lead)[-len(batch) :] if batch else ())
        given[o["name"]] = i, {**o, "shape": tuple(o["shape"][rest:]), "strides": tuple(o["strides"][rest:])}
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


def blas_program(words: tuple[int, ...], native: Any, target: Target) -> SequenceProgram | None:
    """Return the plan of a call that reads addresses from arrays: what writes them, and `native`; else None."""
    if words[_POINTERS] < 0:
        return None
    n_operands, n_scalars = words[-2:]
    count = words[_POINTERS - 4]
    arrays: Source = ("workspace", 0)
    matrices: tuple[Source, ...] = tuple(("operand", index) for index in words[14:16])
    operands: tuple[Source, ...] = tuple(("operand", i) for i in range(n_operands - 1))
    steps = (
        Step(
            stepping_kernel([(n,) for n in words[_POINTERS - 3 : _POINTERS - 1]], (count,), target), (*matrices, arrays)
        ),
        Step(native, (*operands, arrays), tuple(("scalar", j) for j in range(n_scalars))),
    )
    note = f"{count} calls in one by arrays of addresses"
    return SequenceProgram(steps, 2 * address_bytes(count), (note,))


def blas_words(spec: dict[str, Any]) -> tuple[int, ...]:
    """Return the members of ``atomr_blas_spec``, or () where there is nothing to do.

    Raises
    ------
    Unsupported
        For layouts that cuBLAS cannot take.
    """
    routine = str(spec["op"]).removeprefix("blas.")
    count, jumps, given = _fold(spec, routine)
    out_at, out = given["out"]
    if not count:
        return ()
    for name, (_, o) in given.items():
        if any(extent > _LARGEST for extent in o["shape"]):
            raise Unsupported(f"{name} has shape {tuple(o['shape'])}; cuBLAS counts in 32 bits, so at most {_LARGEST}")
    words: dict[str, Any] = dict.fromkeys(
        ("conjugated", "side", "uplo", "trans_a", "trans_b", "diag", "m", "n", "k"), 0
    )
    words["diag"] = int(spec["unit"])
    steps, operands, apart = [0, 0, 0], [-1, -1, -1], [0, 0, 0]
    complex_ = spec["dtype"].startswith("complex")
    conj, conj_b = spec["conj"] and complex_, spec["conj_b"] and complex_

    def put(place: int, index: int, step: int) -> None:
        operands[place], steps[place], apart[place] = index, step, jumps[index]

    if routine in ("axpy", "scal", "dot", "nrm2"):
        order = {"axpy": ("x", "out"), "scal": ("out",), "dot": ("x", "y", "out"), "nrm2": ("x", "out")}[routine]
        for place, name in enumerate(order):
            index, o = given[name]
            put(place, index, 0 if routine in ("dot", "nrm2") and name == "out" else _vector(o))
        words |= {"n": given[order[0]][1]["shape"][0], "conjugated": int(conj)}
        if not words["n"] and routine in ("axpy", "scal"):
            return ()
    elif routine == "gemv":
        a = _matrix(given["a"], False)
        if not out["shape"][0]:
            return ()
        if not given["x"][1]["shape"][0]:
            return _scaled(spec, given, complex_, (count, jumps[out_at]))
        rows, columns = a.shape[::-1] if a.turned else a.shape
        words |= {"trans_a": _flag("a", spec["trans"], conj, a.turned, False), "m": rows, "n": columns}
        put(0, a.index, a.ld)
        put(1, given["x"][0], _vector(given["x"][1]))
        put(2, out_at, _vector(out))
    elif 0 in out["shape"]:
        return ()
    elif routine == "ger":
        a = _matrix((out_at, out), False)
        if a.turned and conj:
            raise Unsupported("ger with conj into a row-major matrix; pass out column-major, such as empty((n, m)).T")
        x, y = ("y", "x") if a.turned else ("x", "y")
        words |= {"m": given[x][1]["shape"][0], "n": given[y][1]["shape"][0], "conjugated": int(conj)}
        put(0, given[x][0], _vector(given[x][1]))
        put(1, given[y][0], _vector(given[y][1]))
        put(2, a.index, a.ld)
    elif routine == "syrk":
        c = _matrix((out_at, out), True)
        a = _matrix(given["a"], True)
        trans = _flag("a", spec["trans"], False, a.turned, False)
        words |= {
            "uplo": int(spec["lower"] == c.turned), "trans_a": trans, "n": c.shape[0],
            "k": a.shape[0 if spec["trans"] else 1],
        }  # fmt: skip
        put(0, a.index, a.ld)
        put(1, c.index, c.ld)
    else:
        _matrices(routine, spec, given, words, put, conj, conj_b)
    scalars = (0, 1, 2, 3) if complex_ else (0, 1, -1, -1)
    small = routine == "trsm" and count > 1 and given["a"][1]["shape"][0] <= _SMALL
    pointers = len(spec["operands"]) if small else -1
    return (
        ROUTINES.index(routine), _TYPES.index(spec["dtype"]), words["conjugated"], words["side"], words["uplo"],
        words["trans_a"], words["trans_b"], words["diag"], words["m"], words["n"], words["k"], *steps, *operands,
        *scalars, count, *apart, pointers, len(spec["operands"]) + (pointers >= 0), len(spec["scalars"]),
    )  # fmt: skip


def _scaled(spec: dict[str, Any], given: dict[str, Any], complex_: bool, batch: tuple[int, int]) -> tuple[int, ...]:
    """Return what an empty product leaves of gemv: out times beta."""
    index, out = given["out"]
    if not spec["adds"]:
        raise Unsupported("gemv of a matrix without columns and beta=0: cuBLAS writes nothing then; use device.zeros")
    scalars = (1, -1, 3, -1) if complex_ else (1, -1, -1, -1)
    return (
        ROUTINES.index("scal"), _TYPES.index(spec["dtype"]), *[0] * 7, out["shape"][0], 0, _vector(out), 0, 0,
        index, -1, -1, *scalars, *batch, 0, 0, -1, len(spec["operands"]), len(spec["scalars"]),
    )  # fmt: skip


def _matrices(
    routine: str, spec: dict[str, Any], given: dict[str, Any], words: dict[str, Any], put: Any, conj: bool, conj_b: bool
) -> None:
    """Fill in gemm, symm, trmm, trsm and geam, whose result may have to be computed as its transpose."""
    c = _matrix(given["out"], True)
    a = _matrix(given["a"], c.turned)
    m, n = c.shape[::-1] if c.turned else c.shape
    words |= {"m": m, "n": n}
    if routine == "geam":
        # Without B, its place takes A, times beta=0.
        b = _matrix(given["b"], c.turned) if "b" in given else a
        trans_b, conj_b = (spec["trans_b"], conj_b) if "b" in given else (spec["trans"], conj)
        words["trans_a"] = _flag("a", spec["trans"], conj, a.turned, c.turned)
        words["trans_b"] = _flag("b", trans_b, conj_b, b.turned, c.turned)
        for place, matrix in enumerate((a, b, c)):
            put(place, matrix.index, matrix.ld)
        return
    if routine == "gemm":
        b = _matrix(given["b"], c.turned)
        flags = [
            _flag("a", spec["trans"], conj, a.turned, c.turned), _flag("b", spec["trans_b"], conj_b, b.turned, c.turned)
        ]  # fmt: skip
        turn = -1 if c.turned else 1  # the transpose of a product begins with that of B
        words["k"] = a.shape[0 if spec["trans"] else 1]
        words["trans_a"], words["trans_b"] = flags[::turn]
        for place, matrix in enumerate((*(a, b)[::turn], c)):
            put(place, matrix.index, matrix.ld)
        return
    words["side"] = int((spec["side"] == "right") != c.turned)
    words["uplo"] = int(spec["lower"] == a.turned)
    if routine != "symm":
        words["trans_a"] = _flag("a", spec["trans"], conj, a.turned, c.turned)
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
