"""The request for a matrix product, its result, and the keyword options of the actor's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

from ..._support.checks import check_choice
from ..._support.public import public
from ...dtypes import dtype_name
from ...plans.lowering import Lowered, Operand, Request, read, written
from .._factors import FACTORS, factor_scalars, split_factors
from .attributes import ROUTES, MatmulAttributes
from .custom_epilogue import CustomCode, CustomEpilogue, given_operands
from .epilogue import Epilogue
from .spec import SCALES, MatmulProblem, is_array, resolve_matmul

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = [
    "GroupOptions",
    "GroupPlanOptions",
    "MatmulOptions",
    "MatmulRequest",
    "MatmulResult",
    "PlainEpilogue",
    "ProductOptions",
    "StoringEpilogue",
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
    reduced_precision: bool
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
    route: str


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


@public
class MatmulResult(NamedTuple):
    """Outputs of a matmul that has more than D.

    Attributes
    ----------
    out : GpuRef
        D.
    aux : GpuRef or None
        What the forward epilogue stored for the backward pass.
    bias_grad : GpuRef or None
        The bias gradient.
    amax : GpuRef or None
        The largest magnitude of D before its scale.

    Examples
    --------
    >>> x, w = device.zeros((2, 4)), device.zeros((4, 8))
    >>> made = device.blas_lt.matmul(x, w, epilogue="gelu_aux")
    >>> made.out.shape, made.aux.shape, made.bias_grad
    ((2, 8), (2, 8), None)
    """

    out: GpuRef
    aux: GpuRef | None = None
    bias_grad: GpuRef | None = None
    amax: GpuRef | None = None


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulRequest(Request[Any]):
    """A fused matrix product, checked when it is made.

    ``D = d_scale * epilogue(alpha * scales(op(A) @ op(B)) + beta * c_scale * C + bias)``, where op transposes the last
    two axes, or conjugates, if asked to.  Leading axes are batches: equal, or broadcast where A or B lacks them or
    has 1.  Sums, factors and epilogue are computed in float32 for operands of 8 and 16 bits and float32, exactly in
    int32 for int8, in float64 and complex for those, and rounded once, when stored; D of 8 bits saturates.

    Parameters
    ----------
    a, b
        Matrices (..., M, K) and (..., K, N), or their transposes with `trans_a`, `trans_b`.  One dtype for both:
        float64, float32, float16, bfloat16, int8, complex64, complex128, float8_e4m3fn; or float8_e4m3fn by
        float8_e5m2, either way around.
    c
        Added with factor `beta`; shape and dtype of D (of bfloat16 or float16 where D has 8 bits).  It may be `out`
        itself.  With ``beta=0``, the default, it is never read.
    out
        D.  Must not share memory with an operand, except that it may be `c`.
    alpha, beta
        Factors: numbers, which travel with each message, or both arrays of one element on the device, of the type that
        they are applied in.  Only whether `beta` is 0 belongs to the plan.
    bias
        Vector of N elements (or one for each batch: (..., N)), of D's dtype.  For float8 operands it is bfloat16 with D
        of float32, and bfloat16 or float16 with D of float8; for int8 it is float32, unless D is int32.
    epilogue
        One of `Epilogue`, or its name.  Complex matmuls have no activation, those to int32 no GELU.  Or a
        `CustomEpilogue`, whose rules for the other parameters are its own.
    operands
        With a `CustomEpilogue`: a dict from the names of its operands to arrays.
    aux
        Forward: where to store it (allocated if missing).  Backward: what the forward pass stored.
        For GELU of D's shape and dtype (bfloat16 where D is float8, float32 for int8).  For ReLU uint8 of shape
        (..., M, ceil(N / 128) * 16): bit ``j % 8`` (least significant first) of byte ``j // 8`` of a row is set where
        column j was greater than 0; the rest is 0.
    bias_grad
        Where to store the bias gradient, of the bias's dtype: (..., N), or (..., M) for ``bgrada``.
    out_dtype
        Dtype of D: that of A, or float32 for 16-bit operands; int32, int8 or a floating one for int8; bfloat16,
        float16, float32 or a float8 for float8.
    compute_type
        The accumulation dtype, for those who want it said.
    compute : str
        The precision; ``docs/libraries/blas_lt.md`` lists the modes.  For float32 ``"float32"``, ``"tf32"``,
        ``"bfloat16"``, ``"float16"``, ``"float32_pedantic"`` or ``"bfloat16x9"``.
    fast_accum : bool
        For float8: whether sums may stay in the tensor core's shorter accumulator.
    reduced_precision : bool
        Whether the library may split K and add up the parts in D's dtype, which rounds each part.  By default parts are
        added up in the accumulation dtype, and D is rounded once.
    conj_a, conj_b : bool
        Whether op also conjugates.
    a_scale, b_scale
        What to multiply A and B by (float8 and int8): one float32, or one for each row and column, or (float8) for
        blocks of 128; the shape says which, see ``docs/libraries/blas_lt.md``.
    c_scale, d_scale
        One float32 each, to multiply C and D by.
    amax : bool
        Whether to return the largest magnitude of D before `d_scale`, as float32 of shape ().  An array: store it
        there.
    tune : bool or "known"
        Whether the worker measures the algorithms when it makes the plan, and keeps the fastest; ``"known"``: take what
        was measured before, or imported, and never measure.
    copies : bool
        Whether A and B may be copied into the workspace if the library cannot read them in place; a plan that copies
        says so in its notes.  False: such a matmul is `Unsupported`.
    route : {"auto", "cublaslt", "cutlass"}
        Who computes it on a GPU: cuBLASLt, with kernels of ours where it needs these; or one kernel of CUTLASS, which
        compiles at its first use and needs the extra ``[cutlass]``.  By default CUTLASS's where it is installed and was
        measured to be faster.

    Raises
    ------
    InvalidRequest
        For shapes, dtypes, strides or operands that cannot work; the message names the value and the allowed ones.
    Unsupported
        For float8_e5m2 by float8_e5m2, and a `compute_type` in which operands of their dtype are not summed.  With
        ``route="cutlass"`` for what its kernels do not compute, when it is sent.

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 4), "float32")), device.put(np.eye(4, dtype="float32"))
    >>> request = an.MatmulRequest(a=x, b=w, alpha=2.0)
    >>> device.blas_lt.tell(request).numpy().tolist()
    [[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0]]
    >>> an.MatmulRequest(a=x, b=x)
    Traceback (most recent call last):
        ...
    atomr_native.InvalidRequest: K=4 in A (2, 4) is not K=2 in B (2, 4): ...
    """

    a: Any
    b: Any
    c: Any = None
    out: Any = None
    alpha: Any = 1.0
    beta: Any = 0.0
    trans_a: bool = False
    trans_b: bool = False
    bias: Any = None
    epilogue: Epilogue | CustomEpilogue | str = Epilogue.DEFAULT
    aux: Any = None
    bias_grad: Any = None
    out_dtype: Any = None
    compute_type: Any = None
    compute: str | None = None
    fast_accum: bool = False
    reduced_precision: bool = False
    conj_a: bool = False
    conj_b: bool = False
    a_scale: Any = None
    b_scale: Any = None
    c_scale: Any = None
    d_scale: Any = None
    amax: Any = False
    tune: bool | str = False
    copies: bool = True
    operands: Any = None
    route: str = "auto"

    @property
    def adds_c(self) -> bool:
        """Whether C is read."""
        return is_array(self.beta) or bool(self.beta)

    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Operands in message order: ``a, b, [c], [bias], [aux if read], operands, [a_scale], [b_scale], [c_scale],
        [d_scale], [alpha], [beta], out, [aux if written], [bias_grad], [amax]``.  `c` is no operand where ``beta`` is
        0, nor where it is `out`, which is read and written.
        """
        check_choice("route", self.route, ROUTES)
        problem = resolve_matmul(self)
        added = "none" if not self.adds_c else "out" if self.c is self.out else "c"
        is_complex = problem.scale.kind == "c"
        outputs = self._outputs(problem, added)
        more = tuple(operand.name for operand in outputs[1:])
        epilogue = self.epilogue
        return Lowered(
            op="blas_lt.matmul",
            operands=(*self._inputs(problem, added), *outputs),
            collect=partial(_matmul_result, more) if more else itemgetter("out"),
            attributes=MatmulAttributes(
                trans_a=bool(self.trans_a),
                trans_b=bool(self.trans_b),
                conj_a=bool(self.conj_a),
                conj_b=bool(self.conj_b),
                epilogue=problem.epilogue.value,
                compute=dtype_name(problem.accumulate),
                scale=dtype_name(problem.scale),
                mode=problem.mode,
                fast_accum=bool(self.fast_accum),
                reduced_precision=bool(self.reduced_precision),
                scaling=problem.scaling,
                added=added,
                tune="known" if self.tune == "known" else "measure" if self.tune else "",
                copies=bool(self.copies),
                route=self.route,
            ),
            scalars=() if problem.on_device else factor_scalars(self.alpha, self.beta, is_complex=is_complex),
            numbers=() if problem.on_device else FACTORS,
            convert=split_factors if is_complex and not problem.on_device else None,
            code=CustomCode(epilogue, dtype_name(problem.scale)) if isinstance(epilogue, CustomEpilogue) else None,
            unread=(("c", self.c),) if added == "none" and self.c is not None else (),
        )

    def _inputs(self, problem: MatmulProblem, added: str) -> list[Operand]:
        arrays: dict[str, Any] = {"a": self.a, "b": self.b}
        if added == "c":
            arrays["c"] = self.c
        if self.bias is not None:
            arrays["bias"] = self.bias
        if problem.epilogue.reads_aux:
            arrays["aux"] = self.aux
        arrays |= given_operands(self)
        arrays |= {name: getattr(self, name) for name in (*SCALES, *FACTORS) if is_array(getattr(self, name))}
        return [read(name, array) for name, array in arrays.items()]

    def _outputs(self, problem: MatmulProblem, added: str) -> list[Operand]:
        operands = [written("out", self.out, problem.out, updated=added == "out")]
        if problem.aux is not None and not problem.epilogue.reads_aux:
            operands.append(written("aux", self.aux, problem.aux))
        if problem.bias_grad is not None:
            operands.append(written("bias_grad", self.bias_grad, problem.bias_grad))
        if problem.amax is not None:
            operands.append(written("amax", self.amax if is_array(self.amax) else None, problem.amax))
        return operands


def _matmul_result(more: tuple[str, ...], arrays: Mapping[str, Any]) -> MatmulResult:
    """Return D and the outputs that were stored with it, by name."""
    return MatmulResult(arrays["out"], **{name: arrays[name] for name in more})
