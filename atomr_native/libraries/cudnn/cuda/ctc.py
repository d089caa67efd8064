"""Kernels of connectionist temporal classification.

cuDNN's own function takes at most 255 labels, float32 and blank 0, and is known to read beyond its arrays for labels
that are longer than their sequences, which only the device knows.  Here a block computes the ways of a sequence, step
by step, in logarithms; the softmax of each step, and the gradient, have a block for each step.
"""

from __future__ import annotations

from string import Template
from typing import Any, Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import as_dtype
from ....plans.spec import OperandSpec, PlanSpec
from ..ctc import CtcAttributes

__all__ = ["build_ctc_loss", "ctc_source"]

#: Blocks for each multiprocessor.
_BLOCKS: Final = 8

_SOURCE: Final = Template("""\
#define STATES $states
#define STEPS $steps
#define MINUS_INFINITY ((real)-bits_float(0x7f800000u))
#define NOT_A_NUMBER ((real)bits_float(0x7fc00000u))
typedef $real real;

DEVICE real score(const $store *x, u64 t, u64 n, u64 k) {
  const $store found = x[t * $x_t + n * $x_n + k * $x_k];
  return $loaded;
}
DEVICE real total(real a, real b) {
  const real most = a > b ? a : b;
  return most == MINUS_INFINITY ? most : most + log$f(exp$f(a - most) + exp$f(b - most));
}
/* The labels of a sequence; -1: there is something wrong with it. */
DEVICE int count_labels(const int *labels, int steps, int count, u64 n) {
  if (steps < 0 || steps > STEPS || count < 0 || count > $labels) return -1;
  for (int i = 0; i < count; i++) {
    const int label = labels[n * $l_n + i * $l_i];
    if (label < 0 || label >= $classes || label == $blank) return -1;
  }
  return count;
}
DEVICE int class_of(const int *labels, u64 n, int state) {
  return state & 1 ? labels[n * $l_n + state / 2 * $l_i] : $blank;
}
/* Whether the blank before a label can be left out. */
DEVICE bool skips(const int *labels, u64 n, int state) {
  return (state & 1) && state >= 3 && class_of(labels, n, state) != class_of(labels, n, state - 2);
}

/* The logarithm of the sum of the exponentials of each step's scores. */
KERNEL rows(const $store *x, const int *input_lengths, real *sums) {
  SHARED real part[$threads];
  AWAIT_LAUNCH();
  for (u64 row = blockIdx.x; row < ${steps}ull * $sequences; row += gridDim.x) {
    const u64 t = row / $sequences, n = row % $sequences;
    real most = MINUS_INFINITY, sum = 0;
    for (u64 k = threadIdx.x; k < $classes; k += $threads) {
      const real found = score(x, t, n, k);
      most = found > most || found != found ? found : most;
    }
    part[threadIdx.x] = most;
    SYNC();
    for (unsigned half = $threads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        const real other = part[threadIdx.x + half];
        if (other > part[threadIdx.x] || other != other) part[threadIdx.x] = other;
      }
      SYNC();
    }
    most = part[0];
    SYNC();
    for (u64 k = threadIdx.x; k < $classes; k += $threads) sum += exp$f(score(x, t, n, k) - most);
    part[threadIdx.x] = sum;
    SYNC();
    for (unsigned half = $threads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      SYNC();
    }
    if (threadIdx.x == 0) sums[row] = most + log$f(part[0]);
    SYNC();
  }
}

/* The ways to each state from the beginning; of gradients, then the share of all ways that go through it. */
KERNEL paths(const $store *x, const int *labels, const int *input_lengths, const int *label_lengths,
             const real *sums, real *ways, real *later, real *costs) {
  SHARED int found[1];
  AWAIT_LAUNCH();
  for (u64 n = blockIdx.x; n < $sequences; n += gridDim.x) {
    const int steps = input_lengths[n * $i_n];
    if (threadIdx.x == 0) found[0] = count_labels(labels, steps, label_lengths[n * $c_n], n);
    SYNC();
    const int count = found[0], states = 2 * count + 1;
    SYNC();
    if (count < 0 || steps == 0) {
      if (threadIdx.x == 0) costs[n] = count < 0 ? NOT_A_NUMBER : count == 0 || $zero_infinity ? 0 : -MINUS_INFINITY;
      continue;
    }
    real *const own = ways + n * ${kept}ull * STATES;
    for (int t = 0; t < steps; t++) {
      const real *const before = own + (u64)((t + $kept - 1) % $kept) * STATES;
      real *const to = own + (u64)(t % $kept) * STATES;
      for (int s = threadIdx.x; s < states; s += $threads) {
        real made = t == 0 && s < 2 ? 0 : MINUS_INFINITY;
        if (t > 0) {
          made = before[s];
          if (s > 0) made = total(made, before[s - 1]);
          if (skips(labels, n, s)) made = total(made, before[s - 2]);
        }
        to[s] = made + score(x, t, n, class_of(labels, n, s)) - sums[(u64)t * $sequences + n];
      }
      SYNC();
    }
    const real *const last = own + (u64)((steps - 1) % $kept) * STATES;
    const real whole = count ? total(last[states - 1], last[states - 2]) : last[0];
    if (threadIdx.x == 0) costs[n] = whole == MINUS_INFINITY && $zero_infinity ? 0 : -whole;
    SYNC();
    if (!$gradient || whole == MINUS_INFINITY) continue;
    real *const rest = later + n * 2 * STATES;
    for (int t = steps - 1; t >= 0; t--) {
      const real *const after = rest + (u64)((t + 1) % 2) * STATES;
      real *const to = rest + (u64)(t % 2) * STATES;
      for (int s = threadIdx.x; s < states; s += $threads) {
        real made = t == steps - 1 && s >= states - 2 ? 0 : MINUS_INFINITY;
        if (t < steps - 1) {
          made = after[s];
          if (s + 1 < states) made = total(made, after[s + 1]);
          if (s + 2 < states && skips(labels, n, s + 2)) made = total(made, after[s + 2]);
        }
        own[(u64)t * STATES + s] += made - whole;
        to[s] = made + score(x, t, n, class_of(labels, n, s)) - sums[(u64)t * $sequences + n];
      }
      SYNC();
    }
  }
}
""")

_SLOPES: Final = Template("""
/* The gradient: the probability of each class, less the share of the ways that have it in this step. */
KERNEL slopes(const $store *x, const int *labels, const int *input_lengths, const int *label_lengths,
              const real *sums, const real *ways, const real *costs, $store *dx) {
  SHARED int found[1];
  AWAIT_LAUNCH();
  for (u64 row = blockIdx.x; row < ${steps}ull * $sequences; row += gridDim.x) {
    const u64 t = row / $sequences, n = row % $sequences;
    const int steps = input_lengths[n * $i_n];
    if (threadIdx.x == 0) found[0] = count_labels(labels, steps, label_lengths[n * $c_n], n);
    SYNC();
    const int count = found[0], states = 2 * count + 1;
    SYNC();
    const real *const own = ways + (n * ${kept}ull + t) * STATES;
    $store *const to = dx + t * $d_t + n * $d_n;
    bool possible = count >= 0 && t < (u64)steps;
    if (possible) { /* as the paths have it: the last step has a state that is reached */
      const real *const last = ways + (n * ${kept}ull + steps - 1) * STATES;
      const real whole = count ? total(last[states - 1], last[states - 2]) : last[0];
      possible = whole != MINUS_INFINITY;
    }
    for (u64 k = threadIdx.x; k < $classes; k += $threads) {
      const real made = count < 0 ? NOT_A_NUMBER : possible ? exp$f(score(x, t, n, k) - sums[row]) : 0;
      to[k * $d_k] = $made_stored;
    }
    SYNC();
    if (!possible) continue;
    for (int i = threadIdx.x; i <= count; i += $threads) { /* labels, and last the blank */
      const int label = i < count ? class_of(labels, n, 2 * i + 1) : $blank;
      real share = 0;
      bool first = true;
      for (int j = 0; i < count && j < i; j++) first = first && class_of(labels, n, 2 * j + 1) != label;
      if (!first) continue;
      for (int s = i < count ? 2 * i + 1 : 0; s < states; s += 2)
        if (i == count || class_of(labels, n, s) == label) share += exp$f(own[s]);
      const real made = exp$f(score(x, t, n, label) - sums[row]) - share;
      to[label * $d_k] = $made_stored;
    }
    SYNC();
  }
}
""")


def _steps(spec: OperandSpec) -> tuple[int, ...]:
    size = as_dtype(spec.dtype).itemsize
    return tuple(step // size for step in spec.strides)


def ctc_source(spec: PlanSpec[CtcAttributes], target: Target) -> tuple[str, list[Launch], int]:
    """Return the kernels, their launches, and the bytes of workspace."""
    how = spec.attributes
    places = {operand.name: at for at, operand in enumerate(spec.operands)}
    x, labels, input_lengths, label_lengths = spec.operands[:4]
    order = [how.layout.index(axis) for axis in "tnc"]
    steps, sequences, classes = (x.shape[axis] for axis in order)
    gradient = "dx" in places
    real = "float64" if x.dtype == "float64" else "float32"
    size = as_dtype(real).itemsize
    states, kept = 2 * labels.shape[1] + 1, steps if gradient else 2
    begins, taken = {}, 0
    for name, n in (
        ("sums", steps * sequences),
        ("ways", sequences * kept * states),
        ("later", sequences * 2 * states),
    ):
        begins[name] = taken
        taken += padded(n * size)
    words: dict[str, Any] = {
        "real": STORAGE[real], "store": STORAGE[x.dtype], "f": "" if real == "float64" else "f", "states": states,
        "steps": steps, "sequences": sequences, "classes": classes, "labels": labels.shape[1], "kept": kept,
        "blank": how.blank, "zero_infinity": int(how.zero_infinity), "gradient": int(gradient), "threads": THREADS,
        "loaded": convert(x.dtype, real, "found"), "made_stored": convert(real, x.dtype, "made"),
    }  # fmt: skip
    for name, found in (("x", x), ("d", spec.operands[-1])):
        if name == "x" or gradient:
            words |= {f"{name}_{axis}": f"{_steps(found)[at]}ull" for axis, at in zip("tnk", order, strict=True)}
    words |= dict(zip(("l_n", "l_i"), (f"{step}ll" for step in _steps(labels)), strict=True))
    words |= {"i_n": f"{_steps(input_lengths)[0]}ll", "c_n": f"{_steps(label_lengths)[0]}ll"}

    def launch(name: str, work: int, *arguments: str) -> Launch:
        grid = max(1, min(work, target.sm_count * _BLOCKS))
        given: list[Argument] = [
            ("operand", places[one]) if one in places else ("workspace", begins[one]) for one in arguments
        ]
        return Launch(name, (grid, 1, 1), (THREADS, 1, 1), 0, tuple(given))

    read = ("x", "labels", "input_lengths", "label_lengths", "sums")
    launches = [
        launch("rows", steps * sequences, "x", "input_lengths", "sums"),
        launch("paths", sequences, *read, "ways", "later", "costs"),
    ]
    text = _SOURCE.substitute(words)
    if gradient:
        launches.append(launch("slopes", steps * sequences, *read, "ways", "costs", "dx"))
        text += _SLOPES.substitute(words)
    return text, launches, taken


def build_ctc_loss(spec: PlanSpec[CtcAttributes], context: CudaContext) -> Built:
    """Build ``cudnn.ctc_loss``: two kernels, and a third for the gradient.

    Raises
    ------
    Unsupported
        For more workspace than the limit.
    """
    text, launches, workspace = ctc_source(spec, context.target)
    if workspace > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, workspace, context.workspace_limit)
    dtypes = [operand.dtype for operand in spec.operands]
    return kernels(
        text, launches, context.target, dtypes={*dtypes, "float32"}, alignments=[alignment(one) for one in dtypes],
        workspace=workspace,
    )  # fmt: skip
