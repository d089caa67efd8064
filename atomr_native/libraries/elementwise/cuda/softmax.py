"""Softmax cross entropy and its gradient as CUDA kernels: memory is read once and written once, where rows fit.

A row belongs to some threads of a warp, to a block, or to a cluster of blocks (compute capability 9.0 and later), which
keep it in registers and shared memory between its sum and its gradient; of a row that is too long for this the rest is
read again, when most of it is still in a cache.  Each thread sums what it has below its own maximum, and the sums are
scaled when they meet (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), so that threads wait
for each other once a row.

Which elements meet in which order is fixed by the plan alone, whatever the addresses: an array that does not begin at
a multiple of 16 bytes is read element by element, and the results are the same, bit by bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....builders.context import Built
from ....builders.cuda.codegen import (
    alignment,
    both_ways,
    broadcast_strides,
    convert,
    index_type,
    itemsize,
    kernels,
    next_power,
)
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Launch
from ....plans.spec import PlanSpec
from ..attributes import LossAttributes
from .softmax_elements import Kind
from .softmax_rows import LONG, Rows, cut

__all__ = ["build_softmax_cross_entropy"]

#: Loads of a thread of `mean`.
_LOADS: Final = 8


def _meet(rows: Rows) -> list[str]:
    """Return statements that reduce `top` and `sum` of each thread over its row."""
    acc, f = rows.kind.acc, "f" if rows.kind.acc == "float" else ""

    def warp(lanes: int, guarded: bool) -> list[str]:
        masks = [lanes >> i for i in range(1, lanes.bit_length())]
        return [
            "{",
            f"const {acc} mine = top;",
            *(f"top = fmax{f}(top, other(top, {mask}u));" for mask in masks),
            f"sum = sum * power(mine - {'base(top)' if guarded else 'top'});",
            *(f"sum = sum + other(sum, {mask}u);" for mask in masks),
            "}",
        ]

    if rows.lanes <= 32:
        return warp(rows.lanes, True)
    warps = rows.lanes // 32
    meet, more = min(32, warps), range(32, warps, 32)
    first = f"threadIdx.x % {meet}u"
    if rows.ranks > 1:  # each warp tells all blocks
        tell = [
            "CLUSTER_WAIT();",
            f"if (threadIdx.x % 32u < {rows.ranks}u) {{",
            "send(tops + lane / 32u, threadIdx.x % 32u, top);",
            "send(sums + lane / 32u, threadIdx.x % 32u, sum);",
            "}",
            "CLUSTER_SYNC();",
        ]
    else:
        tell = ["if (lane % 32u == 0) { tops[lane / 32u] = top; sums[lane / 32u] = sum; }", "SYNC();"]
    return [
        *warp(32, True),
        f"SHARED {acc} tops[{warps}], sums[{warps}];",
        *tell,
        f"top = tops[{first}];",
        *(f"top = fmax{f}(top, tops[{first} + {i}u]);" for i in more),
        f"sum = sums[{first}]{f' * power(tops[{first}] - base(top))' if rows.ranks > 1 else ''};",
        *(f"sum = sum + sums[{first} + {i}u] * power(tops[{first} + {i}u] - base(top));" for i in more),
        *warp(meet, False),
    ]


def _body(rows: Rows, x_step: int, g_step: int, aligned: bool, index: str) -> list[str]:
    """Return the statements of a row, from its elements to its gradient, and to `top` and `sum`."""
    kind, lanes, storage = rows.kind, rows.lanes, STORAGE[rows.kind.dtype]
    acc, f = kind.acc, "f" if kind.acc == "float" else ""
    left = rows.classes % kind.width
    rest_lane, rest_at = rows.whole % lanes, rows.whole * kind.width
    streams, fast = rows.whole > lanes * rows.held, "fast" if aligned else ""
    batch = kind.batch
    partly = bool(rows.n % rows.rows)  # threads of the last block may have no row

    def place(array: str, i: int, c: str = "") -> str:
        """Return the address of a thread's group `i`, after the `c` first ones; bases and constants are apart."""
        step = kind.width * (x_step if array == "x" else g_step)
        return f"{array}_lane" + (f" + {c} * ({index}){step}u" if c else "") + f" + {lanes * i * step}u"

    def full(group: int) -> bool:
        return lanes * (group + 1) <= rows.whole

    guards = ["" if full(i) else f"if (lane + {lanes * i}u < {rows.whole}u) " for i in range(rows.held)]
    inside = [f"if (lane + c + {lanes * i}u < {rows.whole}u)" for i in range(batch)]
    loop = f"for ({index} c = {lanes * rows.held}u; c < {rows.whole}u; c += {lanes * batch}u) {{"
    loads = [
        *(f"group v{i} = empty();" for i in range(batch)),
        *(f"{inside[i]} v{i} = @({place('x', i, 'c')});" for i in range(batch)),
    ]
    ways = min(4, rows.held)
    keep = [*(f"own[{i} * KEPT_STEP] = v{i};" for i in range(batch)), f"own += {batch} * KEPT_STEP;"]
    online = [
        loop,
        *loads,
        *(keep if rows.kept else []),
        f"const {acc} before = top;",
        *(f"top = greatest(v{i}, top);" for i in range(batch)),
        f"const {acc} less = base(top);",
        f"{acc} more = total(v0, less);",
        *(f"more = more + total(v{i}, less);" for i in range(1, batch)),
        "sum = sum * power(before - less) + more;",
        "}",
    ]
    rest = [f"own[{i} * KEPT_STEP]" if rows.kept else f"v{i}" for i in range(batch)]
    again = [
        loop,
        *([] if rows.kept else loads),
        *(f"{inside[i]} @_store({place('grad', i, 'c')}, gradient({rest[i]}, top, factor));" for i in range(batch)),
        *(keep[-1:] if rows.kept else []),
        "}",
    ]
    if rows.kept:
        online, again = (["{", "group *own = kept;", *lines, "}"] for lines in (online, again))
    elements = [kind.put("rest", q, f"x[{(rest_at + q) * x_step}u]") for q in range(left)]
    return [
        f"const {storage} *x_lane = x + lane * ({index}){kind.width * x_step}u;",
        f"{storage} *grad_lane = grad + lane * ({index}){kind.width * g_step}u;",
        *(f"group w{i} = empty();" for i in range(rows.held)),
        *both_ways(fast, [f"{guard}w{i} = @({place('x', i)});" for i, guard in enumerate(guards)]),
        *(["group rest = empty();",
           f"if (lane == {rest_lane}u) {{",
           *([f"rest.at[{i}] = 0;" for i in range(left // 2)] if kind.paired else []),
           *([f"rest.at[{left // 2}] &= 0xffff0000u;"] if kind.paired and left % 2 else []),
           *elements, "}"] if left else []),
        f"{acc} {', '.join(f'top{i} = lowest()' for i in range(ways))};",
        *(f"top{i % ways} = greatest(w{i}, top{i % ways});" for i in range(rows.held)),
        *(["top0 = greatest(rest, top0);"] if left else []),
        f"{acc} top = top0;",
        *(f"top = fmax{f}(top, top{i});" for i in range(1, ways)),
        f"{acc} sum = 0;",
        "{",
        f"const {acc} less = base(top);",
        f"{acc} {', '.join(f'sum{i} = 0' for i in range(ways))};",
        *(f"sum{i % ways} = sum{i % ways} + total(w{i}, less);" for i in range(rows.held)),
        *(["sum0 = sum0 + total(rest, less);"] if left else []),
        *(f"sum = sum + sum{i};" for i in range(ways)),
        "}",
        *(both_ways(fast, online) if streams else []),
        *_meet(rows),
        f"const {acc} factor = valid ? scale / sum : nan_of();",
        *(["if (active) {"] if partly else []),
        *both_ways(fast, [
            f"{guard}@_store({place('grad', i)}, gradient(w{i}, top, factor));" for i, guard in enumerate(guards)
        ]),
        *(both_ways(fast, again) if streams else []),
        *([f"if (lane == {rest_lane}u) {{",
           "const group g = gradient(rest, top, factor);",
           *(f"grad[{(rest_at + q) * g_step}u] = {kind.bits('g', q)};" for q in range(left)),
           "}"] if left else []),
        *(["}"] if partly else []),
    ]  # fmt: skip


def _cluster(acc: str) -> list[str]:
    """Return the functions of a cluster: a barrier, and writes into another block's shared arrays."""
    kind, register = ("f32", "f") if acc == "float" else ("f64", "d")
    return [
        "#if defined(__CUDA_ARCH__)",
        '#define CLUSTER_ARRIVE() asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")',
        '#define CLUSTER_WAIT() asm volatile("barrier.cluster.wait.aligned;" ::: "memory")',
        "#define CLUSTER_SYNC() "
        'asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory")',
        f"DEVICE void send({acc} *place, unsigned int rank, {acc} x) {{",
        'unsigned int there; asm("mapa.shared::cluster.u32 %0, %1, %2;"',
        ' : "=r"(there) : "r"((unsigned int)__cvta_generic_to_shared(place)), "r"(rank));',
        f'asm volatile("st.shared::cluster.{kind} [%0], %1;" :: "r"(there), "{register}"(x) : "memory");',
        "}",
        "#else",
        "#define CLUSTER_ARRIVE()",
        "#define CLUSTER_WAIT() SYNC()",
        "#define CLUSTER_SYNC() SYNC()",
        f"DEVICE void send({acc} *place, unsigned int rank, {acc} x) {{ if (rank == 0) *place = x; }}",
        "#endif",
    ]


def _kept(rows: Rows) -> list[str]:
    """Return the declaration of the groups that a thread has in shared memory: KEPT_STEP apart, from `kept` on."""
    return [
        "#if defined(__CUDA_ARCH__)",
        "extern __shared__ group all_kept[];",
        "group *kept = all_kept + threadIdx.x;",
        f"#define KEPT_STEP {rows.block}u",
        "#else",
        f"SHARED group all_kept[{rows.kept * rows.lanes}];",
        "group *kept = all_kept + lane;",
        f"#define KEPT_STEP {rows.lanes}u",
        "#endif",
    ]


def _mean(kind: Kind, count: int, n: int, out: str) -> tuple[list[str], int]:
    """Return the kernel that adds `count` sums of losses and divides by `n`, and its threads."""
    acc = kind.acc
    threads = max(32, min(LONG, next_power(count)))
    divisor = (float(np.float32(n)) if acc == "float" else float(n)).hex()
    warps = threads // 32
    ways = min(_LOADS, -(-count // threads))
    adds = [f"if (j + {threads * i}u < {count}u) sum{i} = sum{i} + losses[j + {threads * i}u];" for i in range(ways)]
    return [
        f"KERNEL mean(const {acc} *losses, {STORAGE[out]} *loss) {{",
        "AWAIT_LAUNCH();",
        "const unsigned int lane = threadIdx.x;",
        f"{acc} {', '.join(f'sum{i} = 0' for i in range(ways))};",
        f"for ({index_type(count + threads * ways)} j = lane; j < {count}u; j += {threads * ways}u) {{",
        *adds,
        "}",
        f"{acc} sum = sum0;",
        *(f"sum = sum + sum{i};" for i in range(1, ways)),
        *(f"sum = sum + other(sum, {16 >> i}u);" for i in range(5)),
        f"SHARED {acc} sums[{warps}];",
        "if (lane % 32u == 0) sums[lane / 32u] = sum;",
        "SYNC();",
        f"sum = sums[lane % {warps}u];",
        *(f"sum = sum + other(sum, {warps >> i}u);" for i in range(1, warps.bit_length())),
        f"sum = sum / ({acc}){divisor};",
        f"if (lane == 0) loss[0] = {convert(kind.compute, out, 'sum')};",
        "}",
    ], threads  # fmt: skip


def build_softmax_cross_entropy(spec: PlanSpec[LossAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.softmax_cross_entropy``: operands ``logits, labels, grad, loss``, no scalars.

    Deterministic; two launches.  A label outside the classes makes the loss and its row of the gradient NaN (on the
    host such a message fails before it writes anything, which a kernel cannot).
    """
    logits, labels, grad, loss = spec.operands
    n, classes = logits.shape
    compute, dtype = spec.attributes.compute, logits.dtype
    size = itemsize(dtype)
    x, g = broadcast_strides(logits, (n, classes)), broadcast_strides(grad, (n, classes))
    (label_step,) = broadcast_strides(labels, (n,))
    width = 16 // size
    aligned = x[1] == g[1] == 1 and classes >= width and not any(step * size % 16 for step in (x[0], g[0]))
    kind = Kind(dtype, compute, width if aligned else 1)
    rows = cut(kind, n, classes, context.target)
    acc, f = kind.acc, "f" if kind.acc == "float" else ""
    lanes, batch = rows.lanes, kind.batch
    reach = classes + lanes * kind.width * (batch + 1)
    index = index_type(reach, reach * x[1], reach * g[1])
    scale = (1.0 / n).hex() if compute == "float64" else float(np.float32(1.0 / n)).hex()
    storage = STORAGE[dtype]
    warps = rows.block // 32
    within = lanes <= 32  # a warp, and blocks have several rows
    last = rows.n % rows.rows
    lines = [
        *kind.helpers(rows.ranks, max(LONG, lanes)),
        *(_cluster(acc) if rows.ranks > 1 else []),
        f'extern "C" __global__ void {rows.bounds} rows(const {storage} *logits, '
        f"const {STORAGE[labels.dtype]} *labels,",
        f"{storage} *__restrict__ gradients, {acc} *__restrict__ losses) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        *(
            [
                "CLUSTER_ARRIVE();",  # shared arrays are there when all blocks have begun
                f"const unsigned int lane = blockIdx.x % {rows.ranks}u * {rows.block}u + threadIdx.x;",
                f"const u64 row = blockIdx.x / {rows.ranks}u;",
            ]
            if rows.ranks > 1
            else [
                f"const unsigned int lane = threadIdx.x % {lanes}u;",
                f"{'' if last else 'const '}u64 row = blockIdx.x * (u64){rows.rows}u + threadIdx.x / {lanes}u;",
            ]
        ),
        *([f"const bool active = row < {n}u;", f"if (!active) row = {n - 1}u;"] if last else []),
        f"const long long label = labels[row * {label_step}u];",
        f"const bool valid = label >= 0 && label < {classes};",
        f"const {storage} *x = logits + row * {x[0]}u;",
        f"{storage} *grad = gradients + row * {g[0]}u;",
        *(["const bool fast = ((u64)logits | (u64)gradients) % 16u == 0;"] if aligned else []),
        f"const {acc} scale = ({acc}){scale};",
        *(_kept(rows) if rows.kept else []),
        *_body(rows, x[1], g[1], aligned, index),
        # The thread that wrote the label's gradient writes it again, so that nothing has to be waited for.
        f"const bool mine = lane == (valid ? (unsigned int)(label / {kind.width} % {lanes}) : 0u)"
        f"{' && active' if last else ''};",
        f"{acc} loss = 0;",
        "if (mine) loss = nan_of();",
        "if (mine && valid) {",
        f"const {storage} bits = x[label * {x[1]}];",
        f"const {acc} d = {convert(dtype, compute, 'bits')} - top, e = (power(d) / sum - 1) * scale;",
        f"grad[label * {g[1]}] = {convert(compute, dtype, 'e')};",
        f"loss = log{f}(sum) - d;",
        "}",
        *(
            [
                *(f"loss = loss + other(loss, {16 >> i}u);" for i in range(5)),
                f"SHARED {acc} parts[{warps}];",
                "if (threadIdx.x % 32u == 0) parts[threadIdx.x / 32u] = loss;",
                "SYNC();",
                "if (threadIdx.x == 0) {",
                *(f"loss = loss + parts[{i}];" for i in range(1, warps)),
                "losses[blockIdx.x] = loss;",
                "}",
            ]
            if within
            else ["if (mine) losses[row] = loss;"]
        ),
        "}",
    ]
    more, threads = _mean(kind, rows.sums, n, loss.dtype)
    launches = [
        Launch(
            "rows",
            (rows.sums * rows.ranks, 1, 1),
            (rows.block, 1, 1),
            rows.shared,
            (("operand", 0), ("operand", 1), ("operand", 2), ("workspace", 0)),
        ),
        Launch("mean", (1, 1, 1), (threads, 1, 1), 0, (("workspace", 0), ("operand", 3))),
    ]
    dtypes = [o.dtype for o in spec.operands]
    return kernels(
        "\n".join([*lines, *more]) + "\n",
        launches,
        context.target,
        dtypes={*dtypes, compute},
        alignments=[alignment(d) for d in dtypes],
        workspace=rows.sums * itemsize(compute),
    )
