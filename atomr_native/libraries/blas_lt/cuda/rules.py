"""What cuBLASLt documents that it does not do, whatever the layout: decided before it is asked.

Each rule names what lifts it.  What is not documented, or depends on the device in ways that are not, is the library's
to say: its heuristic refuses when the plan is made.
"""

from __future__ import annotations

import math
from typing import Final

from ....builders.cuda.target import number_of
from ....errors import Unsupported
from ..._scaling import BLOCK
from ..attributes import MatmulAttributes
from ..types import FLOAT8
from .tables import SCALE_MODES, TYPES

__all__ = ["check_dense_along_k", "check_rules", "prefers_k", "scale_mode"]

#: Operand types for which epilogues are documented.
_EPILOGUES: Final = ("float32", "float16", "bfloat16", *FLOAT8)
#: Architectures whose tensor cores take float8 matrices dense along K only.
_K_ONLY: Final = ("sm_89", "sm_90", "sm_120", "sm_121")


def prefers_k(dtype: str) -> bool:
    """Whether matrices of a dtype are best described as dense along K, where they are that too."""
    return TYPES[dtype][1] == 1


def scale_mode(name: str, kind: str, shape: tuple[int, ...], strides: tuple[int, ...], outer: int, k: int) -> int:
    """Return the number of a scale's kind; strides in elements.

    Raises
    ------
    Unsupported
        If it does not lie in memory as cuBLASLt reads it.
    """
    if kind in ("none", "tensor"):
        return SCALE_MODES[kind]
    blocks = -(-k // BLOCK)
    if name == "b":
        shape, strides = shape[::-1], strides[::-1]
    if kind == "blk128":  # blocks of K next to each other, and a multiple of four of them in a row
        wanted, make = (-(-blocks // 4) * 4, 1), f"a view [:, :{blocks}] of rows of {-(-blocks // 4) * 4} scales"
        if name == "b":
            make += ", transposed"
    else:
        wanted = (1, outer)
        make = "the transpose of a C-contiguous array" if name == "a" else "a C-contiguous array"
    for extent, step, want in zip(shape, strides, wanted, strict=True):
        if extent > 1 and step != want:
            raise Unsupported(
                f"{name}_scale of kind {kind} has strides {strides if name == 'a' else strides[::-1]} (in elements); "
                f"cuBLASLt takes {wanted if name == 'a' else wanted[::-1]}; make it {make}",
                rule="blas_lt.scale_layout",
                lifted_by=("layout",),
            )
    return SCALE_MODES[kind]


def _check_scales(
    how: MatmulAttributes, dtypes: dict[str, str], extents: tuple[int, int, int], version: int, arch: str
) -> None:
    kinds = how.scaling
    names = [name for name in ("a_scale", "b_scale") if name in dtypes]
    if names and dtypes["a"] not in FLOAT8:
        raise Unsupported(
            f"{names[0]} with operands of {dtypes['a']}: cuBLASLt scales float8 only",
            rule="blas_lt.scale_dtype",
            lifted_by=("dtype",),
        )
    if {"outer", "vec128", "blk128"} & set(kinds):
        if 0 < version < 120900:
            raise Unsupported(
                f"scales of kind {kinds[0]} and {kinds[1]} need cuBLASLt 12.9; this is {version}",
                rule="blas_lt.scale_version",
                lifted_by=("library",),
            )
        if arch and not arch.startswith("sm_90"):
            raise Unsupported(
                f"scales of kind {kinds[0]} and {kinds[1]}: cuBLASLt has them on sm_90 (Hopper), not {arch}",
                rule="blas_lt.scale_architecture",
                lifted_by=("device",),
            )
        if "none" in kinds:
            raise Unsupported(
                "a scale of kind outer for one operand only: cuBLASLt takes both or none",
                rule="blas_lt.scale_pair",
                lifted_by=("shape",),
            )
        if dtypes["out"] in FLOAT8:
            raise Unsupported(
                f"D of {dtypes['out']} with scales of kind {kinds[0]} and {kinds[1]}: cuBLASLt has D of bfloat16, "
                f"float16 and float32",
                rule="blas_lt.scale_output_dtype",
                lifted_by=("dtype",),
            )
    if {"vec128", "blk128"} & set(kinds) and (extents[0] % 4 or extents[1] % 4):
        raise Unsupported(
            f"M={extents[0]}, N={extents[1]} with scales of kind {kinds[0]} and {kinds[1]}: cuBLASLt takes multiples "
            f"of 4; pad A, B and their scales",
            rule="blas_lt.scale_extents",
            lifted_by=("shape",),
        )
    if "c_scale" in dtypes:
        raise Unsupported(
            "c_scale: cuBLASLt scales C only where C is float8, which it takes nowhere", rule="blas_lt.c_scale"
        )
    for name in ("d_scale", "amax"):
        if name in dtypes and dtypes["out"] not in FLOAT8:
            raise Unsupported(
                f"{name} with D of {dtypes['out']}: cuBLASLt has it for D of float8",
                rule=f"blas_lt.{name}_dtype",
                lifted_by=("dtype",),
            )


def _check_float8(how: MatmulAttributes, dtypes: dict[str, str], k: int, arch: str) -> None:
    if arch and number_of(arch) < 89:
        raise Unsupported(
            f"float8 matmuls need sm_89 (Ada), sm_90 (Hopper) or later; this is {arch}",
            rule="float8.architecture",
            lifted_by=("device",),
        )
    if k % 16:
        raise Unsupported(
            f"K={k} with float8: cuBLASLt needs multiples of 16; pad K with zeros",
            rule="float8.k_multiple_of_16",
            lifted_by=("shape", "copies"),
        )
    epilogue = how.epilogue
    if "bgrad" in epilogue:
        raise Unsupported(
            f"epilogue {epilogue!r}: cuBLASLt has no bias gradients for float8",
            rule="float8.bias_gradient",
            lifted_by=("epilogue", "dtype"),
        )
    if dtypes.get("aux", "uint8") != "uint8" and dtypes["out"] in FLOAT8:
        raise Unsupported(
            f"epilogue {epilogue!r} with D of float8 and aux of {dtypes['aux']}",
            rule="float8.aux_dtype",
            lifted_by=("epilogue", "dtype"),
        )


def check_rules(
    how: MatmulAttributes,
    operands: dict[str, tuple[str, tuple[int, ...]]],
    extents: tuple[int, int, int],
    version: int,
    arch: str,
) -> None:
    """Raise `Unsupported` for what the library does not do.

    Parameters
    ----------
    how
        The attributes of the plan's specification.
    operands
        (dtype, shape) by name.
    extents
        M, N, K.
    version, arch
        As for `matmul_description`.
    """
    (m, n, k), epilogue = extents, how.epilogue
    dtypes = {name: dtype for name, (dtype, _) in operands.items()}
    dtype, out = dtypes["a"], dtypes["out"]
    for name, kind in dtypes.items():
        if kind not in TYPES and not (name == "aux" and kind == "uint8"):
            raise Unsupported(
                f"{name} has dtype {kind}; allowed here: {', '.join(TYPES)}",
                rule="blas_lt.dtype",
                lifted_by=("dtype",),
            )
    if epilogue != "default" and (dtype not in _EPILOGUES or how.mode == "float16_accumulate"):
        raise Unsupported(
            f"epilogue {epilogue!r} with {dtype}: cuBLASLt has epilogues for float32, float16 and bfloat16 only; "
            f"use epilogue 'default' and device.elementwise.run for the rest, or one of those dtypes",
            rule="blas_lt.epilogue_dtype",
            lifted_by=("epilogue", "dtype"),
        )
    if dtype == "int8" and out in ("float32", "float16", "bfloat16"):
        raise Unsupported(
            f"D of {out} from int8: cuBLASLt has int32, or int8 with a scale",
            rule="blas_lt.int8_output_dtype",
            lifted_by=("dtype",),
        )
    if how.mode == "bfloat16x9" and 0 < version < 120900:
        raise Unsupported(
            f"compute='bfloat16x9' needs cuBLASLt 12.9; this is {version}",
            rule="blas_lt.bfloat16x9_version",
            lifted_by=("library",),
        )
    if how.mode == "bfloat16x9" and arch and number_of(arch) < 100:
        raise Unsupported(
            f"compute='bfloat16x9' needs sm_100 (Blackwell) or later; this is {arch}; compute='float32' is as precise",
            rule="blas_lt.bfloat16x9_architecture",
            lifted_by=("device",),
        )
    _check_scales(how, dtypes, extents, version, arch)
    if 0 in operands["out"][1]:
        if "amax" in dtypes or ("bias_grad" in dtypes and 0 not in operands["bias_grad"][1]):
            raise Unsupported(
                f"M={m}, N={n}: D is empty, and cuBLASLt then computes no bias gradient; use device.elementwise.run, "
                f"or device.zeros",
                rule="blas_lt.empty_output",
                lifted_by=("shape",),
            )
    elif k == 0:
        raise Unsupported(
            "K=0: cuBLASLt knows no empty operands; the product is 0, so use device.elementwise.run on c and bias, or "
            "device.zeros",
            rule="blas_lt.k_is_zero",
            lifted_by=("shape",),
        )
    elif k == 1 and epilogue.startswith(("drelu", "dgelu")):
        raise Unsupported(
            f"K=1 with epilogue {epilogue!r}: cuBLASLt needs K of at least 2 there; pad K with zeros, or use epilogue "
            f"'default' and device.elementwise.run",
            rule="blas_lt.k_is_one",
            lifted_by=("shape", "epilogue"),
        )
    elif k == 1 and epilogue in ("bgrada", "bgradb") and 0 < version < 120304:
        raise Unsupported(
            f"K=1 with epilogue {epilogue!r} needs cuBLASLt 12.3.4 (120304); this is {version}; pad K with zeros",
            rule="blas_lt.k_is_one_version",
            lifted_by=("shape", "library"),
        )
    elif epilogue in ("bgrada", "bgradb") and (count := math.prod(operands["out"][1][:-2])) > 1:
        raise Unsupported(  # seen with 13.1 on Hopper; one matrix is summed whatever alpha is
            f"epilogue {epilogue!r} with a batch of {count}: cuBLASLt leaves its sums 0 where alpha is 0",
            rule="blas_lt.batched_bias_gradient",
            lifted_by=("epilogue", "shape"),
        )
    elif dtype in FLOAT8:
        _check_float8(how, dtypes, k, arch)


def check_dense_along_k(name: str, dense: bool, dtype: str, arch: str) -> None:
    """Raise `Unsupported` if a matrix must be dense along K and is not."""
    if dense or dtype not in FLOAT8 or not arch.startswith(_K_ONLY):
        return
    make = "row-major" if name == "a" else "(N, K) with trans_b=True"
    raise Unsupported(
        f"{name} of float8 is not dense along K, which the tensor cores of {arch} need (later ones do not): pass it as "
        f"{make}",
        rule="float8.dense_along_k",
        lifted_by=("layout", "copies", "device"),
    )
