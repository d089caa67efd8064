"""Pieces of CUDA source that all builders share: conversions, offsets, and kernels that map elements to elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ...dtypes import as_dtype
from ...plans.spec import OperandSpec
from ..blocks import fold_axes
from ..context import Built
from .cubin import compile_cubin
from .prelude import INTEGERS, STORAGE, prelude
from .target import Argument, KernelProgram, Launch, Target

__all__ = [
    "NARROW",
    "THREADS",
    "MapOperand",
    "alignment",
    "both_ways",
    "broadcast_strides",
    "by_stride",
    "convert",
    "half_of",
    "index_type",
    "kernels",
    "map_kernel",
    "next_power",
    "offsets",
    "reach",
    "value_type",
]

#: Floating types whose arithmetic is float32.
NARROW: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Threads of a block.
THREADS: Final = 256
#: Blocks of a map for each multiprocessor: a few waves; with many elements each thread has several.
_BLOCKS: Final = 32
#: Bytes of the widest load, and the most bytes of one operand that a thread holds.
_VECTOR: Final = 16
_REGISTERS: Final = 64

Strides = tuple[int, ...]


def value_type(dtype: str) -> str:
    """Return the C type of a value of a dtype."""
    return "bool" if dtype == "bool" else STORAGE[dtype]


def itemsize(dtype: str) -> int:
    """Return the bytes of an element."""
    return as_dtype(dtype).itemsize


def alignment(dtype: str) -> int:
    """Return the alignment of an element in bytes."""
    return itemsize(dtype) // (2 if dtype.startswith("complex") else 1)


def convert(source: str, target: str, value: str) -> str:
    """Return the C expression of a conversion, as NumPy's ``casting="unsafe"``.

    Floating values beyond an integer's range give some integer, here as in NumPy.

    Parameters
    ----------
    source, target : str
        Dtypes.
    value : str
        A C expression that may be evaluated twice.
    """
    if source == target:
        return value
    if target == "bool":
        if source.startswith("complex"):
            return f"(({value}).re != 0 || ({value}).im != 0)"
        return f"({convert(source, 'float32', value) if source in NARROW else value} != 0)"
    if source in NARROW:
        return convert("float32", target, f"{source}_float({value})")
    if target in NARROW:
        if source == "float64" and target == "float16":
            return f"double_float16({value})"
        return f"float_{target}({convert(source, 'float32', value)})"
    if target.startswith("complex"):
        real, make = ("float32", "make_c64") if target == "complex64" else ("float64", "make_c128")
        if source.startswith("complex"):
            return f"{make}(({STORAGE[real]})({value}).re, ({STORAGE[real]})({value}).im)"
        return f"{make}({convert(source, real, value)}, 0)"
    if source in ("float32", "float64") and target in INTEGERS:
        if target == "uint64":
            return f"(({value}) < 0 ? (u64)(long long)({value}) : (u64)({value}))"
        through = "(int)" if itemsize(target) < 4 else "(long long)" if target == "uint32" else ""
        return f"({STORAGE[target]}){through}({value})"
    return f"({value_type(target)})({value})"


def index_type(elements: int, *reaches: int) -> str:
    """Return the C type of indices: 64 bits for many elements, or for elements that are far apart."""
    return "unsigned int" if max(elements, *reaches, 0) < 2**31 - 2**27 else "u64"


def offsets(shape: Sequence[int], strides: Mapping[str, Sequence[int]], index: str, kind: str) -> list[str]:
    """Return C statements that turn a C-order index into offsets.

    Parameters
    ----------
    shape
        Extents; their product is 2**63 at most.
    strides
        For the name of each offset, its step along each axis.  Offsets count from the element with the lowest address.
    index
        Name of the index.
    kind
        C type of index and offsets.
    """
    lines = [f"{kind} rest_{index} = {index};"] if len(shape) > 1 else []
    terms: dict[str, list[str]] = {name: [] for name in strides}
    for axis in range(len(shape) - 1, -1, -1):
        if len(shape) == 1:
            place = index
        elif axis == 0:
            place = f"rest_{index}"
        else:
            place = f"{index}_{axis}"
            lines.append(f"const {kind} {place} = rest_{index} % {shape[axis]}u; rest_{index} /= {shape[axis]}u;")
        for name, steps in strides.items():
            if steps[axis] < 0 and shape[axis] > 1:  # from the last element on, since offsets are unsigned
                terms[name].append(f"({shape[axis] - 1}u - {place}) * ({kind}){-steps[axis]}u")
            elif steps[axis] and shape[axis] > 1:
                terms[name].append(f"{place} * ({kind}){steps[axis]}u")
    lines += [f"const {kind} {name} = {' + '.join(found) or '0'};" for name, found in terms.items()]
    return lines


def broadcast_strides(operand: OperandSpec, shape: Sequence[int]) -> Strides:
    """Return an operand's strides in elements along the axes of `shape`; 0 where it is broadcast."""
    size = itemsize(operand.dtype)
    steps = (0 if n == 1 else step // size for n, step in zip(operand.shape, operand.strides, strict=True))
    return (*([0] * (len(shape) - len(operand.shape))), *steps)


def by_stride(shape: Sequence[int], strides: Sequence[Strides]) -> tuple[tuple[int, ...], tuple[Strides, ...]]:
    """Return the axes in the memory order of the first array, then of the others, folded; at least one axis."""
    order = sorted((i for i, n in enumerate(shape) if n != 1), key=lambda i: [-steps[i] for steps in strides])
    if not order:
        return (1,), tuple((0,) for _ in strides)
    return fold_axes(tuple(shape[i] for i in order), tuple(tuple(steps[i] for i in order) for steps in strides))


def next_power(number: int) -> int:
    """Return the least power of two that is at least `n`, and at least 1."""
    return 1 << max(0, number - 1).bit_length()


def half_of(words: str, place: int) -> str:
    """Return the C expression of a 16-bit element in the array of 32-bit words ``{words}.at``."""
    return f"(unsigned short)({words}.at[{place // 2}] >> {16 * (place % 2)})"


def both_ways(fast: str, lines: Sequence[str]) -> list[str]:
    """Return statements with ``@`` for ``direct`` where `fast` holds, else for ``gathered``; without `fast` never."""
    direct, gathered = ([line.replace("@", way) for line in lines] for way in ("direct", "gathered"))
    return [f"if ({fast}) {{", *direct, "} else {", *gathered, "}"] if fast else gathered


def reach(shape: Sequence[int], steps: Strides) -> int:
    """Return the largest offset."""
    return sum((n - 1) * abs(step) for n, step in zip(shape, steps, strict=True))


def _lowest(shape: Sequence[int], steps: Strides) -> int:
    """Return how many elements before the first one an array begins."""
    return sum((n - 1) * -step for n, step in zip(shape, steps, strict=True) if step < 0)


@dataclass(frozen=True, slots=True)
class MapOperand:
    """An operand of a map: its number in the message, dtype, strides in elements, and use."""

    number: int
    dtype: str
    strides: Strides
    reads: bool
    writes: bool


def _parameters(operands: Sequence[MapOperand], scalars: Sequence[str]) -> str:
    # Without restriction where it is only read: it may be written until the kernel has waited for the launch before.
    pointers = [
        f"{STORAGE[o.dtype]} *__restrict__ p{o.number}" if o.writes else f"const {STORAGE[o.dtype]} *p{o.number}"
        for o in operands
    ]
    return ", ".join(pointers + [f"{'double' if s == 'float64' else 'long long'} s{j}" for j, s in enumerate(scalars)])


def _vector_width(shape: Sequence[int], operands: Sequence[MapOperand]) -> int:
    """Return the number of elements of a vector load; 1 if the layout does not allow vector loads."""
    streams = [o for o in operands if o.strides[-1] == 1]
    if not streams or any(o.strides[-1] not in (0, 1) for o in operands) or shape[-1] == 1:
        return 1
    sizes = [itemsize(o.dtype) for o in streams]
    width = max(2, min(_VECTOR // min(sizes), _REGISTERS // max(sizes)))
    outer = [step for o in streams for step in o.strides[:-1]]
    if len(shape) > 1 and (shape[-1] % width or any(step % width for step in outer)):
        return 1
    return width if shape[-1] >= width else 1


def _vector_loop(shape: Sequence[int], operands: Sequence[MapOperand], body: Sequence[str], kind: str) -> list[str]:
    """Return the loop over vectors, for aligned bases; it leaves the number of finished elements in `first`."""
    width = _vector_width(shape, operands)
    if width == 1:
        return []
    streams = [o for o in operands if o.strides[-1] == 1]
    held = [o for o in operands if o.strides[-1] == 0]
    aligned = {o.number: min(_VECTOR, width * itemsize(o.dtype)) for o in streams}
    test = " && ".join(f"(u64)p{o.number} % {aligned[o.number]}u == 0" for o in streams)
    chunks = (*shape[:-1], shape[-1] // width)
    steps = {f"o{o.number}": (*o.strides[:-1], o.strides[-1] * width) for o in operands}
    count = math.prod(chunks)
    chunk_count = f"total / {width}u" if len(shape) == 1 else f"{count}u"
    lines = [
        *(f"typedef struct ALIGNED({aligned[o.number]}) {{ {STORAGE[o.dtype]} at[{width}]; }} v{o.number};"
          for o in streams),
        f"if ({test}) {{",
        f"for ({kind} c = ({kind})thread_index(); c < {chunk_count}; c += step) {{",
        *offsets(chunks, steps, "c", kind),
    ]  # fmt: skip
    for o in streams:
        const = "" if o.writes else "const "
        lines.append(f"v{o.number} w{o.number};")
        if o.reads:
            lines[-1] = f"v{o.number} w{o.number} = *({const}v{o.number} *)(p{o.number} + o{o.number});"
    lines += [f"const {STORAGE[o.dtype]} x{o.number} = p{o.number}[o{o.number}];" for o in held if o.reads]
    lines += ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{"]
    lines += [f"const {STORAGE[o.dtype]} x{o.number} = w{o.number}.at[k];" for o in streams if o.reads]
    lines += [f"{STORAGE[o.dtype]} y{o.number};" for o in streams if o.writes]
    lines += [*body, *(f"w{o.number}.at[k] = y{o.number};" for o in streams if o.writes), "}"]
    lines += [f"*(v{o.number} *)(p{o.number} + o{o.number}) = w{o.number};" for o in streams if o.writes]
    done = f"{chunk_count} * {width}u" if len(shape) == 1 else f"{count * width}u"
    return [*lines, "}", f"first = {done};", "}"]


def map_kernel(
    shape: Sequence[int],
    operands: Sequence[MapOperand],
    scalars: Sequence[str],
    head: Sequence[str],
    body: Sequence[str],
    target: Target,
    *,
    ranges: Mapping[int, str] | None = None,
) -> tuple[str, Launch]:
    """Return a kernel that computes each element of `shape` from elements at the same place, and its launch.

    Where all arrays are consecutive in memory, the number of elements is an argument of the kernel, so that arrays of
    any size share one.

    Parameters
    ----------
    shape
        At least one element.
    operands
        Arrays, in the order of the message.
    scalars
        ``"float64"`` or ``"int64"`` for each number of the message: `s0`, `s1`, ...
    head
        C statements at the start of each thread.
    body
        C statements for one element: they read `x<number>`, the bits of an operand that is read, and assign
        `y<number>`, those of an operand that is written.
    target
        What to size the grid by.
    ranges
        Narrow integer types that numbers of the message must be in the range of, by number.
    """
    written = [o for o in operands if o.writes]
    ordered = [*written, *(o for o in operands if not o.writes)]
    folded, strides = by_stride(shape, [o.strides for o in ordered])
    total = math.prod(folded)
    places = {o.number: steps for o, steps in zip(ordered, strides, strict=True)}
    mapped = [MapOperand(o.number, o.dtype, places[o.number], o.reads, o.writes) for o in operands]
    kind = index_type(total, *(reach(folded, o.strides) for o in mapped))
    one = len(folded) == 1
    parameters = _parameters(mapped, scalars) + (f", const {kind} total" if one else "")
    text = [
        f"KERNEL map({parameters}) {{",
        "AWAIT_LAUNCH();",
        *(f"p{o.number} -= {low}u;" for o in mapped if (low := _lowest(folded, o.strides))),
        *head,
        f"const {kind} step = ({kind})thread_count();",
        f"{kind} first = 0;",
        *_vector_loop(folded, mapped, body, kind),
        f"for ({kind} i = first + ({kind})thread_index(); i < {'total' if one else f'{total}u'}; i += step) {{",
        *offsets(folded, {f"o{o.number}": o.strides for o in mapped}, "i", kind),
        *(f"const {STORAGE[o.dtype]} x{o.number} = p{o.number}[o{o.number}];" for o in mapped if o.reads),
        *(f"{STORAGE[o.dtype]} y{o.number};" for o in mapped if o.writes),
        *body,
        *(f"p{o.number}[o{o.number}] = y{o.number};" for o in mapped if o.writes),
        "}",
        "}",
    ]
    work = -(-total // _vector_width(folded, mapped))
    grid = max(1, min(-(-work // THREADS), target.sm_count * _BLOCKS))
    arguments: list[Argument] = [("operand", o.number) for o in mapped]
    checked: Mapping[int, Any] = ranges or {}
    arguments += [(checked.get(j, "float64" if s == "float64" else "int64"), j) for j, s in enumerate(scalars)]
    arguments += [("uint64", total)] if one else []
    return "\n".join(text) + "\n", Launch("map", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments))


def kernels(
    source: str,
    launches: Sequence[Launch],
    target: Target,
    *,
    dtypes: Iterable[str],
    alignments: Sequence[int],
    functions: Iterable[str] = (),
    workspace: int = 0,
    info: tuple[Literal["operand", "workspace"], int] | None = None,
) -> Built:
    """Compile kernels with their prelude, and return the program of a lane.

    Each says ``AWAIT_LAUNCH();`` before it uses memory: it may begin before the launch before it has ended.

    Raises
    ------
    Unsupported
        If NVRTC is not installed.
    LibraryError
        If NVRTC refuses: the architecture is not one that it knows.
    """
    whole = prelude(dtypes, functions) + source
    cubin = compile_cubin(whole, target.arch)
    overlapping = tuple(replace(launch, overlaps=target.overlaps) for launch in launches)
    return Built(KernelProgram(cubin, overlapping, workspace, tuple(alignments), whole, info=info), workspace)
