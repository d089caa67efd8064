"""Kernels of steps of AdamW and SGD over many parameters: one launch, whose blocks take 2048 elements at a time.

Addresses are parameters of the kernel.  A tree of comparisons, which is the same for a whole block, finds those of the
array that its elements belong to.  Each statement is rounded as `atomr_native.libraries.fused.kernels.optimizers` has
it on a GPU, by `mad` where that contracts a product and a sum, and on a processor as the host device rounds.
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
_MAD: Final = """\
DEVICE float mad(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}
"""
_ADAMW_NUMBERS: Final = (
    "(float)beta1", "(float)(1.0 - beta1)", "(float)beta2", "(float)(1.0 - beta2)",
    "(float)(lr / (1.0 - pow(beta1, (double)step)))", "(float)(1.0 / sqrt(1.0 - pow(beta2, (double)step)))",
    "(float)eps", "(float)(lr * decay)",
)  # fmt: skip
_ADAMW_STEP: Final = (
    "s0[k] = mad(n[1], g[k], n[0] * s0[k]);",
    "s1[k] = mad(n[3], g[k] * g[k], n[2] * s1[k]);",
    "const float size = mad(sqrtf(s1[k]), n[5], n[6]);",
    "x[k] = mad(-n[4], s0[k] / size, mad(-n[7], x[k], x[k]));",
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
    """Return the program: grid, parameters, numbers by one thread of a block, and the loop."""
    members: list[tuple[int, ...]] = []
    for master in spec.attributes.masters:
        first = sum(map(len, members))
        members.append(tuple(range(first, first + 2 + state + master)))
    dtypes = sorted({operand.dtype for operand in spec.operands})
    counts = [math.prod(spec.operands[member[1]].shape) for member in members]
    chunks = [-(-count // (_GROUP * THREADS)) for count in counts]
    starts = [sum(chunks[:i]) for i in range(len(chunks))]
    gradients = sorted({spec.operands[member[0]].dtype for member in members})
    found = [operand.dtype for operand in spec.operands]
    leaves = [
        _leaf(found, member, state, (count, start), gradients)
        for member, count, start in zip(members, counts, starts, strict=True)
        if count
    ]
    used = [start for start, count in zip(starts, counts, strict=True) if count]
    parameters = [f"char *p{i}" for i in range(len(spec.operands))]
    parameters += [f"{'double' if kind == 'float64' else 'long long'} {name}" for name, (kind, _) in scalars.items()]
    text = [
        *(_access(dtype) for dtype in dtypes),
        _MAD,
        f"KERNEL {name}({', '.join(parameters)}) {{",
        "AWAIT_LAUNCH();",
        f"SHARED float n[{len(numbers)}];",
        "if (threadIdx.x == 0) {",
        *(f"n[{i}] = {number};" for i, number in enumerate(numbers)),
        "}",
        "SYNC();",
        f"for (u64 chunk = blockIdx.x; chunk < {sum(chunks)}u; chunk += gridDim.x) {{",
        "char *gradient = 0, *param = 0, *state0 = 0, *state1 = 0, *master = 0;",
        "u64 count = 0, start = 0;",
        "int kind = 0;",
        *_tree(used, leaves),
        f"const u64 at = (chunk - start) * {_GROUP * THREADS}u + threadIdx.x * {_GROUP}u;",
        "if (at >= count) continue;",
        "const u64 left = count - at;",
        "const int fast = (((u64)gradient | (u64)param | (u64)state0 | (u64)state1 | (u64)master) & 15) == 0"
        f" && left >= {_GROUP};",
        f"float g[{_GROUP}], x[{_GROUP}], {', '.join(f's{i}[{_GROUP}]' for i in range(state))};",
        # The gradient last: to convert it waits for its words, and what is read after that would come later.
        *(f"get_float32(state{i}, at, left, fast, s{i});" for i in range(state)),
        *_weights("get", spec.attributes.masters),
        *_by_kind([f"get_{dtype}(gradient, at, left, fast, g);" for dtype in gradients]),
        "#pragma unroll",
        f"for (int k = 0; k < {_GROUP}; k++) {{",
        *step,
        "}",
        *(f"put_float32(state{i}, at, left, fast, s{i});" for i in range(state)),
        *_weights("put", spec.attributes.masters),
        "}",
        "}",
    ]
    arguments: list[Argument] = [("operand", i) for i in range(len(spec.operands))]
    grid = (max(1, min(sum(chunks), _BLOCKS * target.sm_count)), 1, 1)
    launch = Launch(name, grid, (THREADS, 1, 1), 0, (*arguments, *scalars.values()))
    built = kernels(
        "\n".join(text) + "\n", [launch], target,
        dtypes=dtypes, alignments=[itemsize(operand.dtype) for operand in spec.operands],
    )  # fmt: skip
    return Built(built.run, built.workspace, (f"one launch of a generated kernel for {len(members)} parameters",))


def _leaf(dtypes: Sequence[str], member: tuple[int, ...], state: int, size: tuple[int, int], kinds: list[str]) -> str:
    """Return the statements that choose a parameter: its addresses, elements, first block of elements, and kind."""
    names = ["gradient", "param", *(f"state{i}" for i in range(state)), "master"]
    chosen = [f"{name} = p{i};" for name, i in zip(names, member, strict=False)]
    return " ".join([*chosen, f"count = {size[0]}u; start = {size[1]}u; kind = {kinds.index(dtypes[member[0]])};"])


def _tree(starts: Sequence[int], leaves: Sequence[str]) -> list[str]:
    """Return the statement of the leaf whose start is the last one up to `chunk`."""
    if len(leaves) <= 1:
        return list(leaves)
    half = len(leaves) // 2
    low, high = _tree(starts[:half], leaves[:half]), _tree(starts[half:], leaves[half:])
    return [f"if (chunk < {starts[half]}u) {{", *low, "} else {", *high, "}"]


def _by_kind(statements: Sequence[str]) -> list[str]:
    """Return the statement for the kind of the gradient."""
    cases = [f"if (kind == {i}) {statement}" for i, statement in enumerate(statements[:-1])]
    return [" else ".join([*cases, statements[-1]])]


def _weights(access: str, masters: Sequence[bool]) -> list[str]:
    """Return the statements that read or write the weights that are stepped; parameters with others are rounded."""
    own = f"{access}_float32(param, at, left, fast, x);"
    theirs = f"{access}_float32(master, at, left, fast, x);"
    if access == "put":
        theirs += " put_bfloat16(param, at, left, fast, x);"
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
