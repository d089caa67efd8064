"""Copies that cuFFT makes as it loads and stores, by functions of this library that are linked into its kernels.

A copy before a plan of cuFFT makes a dense array of what the plan reads: it converts, cuts, pads, or changes the order
of axes.  A function in its place gives the elements of that array, which then is none.  A copy behind a plan has one
likewise, but for the dense array: plans of several kernels keep intermediate results in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ....builders.cuda.codegen import convert, value_type
from ....builders.cuda.prelude import STORAGE, prelude
from ....builders.cuda.sequence import Source
from ....builders.cuda.workspace import padded
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes
from ..fusion import folded, wrong_callback
from .moves import stored
from .planner import plans
from .sources import C_TYPES, GLOBAL, walk
from .steps import Apply, Array, Call, Custom, Linked, Move, Steps, in_order, operand, order_of

__all__ = ["function_text", "link", "linked_symbol", "packed", "parts", "plan_linked", "pointer"]

_MAKE: Final = {"complex64": "make_c64", "complex128": "make_c128"}
_REALS: Final = {"complex64": "float32", "complex128": "float64"}


def parts(array: Array) -> Array:
    """Return a dense array of complex64 as one of float32 with pairs."""
    shape = (*array.shape, 2)
    return Array(array.source, "float32", shape, (*(2 * step for step in array.strides), 1))


def linked_symbol(which: str) -> str:
    """Return the name of a function in C++, by which cuFFT declares and calls it."""
    return f"atomr_fft_linked_{which}"


def function_text(which: str, dense: str, body: Sequence[str], before: Sequence[str] = ()) -> str:
    """Return the function that cuFFT calls, without a prelude.

    Parameters
    ----------
    which : str
        ``"load"``, then the body declares ``made``, a number of dtype `dense`; or ``"store"``, then it has ``x``.
    dense : str
    body : sequence of str
        Statements with ``place``, the element's place in the dense array, ``data`` and ``words``, the block.
    before : sequence of str
        Text in front of it.
    """
    loads, kind, whole = which == "load", C_TYPES[dense], dense in _MAKE
    value = "" if loads else f"{kind} given, "
    lines = [
        GLOBAL,
        *before,
        f"__device__ {kind if loads else 'void'} {linked_symbol(which)}(void *data, unsigned long long place, {value}"
        "void *info, void *shared) {",
        "const u64 *const words = (const u64 *)info; (void)words;",
    ]
    if not loads:
        lines.append(f"const {value_type(dense)} x = {f'{_MAKE[dense]}(given.x, given.y)' if whole else 'given'};")
    lines += body
    if loads:
        lines += [f"{kind} result;", "result.x = made.re; result.y = made.im;" if whole else "result = made;"]
        lines.append("return result;")
    return "\n".join([*lines, "}"]) + "\n"


def function_of(which: str, dense: str, dtypes: set[str], body: Sequence[str]) -> str:
    """Return the function with its prelude; `dtypes` are others than `dense` that it uses."""
    return prelude({*dtypes, dense}) + function_text(which, dense, body)


def pointer(name: str, kind: str, source: Source | None, *, written: bool = False) -> str:
    """Return the declaration of a pointer to an operand: its address in the block, or what cuFFT passes on."""
    kind = kind if written else f"const {kind}"
    return f"{kind} *const {name} = ({kind} *){'data' if source is None else f'words[{source[1]}]'}; IN_GLOBAL({name});"


def _neighbours(dense: Array, other: Array) -> bool:
    """Whether elements that are neighbours in the dense array are so in the other one: else a copy goes in tiles."""
    inner = [a for a in order_of(dense) if dense.shape[a] > 1]
    steps = [abs(other.strides[a]) for a in range(len(dense.shape)) if dense.shape[a] > 1 and other.strides[a]]
    return not inner or not steps or abs(other.strides[inner[-1]]) == min(steps)


def _walked(dense: Array, other: Array) -> tuple[list[str], str]:
    """Return statements that declare `at`, the place in the other array, and the condition that it has the element."""
    axes = order_of(dense)
    extents, bounds = [dense.shape[a] for a in axes], [min(dense.shape[a], other.shape[a]) for a in axes]
    (steps,) = folded(extents, bounds, [[other.strides[a] for a in axes]])
    return walk(extents, bounds, {"at": steps})


def _load(move: Move, dense: Array, source: Source | None, aligned: bool) -> str:
    """Return the function that loads elements of the dense array from the source of a copy."""
    x, target = move.source, dense.dtype
    paired = len(x.shape) > len(dense.shape)
    lines, inside = _walked(dense, x)
    whole, real = target in _MAKE, _REALS.get(target, target)
    if paired:
        both = aligned and x.strides[-1] == 1 and not any(step % 2 for step in x.strides[:-1])
        kind = "unsigned int" if both else STORAGE[x.dtype]
        halves = ("(unsigned short)both", "(unsigned short)(both >> 16)")
        halves = halves if both else ("p[at]", f"p[at + {x.strides[-1]}ll]")
        values = ", ".join(convert(x.dtype, real, half) for half in halves)
        read = [*(["const unsigned int both = p[at / 2];"] if both else []), f"x = {_MAKE[target]}({values});"]
    elif x.dtype in _MAKE:
        kind = C_TYPES[x.dtype] if aligned else STORAGE[_REALS[x.dtype]]
        values = "p[at].x, p[at].y" if aligned else "p[2 * at], p[2 * at + 1]"
        read = [f"x = {_MAKE[target]}({values});"]
    else:
        kind = STORAGE[x.dtype]
        read = [f"x = {convert(x.dtype, target, 'p[at]')};"]
    body = [
        *lines,
        pointer("p", kind, source),
        f"{value_type(target)} x = {f'{_MAKE[target]}(0, 0)' if whole else '0'};",
        f"if ({inside or '1'}) {{",
        *read,
        "}",
        *stored(target, replace(move, target=dense), "x"),
    ]
    return function_of("load", target, {x.dtype, real}, body)


def _store(move: Move, dense: Array, source: Source, aligned: bool) -> str:
    """Return the function that stores elements of the dense array to the target of a copy."""
    out = move.target
    paired = len(out.shape) > len(dense.shape)
    lines, _ = _walked(dense, out)
    made = stored(dense.dtype, replace(move, target=dense) if paired else move, "x")
    if paired:
        both = aligned and out.strides[-1] == 1 and not any(step % 2 for step in out.strides[:-1])
        kind = "unsigned int" if both else STORAGE[out.dtype]
        low, high = (convert("float32", out.dtype, f"made.{part}") for part in ("re", "im"))
        write = [f"q[at] = {low};", f"q[at + {out.strides[-1]}ll] = {high};"]
        write = [f"q[at / 2] = (unsigned int){low} | (unsigned int){high} << 16;"] if both else write
    elif out.dtype in _MAKE:
        kind = C_TYPES[out.dtype] if aligned else STORAGE[_REALS[out.dtype]]
        write = ["q[2 * at] = made.re;", "q[2 * at + 1] = made.im;"]
        write = [f"{kind} both;", "both.x = made.re; both.y = made.im;", "q[at] = both;"] if aligned else write
    else:
        kind, write = STORAGE[out.dtype], ["q[at] = made;"]
    body = [*lines, pointer("q", kind, source, written=True), *made, *write]
    return function_of("store", dense.dtype, {out.dtype, _REALS.get(dense.dtype, dense.dtype)}, body)


def _takes(call: Call, which: str, dense: Array, other: Array) -> bool:
    """Whether cuFFT's kernels can call a function in the place of a copy between a dense array and another."""
    taken = call.narrow or call.layout.loops or which in call.callbacks or (which == "store" and call.finishes)
    if taken or any(function.which == which for function in call.linked):
        return False
    if dense.strides != in_order(dense.shape, order_of(dense)) or not _neighbours(dense, other):
        return False
    return not wrong_callback(which, dense.dtype, call.layout.lengths)


def _stands_for(array: Array, dense: Array) -> bool:
    """Whether an array of a copy is the dense array, by elements or by their parts."""
    return array == dense or (dense.dtype == "complex64" and array == parts(dense))


def _loading(move: Move, call: Call, aligned: bool, direct: bool) -> Call | None:
    """Return a plan that loads from the source of the copy before it, if there can be."""
    dense, place = call.source, move.source.source
    overwrites = dense.dtype in _MAKE and call.target.dtype not in _MAKE
    if move.symmetric or overwrites or not _stands_for(move.target, dense):
        return None
    if not _takes(call, "load", dense, move.source):
        return None
    paired = len(move.source.shape) > len(dense.shape)
    direct = place[0] == "workspace" or (direct and place[0] == "operand" and aligned and not paired)
    if not direct and place[0] != "operand":
        return None
    source = replace(dense, source=place)
    if not direct:  # the address that cuFFT gets stands for no array
        target = call.target
        same = (target.dtype, target.shape, target.strides) == (dense.dtype, dense.shape, dense.strides)
        source = target if same and target.source[0] == "workspace" else dense
    code = _load(move, dense, None if direct else place, aligned)
    function = Linked("load", code, f"cuFFT's kernels load without a copy: {move.reason}", not direct, move)
    return replace(call, source=source, linked=(*call.linked, function))


def _storing(call: Call, move: Move, aligned: bool) -> Call | None:
    """Return a plan that stores to the target of the copy behind it, if there can be."""
    dense, place = call.target, move.target.source
    fits = _stands_for(move.source, dense) and move.source.shape == move.target.shape and place[0] == "operand"
    if move.symmetric or not fits or not _takes(call, "store", dense, move.target):
        return None
    code = _store(move, dense, place, aligned)
    function = Linked("store", code, f"cuFFT's kernels store without a copy: {move.reason}", True, move)
    return replace(call, linked=(*call.linked, function))


def link(steps: Steps, aligned: tuple[bool, bool], *, direct: bool = True) -> Steps:
    """Return steps with copies as functions of cuFFT's kernels, where they can be.

    Parameters
    ----------
    steps
    aligned : (bool, bool)
        Whether x and out start at multiples of an element, a complex one or a pair.
    direct : bool
        Whether cuFFT takes the address of x, as of complex elements.
    """
    made: list[Any] = []
    for step in steps.steps:
        last = made[-1] if made else None
        found: Call | None = None
        if isinstance(last, Move) and isinstance(step, Call):
            found = _loading(last, step, aligned[0], direct)
        elif isinstance(last, Call) and isinstance(step, Move):
            found = _storing(last, step, aligned[1])
        if found is None:
            made.append(step)
        else:
            made[-1] = found
    return packed(Steps(tuple(made), steps.nbytes))


def packed(steps: Steps) -> Steps:
    """Return steps without buffers that no step uses any more."""
    used: dict[int, int] = {}
    for step in steps.steps:
        for array in (step.source, step.target, *(step.others if isinstance(step, Custom) else ())):
            if array.source[0] == "workspace":
                used[array.source[1]] = max(used.get(array.source[1], 0), padded(array.nbytes))
    moved, nbytes = {}, 0
    for place in sorted(used):
        moved[place] = nbytes
        nbytes += used[place]

    def placed(array: Array) -> Array:
        kind, place = array.source
        return replace(array, source=(kind, moved[place])) if kind == "workspace" else array

    made: list[Move | Call | Apply | Custom] = []
    for step in steps.steps:
        changed: Any = replace(step, source=placed(step.source), target=placed(step.target))
        if isinstance(changed, Custom):
            changed = replace(changed, others=tuple(map(placed, changed.others)))
        made.append(changed)
    return Steps(tuple(made), nbytes)


def plan_linked(spec: PlanSpec[FftAttributes]) -> Steps:
    """Return the steps of a transform, with functions of cuFFT's kernels in the place of copies, factors and passes."""
    how = spec.attributes
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    made = (steps for outer in (False, True) for steps in plans(how, x, out, fused=True, outer=outer))
    found = [link(steps, how.aligned) for steps in made]
    return min(found, key=lambda steps: (steps.cost[0], steps.linked, steps.cost))
