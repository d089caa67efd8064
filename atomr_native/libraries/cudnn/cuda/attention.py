"""Kernels around a plan of attention: lengths of packed sequences before it, rows that see nothing behind it."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from ....dtypes import DTYPES
from ..attributes import GraphAttributes, NodeSpec, TensorSpec
from .steps import Part

__all__ = ["around_kernels", "around_source"]

#: Elements of a row that a thread writes.
_CHUNK: Final = 8
#: Blocks for each multiprocessor.
_BLOCKS: Final = 16


def _bits(value: float, dtype: str) -> str:
    """Return a number as it is stored."""
    number = np.array(value, DTYPES[dtype])
    if number.itemsize == 4:
        return f"bits_float({int(number.view(np.uint32))}u)"
    return f"({STORAGE[dtype]}){int(number.view(f'u{number.itemsize}'))}u"


def _literal(value: float) -> str:
    return f"bits_float({int(np.float32(value).view(np.uint32))}u)"


def _sequences(node: NodeSpec, x: str, y: str, batch: int) -> list[str]:
    """Return statements that compute lengths or places of packed sequences."""
    how = dict(node.integers)
    if node.op == "lengths":
        most, tokens = how["most"]
        return [
            f"for (u64 b = thread_index(); b < {batch}u; b += thread_count()) {{",
            f"long long first = {x}[b], end = {x}[b + 1];",
            f"first = first < 0 ? 0 : first > {tokens}ll ? {tokens}ll : first;",
            f"end = end < first ? first : end > {tokens}ll ? {tokens}ll : end;",
            f"{y}[b] = (int)(end - first > {most}ll ? {most}ll : end - first);",
            "}",
        ]
    step, tokens = how["step"][0], how["most"][0]
    return [
        f"for (u64 b = thread_index(); b < {batch + 1}u; b += thread_count()) {{",
        f"const long long first = {x}[b];",
        f"{y}[b] = (int)((first < 0 ? 0 : first > {tokens}ll ? {tokens}ll : first) * {step}ll);",
        "}",
    ]


def _vacate(node: NodeSpec, y: TensorSpec, names: dict[str, str]) -> list[str]:
    """Return statements that write a value into rows that see nothing."""
    keys_side, causal, window = dict(node.integers)["rule"]
    batch, heads, rows, width = y.shape
    chunk = math.gcd(width, _CHUNK)
    parts = width // chunk
    begin = f"{names['begins']}[b]" if "begins" in names else f"(long long)b * {y.strides[0]}"
    inside = f" && row < {'n' if keys_side else 'm'}" if "begins" in names else ""
    if keys_side:
        vacant = ["const bool vacant = row >= n || m <= 0;"]
    else:
        own = "row + n - m" if causal == 2 else "row"
        end = f"own + {window} - 1" if causal == 3 else "own" if causal else "n - 1"
        vacant = [
            f"const long long own = {own};" if causal else "",
            f"long long end = {end}, begin = 0;",
            f"begin = own - {window} + 1 > 0 ? own - {window} + 1 : 0;" if window else "",
            "end = end < n - 1 ? end : n - 1;",
            "const bool vacant = row >= m || end < begin;",
        ]
    value = _bits(dict(node.reals)["value"], y.dtype)
    return [
        f"for (u64 i = thread_index(); i < {batch * heads * rows * parts}ull; i += thread_count()) {{",
        f"const u64 part = i % {parts}u, line = i / {parts}u;",
        f"const long long row = (long long)(line % {rows}u);",
        f"const u64 h = line / {rows}u % {heads}u, b = line / {rows}u / {heads}u;",
        f"const long long m = queries[b * {names['queries_step']}], n = keys[b * {names['keys_step']}];",
        *(line for line in vacant if line),
        f"if (vacant{inside}) {{",
        f"{STORAGE[y.dtype]} *const to = y + {begin} + (long long)h * {y.strides[1]} + row * {y.strides[2]} + "
        f"part * {chunk};",
        f"for (int j = 0; j < {chunk}; j++) to[j] = {value};",
        "}",
        "}",
    ]


def _sink_forward(node: NodeSpec, graph: GraphAttributes, names: dict[str, str]) -> list[str]:
    """Return statements with which a block scales a row, and one thread changes its statistics."""
    ports = dict(node.ports)
    y, s = graph.tensors[ports["y"]], graph.tensors[ports["statistics"]].strides
    batch, heads, rows, width = y.shape
    begin = "begins[b]" if "begins" in names else f"(long long)b * {y.strides[0]}"
    inside = f"row * {y.strides[2]} < begins[b + 1] - begins[b]" if "begins" in names else "true"
    scaled = convert("float32", y.dtype, f"{convert(y.dtype, 'float32', 'to[j]')} * share")
    return [
        f"for (u64 line = blockIdx.x; line < {batch * heads * rows}ull; line += gridDim.x) {{",
        f"const long long row = (long long)(line % {rows}u);",
        f"const u64 h = line / {rows}u % {heads}u, b = line / {rows}u / {heads}u;",
        f"float *const stored = statistics + b * {s[0]} + h * {s[1]} + row * {s[2]};",
        "const float own = *stored, other = sink[h], most = own > other ? own : other;",
        "const float share = 1.0f / (1.0f + expf(other - own));",
        f"if ({inside}) {{",
        f"{STORAGE[y.dtype]} *const to = y + {begin} + (long long)h * {y.strides[1]} + row * {y.strides[2]};",
        f"for (unsigned j = threadIdx.x; j < {width}u; j += {THREADS}u) to[j] = {scaled};",
        "}",
        "SYNC();",
        "if (threadIdx.x == 0) *stored = most + logf(expf(own - most) + expf(other - most));",
        "}",
    ]


def _sink_backward(node: NodeSpec, graph: GraphAttributes) -> list[str]:
    """Return statements with which a block sums the gradient of a head's sink."""
    ports = dict(node.ports)
    statistics = graph.tensors[ports["statistics"]]
    batch, heads, rows, _ = statistics.shape
    s = statistics.strides
    t = graph.tensors[ports["sums"]].strides
    return [
        f"SHARED float partial[{THREADS}];",
        f"for (u64 h = blockIdx.x; h < {heads}u; h += gridDim.x) {{",
        "float sum = 0;",
        f"for (u64 i = threadIdx.x; i < {batch * rows}ull; i += {THREADS}u) {{",
        f"const u64 b = i / {rows}u, row = i % {rows}u;",
        f"const float share = expf(sink[h] - statistics[b * {s[0]} + h * {s[1]} + row * {s[2]}]);",
        f"if (share > 0) sum -= share * sums[b * {t[0]} + h * {t[1]} + row * {t[2]}];",
        "}",
        "partial[threadIdx.x] = sum;",
        "SYNC();",
        f"for (unsigned n = {THREADS // 2}u; n > 0; n /= 2) {{",
        "if (threadIdx.x < n) partial[threadIdx.x] += partial[threadIdx.x + n];",
        "SYNC();",
        "}",
        f"if (threadIdx.x == 0) y[h] = partial[0] * {_literal(dict(node.reals)['factor'])};",
        "SYNC();",
        "}",
    ]


def around_source(graph: GraphAttributes, part: Part, target: Target) -> tuple[str, list[Launch]]:
    """Return the kernels of a part, one for each node, and their launches."""
    text: list[str] = []
    launches: list[Launch] = []
    for place, node in enumerate(part.nodes):
        ports = dict(node.ports)
        y = graph.tensors[node.writes[0]]
        if y.ragged >= 0:
            ports["begins"] = y.ragged
        parameters: list[str] = []
        arguments: list[Argument] = []
        names: dict[str, str] = {}
        for name, at in ports.items():
            kind = STORAGE[graph.tensors[at].dtype]
            parameters.append(f"{kind} *__restrict__ {name}" if at in node.writes else f"const {kind} *{name}")
            arguments.append(("operand", part.bound.index(at)))
            names[name] = name
        if node.op == "seeds":
            parameters += ["long long first", "long long second"]
            arguments += [("int64", 0), ("int64", 1)]
            body, work = ["if (thread_index() == 0) { *seed = first; *offset = second; }"], 1
        elif node.op == "float8":
            body, work = ["if (thread_index() == 0) { *y = 1.0f / *x; *first = 0; *second = 0; }"], 1
        elif node.op == "vacate":
            for name in ("queries", "keys"):
                names[f"{name}_step"] = str(graph.tensors[ports[name]].strides[0])
            body, work = _vacate(node, y, names), math.prod(y.shape) // math.gcd(y.shape[3], _CHUNK)
        elif node.op == "sink_forward":
            body, work = _sink_forward(node, graph, names), math.prod(y.shape[:3]) * THREADS
        elif node.op == "sink_backward":
            body, work = _sink_backward(node, graph), y.shape[1] * THREADS
        else:
            batch = y.shape[0] - (node.op == "offsets")
            body, work = _sequences(node, "x", "y", batch), y.shape[0]
        text += [f"KERNEL around{place}({', '.join(parameters)}) {{", "AWAIT_LAUNCH();", *body, "}"]
        grid = max(1, min(-(-work // THREADS), target.sm_count * _BLOCKS))
        launches.append(Launch(f"around{place}", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments)))
    return "\n".join(text) + "\n", launches


def around_kernels(graph: GraphAttributes, part: Part, target: Target) -> Any:
    """Compile the kernels of a part, a `KernelProgram`.  Waits for the compiler."""
    source, launches = around_source(graph, part, target)
    dtypes = [graph.tensors[at].dtype for at in part.bound]
    return kernels(source, launches, target, dtypes={*dtypes, "float32"}, alignments=[alignment(d) for d in dtypes]).run
