"""Products that a kernel of CUTLASS computes instead of cuBLASLt: rules, as data, and such a product's specification.

The kernel compiles in the program, before the plan is made, so rules depend on layouts only.  The message stays that of
``blas_lt.matmul``: its operands and factors, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ...dtypes import DTYPES, as_dtype
from ...errors import InvalidRequest, LibraryError, Unsupported
from .. import load
from .._stand_in import ALIGNED, LARGE, MEASURED, Bare, Rule

if TYPE_CHECKING:
    from ...plans.lowering import Lowered, Target
    from ...plans.spec import OperandSpec, PlanSpec
    from .attributes import MatmulAttributes
    from .custom_epilogue import CustomEpilogue

__all__ = ["RULES", "stand_in"]

Operands = dict[str, "OperandSpec"]

#: Epilogues as CUTLASS's actor has them; {x} is what alpha, beta, scales and the bias make.
_SLOPE: Final = "1.5957691216057308 * (1 + 0.134145 * aux * aux)"
_TEXTS: Final = {
    "default": "{x}", "bias": "{x}", "relu": "relu({x})", "relu_bias": "relu({x})", "gelu": "gelu_tanh({x})",
    "gelu_bias": "gelu_tanh({x})", "gelu_aux": "aux = {x}; out = gelu_tanh(aux)",
    "gelu_aux_bias": "aux = {x}; out = gelu_tanh(aux)",
    "dgelu": "s = sigmoid(1.5957691216057308 * aux * (1 + 0.044715 * aux * aux)); "
    f"out = ({{x}}) * (s + aux * s * (1 - s) * ({_SLOPE}))",
}  # fmt: skip
#: Scales by the names that they have in CUTLASS's kernel, whose ``b_scale`` is of operands that are converted.
_SCALES: Final = {"a_scale": "a_scale", "b_scale": "scale_of_b", "c_scale": "c_scale", "d_scale": "d_scale"}
#: Modes that both libraries have under one name.
_MODES: Final = ("float32", "tf32", "float64", "int32")
#: The gain from which on a program waits up to 40 s for a kernel.
_WORTH: Final = 1.03


def _is_odd(_: MatmulAttributes | None, operands: Operands, _own: CustomEpilogue | None) -> bool:
    """Whether rows of operands of 8 or 16 bits are no multiples of 16 bytes."""
    return any(
        as_dtype(one.dtype).itemsize < 4 and any(step % ALIGNED for step in one.strides[-2:] if step != size)
        for one, size in ((operands[name], as_dtype(operands[name].dtype).itemsize) for name in "ab")
    )


def _is_large(operands: Operands) -> bool:
    """Whether a product is as those that were measured: large, of 16 bits, and of rows of multiples of 16 bytes."""
    a, out = operands["a"], operands["out"]
    work = math.prod(out.shape) * math.prod(a.shape[-2:]) // out.shape[-2]
    short = all(as_dtype(operands[name].dtype).itemsize == 2 for name in ("a", "b", "out"))
    return work >= LARGE and short and not _is_odd(None, operands, None)


#: In the order in which they are tried.  bench/libraries/blas_lt/stand_ins.py measures them, with cuBLASLt 13.1 and 16
#: bits: on an H100 1.16 to 1.40 with an epilogue of its own, 1.05 with aux, 1.01 with a gradient and 0.68 to 0.86 with
#: odd rows (of int8, by hand: 0.13 to 0.67); on an H200 1.15 to 1.50, 1.049, 0.989 and 0.71 to 0.86.  They are called
#: of a product's attributes, operands and epilogue of its own.
RULES: Final = (
    Rule("it has an epilogue of its own", lambda _, operands, own: own is not None and _is_large(operands), gain=1.15),
    Rule(
        "it stores aux",
        lambda how, operands, _: how.epilogue in ("gelu_aux", "gelu_aux_bias") and _is_large(operands),
        gain=1.049,
    ),
    Rule("it is a gradient", lambda how, operands, _: how.epilogue == "dgelu" and _is_large(operands), gain=0.989),
    Rule("rows of operands are no multiples of 16 bytes", _is_odd, gain=0.127),
)


def _spread(own: CustomEpilogue | None, operands: Operands) -> tuple[tuple[str, str], ...]:
    """Return the operands of an epilogue that are given without an axis of D, each with its kind."""
    if own is not None:
        return tuple((name, kind) for name, kind in own.kinds.items() if kind != "matrix")
    return (("bias", "row"),) if "bias" in operands and len(operands["bias"].shape) > 1 else ()


def _last(_stored: Any, value: Any) -> Any:
    return value


@lru_cache(maxsize=64)
def _part_of(own: CustomEpilogue, place: int) -> FunctionType:
    """Return a function of the same parameters that returns one of an epilogue's two numbers."""
    from ...compile.numba.api import cuda  # which compiles it anyway

    names = ", ".join(f"x{i}" for i in range(1 + len(own.kinds)))
    scope: dict[str, Any] = {"f": cuda.jit(device=True)(own.function)}
    text = f"def part({names}):\n    return f({names})[{place}]\n"
    exec(compile(text, "<epilogue>", "exec"), scope)  # noqa: S102 - of these names
    part: FunctionType = scope["part"]
    return part


def _views(how: MatmulAttributes, operands: Operands) -> tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...]:
    """Return the operands that CUTLASS's kernel has by other names or shapes: scales, and the largest magnitude."""
    outer = [name for name, kind in zip(("a_scale", "b_scale"), how.scaling, strict=True) if kind == "outer"]
    return tuple(
        (name, known, *((operands[name].shape, operands[name].strides) if name in outer else ((1,), (4,))))
        for name, known in (*_SCALES.items(), ("amax", "amax"))
        if name in operands
    )


def _scaled(text: str, operands: Operands) -> Any:
    """Return an epilogue with D's scale after it, and with the largest magnitude in front of that."""
    tree = load("cutlass", "epilogue:EpilogueTree")
    made = load("cutlass", "language:parse")(tree, text, {}, ("aux",) if text.startswith("aux = ") else ())
    if "amax" in operands:  # D must use all that is stored, and the magnitude is not less than the value
        made = tree.call("minimum", made, tree.call("abs", made).reduced("max", "amax"))
    return made * tree.name("d_scale") if "d_scale" in operands else made


def _tree_of(own: CustomEpilogue, x: str) -> Any:
    """Return an epilogue of one's own as CUTLASS's actor has it."""
    tree = load("cutlass", "epilogue:EpilogueTree")
    given = (tree.parse(x), *map(tree.name, own.kinds))
    if own.aux:  # CUTLASS stores what D is computed from
        stored = tree.call(_part_of(own, 1), *given).stored("aux")
        made = tree.call(_last, stored, tree.call(_part_of(own, 0), *given))
    else:
        made = tree.call(own.function, *given)
    return made.reduced("sum", "bias_grad", 0) if own.bias_grad else made


def _refusal(how: MatmulAttributes, operands: Operands) -> str:
    """Return what of a product CUTLASS's actor has no form for, or nothing."""
    if how.epilogue not in _TEXTS:
        return f"epilogue={how.epilogue!r}; allowed: {', '.join(_TEXTS)}"
    if how.mode not in _MODES:
        return f"compute={how.mode!r}; allowed: {', '.join(_MODES)}"
    for name in ("conj_a", "conj_b", "tune"):
        if getattr(how, name):
            return f"{name}={getattr(how, name)!r}; allowed: without it"
    for name, kind in zip(("a_scale", "b_scale"), how.scaling, strict=True):
        if kind in ("vec128", "blk128"):
            return f"{name} of shape {operands[name].shape}, of blocks of K; allowed: one element, or (M, 1) and (1, N)"
    if "amax" in operands and len(operands["out"].shape) > 2:
        return f"amax of a batch {operands['out'].shape[:-2]}; allowed: without it, or one message for each matrix"
    if operands["out"].dtype == "int32":
        return "D of int32, whose factors are exact; allowed: other dtypes"
    return ""


def _request(how: MatmulAttributes, operands: Operands, own: CustomEpilogue | None) -> Any:
    """Return the product as a request of CUTLASS's actor.

    Raises
    ------
    InvalidRequest
        If that actor has not these types.
    """
    bare = {name: Bare(one.shape, DTYPES[one.dtype], one.strides) for name, one in operands.items()}
    for name, turned in (("a", how.trans_a), ("b", how.trans_b)):
        bare[name] = bare[name].turned if turned else bare[name]
    for name, kind in _spread(own, operands):
        bare[name] = bare[name].spread(kind)
    views = {known: Bare(shape, DTYPES["float32"], strides) for _, known, shape, strides in _views(how, operands)}
    scales = [name for name in views if name != "amax"]
    bare |= views
    terms = [" * ".join(["alpha * acc", *(name for name in ("a_scale", "scale_of_b") if name in scales)])]
    used = {"alpha": bare.get("alpha", 1.0)}
    if how.added != "none":
        terms.append("beta * c * c_scale" if "c_scale" in scales else "beta * c")
        used |= {"beta": bare.get("beta", 1.0), "c": bare["out" if how.added == "out" else "c"]}
    if own is not None:
        epilogue, reads = _tree_of(own, " + ".join(terms)), list(own.kinds)
        stored = [name for name, kept in (("aux", own.aux), ("bias_grad", own.bias_grad)) if kept]
    else:
        terms += ["bias"] if "bias" in bare else []
        epilogue = _scaled(_TEXTS[how.epilogue].format(x=" + ".join(terms)), operands)
        reads = [name for name in ("bias", "aux") if name in bare and (name == "bias" or how.epilogue == "dgelu")]
        stored = ["aux"] if how.epilogue.startswith("gelu_aux") else []
        if "amax" in bare:
            stored.append("amax")
    make = load("cutlass", "request:GemmRequest")
    return make(
        a=bare["a"], b=bare["b"], out=bare["out"], epilogue=epilogue,
        operands={name: bare[name] for name in [*reads, *scales]} or None,
        outputs={name: bare[name] for name in stored} or None, compute=how.mode,
        fast_accum=how.fast_accum, **used,
    )  # fmt: skip


def stand_in(lowered: Lowered, target: Callable[[], Target]) -> PlanSpec | None:
    """Return a product's specification as CUTLASS's kernel computes it, or None where cuBLASLt does.

    Asks for the target only of such a kernel, for which it waits, if that is new.

    Raises
    ------
    Unsupported
        With ``route="cutlass"``, for what no kernel computes, and where the extra is not installed.
    """
    how: Any = lowered.attributes
    own: CustomEpilogue | None = getattr(lowered.code, "epilogue", None)
    operands = {one.name: one.spec for one in lowered.operands}
    asked = how.route == "cutlass"
    if how.route == "cublaslt" or any(0 in one.shape for one in operands.values()):
        return None
    rule = next((one for one in RULES if (one.gain or 0) >= _WORTH and one.applies(how, operands, own)), None)
    unordered = own is not None and own.bias_grad  # sums whose parts CUTLASS's tiles add as they end
    if not asked and (rule is None or unordered):
        return None
    if not asked and target().capability != MEASURED:
        return None
    refusal = _refusal(how, operands)
    try:
        if refusal:
            raise Unsupported(f"route='cutlass' with {refusal}", rule="blas_lt.route", lifted_by=("route",))
        spec: PlanSpec[Any] = _request(how, operands, own).lowered.spec(target())
    except (InvalidRequest, LibraryError, Unsupported) as error:
        if not asked:  # what is wrong with a function, cuBLASLt's way says, too
            return None
        if not isinstance(error, InvalidRequest):
            raise
        raise Unsupported(f"route='cutlass': {error}", rule="blas_lt.route", lifted_by=("route",)) from None
    why = "route='cutlass'" if rule is None else rule.reason
    attributes = replace(
        spec.attributes,
        scalars=tuple(one.name for one in lowered.scalars),
        transposed=tuple(name for name, turned in (("a", how.trans_a), ("b", how.trans_b)) if turned),
        spread=_spread(own, operands),
        views=_views(how, operands),
        notes=(f"one kernel of CUTLASS, since {why}",),
    )
    return replace(spec, operands=tuple(operands.values()), scalars=tuple(one.kind for one in lowered.scalars),
                   attributes=attributes)  # fmt: skip
