"""What cuBLASLt documents that it does not do, whatever the layout: decided before it is asked.

Each rule names what lifts it.  What is not documented, or depends on the device in ways that are not, is the library's
to say: its heuristic refuses when the plan is made.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..._matmul_scales import BLOCK
from ..._matmul_types import FLOAT8
from ...errors import Unsupported
from .lt_tables import SCALE_MODES, TYPES
from .target import number_of

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
                f"cuBLASLt takes {wanted if name == 'a' else wanted[::-1]}; make it {make}"
            )
    return SCALE_MODES[kind]


def _check_scales(
    spec: dict[str, Any], dtypes: dict[str, str], extents: tuple[int, int, int], version: int, arch: str
) -> None:
    kinds = tuple(spec.get("scaling", ("none", "none")))
    names = [name for name in ("a_scale", "b_scale") if name in dtypes]
    if names and dtypes["a"] not in FLOAT8:
        raise Unsupported(f"{names[0]} with operands of {dtypes['a']}: cuBLASLt scales float8 only")
    if {"outer", "vec128", "blk128"} & set(kinds):
        if 0 < version < 120900:
            raise Unsupported(f"scales of kind {kinds[0]} and {kinds[1]} need cuBLASLt 12.9; this is {version}")
        if arch and not arch.startswith("sm_90"):
            raise Unsupported(
                f"scales of kind {kinds[0]} and {kinds[1]}: cuBLASLt has them on sm_90 (Hopper), not {arch}"
            )
        if "none" in kinds:
            raise Unsupported("a scale of kind outer for one operand only: cuBLASLt takes both or none")
        if dtypes["out"] in FLOAT8:
            raise Unsupported(
                f"D of {dtypes['out']} with scales of kind {kinds[0]} and {kinds[1]}: cuBLASLt has D of bfloat16, "
                f"float16 and float32"
            )
    if {"vec128", "blk128"} & set(kinds) and (extents[0] % 4 or extents[1] % 4):
        raise Unsupported(
            f"M={extents[0]}, N={extents[1]} with scales of kind {kinds[0]} and {kinds[1]}: cuBLASLt takes multiples "
            f"of 4; pad A, B and their scales"
        )
    if "c_scale" in dtypes:
        raise Unsupported("c_scale: cuBLASLt scales C only where C is float8, which it takes nowhere")
    for name in ("d_scale", "amax"):
        if name in dtypes and dtypes["out"] not in FLOAT8:
            raise Unsupported(f"{name} with D of {dtypes['out']}: cuBLASLt has it for D of float8")


def _check_float8(spec: dict[str, Any], dtypes: dict[str, str], k: int, arch: str) -> None:
    if arch and number_of(arch) < 89:
        raise Unsupported(f"float8 matmuls need sm_89 (Ada), sm_90 (Hopper) or later; this is {arch}")
    if k % 16:
        raise Unsupported(
            f"K={k} with float8: cuBLASLt needs multiples of 16; pad K with zeros, or pass copies=True to have it "
            f"done in the workspace"
        )
    epilogue = spec["epilogue"]
    if "bgrad" in epilogue:
        raise Unsupported(f"epilogue {epilogue!r}: cuBLASLt has no bias gradients for float8")
    if dtypes.get("aux", "uint8") != "uint8" and dtypes["out"] in FLOAT8:
        raise Unsupported(f"epilogue {epilogue!r} with D of float8 and aux of {dtypes['aux']}")


def check_rules(
    spec: dict[str, Any],
    operands: dict[str, tuple[str, tuple[int, ...]]],
    extents: tuple[int, int, int],
    version: int,
    arch: str,
) -> None:
    """Raise `Unsupported` for what the library does not do.

    Parameters
    ----------
    spec
        The plan specification.
    operands
        (dtype, shape) by name.
    extents
        M, N, K.
    version, arch
        As for `matmul_description`.
    """
    (m, n, k), epilogue = extents, spec["epilogue"]
    dtypes = {name: dtype for name, (dtype, _) in operands.items()}
    dtype, out = dtypes["a"], dtypes["out"]
    for name, kind in dtypes.items():
        if kind not in TYPES and not (name == "aux" and kind == "uint8"):
            raise Unsupported(f"{name} has dtype {kind}; allowed here: {', '.join(TYPES)}")
    if epilogue != "default" and (dtype not in _EPILOGUES or spec.get("mode") == "float16_accumulate"):
        raise Unsupported(
            f"epilogue {epilogue!r} with {dtype}: cuBLASLt has epilogues for float32, float16 and bfloat16 only; "
            f"use epilogue 'default' and device.elementwise.run for the rest, or one of those dtypes"
        )
    if dtype == "int8" and out in ("float32", "float16", "bfloat16"):
        raise Unsupported(f"D of {out} from int8: cuBLASLt has int32, or int8 with a scale")
    if spec.get("mode") == "bfloat16x9" and 0 < version < 120900:
        raise Unsupported(f"compute='bfloat16x9' needs cuBLASLt 12.9; this is {version}")
    if spec.get("mode") == "bfloat16x9" and arch and number_of(arch) < 100:
        raise Unsupported(
            f"compute='bfloat16x9' needs sm_100 (Blackwell) or later; this is {arch}; compute='float32' is as precise"
        )
    _check_scales(spec, dtypes, extents, version, arch)
    if 0 in operands["out"][1]:
        if "amax" in dtypes or ("bias_grad" in dtypes and 0 not in operands["bias_grad"][1]):
            raise Unsupported(
                f"M={m}, N={n}: D is empty, and cuBLASLt then computes no bias gradient; use device.elementwise.run, "
                f"or device.zeros"
            )
    elif k == 0:
        raise Unsupported(
            "K=0: cuBLASLt knows no empty operands; the product is 0, so use device.elementwise.run on c and bias, or "
            "device.zeros"
        )
    elif k == 1 and epilogue.startswith(("drelu", "dgelu")):
        raise Unsupported(
            f"K=1 with epilogue {epilogue!r}: cuBLASLt needs K of at least 2 there; pad K with zeros, or use epilogue "
            f"'default' and device.elementwise.run"
        )
    elif k == 1 and epilogue in ("bgrada", "bgradb") and 0 < version < 120304:
        raise Unsupported(
            f"K=1 with epilogue {epilogue!r} needs cuBLASLt 12.3.4 (120304); this is {version}; pad K with zeros"
        )
    elif epilogue in ("bgrada", "bgradb") and (count := math.prod(operands["out"][1][:-2])) > 1:
        raise Unsupported(  # seen with 13.1 on Hopper; one matrix is summed whatever alpha is
            f"epilogue {epilogue!r} with a batch of {count}: cuBLASLt leaves its sums 0 where alpha is 0"
        )
    elif dtype in FLOAT8:
        _check_float8(spec, dtypes, k, arch)


def check_dense_along_k(name: str, dense: bool, dtype: str, arch: str) -> None:
    """Raise `Unsupported` if a matrix must be dense along K and is not."""
    if dense or dtype not in FLOAT8 or not arch.startswith(_K_ONLY):
        return
    make = "row-major" if name == "a" else "(N, K) with trans_b=True"
    raise Unsupported(
        f"{name} of float8 is not dense along K, which the tensor cores of {arch} need (later ones do not): pass it as "
        f"{make}, or pass copies=True to have it copied into the workspace"
    )
