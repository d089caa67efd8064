"""Matmul requests: validation, and the plan specification that both devices build from.

``D = alpha * op(A) @ op(B) + beta * C``, then an epilogue, in row-major NumPy layouts.  Everything here is a
pure function of layouts; nothing is enqueued.  Which types go together is in `_matmul_types`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._checks import check_factor, check_flag
from ._custom_epilogue import CustomEpilogue, check_custom, given_operands
from ._matmul_epilogue import Epilogue, check_epilogue_operands
from ._matmul_scalars import scalar_names, scalar_values
from ._matmul_scales import scale_kinds
from ._matmul_types import FLOAT8, compute_modes, rule_of
from ._operands import (
    Fresh,
    broadcast_shapes,
    check_disjoint,
    check_input,
    check_output,
    check_size,
    describe,
    describe_output,
)
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import InvalidRequest, Unsupported
from .plan_spec import OVERWRITE, READ, WRITE, PlanSpec

__all__ = [
    "Epilogue",
    "MatmulRequest",
    "MatmulShape",
    "base_epilogue",
    "is_array",
    "matmul_shape",
    "matmul_spec",
    "scalar_names",
    "scalar_values",
]


#: One-element operands in device memory, by name.
_SCALES = ("a_scale", "b_scale", "c_scale", "d_scale")


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """What a request comes to: extents, types, and the outputs' structure."""

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    accumulate: np.dtype[Any]
    #: Dtype in which alpha, beta and epilogue are applied.
    scale: np.dtype[Any]
    mode: str
    out: Fresh
    aux: Fresh | None
    bias_grad: Fresh | None
    amax: Fresh | None
    #: Kinds of a_scale and b_scale.
    scaling: tuple[str, str]
    #: Whether alpha and beta are read from device memory.
    on_device: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulRequest:
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
        How precisely: see ``docs/blas_lt.md``.  For float32 ``"float32"``, ``"tf32"``, ``"bfloat16"``, ``"float16"``,
        ``"float32_pedantic"`` or ``"bfloat16x9"``.
    fast_accum : bool
        For float8: whether sums may stay in the tensor core's shorter accumulator.
    conj_a, conj_b : bool
        Whether op also conjugates.
    a_scale, b_scale
        What to multiply A and B by (float8 and int8): one float32, or one for each row and column, or (float8) for
        blocks of 128; the shape says which, see ``docs/blas_lt.md``.
    c_scale, d_scale
        One float32 each, to multiply C and D by.
    amax : bool
        Whether to return the largest magnitude of D before `d_scale`, as float32 of shape ().  An array: store it
        there.
    tune : bool or "known"
        Whether the worker measures the algorithms when it makes the plan, and keeps the fastest; ``"known"``: take what
        was measured before, or imported, and never measure.
    copies : bool
        Whether A and B may be copied into the workspace if the library does not take them where they lie.

    Raises
    ------
    InvalidRequest
        For shapes, dtypes, strides or operands that cannot work; the message names the value and the allowed ones.
    Unsupported
        For float8_e5m2 by float8_e5m2, and a `compute_type` in which operands of their dtype are not summed.
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
    conj_a: bool = False
    conj_b: bool = False
    a_scale: Any = None
    b_scale: Any = None
    c_scale: Any = None
    d_scale: Any = None
    amax: Any = False
    tune: bool | str = False
    copies: bool = False
    operands: Any = None

    def __post_init__(self) -> None:
        matmul_shape(self)

    @property
    def adds_c(self) -> bool:
        """Whether C is read."""
        return is_array(self.beta) or bool(self.beta)


def base_epilogue(value: object) -> Epilogue:
    """Return the epilogue of the library that a request asks for: the default, before one of the user's own."""
    if isinstance(value, CustomEpilogue):
        return Epilogue.DEFAULT
    try:
        return Epilogue(value)  # type: ignore[arg-type]
    except ValueError:
        own = ", and CustomEpilogue(f, operands) of a function" if callable(value) else ""
        raise InvalidRequest(f"unknown epilogue {value!r}; allowed: {', '.join(Epilogue)}{own}") from None


def is_array(value: object) -> bool:
    """Whether a factor or flag is an operand; NumPy's numbers are numbers."""
    return hasattr(value, "shape") and hasattr(value, "strides") and not isinstance(value, np.generic)


def _said(value: object) -> str:
    return "an array" if is_array(value) else repr(value)


def _check_factor(name: str, value: object, scale: np.dtype[Any]) -> None:
    if is_array(value):
        _check_one(name, value, (scale,))
        return
    more = f", or an array of one {dtype_name(scale)} on the device"
    check_factor(name, value, imaginary=scale.kind == "c", more=more)
    if scale.kind == "i" and value not in (0, 1):
        raise InvalidRequest(f"{name}={value!r} with D of dtype int32; allowed: 0, 1 (or D of float32)")


def _check_one(name: str, operand: Any, dtypes: tuple[np.dtype[Any], ...]) -> None:
    """Check an operand of one element."""
    check_input(name, operand)
    if tuple(operand.shape) not in ((), (1,)) or as_dtype(operand.dtype) not in dtypes:
        raise InvalidRequest(
            f"{name} is {dtype_name(as_dtype(operand.dtype))}{list(operand.shape)}; allowed: one element, shape () or "
            f"(1,), of {' or '.join(map(dtype_name, dtypes))}"
        )


def _matrix(name: str, operand: object, transposed: object) -> tuple[tuple[int, ...], int, int]:
    array = check_input(name, operand)
    check_flag(f"trans_{name}", transposed, bool | np.bool)
    if len(array.shape) < 2:
        raise InvalidRequest(f"{name} has shape {array.shape}; it must have at least 2 axes, (..., rows, columns)")
    rows, columns = array.shape[-2:]
    return array.shape[:-2], *((columns, rows) if transposed else (rows, columns))


def _types(request: MatmulRequest) -> tuple[str, str, str]:
    """Return dtypes: (A, B, D)."""
    a, b = dtype_name(as_dtype(request.a.dtype)), dtype_name(as_dtype(request.b.dtype))
    rule = rule_of(a, b)
    out = rule.outputs[0]
    if request.out is not None:
        out = dtype_name(as_dtype(check_output("out", request.out).dtype))
        if request.out_dtype is not None and dtype_name(as_dtype(request.out_dtype)) != out:
            raise InvalidRequest(f"out has dtype {out}, but out_dtype={dtype_name(as_dtype(request.out_dtype))}")
    elif request.out_dtype is not None:
        out = dtype_name(as_dtype(request.out_dtype))
    if out not in rule.outputs:
        raise InvalidRequest(
            f"D of dtype {out} from operands of dtype {a}{'' if a == b else ' and ' + b}; "
            f"allowed: {', '.join(rule.outputs)}"
        )
    if request.compute_type is not None and dtype_name(as_dtype(request.compute_type)) != rule.accumulate:
        raise Unsupported(
            f"compute_type={dtype_name(as_dtype(request.compute_type))} for operands of dtype {a}; "
            f"allowed: {rule.accumulate}"
        )
    return a, b, out


def _check_flags(request: MatmulRequest, a: str, out: str, epilogue: Epilogue) -> None:
    for name in ("fast_accum", "conj_a", "conj_b", "copies"):
        check_flag(name, getattr(request, name), bool | np.bool)
    if not isinstance(request.tune, bool | np.bool) and not (isinstance(request.tune, str) and request.tune == "known"):
        raise InvalidRequest(f"tune={request.tune!r}; allowed: False, True, 'known'")
    if request.fast_accum and a not in FLOAT8:
        raise InvalidRequest(f"fast_accum=True for operands of dtype {a}; allowed: {', '.join(FLOAT8)}")
    for name in ("a", "b"):
        if getattr(request, f"conj_{name}") and not a.startswith("complex"):
            raise InvalidRequest(f"conj_{name}=True for operands of dtype {a}; allowed: complex64, complex128")
        if getattr(request, f"conj_{name}") and epilogue == f"bgrad{name}":
            raise InvalidRequest(
                f"conj_{name}=True with epilogue {epilogue.value!r}; allowed: False, or another epilogue"
            )
    if a.startswith("complex") and epilogue.activation:
        raise InvalidRequest(
            f"epilogue {epilogue.value!r} with complex operands; allowed: default, bias, bgrada, bgradb"
        )
    if out == "int32" and epilogue.activation == "gelu":
        raise InvalidRequest(f"epilogue {epilogue.value!r} with D of dtype int32; allowed: D of float32, or no GELU")
    scaled = a in FLOAT8 or (a == "int8" and out != "int32")
    for name in ("a_scale", "b_scale"):
        if getattr(request, name) is not None and not scaled:
            raise InvalidRequest(
                f"{name} is given for operands of dtype {a} and D of dtype {out}; allowed: float8 operands, "
                f"and int8 ones with another D than int32; otherwise put it into alpha"
            )
    if a.startswith("complex") or out == "int32":
        for name in ("c_scale", "d_scale", "amax"):
            if getattr(request, name) is not None and getattr(request, name) is not False:
                raise InvalidRequest(f"{name} is given with D of dtype {out}; allowed: real floating D, or int8")


def _expect(
    name: str, operand: Any, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[np.dtype[Any], ...], why: str
) -> None:
    """Check an operand whose structure follows from the others."""
    allowed = " or ".join(map(str, dict.fromkeys(shapes)))
    if tuple(operand.shape) not in shapes:
        raise InvalidRequest(f"{name} has shape {tuple(operand.shape)}; allowed: {allowed} ({why})")
    if as_dtype(operand.dtype) not in dtypes:
        listed = " or ".join(map(dtype_name, dtypes))
        raise InvalidRequest(f"{name} has dtype {dtype_name(as_dtype(operand.dtype))}; allowed: {listed} ({why})")


def matmul_shape(request: MatmulRequest) -> MatmulShape:
    """Check a request and return what it comes to.

    Raises
    ------
    InvalidRequest, Unsupported
        As `MatmulRequest` says.
    """
    epilogue = base_epilogue(request.epilogue)
    a_batch, m, k = _matrix("a", request.a, request.trans_a)
    b_batch, k_b, n = _matrix("b", request.b, request.trans_b)
    a, b, out = _types(request)
    rule, dtype = rule_of(a, b), DTYPES[out]
    if k != k_b:
        op_a, op_b = "A^T" if request.trans_a else "A", "B^T" if request.trans_b else "B"
        raise InvalidRequest(
            f"K={k} in {op_a} {(m, k)} is not K={k_b} in {op_b} {(k_b, n)}: "
            f"a has shape {tuple(request.a.shape)}, b has shape {tuple(request.b.shape)}"
        )
    mode = compute_modes(rule, request.compute, out)
    _check_flags(request, a, out, epilogue)
    scale = DTYPES["float16" if mode == "float16_accumulate" else rule.scale(out)]
    _check_factor("alpha", request.alpha, scale)
    _check_factor("beta", request.beta, scale)
    on_device = is_array(request.alpha) or is_array(request.beta)
    if on_device and not (is_array(request.alpha) and (is_array(request.beta) or not request.adds_c)):
        raise InvalidRequest(
            f"alpha is {_said(request.alpha)} and beta is {_said(request.beta)}; allowed: both numbers, both "
            f"arrays of one element, or alpha an array and beta 0"
        )
    batch = broadcast_shapes((("a", a_batch), ("b", b_batch)), "batch axes of a and b")
    shape = (*batch, m, n)
    check_size("D", shape, dtype)
    given_operands(request)
    if not isinstance(request.epilogue, CustomEpilogue):
        check_epilogue_operands(request, epilogue)
    if request.adds_c and request.c is None:
        raise InvalidRequest(f"beta={_said(request.beta)} needs c, which is missing; pass c=out to accumulate into out")
    for name in _SCALES:
        if getattr(request, name) is not None:
            check_input(name, getattr(request, name))
            if as_dtype(getattr(request, name).dtype) != DTYPES["float32"]:
                raise InvalidRequest(
                    f"{name} has dtype {dtype_name(as_dtype(getattr(request, name).dtype))}; allowed: float32"
                )
    for name in ("c_scale", "d_scale"):
        if getattr(request, name) is not None:
            _check_one(name, getattr(request, name), (DTYPES["float32"],))
    if request.c_scale is not None and not request.adds_c:
        raise InvalidRequest("c_scale is given, but beta=0, so C is not read; allowed: None, or beta and c")
    scaling = scale_kinds(request.a_scale, request.b_scale, m, n, k, batch, a in FLOAT8)

    why = f"M={m}, N={n}, K={k}, batch {batch}"
    side = tuple(DTYPES[name] for name in rule.side(a, out))
    if request.c is not None:
        check_input("c", request.c)
        _expect("c", request.c, (shape,), tuple(DTYPES[name] for name in rule.c(out)), f"D; {why}")
    if request.out is not None:
        _expect("out", request.out, (shape,), (dtype,), f"D; {why}")
    if request.bias is not None:
        check_input("bias", request.bias)
        _expect("bias", request.bias, ((n,), (*batch, n)), side, f"a vector over N; D is {out}; {why}")
    aux = bias_grad = None
    if isinstance(request.epilogue, CustomEpilogue):
        made = check_custom(request, (a, out, dtype_name(scale)), mode, shape)
        aux, bias_grad = (None if one is None else Fresh(*one) for one in made)
    if epilogue.reads_aux or epilogue.writes_aux:
        aux = Fresh(shape, DTYPES[rule.gelu_aux(a, out)])
        if epilogue.activation == "relu":
            aux = Fresh((*batch, m, -(-n // 128) * 16), DTYPES["uint8"])
            check_size("aux", *aux)
        if request.aux is not None:
            (check_input if epilogue.reads_aux else check_output)("aux", request.aux)
            _expect("aux", request.aux, (aux.shape,), (aux.dtype,), f"aux of epilogue {epilogue.value!r}; {why}")
    if epilogue.writes_bias_grad:
        bias_grad = Fresh((*batch, m if epilogue is Epilogue.BGRADA else n), side[0])
        if request.bias_grad is not None:
            check_output("bias_grad", request.bias_grad)
            _expect("bias_grad", request.bias_grad, (bias_grad.shape,), side, f"bias_grad of {epilogue.value!r}; {why}")
            bias_grad = Fresh(bias_grad.shape, as_dtype(request.bias_grad.dtype))
    amax = None
    if is_array(request.amax):
        check_output("amax", request.amax)
        _check_one("amax", request.amax, (DTYPES["float32"],))
        amax = Fresh(tuple(request.amax.shape), DTYPES["float32"])
    elif not isinstance(request.amax, bool | np.bool | None):
        raise InvalidRequest(f"amax={request.amax!r} must be True, False, or an array of one float32")
    elif request.amax:
        amax = Fresh((), DTYPES["float32"])
    _check_memory(request, epilogue)
    return MatmulShape(
        batch,
        m,
        n,
        k,
        DTYPES[rule.accumulate],
        scale,
        mode,
        Fresh(shape, dtype),
        aux,
        bias_grad,
        amax,
        scaling,
        on_device,
    )


def _check_memory(request: Any, epilogue: Epilogue) -> None:
    """Raise `InvalidRequest` if an output that was given shares memory with another operand."""
    outputs = [("out", request.out)]
    inputs = [("a", request.a), ("b", request.b), ("bias", request.bias)]
    inputs += (getattr(request, "operands", None) or {}).items()
    if (is_array(request.beta) or request.beta) and request.c is not request.out:
        inputs.append(("c", request.c))
    for name in (*_SCALES, "alpha", "beta"):
        value = getattr(request, name, None)
        if is_array(value):
            inputs.append((name, value))
    (inputs if epilogue.reads_aux else outputs).append(("aux", request.aux))
    outputs.append(("bias_grad", request.bias_grad))
    if is_array(getattr(request, "amax", None)):
        outputs.append(("amax", request.amax))
    outputs = [pair for pair in outputs if pair[1] is not None]
    if outputs:
        check_disjoint(
            outputs, [pair for pair in inputs if pair[1] is not None], " (out may be c itself: pass the same handle)"
        )


def matmul_spec(request: MatmulRequest, shape: MatmulShape | None = None) -> PlanSpec:
    """Return the plan specification of a request.

    Operands in message order: ``a, b, [c], [bias], [aux if read], operands, [a_scale], [b_scale], [c_scale], [d_scale],
    [alpha], [beta], out, [aux if written], [bias_grad], [amax]``.  `c` is no operand where ``beta`` is 0, nor where it
    is `out`, which is read and written.  Missing outputs are C-contiguous.  Scalars: those of `scalar_names`.
    """
    shape = shape or matmul_shape(request)
    epilogue = base_epilogue(request.epilogue)
    added = "none" if not request.adds_c else "out" if request.c is request.out else "c"
    full = WRITE | OVERWRITE
    operands = [describe("a", request.a, READ), describe("b", request.b, READ)]
    if added == "c":
        operands.append(describe("c", request.c, READ))
    if request.bias is not None:
        operands.append(describe("bias", request.bias, READ))
    if epilogue.reads_aux:
        operands.append(describe("aux", request.aux, READ))
    operands += [describe(name, operand, READ) for name, operand in given_operands(request).items()]
    for name in (*_SCALES, "alpha", "beta"):
        if is_array(getattr(request, name)):
            operands.append(describe(name, getattr(request, name), READ))
    operands.append(describe_output("out", request.out, shape.out, READ | WRITE if added == "out" else full))
    if not epilogue.reads_aux and shape.aux is not None:
        operands.append(describe_output("aux", request.aux, shape.aux, full))
    if shape.bias_grad is not None:
        operands.append(describe_output("bias_grad", request.bias_grad, shape.bias_grad, full))
    if shape.amax is not None:
        operands.append(describe_output("amax", request.amax if is_array(request.amax) else None, shape.amax, full))
    return PlanSpec(
        op="blas_lt.matmul",
        operands=tuple(operands),
        scalars=("float64",) * len(scalar_names(shape)),
        attributes=(
            ("trans_a", bool(request.trans_a)),
            ("trans_b", bool(request.trans_b)),
            ("conj_a", bool(request.conj_a)),
            ("conj_b", bool(request.conj_b)),
            ("epilogue", epilogue.value),
            ("compute", dtype_name(shape.accumulate)),
            ("scale", dtype_name(shape.scale)),
            ("mode", shape.mode),
            ("fast_accum", bool(request.fast_accum)),
            ("scaling", shape.scaling),
            ("added", added),
            ("tune", "known" if request.tune == "known" else "measure" if request.tune else ""),
            ("copies", bool(request.copies)),
        ),
    )
