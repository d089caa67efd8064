"""Kernels of steps of AdamW and SGD over many parameters: one launch, whose blocks take 2048 elements at a time.

Addresses are parameters of the kernel.  Each block first copies them to a table in shared memory, a part by each warp,
where it then looks up the array that its elements belong to: to choose among parameters themselves takes code and
constants that no cache has yet, for each array anew.  Each statement is rounded as it is on a GPU by
`atomr_native.libraries.fused.kernels.optimizers`, with `mad` where that contracts a product and a sum, and on a
processor as the host device rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, convert, itemsize, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from ....plans.spec import PlanSpec
from ..attributes import AdamWListAttributes, SgdListAttributes

__all__ = ["build_adamw_list", "build_sgd_list"]

_GROUP: Final = 8  # elements of a thread
_BLOCKS: Final = 8  # of a multiprocessor
_RESIDENT: Final = 4  # of them at once
_WARP: Final = 32
_MAD: Final = """\
DEVICE float mad(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}
"""
_GLOBAL: Final = """\
DEVICE char *in_global(u64 address) {
  char *at = (char *)address;
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(at));
#endif
  return at;
}
"""
_ADAMW_NUMBERS: Final = (
    "(float)beta1", "(float)(1.0 - beta1)", "(float)beta2", "(float)(1.0 - beta2)",
    "(float)(lr / (1.0 - pow(beta1, (double)step)))", "(float)(1.0 / sqrt(1.0 - pow(beta2, (double)step)))",
    "(float)eps", "(float)(lr * decay)",
)  # fmt: skip
#: For the first state, for the second one, and for the weights: statements about element k.
_ADAMW_STEP: Final = (
    "s0[k] = mad(n[1], g[k], n[0] * s0[k]);",
    "s1[k] = mad(n[3], g[k] * g[k], n[2] * s1[k]);",
    "x[k] = mad(-n[4], s0[k] / mad(sqrtf(s1[k]), n[5], n[6]), mad(-n[7], x[k], x[k]));",
)
_SGD_NUMBERS: Final = ("(float)lr", "(float)momentum", "(float)(lr * decay)")


def build_adamw_list(spec: PlanSpec[AdamWListAttributes], context: CudaContext) -> Built:
    """Build ``fused.adamw_list``: the operands of ``fused.adamw`` for each parameter, and its scalars."""
    names = ("lr", "beta1", "beta2", "eps", "decay")
    scalars: dict[str, Argument] = {name: ("float64", i) for i, name in enumerate(names)}
    scalars["step"] = ("int64", 5)
    return _build("adamw_list", spec, context.target, 2, scalars, _ADAMW_NUMBERS, _ADAMW_STEP)


def build_sgd_list(spec: PlanSpec[SgdListAttributes], context: CudaContext) -> Built:
    """Build ``fused.sgd_list``: the operands of ``fused.sgd`` for each parameter, and its scalars."""
    scalars: dict[str, Argument] = {name: ("float64", i) for i, name in enumerate(("lr", "momentum", "decay"))}
    ahead = "mad(n[1], s0[k], g[k])" if spec.attributes.nesterov else "s0[k]"
    step = ("s0[k] = mad(n[1], s0[k], g[k]);", f"x[k] = mad(-n[0], {ahead}, mad(-n[2], x[k], x[k]));")
    return _build("sgd_list", spec, context.target, 1, scalars, _SGD_NUMBERS, step)


def _build(
    name: str, spec: PlanSpec[AdamWListAttributes], target: Target, state: int, scalars: dict[str, Argument],
    numbers: Sequence[str], step: Sequence[str],
) -> Built:  # fmt: skip
    """Return the program: numbers and the table of addresses, each in parts by the warps of a block, and the loop."""
    members: list[tuple[int, ...]] = []
    for master in spec.attributes.masters:
        first = sum(map(len, members))
        members.append(tuple(range(first, first + 2 + state + master)))
    dtypes = sorted({operand.dtype for operand in spec.operands})
    counts = [math.prod(spec.operands[member[1]].shape) for member in members]
    used = [i for i, count in enumerate(counts) if count]
    chunks = [-(-counts[i] // (_GROUP * THREADS)) for i in used]
    total = sum(chunks)
    gradients = sorted({spec.operands[member[0]].dtype for member in members})
    arrays = ["gradient", "param", *(f"state{i}" for i in range(state)), "master"]
    rows = [
        [
            *(f"place[{row * len(arrays) + j}] = (u64)p{operand};" for j, operand in enumerate(members[i])),
            *([] if spec.attributes.masters[i] else [f"place[{row * len(arrays) + len(arrays) - 1}] = 0;"]),
            f"size[{row}] = {counts[i]}u; first[{row}] = {sum(chunks[:row])}u;",
            f"kinds[{row}] = {gradients.index(spec.operands[members[i][0]].dtype)};",
        ]
        for row, i in enumerate(used)
    ]
    parameters = [f"char *p{i}" for i in range(len(spec.operands))]
    parameters += [f"{'double' if kind == 'float64' else 'long long'} {name}" for name, (kind, _) in scalars.items()]
    reads = [[f"get_float32(state{i}, at, left, FAST, s{i});"] for i in range(state)]
    reads[0] = [*_by_kind([f"get_{dtype}(gradient, at, left, FAST, g);" for dtype in gradients]), *reads[0]]
    reads.append(_weights("get", spec.attributes.masters))
    writes = [f"put_float32(state{i}, at, left, FAST, s{i});" for i in range(state)]
    writes += _weights("put", spec.attributes.masters)
    # A parameter without master weights has none of their memory.
    casts = ["in_global"] * (2 + state) + ["in_global" if all(spec.attributes.masters) else "(char *)"]
    text = [
        *(_access(dtype) for dtype in dtypes),
        _MAD,
        _GLOBAL,
        f"KERNEL __launch_bounds__({THREADS}, {_RESIDENT}) {name}({', '.join(parameters)}) {{",
        "ALLOW_LAUNCH();",  # numbers and addresses are made while the launch before ends
        f"SHARED float n[{len(numbers)}];",
        f"SHARED u64 place[{max(1, len(used)) * len(arrays)}], size[{max(1, len(used))}];",
        f"SHARED unsigned int first[{max(1, len(used))}];",
        f"SHARED unsigned char kinds[{max(1, len(used))}];",
        *_by_warps([[f"n[{i}] = {number};"] for i, number in enumerate(numbers)]),
        *_by_warps(rows),
        "SYNC();",
        "AWAIT_LAUNCH();",
        f"for (u64 chunk = blockIdx.x; chunk < {total}u; chunk += gridDim.x) {{",
        "unsigned int row = 0;",
        *_lookup(len(used)),
        *(
            f"char *const {array} = {cast}(place[row * {len(arrays)}u + {j}u]);"
            for j, (array, cast) in enumerate(zip(arrays, casts, strict=True))
        ),
        "const int kind = kinds[row];",
        f"const u64 at = (chunk - first[row]) * {_GROUP * THREADS}u + threadIdx.x * {_GROUP}u;",
        "const u64 left = size[row] > at ? size[row] - at : 0;",
        f"const int fast = (({' | '.join(f'(u64){array}' for array in arrays)}) & 15) == 0 && left >= {_GROUP};",
        f"float g[{_GROUP}], x[{_GROUP}], {', '.join(f's{i}[{_GROUP}]' for i in range(state))};",
        # Array by array, as the kernel of one parameter has it: that took 44 us on an H100, and this one, with all
        # words on their way at once, 53 to 56.
        "if (!left) continue;",
        *(
            line
            for read, statement in zip(reads, step, strict=True)
            for line in (*_both_ways(read), "#pragma unroll", f"for (int k = 0; k < {_GROUP}; k++) {statement}")
        ),
        *_both_ways(writes),
        "}",
        "}",
    ]
    arguments: list[Argument] = [("operand", i) for i in range(len(spec.operands))]
    grid = (max(1, min(total, _BLOCKS * target.sm_count)), 1, 1)
    launch = Launch(name, grid, (THREADS, 1, 1), 0, (*arguments, *scalars.values()))
    built = kernels(
        "\n".join(text) + "\n", [launch], target,
        dtypes=dtypes, alignments=[itemsize(operand.dtype) for operand in spec.operands],
    )  # fmt: skip
    return Built(built.run, built.workspace, (f"one launch of a generated kernel for {len(members)} parameters",))


def _by_warps(jobs: Sequence[Sequence[str]]) -> list[str]:
    """Return statements that deal jobs out to the warps, whose first threads do them."""
    warps = THREADS // _WARP
    dealt = [[line for job in jobs[warp::warps] for line in job] for warp in range(warps)]
    return [f"if (threadIdx.x == {warp * _WARP}u) {{ {' '.join(job)} }}" for warp, job in enumerate(dealt) if job]


def _lookup(rows: int) -> list[str]:
    """Return statements that set `row` to the last one whose first block of elements is no later than `chunk`."""
    steps = [1 << bit for bit in reversed(range((rows - 1).bit_length() if rows else 0))]
    inside = "row + {step}u < {rows}u && " if rows & (rows - 1) else ""
    test = f"if ({inside}first[row + {{step}}u] <= chunk) row += {{step}}u;"
    return [test.format(step=step, rows=rows) for step in steps]


def _both_ways(statements: Sequence[str]) -> list[str]:
    """Return accesses to whole groups of elements by 16 bytes, and to others one by one."""
    ways = [" ".join(statements).replace("FAST", flag) for flag in "10"]
    return [f"if (fast) {{ {ways[0]} }} else {{ {ways[1]} }}"]


def _by_kind(statements: Sequence[str]) -> list[str]:
    """Return the statement for the kind of the gradient."""
    cases = [f"if (kind == {i}) {statement}" for i, statement in enumerate(statements[:-1])]
    return [" else ".join([*cases, statements[-1]])]


def _weights(access: str, masters: Sequence[bool]) -> list[str]:
    """Return the statements that read or write the weights that are stepped; parameters with others are rounded."""
    own = f"{access}_float32(param, at, left, FAST, x);"
    theirs = f"{access}_float32(master, at, left, FAST, x);"
    if access == "put":
        theirs += " put_bfloat16(param, at, left, FAST, x);"
    if all(masters):
        return [theirs]
    return [f"if (master) {{ {theirs} }} else {own}"] if any(masters) else [own]


def _access(dtype: str) -> str:
    """Return functions that read and write eight elements as float32, by 16 bytes if `fast`."""
    kind, width = STORAGE[dtype], 16 // itemsize(dtype)
    return f"""\
typedef struct ALIGNED(16) {{ {kind} at[{width}]; }} words_{dtype};
DEVICE void get_{dtype}(const char *from, u64 at, u64 left, int fast, float *x) {{
  const {kind} *p = (const {kind} *)from + at;
  if (fast) {{
#pragma unroll
    for (int i = 0; i < {_GROUP // width}; i++) {{
      const words_{dtype} words = ((const words_{dtype} *)p)[i];
#pragma unroll
      for (int k = 0; k < {width}; k++) x[i * {width} + k] = {convert(dtype, "float32", "words.at[k]")};
    }}
  }} else {{
#pragma unroll
    for (int k = 0; k < {_GROUP}; k++) x[k] = (u64)k < left ? {convert(dtype, "float32", "p[k]")} : 0;
  }}
}}
DEVICE void put_{dtype}(char *to, u64 at, u64 left, int fast, const float *x) {{
  {kind} *p = ({kind} *)to + at;
  if (fast) {{
#pragma unroll
    for (int i = 0; i < {_GROUP // width}; i++) {{
      words_{dtype} words;
#pragma unroll
      for (int k = 0; k < {width}; k++) words.at[k] = {convert("float32", dtype, f"x[i * {width} + k]")};
      ((words_{dtype} *)p)[i] = words;
    }}
  }} else {{
#pragma unroll
    for (int k = 0; k < {_GROUP}; k++)
      if ((u64)k < left) p[k] = {convert("float32", dtype, "x[k]")};
  }}
}}
"""
