"""Functions in CUDA C++ as callbacks of cuFFT, and as kernels of their own.

The text is also C, for tests, apart from what the user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ....builders.cuda.codegen import NARROW, THREADS, alignment, convert, kernels
from ....builders.cuda.prelude import STORAGE, prelude
from ....builders.cuda.sequence import Source, Step
from ....builders.cuda.target import Argument, Launch, Target
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import MappedAttributes
from ..callbacks import symbol_of
from ..fusion import dense_dtype, elements_of, is_order, scale_of, word_of
from .steps import Apply

__all__ = ["C_TYPES", "GLOBAL", "callback_source", "callback_text", "source_step", "walk"]

_BLOCKS: Final = 32  # for each multiprocessor
C_TYPES: Final = {"complex64": "float2", "complex128": "double2", "float32": "float", "float64": "double"}
_REAL: Final = {"complex64": "float32", "complex128": "float64", "float32": "float32", "float64": "float64"}

#: Complex numbers of their parts.
_PAIRS: Final = """\
#ifndef PAIRS
#define PAIRS
DEVICE float2 pair(float x, float y) { float2 made; made.x = x; made.y = y; return made; }
DEVICE double2 pair2(double x, double y) { double2 made; made.x = x; made.y = y; return made; }
#endif"""

#: Says that a pointer is of device memory: else accesses wait for cuFFT's exchanges in shared memory.
GLOBAL: Final = """\
#ifdef __CUDA_ARCH__
#define IN_GLOBAL(p) __builtin_assume(__isGlobal(p))
#else
#define IN_GLOBAL(p)
#endif"""


def _arrays(spec: PlanSpec[MappedAttributes], which: str) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the names of a function's arrays, x or out first, those of its numbers, and dtypes."""
    dtypes = {operand.name: operand.dtype for operand in spec.operands}
    names = getattr(spec.attributes, which)
    own = "x" if which == "load" else "out"
    return [own, *(n for n in names if n in dtypes)], [n for n in names if n not in dtypes], dtypes


def _kinds(spec: PlanSpec[MappedAttributes], numbers: list[str]) -> list[str]:
    kinds = dict(zip(spec.attributes.scalar_names, spec.scalars, strict=True))
    return ["long long" if kinds[name] == "int64" else "double" for name in numbers]


def _pointer(dtype: str, written: bool) -> str:
    """Return the type of a parameter: complex numbers are read by their parts."""
    return f"{'' if written else 'const '}{STORAGE[_REAL.get(dtype, dtype)]} *"


def _read(dtype: str, real: str, pointer: str, at: str) -> str:
    """Return an element as functions get it, in a transform that computes in `real`."""
    if dtype.startswith("complex"):
        own = _REAL[dtype]
        parts = (convert(own, real, f"{pointer}[2 * ({at}){half}]") for half in ("", " + 1"))
        return f"{'pair' if real == 'float32' else 'pair2'}({', '.join(parts)})"
    if as_dtype(dtype).kind in "biu" and dtype not in NARROW:
        return f"(long long){pointer}[{at}]"
    return convert(dtype, real, f"{pointer}[{at}]")


def walk(extents: Sequence[int], bounds: Sequence[int], steps: Mapping[str, Sequence[int]]) -> tuple[list[str], str]:
    """Return statements that declare offsets of the element at ``place`` of a dense array, by names and steps.

    Also the condition that no index is beyond its bound, or nothing.
    """
    index = "unsigned int" if math.prod(extents) < 2**32 else "u64"
    lines, inside = [f"{index} rest = ({index})place;"], []
    terms: dict[str, list[str]] = {name: [] for name in steps}
    for axis in range(len(extents) - 1, -1, -1):
        n = extents[axis]
        lines.append(f"const long long i{axis} = (long long)({f'rest % {n}u' if axis else 'rest'});")
        lines += [f"rest = rest / {n}u;"] if axis else []
        if bounds[axis] < n:
            inside.append(f"i{axis} < {bounds[axis]}")
        for name, step in steps.items():
            terms[name] += [f"i{axis} * {step[axis]}ll"] if step[axis] else []
    for name, found in terms.items():
        dense = is_order(tuple(extents), tuple(steps[name]))  # so that neighbours differ by constants
        lines.append(f"const long long {name} = {'(long long)place' if dense else ' + '.join(found) or '0'};")
    return lines, " && ".join(inside)


def _element(spec: PlanSpec[MappedAttributes], which: str, source: str, name: str) -> str:
    """Return the text up to ``element_{which}(place, ...)``, which loads or stores one element of the dense array."""
    elements, scale, loads = elements_of(spec, which), scale_of(spec, which), which == "load"
    arrays, numbers, dtypes = _arrays(spec, which)
    dense = dense_dtype(spec, which)
    real, own = _REAL[dense], dtypes[arrays[0]]
    parameters = [f"{_pointer(dtypes[n], i == 0 and not loads)}p{i}" for i, n in enumerate(arrays)]
    parameters += [f"{kind} v{j}" for j, kind in enumerate(_kinds(spec, numbers))]
    head = ["u64 place", *([] if loads else [f"{C_TYPES[dense]} value"]), *parameters]
    lines = [
        GLOBAL,
        _PAIRS,
        # Names of the user's text meet no others, and it may be there twice.
        f"#ifdef __cplusplus\nnamespace {{ namespace user_{which} {{\n#endif\n{source}",
        f"#ifdef __cplusplus\n}} }}\n#define USER_{which} user_{which}::{name}\n#else",
        f"#define USER_{which} {name}\n#endif",
        f"DEVICE {C_TYPES[dense] if loads else 'void'} element_{which}({', '.join(head)}) {{",
    ]
    steps = {"offset": elements.flat, "o0": elements.own}
    steps |= {f"o{i}": step for i, step in enumerate(elements.others, 1)}
    found, inside = walk(elements.extents, elements.bounds, steps)
    lines += [*(f"IN_GLOBAL(p{i});" for i in range(len(arrays))), *found]
    factor = f" * {np.float32(scale).item()!r}f" if real == "float32" else f" * {scale!r}"
    factor = factor if scale != 1 else ""

    def scaled(variable: str, dtype: str) -> list[str]:
        parts = [f"{variable}.x", f"{variable}.y"] if dtype.startswith("complex") else [variable]
        return [f"{part} = {part}{factor};" for part in parts] if factor else []

    own_kind = "" if loads else "value"
    given = [own_kind or _read(own, real, "p0", "o0"), "offset"]
    made = {n: _read(dtypes[n], real, f"p{i}", f"o{i}") for i, n in enumerate(arrays) if i}
    kinds = _kinds(spec, numbers)
    made |= {n: f"v{j}" if kinds[j] == "long long" else f"({C_TYPES[real]})v{j}" for j, n in enumerate(numbers)}
    call = f"USER_{which}({', '.join([*given, *(made[n] for n in getattr(spec.attributes, which))])})"
    if loads:
        zero = f"{'pair' if real == 'float32' else 'pair2'}(0, 0)" if dense.startswith("complex") else "0"
        lines += [f"{C_TYPES[dense]} made = {zero};", f"if ({inside or '1'}) made = {call};"]
        return "\n".join([*lines, *scaled("made", dense), "return made;", "}"]) + "\n"
    lines += scaled("value", dense)
    if own.startswith("complex"):
        lines += [f"const {C_TYPES[own]} made = {call};", "p0[2 * o0] = made.x;", "p0[2 * o0 + 1] = made.y;"]
    else:
        lines += [f"const {C_TYPES[real]} made = {call};", f"p0[o0] = {convert(real, own, 'made')};"]
    return "\n".join([*lines, "}"]) + "\n"


def _text(spec: PlanSpec[MappedAttributes], which: str) -> tuple[str, str]:
    """Return the user's text, and the function's name."""
    return {which: (text, name) for which, name, text in spec.attributes.sources}[which]


def callback_source(spec: PlanSpec[MappedAttributes], which: str) -> str:
    """Return the function that cuFFT calls, which reads the message's addresses and numbers from its block."""
    arrays, _, dtypes = _arrays(spec, which)
    return prelude({*(dtypes[n] for n in arrays), dense_dtype(spec, which)}) + callback_text(spec, which)


def callback_text(spec: PlanSpec[MappedAttributes], which: str) -> str:
    """Return that function without the prelude."""
    arrays, numbers, dtypes = _arrays(spec, which)
    loads, dense = which == "load", dense_dtype(spec, which)
    given = ["place", *([] if loads else ["value"])]
    given += [f"({_pointer(dtypes[n], i == 0 and not loads)})words[{word_of(spec, n)}]" for i, n in enumerate(arrays)]
    given += [
        f"((const {kind} *)words)[{word_of(spec, n)}]" for n, kind in zip(numbers, _kinds(spec, numbers), strict=True)
    ]
    kind, value = (C_TYPES[dense], "") if loads else ("void", f"{C_TYPES[dense]} value, ")
    return (
        _element(spec, which, *_text(spec, which))
        + f"__device__ {kind} {symbol_of(which)}(void *data, unsigned long long place, {value}void *info, "
        + "void *shared) {\n"
        + "const u64 *words = (const u64 *)info;\n"
        + f"{'return ' if loads else ''}element_{which}({', '.join(given)});\n}}\n"
    )


def source_step(apply: Apply, spec: PlanSpec[MappedAttributes], target: Target) -> Step:
    """Return the launch of a kernel of its own, with its operands and numbers in the message.  Waits for NVRTC."""
    which, loads = apply.which, apply.which == "load"
    arrays, numbers, dtypes = _arrays(spec, which)
    dense, array = dense_dtype(spec, which), apply.target if loads else apply.source
    parameters = [f"{_pointer(dtypes[n], i == 0 and not loads)}p{i}" for i, n in enumerate(arrays)]
    parameters += [f"{kind} v{j}" for j, kind in enumerate(_kinds(spec, numbers))]
    given = [*(f"p{i}" for i in range(len(arrays))), *(f"v{j}" for j in range(len(numbers)))]
    total = math.prod(array.shape)
    body = f"element_{which}({', '.join(['i', *([] if loads else ['q[i]']), *given])});"
    body = f"q[i] = {body}" if loads else body
    source = _element(spec, which, *_text(spec, which)) + "\n".join([
        f"KERNEL apply({', '.join([f'{C_TYPES[dense]} *q', *parameters])}) {{",
        "AWAIT_LAUNCH();",
        f"for (u64 i = thread_index(); i < {total}u; i += thread_count()) {body}",
        "}",
    ]) + "\n"  # fmt: skip
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    words = [list(spec.attributes.scalar_names).index(n) for n in numbers]
    arguments: list[Argument] = [("operand", i) for i in range(len(arrays) + 1)]
    arguments += [("int64" if spec.scalars[j] == "int64" else "float64", i) for i, j in enumerate(words)]
    grid = max(1, min(-(-total // THREADS), _BLOCKS * target.sm_count))
    launch = Launch("apply", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments))
    used = {dense, *(dtypes[n] for n in arrays)}
    sizes = [as_dtype(dense).itemsize, *(alignment(dtypes[n]) for n in arrays)]
    run: Any = kernels(source, [launch], target, dtypes=used, alignments=sizes).run
    sources: tuple[Source, ...] = (array.source, *(("operand", at[n]) for n in arrays))
    return Step(run, sources, tuple(("scalar", j) for j in words))
