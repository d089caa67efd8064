"""Rules of products with epilogue trees: which requests can work, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ..._support.checks import as_flag, check_factor
from ...arrays.operands import Fresh, broadcast_shapes, check_disjoint, check_input, check_output, check_size
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .config import GemmConfig
from .epilogue import EpilogueTree, Nodes, flat, names_of, python_function, stores_of
from .language import parse
from .layouts import broadcast_kind

if TYPE_CHECKING:
    from .convolution import FusedConvolutionRequest
    from .grouped import GroupedGemmRequest
    from .request import GemmRequest

    _Request: TypeAlias = GemmRequest | GroupedGemmRequest | FusedConvolutionRequest

__all__ = [
    "MIXED", "RULES", "WIDE", "GemmProblem", "TypeRule", "epilogue_of", "given_of", "is_array", "out_of",
    "resolve_gemm", "rule_of",
]  # fmt: skip

WIDE: Final = ("float32", "bfloat16", "float16")
_FLOAT8: Final = ("float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True, slots=True)
class TypeRule:
    """What one pair of input dtypes allows.

    Attributes
    ----------
    modes : tuple of str
        Values of ``compute``; the first is the default.
    outputs : tuple of str
        Dtypes of D; the first is the default.
    """

    modes: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def compute(self) -> str:
        """Dtype of the epilogue's arithmetic."""
        return "float64" if self.modes == ("float64",) else "float32"


RULES: Final = {
    ("float64", "float64"): TypeRule(("float64",), ("float64",)),
    ("float32", "float32"): TypeRule(("float32", "tf32"), ("float32",)),
    ("float16", "float16"): TypeRule(("float32",), ("float16", "float32")),
    ("bfloat16", "bfloat16"): TypeRule(("float32",), ("bfloat16", "float32")),
    ("int8", "int8"): TypeRule(("int32",), ("int32", "int8", "float32")),
    **{(a, b): TypeRule(("float32",), ("bfloat16", "float16", "float32")) for a in _FLOAT8 for b in _FLOAT8},
}
#: Of products whose B is converted to A's dtype on its way, where a dtype of D follows A's.
MIXED: Final = {
    (a, b): TypeRule(("float32",), (a, "float32")) for a in ("float16", "bfloat16") for b in ("int8", *_FLOAT8)
}


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """A request with everything that follows from it.

    Attributes
    ----------
    nodes : tuple of tuple
        The tree, see `epilogue.flat`.
    functions : tuple of function
    arrays : dict of str to array
        What the tree reads, by name, in the order of first use.
    numbers : dict of str to float
        The numbers that it uses.
    stores : dict of str to Fresh
        The outputs that it stores.
    out : Fresh
    mode, compute : str
    in_place : bool
        Whether `c` is `out`.
    """

    nodes: Nodes
    functions: tuple[FunctionType, ...]
    arrays: dict[str, Any]
    numbers: dict[str, float]
    stores: dict[str, Fresh]
    out: Fresh
    mode: str
    compute: str
    in_place: bool


def is_array(value: object) -> bool:
    """Whether a value is an operand; NumPy's numbers are numbers."""
    return hasattr(value, "shape") and hasattr(value, "strides") and not isinstance(value, np.generic)


def rule_of(a: str, b: str, rules: Mapping[tuple[str, str], TypeRule] = RULES) -> TypeRule:
    """Return the rule of a pair of dtypes."""
    found = rules.get((a, b))
    if found is None:
        pairs = ", ".join(f"{x} by {y}" for x, y in rules)
        raise InvalidRequest(f"a has dtype {a} and b has dtype {b}; allowed: {pairs}")
    return found


def _extents(request: GemmRequest) -> tuple[int, ...]:
    """Return D's shape."""
    a, b = tuple(check_input("a", request.a).shape), tuple(check_input("b", request.b).shape)
    for name, shape in (("a", a), ("b", b)):
        if len(shape) < 2:
            raise InvalidRequest(f"{name} has shape {shape}; allowed: matrices, with axes of batches in front")
    if a[-1] != b[-2]:
        raise InvalidRequest(f"K={a[-1]} in a {a} is not K={b[-2]} in b {b}; they must be equal")
    if not a[-1]:
        raise InvalidRequest(f"K=0 in a {a}; allowed: 1 or more")
    batch = broadcast_shapes((("a", a[:-2]), ("b", b[:-2])), "batches")
    return (*batch, a[-2], b[-1])


def epilogue_of(request: _Request) -> EpilogueTree:
    """Return the request's epilogue as a tree."""
    given = request.epilogue
    if given is None:
        tree = EpilogueTree.name("alpha") * EpilogueTree.acc()
        if request.c is not None and (is_array(request.beta) or request.beta != 0):
            tree = tree + EpilogueTree.name("beta") * EpilogueTree.name("c")
        return tree
    if isinstance(given, EpilogueTree):
        return given
    if isinstance(given, str):
        return parse(EpilogueTree, given, {}, tuple(request.outputs or ()))
    if callable(given):
        function = python_function(given)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        return EpilogueTree.call(function, EpilogueTree.acc(), *(EpilogueTree.name(name) for name in names[1:]))
    raise InvalidRequest(f"epilogue is a {type(given).__name__}; allowed: None, str, EpilogueTree, a Python function")


def given_of(request: _Request, tree: EpilogueTree) -> dict[str, Any]:
    """Return what the tree's names are; refuses names without a value, and values without a use."""
    operands = _mapping("operands", request.operands)
    known = {"alpha": request.alpha, "beta": request.beta, "c": request.c}
    for name in operands:
        if name in (*known, "a", "b", "b_scale", "out", "acc"):
            raise InvalidRequest(f"operand {name!r} is a product's own; allowed: other names")
    known |= operands
    used = names_of(tree)
    for name in used:
        if known.get(name) is None:
            names = ", ".join(n for n, value in known.items() if value is not None)
            raise InvalidRequest(f"the epilogue uses {name!r}, which is not given; given: acc, {names}")
    defaults = {"alpha": 1.0, "beta": 0.0, "c": None}
    for name, value in known.items():
        unused = name not in used and not (name in defaults and not is_array(value) and value == defaults[name])
        own = request.epilogue is None and name in defaults
        if unused and not own:
            raise InvalidRequest(f"{name} is given, but the epilogue {tree} does not use it; allowed: what it uses")
    return {name: known[name] for name in used}


def _mapping(option: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        found: dict[str, Any] = dict(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise InvalidRequest(f"{option} is {value!r:.100}; allowed: a mapping from names") from None
    for name in found:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidRequest(f"{option} has the name {name!r:.100}; allowed: identifiers")
    return found


def _check_array(name: str, array: Any, shape: tuple[int, ...], compute: str) -> None:
    """Check an array that the tree reads."""
    own = tuple(check_input(name, array).shape)
    dtype = dtype_name(as_dtype(array.dtype))
    fits = len(own) <= len(shape) and all(n in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False))
    if not fits:
        raise InvalidRequest(
            f"{name} has shape {own}; allowed: what broadcasts to out's {shape}: (N,) is a row, (M, 1) a column"
        )
    if broadcast_kind(own) == "scalar":
        allowed: tuple[str, ...] = (compute,)
    else:
        allowed = ("float64",) if compute == "float64" else (*WIDE, "int32", "int8") if name == "c" else WIDE
    if dtype not in allowed:
        raise InvalidRequest(f"{name} has dtype {dtype}; allowed: {', '.join(allowed)}")


def out_of(request: _Request, shape: tuple[int, ...], rule: TypeRule) -> Fresh:
    """Return D's structure."""
    if request.out is None:
        name = rule.outputs[0] if request.out_dtype is None else dtype_name(as_dtype(request.out_dtype))
    else:
        check_output("out", request.out)
        name = dtype_name(as_dtype(request.out.dtype))
        if tuple(request.out.shape) != shape:
            raise InvalidRequest(f"out has shape {tuple(request.out.shape)}; allowed: {shape}")
        if request.out_dtype is not None and as_dtype(request.out_dtype) != as_dtype(request.out.dtype):
            raise InvalidRequest(f"out has dtype {name}, but out_dtype is {request.out_dtype!r}; they must be the same")
    if name not in rule.outputs:
        a = dtype_name(as_dtype(request.a.dtype))
        raise InvalidRequest(f"out has dtype {name}; allowed for operands of {a}: {', '.join(rule.outputs)}")
    check_size("out", shape, DTYPES[name])
    return Fresh(shape, DTYPES[name])


def _stores(request: GemmRequest, tree: EpilogueTree, out: Fresh, compute: str) -> dict[str, Fresh]:
    """Return the structures of what the tree stores, by name."""
    given, names = _mapping("outputs", request.outputs), stores_of(tree)
    if set(given) != set(names):
        raise InvalidRequest(
            f"outputs are {', '.join(given) or 'none'}, but the epilogue stores {', '.join(names) or 'none'}; they "
            f"must be the same"
        )
    allowed = ("float64",) if compute == "float64" else WIDE
    found = {}
    for name in names:
        value = given[name]
        if name in (*names_of(tree), "alpha", "beta", "c"):
            raise InvalidRequest(f"output {name!r} has the name of an operand; allowed: other names")
        dtype = dtype_name(as_dtype(check_output(name, value).dtype if is_array(value) else value))
        if dtype not in allowed:
            raise InvalidRequest(f"output {name} has dtype {dtype}; allowed: {', '.join(allowed)}")
        axis = names[name]
        *batch, m, n = out.shape
        shape = out.shape if axis is None else (*batch, {0: n, 1: m}.get(axis, 1))
        if axis is not None and 0 in out.shape:
            raise InvalidRequest(
                f"output {name} is a reduction of no elements: out has shape {out.shape}; allowed: 1 or more"
            )
        if axis is not None and dtype != compute:
            raise InvalidRequest(f"output {name} of a reduction has dtype {dtype}; allowed: {compute}")
        if is_array(value) and tuple(value.shape) != shape:
            raise InvalidRequest(f"output {name} has shape {tuple(value.shape)}; allowed: {shape}")
        found[name] = Fresh(shape, DTYPES[dtype])
    return found


def _check_scale(request: GemmRequest, shape: tuple[int, ...]) -> None:
    """Check the factors of B's groups."""
    if request.b_scale is None:
        return
    a, b = (dtype_name(as_dtype(array.dtype)) for array in (request.a, request.b))
    if (a, b) not in MIXED:
        pairs = ", ".join(f"{x} by {y}" for x, y in MIXED)
        raise InvalidRequest(f"b_scale is given for {a} by {b}; allowed for: {pairs}")
    own, k = tuple(check_input("b_scale", request.b_scale).shape), request.b.shape[-2]
    if len(own) < 2 or own[-1] != shape[-1] or k % max(own[-2], 1) or not own[-2] or own[:-2] != request.b.shape[:-2]:
        allowed = ", ".join(map(str, (*request.b.shape[:-2], "G", shape[-1])))
        raise InvalidRequest(f"b_scale has shape {own}; allowed: ({allowed}), a row for each of G equal parts of K={k}")
    dtype = dtype_name(as_dtype(request.b_scale.dtype))
    if dtype != a:
        raise InvalidRequest(f"b_scale has dtype {dtype}; allowed: {a}, as a")


def resolve_gemm(request: GemmRequest) -> GemmProblem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest
        For shapes, dtypes, options and trees that cannot work.
    """
    shape = _extents(request)
    a, b = (dtype_name(as_dtype(array.dtype)) for array in (request.a, request.b))
    rule = rule_of(a, b, RULES | MIXED)
    _check_scale(request, shape)
    mode = rule.modes[0] if request.compute is None else request.compute
    if not isinstance(mode, str) or mode not in rule.modes:
        raise InvalidRequest(f"compute={mode!r}; allowed for these operands: {', '.join(rule.modes)}")
    as_flag("fast_accum", request.fast_accum)
    if request.config is not None and not isinstance(request.config, GemmConfig):
        raise InvalidRequest(f"config is a {type(request.config).__name__}; allowed: None, GemmConfig")
    out = out_of(request, shape, rule)
    tree = epilogue_of(request)
    given = given_of(request, tree)
    arrays: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for name, value in given.items():
        if is_array(value):
            _check_array(name, value, shape, rule.compute)
            arrays[name] = value
        else:
            check_factor(name, value, imaginary=False, more=", or an array")
            numbers[name] = float(value)
    stores = _stores(request, tree, out, rule.compute)
    in_place = "c" in arrays and request.c is request.out
    if in_place and tuple(request.c.shape) != shape:
        raise InvalidRequest(f"c is out, of shape {tuple(request.c.shape)}; allowed: {shape}")
    inputs = [("a", request.a), ("b", request.b)]
    if request.b_scale is not None:
        inputs.append(("b_scale", request.b_scale))
    inputs += [(name, array) for name, array in arrays.items() if not (in_place and name == "c")]
    outputs = [] if request.out is None else [("out", request.out)]
    outputs += [(name, value) for name, value in _mapping("outputs", request.outputs).items() if is_array(value)]
    check_disjoint(outputs, inputs)
    nodes, functions = flat(tree)
    return GemmProblem(nodes, functions, arrays, numbers, stores, out, mode, rule.compute, in_place)
