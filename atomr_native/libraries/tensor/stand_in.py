"""Expressions that one kernel of CUTLASS computes, with their tail: rules, as data, and such a plan's specification.

The kernel compiles in the program, before the plan is made, so rules depend on layouts only.  The message stays that of
``tensor.einsum``: its operands, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ..._support.traced import Tree, tree_function
from ...dtypes import DTYPES
from ...errors import InvalidRequest, Unsupported
from .. import load
from .._stand_in import ALIGNED, LARGE, MEASURED, Bare, Rule
from .modes import Modes, Subscripts
from .path import contractions
from .products import groups_of
from .tail import RESULT, before_relu, bias_of, tail_modes

if TYPE_CHECKING:
    from ...plans.lowering import Lowered, Target
    from ...plans.spec import OperandSpec, PlanSpec
    from .attributes import EinsumAttributes

__all__ = ["RULES", "stand_in"]

#: How products are computed, by the dtype of operands, and what CUTLASS's actor calls it.
_MODES: Final = {
    ("float64", "float64"): "float64", ("float32", "float32"): "float32", ("float32", "tf32"): "tf32",
    ("float16", "float32"): "float32", ("bfloat16", "float32"): "float32",
}  # fmt: skip
#: Operations of a tail that CUTLASS's actor has, and what it calls them.  A tail of others is a Python function, which
#: takes longer to compile.
_FUNCTORS: Final = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "maximum": "max", "minimum": "min",
    "negative": "neg", "absolute": "abs", "sqrt": "sqrt", "exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf",
}  # fmt: skip


def _is_epilogue(tail: Tree, is_row: bool) -> bool:
    """Whether cuBLASLt adds a bias, and nothing is left to do."""
    return is_row and bool(bias_of(tail))


def _is_relu(tail: Tree, is_row: bool) -> bool:
    """Whether a product of cuBLASLt has a ReLU as its epilogue, or is followed by one in place."""
    inner = before_relu(tail)
    return inner is not None and (not inner or _is_epilogue(inner, is_row))


#: In the order in which they are tried.  bench/libraries/tensor/tails.py measures them; gains are those of an H100,
#: with cuBLASLt 13.1 and products of 2048 x 2048 x 2048; one of more than 1 is taken, of large products of 16 bits.
#: They are called of the tail, and whether what it adds is a bias.
RULES: Final = (
    Rule("a ReLU would be a pass of its own", _is_relu, gain=0.95),
    Rule("its tail would be a pass of its own", lambda tail, is_row: not _is_epilogue(tail, is_row), gain=1.09),
)


@dataclass(frozen=True, slots=True)
class _Product:
    """The matrices of an expression by their names in the message: factors, operands of the tail, and the result."""

    matrices: Mapping[str, Bare]
    work: int

    @property
    def is_large(self) -> bool:
        """Whether it is as those that were measured: large, of 16 bits, and of rows of multiples of 16 bytes."""
        factors = [self.matrices[name] for name in ("x0", "x1")]
        odd = any(step % ALIGNED for one in factors for step in one.strides if step != one.dtype.itemsize)
        return self.work >= LARGE and not odd and all(one.dtype.itemsize == 2 for one in factors)

    @property
    def is_row(self) -> bool:
        """Whether the only operand of the tail is a vector along which the result is dense."""
        others = [one for name, one in self.matrices.items() if name not in ("x0", "x1", "out")]
        out = self.matrices["out"]
        dense = out.strides[-1] == out.dtype.itemsize
        return len(others) == 1 and others[0].shape[-1 if dense else -2] == math.prod(others[0].shape) > 1


def _one_axis(
    modes: Modes, steps: Mapping[str, Mapping[int, int]], extents: Sequence[int]
) -> tuple[int, dict[str, int]] | None:
    """Return the extent and the strides of modes as one axis, 0 for a tensor without any; None if they do not merge."""
    used = {name: own for name, own in steps.items() if any(own.get(m) for m in modes)}
    order = sorted((m for m in modes if extents[m] > 1), key=lambda m: -next(iter(used.values())).get(m, 0))
    found = dict.fromkeys(steps, 0)
    for name, own in used.items():
        along = [own.get(m, 0) for m in order]
        merges = all(step == inner * extents[m] for step, inner, m in zip(along, along[1:], order[1:], strict=False))
        if not merges or min(along) <= 0:
            return None
        found[name] = along[-1]
    return math.prod(extents[m] for m in order), found


def _product(how: EinsumAttributes, operands: Mapping[str, OperandSpec]) -> _Product | str:
    """Return the product of an expression, or what of it no kernel has."""
    if len(how.inputs) != 2 or how.slices:
        return "an expression of several steps; allowed: two operands, without slices"
    (step,) = contractions(Subscripts(how.inputs, how.output, ()), how.steps)
    groups = groups_of(step)
    if groups is None or any(groups.alone) or any(len(set(modes)) < len(modes) for modes in how.inputs):
        return "diagonals, or sums over modes of one operand; allowed: products"
    modes = {"x0": how.inputs[0], "x1": how.inputs[1], "out": how.output}
    modes |= {name: tail_modes(how.output, len(one.shape)) for name, one in operands.items() if name not in modes}
    axes_of = {name: dict(zip(modes[name], operands[name].shape, strict=True)) for name in ("x0", "x1")}
    sizes = [max(own.get(mode, 1) for own in axes_of.values()) for mode in range(len(step.modes))]
    for name, own in axes_of.items():
        spread = any(n > 1 and not step for n, step in zip(operands[name].shape, operands[name].strides, strict=True))
        if spread or any(sizes[mode] != n for mode, n in own.items()):
            return f"{name}, which is broadcast; allowed: operands with all elements"
    steps = {
        name: {mode: step if n > 1 else 0 for mode, n, step in zip(modes[name], one.shape, one.strides, strict=True)}
        for name, one in operands.items()
    }
    axes = {key: _one_axis(getattr(groups, key), steps, sizes) for key in ("batch", "m", "n", "k")}
    used = {"x0": ("batch", "m", "k"), "x1": ("batch", "k", "n"), "out": ("batch", "m", "n")}
    matrices = {}
    for name, one in operands.items():
        shape, strides = [], []
        for key in used.get(name, used["out"]):
            axis = axes[key]
            if axis is None:
                return f"modes that do not merge, of strides {one.strides} in {name}; allowed: those of matrices"
            extent, along = axis
            present = name in used or along[name] > 0
            shape.append(extent if present else 1)
            strides.append(along[name])
        lead = 1 if axes["batch"] is not None and axes["batch"][0] == 1 else 0
        matrices[name] = Bare(tuple(shape[lead:]), DTYPES[one.dtype], tuple(strides[lead:]))
    return _Product(matrices, math.prod(sizes))


def _refusal(how: EinsumAttributes, lowered: Lowered) -> str:
    """Return what of a message CUTLASS's actor has no form for, or nothing."""
    dtypes = {one.spec.dtype for one in lowered.operands[: len(how.inputs)]}
    if (how.dtype, how.compute) not in _MODES or dtypes != {how.dtype}:
        return f"operands of {', '.join(sorted(dtypes))} and compute={how.compute!r}; allowed: " + ", ".join(
            f"{dtype} with {compute!r}" for dtype, compute in _MODES
        )
    if lowered.scalars or how.added != "none" or how.zero or any(one.name == "alpha" for one in lowered.operands):
        return "factors or C; allowed: alpha=1 and beta=0, and a tail"
    if lowered.op != "tensor.einsum":
        return "a result that shares memory with an operand; allowed: other memory"
    return ""


@lru_cache(maxsize=64)
def _function(tail: Tree) -> FunctionType:
    """Return the function of a tree, of x0, x1, ..., of which the first is the product."""
    names = iter(range(len(tail)))
    made: FunctionType = tree_function(
        "tail", tuple(("input", f"x{next(names)}") if node[0] == "input" else node for node in tail)
    )
    return made


def _epilogue(tail: Tree, names: Mapping[str, str]) -> Any:
    """Return a tail as CUTLASS's actor has it; `names` are its operands' there."""
    tree = load("cutlass", "epilogue:EpilogueTree")
    acc = tree.acc()
    inputs = {RESULT: acc, **{name: tree.name(known) for name, known in names.items()}}
    found: list[Any] = []
    try:
        for kind, *rest in tail:
            if kind == "input":
                found.append(inputs[str(rest[0])])
            elif kind == "const":
                found.append(tree("number", (), float.fromhex(str(rest[0]))))
            elif kind == "square":
                found.append(found[int(rest[0])] * found[int(rest[0])])
            else:
                found.append(tree("call", tuple(found[int(i)] for i in rest), _FUNCTORS[str(kind)]))
    except (KeyError, InvalidRequest):  # an operation that has no functor, or a tree that is too large
        found = []
    if not tail:
        return acc
    if not found or set(load("cutlass", "epilogue:names_of")(found[-1])) < set(names.values()):
        return tree.call(_function(tail), *inputs.values())  # which may leave an operand unused
    return found[-1]


def _specification(how: EinsumAttributes, product: _Product, target: Target) -> PlanSpec[Any]:
    """Return the product as a plan of CUTLASS's actor, with its kernel.

    Raises
    ------
    InvalidRequest, Unsupported
        If that actor has not these types, or no kernel.
    """
    names = {name: f"t{i}" for i, name in enumerate(one for one in product.matrices if one not in ("x0", "x1", "out"))}
    make = load("cutlass", "request:GemmRequest")
    request = make(
        a=product.matrices["x0"], b=product.matrices["x1"], out=product.matrices["out"],
        epilogue=_epilogue(how.tail, names),
        operands={known: product.matrices[name] for name, known in names.items()} or None,
        compute=_MODES[how.dtype, how.compute], tune=how.tune == "measure",
    )  # fmt: skip
    spec: PlanSpec[Any] = request.lowered.spec(target)
    own = {"x0": "a", "x1": "b", "out": "out", **names}
    views = tuple((name, own[name], one.shape, one.strides) for name, one in product.matrices.items())
    return replace(spec, attributes=replace(spec.attributes, views=views))


def stand_in(lowered: Lowered, target: Callable[[], Target]) -> PlanSpec | None:
    """Return an expression's specification as CUTLASS's kernel computes it, or None where other routes do.

    Asks for the target only of such a kernel, for which it waits, if that is new.

    Raises
    ------
    Unsupported
        With ``route="cutlass"``, for what no kernel computes, and where the extra is not installed.
    """
    how: Any = lowered.attributes
    operands = {one.name: one.spec for one in lowered.operands}
    asked = how.route == "cutlass"
    if any(0 in one.shape for one in operands.values()):
        return None
    if not asked and (how.route != "auto" or how.tune or not how.tail):
        return None
    refusal = _refusal(how, lowered)
    found = refusal or _product(how, operands)
    rule = None
    if isinstance(found, _Product) and not asked:
        rule = next((one for one in RULES if one.applies(how.tail, found.is_row)), None)
        if rule is None or (rule.gain or 0) <= 1 or not found.is_large or target().capability != MEASURED:
            return None
    try:
        if isinstance(found, str):
            raise Unsupported(f"route='cutlass' with {found}", rule="tensor.route", lifted_by=("route",))
        spec = _specification(how, found, target())
    except (InvalidRequest, Unsupported) as error:
        if not asked:
            return None
        if isinstance(error, Unsupported):
            raise
        raise Unsupported(f"route='cutlass': {error}", rule="tensor.route", lifted_by=("route",)) from None
    why = "route='cutlass'" if rule is None else rule.reason
    attributes = replace(spec.attributes, notes=(f"one kernel of CUTLASS, since {why}",))
    return replace(spec, operands=tuple(operands.values()), attributes=attributes)
