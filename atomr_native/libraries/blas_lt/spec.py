"""Rules of matrix products: which requests can work, and what follows from them.

``D = alpha * op(A) @ op(B) + beta * C``, then an epilogue, in row-major NumPy layouts.  Everything here is a pure
function of layouts.  Which types go together is in `types`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..._support.checks import check_factor, check_flag
from ...arrays.operands import Fresh, broadcast_shapes, check_disjoint, check_input, check_output, check_size
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported
from .._scaling import scale_kinds
from .custom_epilogue import CustomEpilogue, check_custom, given_operands
from .epilogue import Epilogue, check_epilogue_operands
from .types import FLOAT8, TypeRule, compute_modes, rule_of

if TYPE_CHECKING:
    from .request import MatmulRequest

__all__ = ["SCALES", "MatmulProblem", "base_epilogue", "is_array", "resolve_matmul"]

#: Operands that scale matrices, by name.
SCALES: Final = ("a_scale", "b_scale", "c_scale", "d_scale")


@dataclass(frozen=True, slots=True)
class MatmulProblem:
    """A request with everything that follows from it.

    Attributes
    ----------
    epilogue : Epilogue
        The library's; the default before a custom epilogue.
    batch : tuple of int
    m, n, k : int
    accumulate, scale : numpy.dtype
        Dtypes of sums of products, and of factors and epilogue.
    mode : str
        How it computes: see `compute_modes`.
    scaling : (str, str)
        Kinds of `a_scale` and `b_scale`.
    on_device : bool
        Whether alpha and beta are read from device memory.
    out : Fresh
        Structure of D.
    aux, bias_grad, amax : Fresh or None
        Structure of these outputs, and of `aux` where it is an input; None where there is none.
    """

    epilogue: Epilogue
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    accumulate: np.dtype[Any]
    scale: np.dtype[Any]
    mode: str
    scaling: tuple[str, str]
    on_device: bool
    out: Fresh
    aux: Fresh | None
    bias_grad: Fresh | None
    amax: Fresh | None


class _Types(NamedTuple):
    a: str
    b: str
    out: str
    rule: TypeRule
    mode: str
    scale: np.dtype[Any]  # of factors and epilogue

    @property
    def side(self) -> tuple[np.dtype[Any], ...]:
        """Dtypes of bias and bias gradient, the default first."""
        return tuple(DTYPES[name] for name in self.rule.side(self.a, self.out))


class _Extents(NamedTuple):
    batch: tuple[int, ...]
    m: int
    n: int
    k: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of D."""
        return (*self.batch, self.m, self.n)

    def __str__(self) -> str:
        return f"M={self.m}, N={self.n}, K={self.k}, batch {self.batch}"


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


def resolve_matmul(request: MatmulRequest) -> MatmulProblem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest, Unsupported
        As `MatmulRequest` says.
    """
    epilogue = base_epilogue(request.epilogue)
    extents, types = _extents(request), _types(request)
    _check_flags(request)
    _check_dtypes(request, types.a, types.out, epilogue)
    on_device = _check_factors(request, types.scale)
    out = Fresh(extents.shape, DTYPES[types.out])
    check_size("D", *out)
    given_operands(request)
    if not isinstance(request.epilogue, CustomEpilogue):
        check_epilogue_operands(request, epilogue)
    if request.adds_c and request.c is None:
        raise InvalidRequest(f"beta={_said(request.beta)} needs c, which is missing; pass c=out to accumulate into out")
    scaling = _check_scales(request, extents, types)
    _check_matrices(request, extents, types)
    if isinstance(request.epilogue, CustomEpilogue):
        acc = dtype_name(types.scale)
        made = check_custom(request, (types.a, types.out, acc), types.mode, extents.shape)
        aux, bias_grad = (None if one is None else Fresh(*one) for one in made)
    else:
        aux, bias_grad = _aux(request, epilogue, extents, types), _bias_grad(request, epilogue, extents, types)
    amax = _amax(request)
    _check_memory(request, epilogue)
    accumulate = DTYPES[types.rule.accumulate]
    return MatmulProblem(
        epilogue, *extents, accumulate, types.scale, types.mode, scaling, on_device, out, aux, bias_grad, amax
    )


# ---- extents and types


def _matrix(name: str, operand: object, transposed: object) -> tuple[tuple[int, ...], int, int]:
    array = check_input(name, operand)
    check_flag(f"trans_{name}", transposed, bool | np.bool)
    if len(array.shape) < 2:
        raise InvalidRequest(f"{name} has shape {array.shape}; it must have at least 2 axes, (..., rows, columns)")
    rows, columns = array.shape[-2:]
    return array.shape[:-2], *((columns, rows) if transposed else (rows, columns))


def _extents(request: MatmulRequest) -> _Extents:
    a_batch, m, k = _matrix("a", request.a, request.trans_a)
    b_batch, k_b, n = _matrix("b", request.b, request.trans_b)
    if k != k_b:
        op_a, op_b = "A^T" if request.trans_a else "A", "B^T" if request.trans_b else "B"
        raise InvalidRequest(
            f"K={k} in {op_a} {(m, k)} is not K={k_b} in {op_b} {(k_b, n)}: "
            f"a has shape {tuple(request.a.shape)}, b has shape {tuple(request.b.shape)}"
        )
    return _Extents(broadcast_shapes((("a", a_batch), ("b", b_batch)), "batch axes of a and b"), m, n, k)


def _types(request: MatmulRequest) -> _Types:
    """Return the dtypes of A, B and D, and what follows from them."""
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
    mode = compute_modes(rule, request.compute, out)
    scale = DTYPES["float16" if mode == "float16_accumulate" else rule.scale(out)]
    return _Types(a, b, out, rule, mode, scale)


def _check_flags(request: MatmulRequest) -> None:
    for name in ("fast_accum", "reduced_precision", "conj_a", "conj_b", "copies"):
        check_flag(name, getattr(request, name), bool | np.bool)
    if not isinstance(request.tune, bool | np.bool) and not (isinstance(request.tune, str) and request.tune == "known"):
        raise InvalidRequest(f"tune={request.tune!r}; allowed: False, True, 'known'")


def _check_dtypes(request: MatmulRequest, a: str, out: str, epilogue: Epilogue) -> None:
    """Raise `InvalidRequest` if a request asks for something that its dtypes do not have."""
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


# ---- factors and scales


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


def _check_factors(request: MatmulRequest, scale: np.dtype[Any]) -> bool:
    """Return whether the factors are in device memory."""
    _check_factor("alpha", request.alpha, scale)
    _check_factor("beta", request.beta, scale)
    on_device = is_array(request.alpha) or is_array(request.beta)
    if on_device and not (is_array(request.alpha) and (is_array(request.beta) or not request.adds_c)):
        raise InvalidRequest(
            f"alpha is {_said(request.alpha)} and beta is {_said(request.beta)}; allowed: both numbers, both "
            f"arrays of one element, or alpha an array and beta 0"
        )
    return on_device


def _check_one(name: str, operand: Any, dtypes: tuple[np.dtype[Any], ...]) -> None:
    """Check an operand of one element."""
    check_input(name, operand)
    if tuple(operand.shape) not in ((), (1,)) or as_dtype(operand.dtype) not in dtypes:
        raise InvalidRequest(
            f"{name} is {dtype_name(as_dtype(operand.dtype))}{list(operand.shape)}; allowed: one element, shape () or "
            f"(1,), of {' or '.join(map(dtype_name, dtypes))}"
        )


def _check_scales(request: MatmulRequest, extents: _Extents, types: _Types) -> tuple[str, str]:
    """Return the kinds of `a_scale` and `b_scale`."""
    for name in SCALES:
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
    batch, m, n, k = extents
    return scale_kinds(request.a_scale, request.b_scale, m, n, k, batch, types.a in FLOAT8)


# ---- operands and outputs


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


def _check_matrices(request: MatmulRequest, extents: _Extents, types: _Types) -> None:
    """Check C, D and the bias, where they are given."""
    shape = extents.shape
    if request.c is not None:
        check_input("c", request.c)
        _expect("c", request.c, (shape,), tuple(DTYPES[name] for name in types.rule.c(types.out)), f"D; {extents}")
    if request.out is not None:
        _expect("out", request.out, (shape,), (DTYPES[types.out],), f"D; {extents}")
    if request.bias is not None:
        check_input("bias", request.bias)
        shapes = ((extents.n,), (*extents.batch, extents.n))
        _expect("bias", request.bias, shapes, types.side, f"a vector over N; D is {types.out}; {extents}")


def _aux(request: MatmulRequest, epilogue: Epilogue, extents: _Extents, types: _Types) -> Fresh | None:
    if not (epilogue.reads_aux or epilogue.writes_aux):
        return None
    if epilogue.activation == "relu":
        aux = Fresh((*extents.batch, extents.m, -(-extents.n // 128) * 16), DTYPES["uint8"])
        check_size("aux", *aux)
    else:
        aux = Fresh(extents.shape, DTYPES[types.rule.gelu_aux(types.a, types.out)])
    if request.aux is not None:
        (check_input if epilogue.reads_aux else check_output)("aux", request.aux)
        _expect("aux", request.aux, (aux.shape,), (aux.dtype,), f"aux of epilogue {epilogue.value!r}; {extents}")
    return aux


def _bias_grad(request: MatmulRequest, epilogue: Epilogue, extents: _Extents, types: _Types) -> Fresh | None:
    if not epilogue.writes_bias_grad:
        return None
    shape = (*extents.batch, extents.m if epilogue is Epilogue.BGRADA else extents.n)
    if request.bias_grad is None:
        return Fresh(shape, types.side[0])
    check_output("bias_grad", request.bias_grad)
    _expect("bias_grad", request.bias_grad, (shape,), types.side, f"bias_grad of {epilogue.value!r}; {extents}")
    return Fresh(shape, as_dtype(request.bias_grad.dtype))


def _amax(request: MatmulRequest) -> Fresh | None:
    if is_array(request.amax):
        check_output("amax", request.amax)
        _check_one("amax", request.amax, (DTYPES["float32"],))
        return Fresh(tuple(request.amax.shape), DTYPES["float32"])
    if not isinstance(request.amax, bool | np.bool | None):
        raise InvalidRequest(f"amax={request.amax!r} must be True, False, or an array of one float32")
    return Fresh((), DTYPES["float32"]) if request.amax else None


def _check_memory(request: Any, epilogue: Epilogue) -> None:
    """Raise `InvalidRequest` if an output that was given shares memory with another operand."""
    outputs = [("out", request.out)]
    inputs = [("a", request.a), ("b", request.b), ("bias", request.bias)]
    inputs += (getattr(request, "operands", None) or {}).items()
    if (is_array(request.beta) or request.beta) and request.c is not request.out:
        inputs.append(("c", request.c))
    for name in (*SCALES, "alpha", "beta"):
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
