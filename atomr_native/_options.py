"""Keyword options of calls that pass them on to a request: what a type checker holds them against, and `help` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from ._matmul_epilogue import Epilogue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._custom_epilogue import CustomEpilogue
    from ._float8_spec import DelayedScaling
    from .gpu_ref import GpuRef

__all__ = [
    "BlasOptions",
    "GemmOptions",
    "GemvOptions",
    "GroupOptions",
    "GroupPlanOptions",
    "MatmulOptions",
    "PlainEpilogue",
    "ProductOptions",
    "QuantizeOptions",
    "StoringEpilogue",
    "SymmOptions",
    "SyrkOptions",
    "TrmmOptions",
    "TrsmOptions",
]

#: Epilogues that store nothing but D.
PlainEpilogue: TypeAlias = Literal[
    "default", "relu", "bias", "relu_bias", "gelu", "gelu_bias", "drelu", "dgelu",
    Epilogue.DEFAULT, Epilogue.RELU, Epilogue.BIAS, Epilogue.RELU_BIAS, Epilogue.GELU, Epilogue.GELU_BIAS,
    Epilogue.DRELU, Epilogue.DGELU,
]  # fmt: skip
#: Those that store aux or a bias gradient as well.
StoringEpilogue: TypeAlias = Literal[
    "relu_aux", "relu_aux_bias", "gelu_aux", "gelu_aux_bias", "drelu_bgrad", "dgelu_bgrad", "bgrada", "bgradb",
    Epilogue.RELU_AUX, Epilogue.RELU_AUX_BIAS, Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS, Epilogue.DRELU_BGRAD,
    Epilogue.DGELU_BGRAD, Epilogue.BGRADA, Epilogue.BGRADB,
]  # fmt: skip


class _Both(TypedDict, total=False):
    """Of one product, and the same for all of a group."""

    trans_a: bool
    trans_b: bool
    out_dtype: object
    compute_type: object
    compute: str | None
    fast_accum: bool
    conj_a: bool
    conj_b: bool
    tune: bool | str
    copies: bool


class ProductOptions(_Both, total=False):
    """Of `BlasLt.matmul`, but what decides what it returns."""

    c: GpuRef | None
    out: GpuRef | None
    alpha: complex | GpuRef
    beta: complex | GpuRef
    bias: GpuRef | None
    aux: GpuRef | None
    bias_grad: GpuRef | None
    a_scale: GpuRef | None
    b_scale: GpuRef | None
    c_scale: GpuRef | None
    d_scale: GpuRef | None
    operands: Mapping[str, GpuRef] | None


class MatmulOptions(ProductOptions, total=False):
    """Of `BlasLt.plan`."""

    epilogue: Epilogue | CustomEpilogue | str
    amax: bool | GpuRef


class GroupOptions(_Both, total=False):
    """Of `BlasLt.grouped`."""

    epilogue: Epilogue | str


class GroupPlanOptions(GroupOptions, total=False):
    """Of `BlasLt.grouped_plan`."""

    c: Sequence[GpuRef] | None
    bias: Sequence[GpuRef] | None
    out: Sequence[GpuRef] | None
    alpha: complex
    beta: complex
    way: str


class QuantizeOptions(TypedDict, total=False):
    """Of `Float8.plan` and `Float8.outputs`."""

    scaling: str
    scale: GpuRef | None
    state: DelayedScaling | None
    saturate: bool
    transposed: bool
    out: GpuRef | None
    scale_out: GpuRef | None
    transposed_out: GpuRef | None
    transposed_scale_out: GpuRef | None


class _Scaled(TypedDict, total=False):
    alpha: complex


class GemvOptions(_Scaled, total=False):
    """Of `Blas.gemv`."""

    beta: complex
    trans: bool
    conj: bool
    out: GpuRef | None


class GemmOptions(GemvOptions, total=False):
    """Of `Blas.gemm` and `Blas.geam`."""

    trans_b: bool
    conj_b: bool


class SymmOptions(_Scaled, total=False):
    """Of `Blas.symm`."""

    beta: complex
    side: str
    lower: bool
    out: GpuRef | None


class SyrkOptions(_Scaled, total=False):
    """Of `Blas.syrk`."""

    beta: complex
    trans: bool
    lower: bool


class TrsmOptions(_Scaled, total=False):
    """Of `Blas.trsm`."""

    side: str
    lower: bool
    trans: bool
    conj: bool
    unit: bool


class TrmmOptions(TrsmOptions, total=False):
    """Of `Blas.trmm`."""

    out: GpuRef | None


class BlasOptions(_Scaled, total=False):
    """Of `Blas.plan`."""

    a: GpuRef | None
    b: GpuRef | None
    x: GpuRef | None
    y: GpuRef | None
    out: GpuRef | None
    beta: complex
    trans: bool
    conj: bool
    trans_b: bool
    conj_b: bool
    side: str
    lower: bool
    unit: bool
