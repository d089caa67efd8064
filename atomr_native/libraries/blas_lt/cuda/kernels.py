"""Kernels around a matmul: epilogues that cuBLASLt lacks, the largest magnitude, copies that it can read.

Arithmetic is the host device's, in the type in which factors are applied.  Deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....builders.blocks import fold_axes
from ....builders.cuda.codegen import THREADS, alignment, convert, index_type, kernels, offsets, reach, value_type
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from ..types import SATURATE

__all__ = ["Place", "amax_kernel", "epilogue_kernel", "pack_kernel"]

#: Blocks of a grid, per multiprocessor.
_BLOCKS: Final = 32
_MASK: Final = 8
_PARTS: Final = 1024

_GELU: Final = """\
DEVICE @ gelu(@ x) {
  @ y = x < -12 ? (@)-12 : x, t = tanh%((y * y * (@)0.035677408136300125 + (@)0.7978845608028654) * y);
  return y * ((t + 1) * (@)0.5);
}
DEVICE @ gelu_gradient(@ x) {
  @ y = x < -12 ? (@)-12 : x > 12 ? (@)12 : x, q = y * y;
  @ t = tanh%((q * (@)0.035677408136300125 + (@)0.7978845608028654) * y);
  return (t + 1) * (@)0.5 + (1 - t * t) * (q * (@)0.10703222440890037 + (@)0.7978845608028654) * y * (@)0.5;
}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """An array of a kernel: dtype, and strides in elements along (..., rows, columns) of D."""

    dtype: str
    strides: tuple[int, ...]


def _grid(work: int, target: Target) -> tuple[int, int, int]:
    return max(1, min(-(-work // THREADS), target.sm_count * _BLOCKS)), 1, 1


def _zero(kind: str) -> str:
    return f"make_{value_type(kind)}(0, 0)" if kind.startswith("complex") else "0"


def _stored(kind: str, out: str, value: str) -> str:
    """Return the C expression of `value`, of dtype `kind`, as an element of `out`; 8 bits saturate."""
    if out in SATURATE:
        limit = f"({STORAGE[kind]}){SATURATE[out]!r}"
        value = f"({value} > {limit} ? {limit} : {value} < -{limit} ? -{limit} : {value})"
    if out == "int8":
        return (
            f"(signed char)({value} != {value} ? 0 : {value} > 127 ? 127 : {value} < -128 ? -128 : (int)rintf({value}))"
        )
    return convert(kind, out, value)


def _arithmetic(kind: str) -> tuple[Any, Any]:
    """Return functions of C expressions: sum and product."""
    if kind.startswith("complex"):
        name = value_type(kind)
        return (lambda a, b: f"add_{name}({a}, {b})"), (lambda a, b: f"multiply_{name}({a}, {b})")
    return (lambda a, b: f"({a} + {b})"), (lambda a, b: f"({a} * {b})")


def _body(epilogue: str, kind: str, places: Mapping[str, Place]) -> list[str]:
    """Return the statements for column `q` of a thread's columns."""
    add, times = _arithmetic(kind)

    def load(name: str) -> str:
        place = places[name]
        at = f"o_{name} + q * (u64){place.strides[-1]}u" if place.strides[-1] else f"o_{name}"
        return convert(place.dtype, kind, f"{name}[{at}]")

    kind_c = value_type(kind)
    lines = [f"{kind_c} v = {load('x') if 'x' in places else _zero(kind)};"]
    lines += [f"v = {times('v', load(name))};" for name in ("a_scale", "b_scale") if name in places]
    lines.append(f"v = {times('alpha_', 'v')};")
    if "c" in places:
        c = times(load("c"), load("c_scale")) if "c_scale" in places else load("c")
        lines.append(f"if (add_c) v = {add('v', times('beta_', c))};")
    if "bias" in places:
        lines.append(f"v = {add('v', load('bias'))};")
    if epilogue.startswith("dgelu"):
        lines.append(f"v = v * gelu_gradient({load('aux')});")
    elif epilogue.startswith("drelu"):
        lines.append("if (!(mask >> q & 1)) v = 0;")
    elif "gelu" in epilogue:
        if "aux" in places:
            place = places["aux"]
            value = _stored(kind, place.dtype, "v")
            lines.append(f"aux[o_aux + q * (u64){place.strides[-1]}u] = {value};")
        lines.append("v = gelu(v);")
    elif "relu" in epilogue:
        if "aux" in places:
            lines.append("if (v > 0) mask |= 1u << q;")
        lines.append("v = v >= 0 || v != v ? v : 0;")
    if "kept" in places:
        lines.append(
            f"kept[o_kept + q * (u64){places['kept'].strides[-1]}u] = {convert(kind, places['kept'].dtype, 'v')};"
        )
    if "d_scale" in places:
        lines.append(f"v = {times('v', load('d_scale'))};")
    lines.append(f"out[o_out + q * (u64){places['out'].strides[-1]}u] = {_stored(kind, places['out'].dtype, 'v')};")
    return lines


def epilogue_kernel(
    epilogue: str, kind: str, shape: tuple[int, ...], places: Mapping[str, Place], scalars: int, target: Target
) -> Any:
    """Return a kernel program that turns products into D.

    Its operands are those of `places`, in order; its scalars the message's.

    Parameters
    ----------
    epilogue
        Its name; those with a bias gradient only keep what is summed.
    kind
        Dtype in which factors are applied.
    shape
        Of D.
    places
        ``x`` products (0 if missing), ``kept`` where to store D before `d_scale`, and operands by name; ``aux`` of ReLU
        counts in bytes.
    scalars
        How many scalars a message has: 0, 2 or 4.
    """
    masked = "aux" in places and places["aux"].dtype == "uint8"
    width = _MASK if masked else 1
    groups = -(-shape[-1] // _MASK) if masked else shape[-1]
    writes_mask = masked and not epilogue.startswith("d")
    if writes_mask:
        groups = -(-shape[-1] // 128) * 16
    rows, folded = fold_axes(shape[:-1], tuple(p.strides[:-1] for p in places.values()))
    last = {name: (1 if masked and name == "aux" else width * p.strides[-1]) for name, p in places.items()}
    steps = {f"o_{name}": (*lead, last[name]) for (name, _), lead in zip(places.items(), folded, strict=True)}
    whole = (*rows, groups)
    total = math.prod(whole)
    reaches = [
        reach((*rows, shape[-1]), (*lead, p.strides[-1])) for p, lead in zip(places.values(), folded, strict=True)
    ]
    index = index_type(total * width, *reaches)
    const = {"x", "c", "bias", "a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta"}
    if not writes_mask and epilogue.startswith("d"):
        const.add("aux")
    parameters = [f"{'const ' if n in const else ''}{STORAGE[p.dtype]} *{n}" for n, p in places.items()]
    parameters += [f"double s{j}" for j in range(scalars)]
    kind_c = value_type(kind)
    if "alpha" in places:
        beta = "beta[0]" if "beta" in places else _zero(kind)
        beta = convert(places["beta"].dtype, kind, beta) if "beta" in places else beta
        alpha = convert(places["alpha"].dtype, kind, "alpha[0]")
        head = [f"const {kind_c} alpha_ = {alpha}, beta_ = {beta};"]
        zero = "beta_.re != 0 || beta_.im != 0" if kind.startswith("complex") else "beta_ != 0"
    elif kind.startswith("complex"):
        part = "float" if kind == "complex64" else "double"
        head = [
            f"const {kind_c} alpha_ = make_{kind_c}(({part})s0, ({part})s2), "
            f"beta_ = make_{kind_c}(({part})s1, ({part})s3);"
        ]
        zero = "s1 != 0 || s3 != 0"
    else:
        head, zero = [f"const {kind_c} alpha_ = ({kind_c})s0, beta_ = ({kind_c})s1;"], "s1 != 0"
    lines = [
        _GELU.replace("@", kind_c).replace("%", "f" if kind_c == "float" else "") if "gelu" in epilogue else "",
        f"KERNEL epilogue({', '.join(parameters)}) {{",
        "AWAIT_LAUNCH();",
        *head,
        *([f"const bool add_c = {zero};"] if "c" in places else []),
        f"for ({index} g = ({index})thread_index(); g < {total}u; g += ({index})thread_count()) {{",
        *offsets(whole, {**steps, "j": (*((0,) * len(rows)), width)}, "g", index),
    ]
    if masked:
        lines.append(f"unsigned int mask = {'0' if writes_mask else 'aux[o_aux]'};")
    lines += [f"for (unsigned int q = 0; q < {width}u && j + q < {shape[-1]}u; q++) {{", *_body(epilogue, kind, places)]
    lines += ["}", *(["aux[o_aux] = (unsigned char)mask;"] if writes_mask else []), "}", "}"]
    arguments: list[Argument] = [("operand", i) for i in range(len(places))]
    arguments += [("float64", j) for j in range(scalars)]
    launch = Launch("epilogue", _grid(total, target), (THREADS, 1, 1), 0, tuple(arguments))
    return kernels(
        "\n".join(lines) + "\n",
        [launch],
        target,
        dtypes={*(p.dtype for p in places.values()), kind},
        alignments=[alignment(p.dtype) for p in places.values()],
        functions=("multiply",) if kind.startswith("complex") else (),
    ).run


def amax_kernel(kind: str, count: int, target: Target) -> Any:
    """Return a kernel program for operands (x, parts, amax): the largest magnitude of `count` elements, NaN if any is.

    `parts` needs ``4 * 1024`` bytes.
    """
    blocks = min(max(1, -(-count // (4 * THREADS))), _PARTS)
    fold = "(a >= b || a != a ? a : b)"
    tree = [
        f"SHARED float all[{THREADS}];",
        "all[threadIdx.x] = most;",
        "SYNC();",
        f"for (unsigned int half = {THREADS // 2}; half; half >>= 1) {{",
        "if (threadIdx.x < half) {",
        f"const float a = all[threadIdx.x], b = all[threadIdx.x + half]; all[threadIdx.x] = {fold};",
        "}",
        "SYNC();",
        "}",
    ]
    load = convert(kind, "float32", "x[i]")
    lines = [
        f"KERNEL parts_of(const {STORAGE[kind]} *x, float *parts) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        "float most = 0;",
        f"for (u64 i = thread_index(); i < {count}u; i += thread_count()) {{",
        f"const float v = {load}, a = v < 0 ? -v : v, b = most; most = {fold};",
        "}",
        *tree,
        "if (threadIdx.x == 0) parts[blockIdx.x] = all[0];",
        "}",
        "KERNEL largest(const float *parts, float *amax) {",
        "AWAIT_LAUNCH();",
        "float most = 0;",
        f"for (unsigned int i = threadIdx.x; i < {blocks}u; i += {THREADS}u) {{",
        f"const float a = parts[i], b = most; most = {fold};",
        "}",
        *tree,
        "if (threadIdx.x == 0) amax[0] = all[0];",
        "}",
    ]
    threads = (THREADS, 1, 1)
    launches = [
        Launch("parts_of", (blocks, 1, 1), threads, 0, (("operand", 0), ("operand", 1))),
        Launch("largest", (1, 1, 1), threads, 0, (("operand", 1), ("operand", 2))),
    ]
    alignments = [alignment(kind), 4, 4]
    return kernels("\n".join(lines) + "\n", launches, target, dtypes={kind, "float32"}, alignments=alignments).run


def pack_kernel(
    dtype: str, shape: Sequence[int], strides: Sequence[int], padded: tuple[int, int], conjugated: bool, target: Target
) -> Any:
    """Return a kernel program for operands (source, target): a dense copy, the last two axes padded with zeros.

    Parameters
    ----------
    dtype
        Of both.
    shape, strides
        Of the source, (..., rows, columns), strides in elements.
    padded
        Rows and columns of the target.
    conjugated
        Whether to conjugate.
    """
    *lead, rows, columns = shape
    whole = (*lead, *padded)
    total = math.prod(whole)
    index = index_type(total, reach(tuple(shape), tuple(strides)))
    axes = len(lead)
    value = "source[o]"
    if conjugated:
        value = f"make_{value_type(dtype)}(source[o].re, -source[o].im)"
    steps = {"o": tuple(strides), "r": (*((0,) * axes), 1, 0), "j": (*((0,) * axes), 0, 1)}
    lines = [
        f"KERNEL pack(const {STORAGE[dtype]} *source, {STORAGE[dtype]} *into) {{",
        "AWAIT_LAUNCH();",
        f"for ({index} i = ({index})thread_index(); i < {total}u; i += ({index})thread_count()) {{",
        *offsets(whole, steps, "i", index),
        f"if (r < {rows}u && j < {columns}u) into[i] = {value};",
        f"else into[i] = {_zero(dtype)};",
        "}",
        "}",
    ]
    launch = Launch("pack", _grid(total, target), (THREADS, 1, 1), 0, (("operand", 0), ("operand", 1)))
    return kernels("\n".join(lines) + "\n", [launch], target, dtypes={dtype}, alignments=[alignment(dtype)] * 2).run
