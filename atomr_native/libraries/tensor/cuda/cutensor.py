"""Operations of cuTENSOR: which it takes, and how its calls describe them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...._lib import cublaslt, cutensor
from ...._lib.cutensor import CONSTANTS
from ....builders.cuda.context import library_file
from ....builders.cuda.native import NativeStruct
from ....dtypes import as_dtype
from ....errors import Unsupported
from ..types import EIGHT
from .arrays import Array

__all__ = [
    "ASKED",
    "BEST",
    "COMPILED",
    "TYPES",
    "WITHIN",
    "BlocksCall",
    "TensorCall",
    "alike",
    "compute_of",
    "is_taken",
    "open_library",
    "tensor_call",
]

#: Dtypes of tensors.
TYPES: Final = {
    "float16": "R_16F", "bfloat16": "R_16BF", "float32": "R_32F", "float64": "R_64F", "complex64": "C_32F",
    "complex128": "C_64F",
}  # fmt: skip
_COMPUTE: Final = {
    "float64": "64F", "float32": "32F", "tf32": "TF32", "bfloat16": "16BF", "float16": "16F", "complex64": "32F",
    "complex128": "64F", EIGHT: "32F", "3xtf32": "3XTF32", "9xbf16": "9X16BF", "8xint8": "8XINT8",
}  # fmt: skip
_MODES: Final = 64
_TENSORS: Final = 5
#: An algorithm and its kernel: the best of all, by the library's model.  Without the kernel's rank, contractions got
#: slow ones on an H200; of six of TCCG on an H100 (2.8.1) they did not.
BEST: Final = (CONSTANTS["CUTENSOR_ALGO_DEFAULT"], 0)
#: A kernel that is compiled for the call; and one that is chosen among those that do with the workspace of the plan.
COMPILED: Final = 1
WITHIN: Final = 2
#: The part of the device's memory with which the library chooses first, as nvmath-python lets it.  On an H100 (2.8.1)
#: that made six contractions of TCCG faster by up to 6 %, beside kernels that are chosen with copies of the tensors.
ASKED: Final = (4, 5)
#: The version that the extras ask for at least.
_OLDEST: Final = 20200


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCall(NativeStruct):
    """A call with the members of ``atomr_tensor_spec``, see ``cython/libraries/cutensor/plan.h``."""

    operation: int
    compute: int
    n_modes: int
    extent: tuple[int, ...]
    type: tuple[int, ...]
    count: tuple[int, ...]
    mode: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: tuple[int, ...]
    offset: tuple[int, ...]
    operand: tuple[int, ...]
    unary: tuple[int, ...]
    binary: tuple[int, ...]
    factor: tuple[int, ...]
    number: tuple[int, int, int]
    workspace_bytes: int
    n_operands: int
    n_scalars: int
    asked_bytes: int = 0
    algo: int = CONSTANTS["CUTENSOR_ALGO_DEFAULT"]
    rank: int = -1  # see `BEST`
    jit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksCall(NativeStruct):
    """A call with the members of ``atomr_blocks_spec``, see ``cython/libraries/cutensor/blocks.h``."""

    type: int
    compute: int
    operand: tuple[int, int, int, int]
    factor: tuple[int, ...]
    number: tuple[int, int]
    workspace_bytes: int
    n_operands: int
    n_scalars: int


def open_library() -> None:
    """Open cuTENSOR.

    Raises
    ------
    Unsupported
        If it is missing, or for another CUDA major than cuBLASLt, which it calls: both majors' files have one name.
    """
    version = cutensor.load("" if os.environ.get("ATOMR_NATIVE_CUTENSOR") else library_file("cutensor"))
    text = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    if version < _OLDEST:
        raise Unsupported(
            f"cuTENSOR is {text}; allowed: 2.2 or later (pip install cutensor-cu13, or cutensor-cu12)",
            rule="tensor.cutensor",
        )
    major = cublaslt.load(library_file("cublasLt")) // 10000
    if major and cutensor.cuda_version() // 1000 != major:
        raise Unsupported(
            f"cuTENSOR {text} is for CUDA {cutensor.cuda_version() // 1000}, and cuBLASLt is for {major}; install "
            f"cutensor-cu{major} instead",
            rule="tensor.cutensor",
        )


def compute_of(compute: str) -> int:
    """Return the compute type of a mode, or of a dtype in which values are computed."""
    return CONSTANTS[f"ATOMR_TENSOR_{_COMPUTE[compute]}"]


def _strides(array: Array, extents: Sequence[int]) -> list[tuple[int, int]]:
    """Return strides and extents of modes of more than one element, the smallest stride first."""
    return sorted((array.stride(m), extents[m]) for m in array.modes if extents[m] > 1)


def is_taken(array: Array, extents: Sequence[int]) -> bool:
    """Whether cuTENSOR takes a tensor as it lies: its strides are above 0, and elements do not overlap."""
    least = 1
    for stride, extent in _strides(array, extents):
        if stride < least:
            return False
        least = stride * extent
    return array.dtype in TYPES and array.offset >= 0


def alike(a: Array, b: Array, extents: Sequence[int]) -> bool:
    """Whether two tensors have one descriptor."""
    modes = {m for m in (*a.modes, *b.modes) if extents[m] > 1}
    return a.dtype == b.dtype and all(a.stride(m) == b.stride(m) for m in modes)


def merged(arrays: Sequence[Array], extents: Sequence[int]) -> tuple[list[int], list[dict[int, int]]]:
    """Return extents of modes, and each tensor's strides by mode, where neighbours in all tensors are one mode.

    Modes of one element are left out.
    """
    kept = sorted({m for array in arrays for m in array.modes if extents[m] > 1})
    sizes = {m: extents[m] for m in kept}
    strides = [{m: array.stride(m) for m in array.modes if m in sizes} for array in arrays]

    def joins(outer: int, inner: int) -> bool:
        return all(own.get(outer, 0) == own.get(inner, 0) * sizes[inner] for own in strides)  # 0: neither is there

    while True:
        pair = next(((o, i) for o in sizes for i in sizes if o != i and joins(o, i)), None)
        if pair is None:
            break
        outer, inner = pair
        sizes[inner] *= sizes.pop(outer)
        for own in strides:
            own.pop(outer, None)
    number = {m: i for i, m in enumerate(sizes)}
    return list(sizes.values()), [{number[m]: step for m, step in own.items()} for own in strides]


def tensor_call(
    operation: str, arrays: Sequence[Array], extents: Sequence[int], *, compute: int, limit: int,
    unary: Sequence[str] = (), binary: Sequence[str] = (), factors: Sequence[tuple[int, ...]] = (),
    numbers: tuple[int, int, int] = (1, 0, 1), scalars: int = 0, algo: Sequence[int] = (), asked: int = 0,
) -> TensorCall | None:  # fmt: skip
    """Return a call, or None of more modes than cuTENSOR has.

    Parameters
    ----------
    operation : str
        Of ``ATOMR_TENSOR_*``.
    arrays
        The inputs, and the result; each is an operand of the call.
    extents
        Of all modes.
    compute : int
        A compute type.
    limit : int
        Bytes of workspace.
    unary, binary
        Operators.
    factors
        The scalars of alpha, beta and gamma, with those of their imaginary parts.
    numbers
        The factors where there are no scalars.
    scalars : int
        Of the message.
    algo : tuple of int
        An algorithm, ``CUTENSOR_ALGO_*``, its kernel, and `COMPILED` or `WITHIN`; empty: as the library chooses.
    asked : int
        Bytes of workspace with which the library chooses a kernel first, see `ASKED`.
    """
    sizes, strides = merged(arrays, extents)
    if len(sizes) > _MODES:
        return None
    more = _TENSORS - len(arrays)
    modes, steps = [0] * (_MODES * _TENSORS), [0] * (_MODES * _TENSORS)
    for t, own in enumerate(strides):
        for i, (mode, step) in enumerate(own.items()):
            modes[t * _MODES + i], steps[t * _MODES + i] = mode, step
    parts = [tuple(factor) + (-1,) * (2 - len(factor)) for factor in factors] + [(-1, -1)] * (3 - len(factors))
    items = [as_dtype(array.dtype).itemsize for array in arrays]
    return TensorCall(
        operation=CONSTANTS[f"ATOMR_TENSOR_{operation}"],
        compute=compute,
        n_modes=len(sizes),
        extent=tuple(sizes) + (1,) * (_MODES - len(sizes)),
        type=tuple(CONSTANTS[f"CUDA_{TYPES[array.dtype]}"] for array in arrays) + (0,) * more,
        count=tuple(map(len, strides)) + (0,) * more,
        mode=tuple(modes),
        stride=tuple(steps),
        itemsize=(*items, *([1] * more)),
        offset=tuple(array.offset * n for array, n in zip(arrays, items, strict=True)) + (0,) * more,
        operand=tuple(range(len(arrays))) + (0,) * more,
        unary=tuple(CONSTANTS[f"CUTENSOR_OP_{name.upper()}"] for name in (*unary, *["identity"] * (4 - len(unary)))),
        binary=tuple(CONSTANTS[f"CUTENSOR_OP_{name.upper()}"] for name in (*binary, *["add"] * (2 - len(binary)))),
        factor=tuple(part[0] for part in parts) + tuple(part[1] for part in parts),
        number=numbers,
        workspace_bytes=limit,
        n_operands=len(arrays),
        n_scalars=scalars,
        asked_bytes=0 if tuple(algo[2:]) == (WITHIN,) else asked,
        jit=int(tuple(algo[2:]) == (COMPILED,)),
        **dict(zip(("algo", "rank"), algo, strict=False)),
    )
