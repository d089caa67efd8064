"""The text of the kernels of group norms, see `group_norm`."""

from __future__ import annotations

from string import Template
from typing import Final

__all__ = ["COLUMNS", "GRADIENTS", "SOURCE", "STATISTICS", "SUMS_FIRST", "SUMS_LAST", "TILE"]

SOURCE: Final = Template("""\
#define THREADS $threads
#define COLUMNS $columns   /* vectors of a tile, of which a thread has one, or every so-manieth */
#define WIDTH $width       /* vectors of a group within a row */
#define LANES $lanes       /* rows that a block has at once */
#define TILE $tile         /* groups of a block */
#define GROUPS $groups
#define ROWS $rows
#define PARTS $parts
#define V $vector
#define OWN $own           /* channels of a group */
#define CHANNELS $channels
#define COUNT $count       /* elements of a group */
#define WORK ((u64)$images * $tiles * PARTS)
typedef struct { float n, mean, squares; } moments;
typedef struct ALIGNED($aligned) { $store at[V]; } vector;

DEVICE moments merged(moments a, moments b) {
  const float n = a.n + b.n;
  if (b.n == 0) return a;
  if (a.n == 0) return b;
  const float step = b.mean - a.mean, share = b.n / n;
  moments made;
  made.n = n;
  made.mean = a.mean + step * share;
  made.squares = a.squares + b.squares + step * step * a.n * share;
  return made;
}
DEVICE float loaded($store stored) { return $loaded; }
DEVICE $store stored(float value) { return $stored; }
DEVICE u64 channel_of(u64 group, u64 at, unsigned i) {
  return $channel;
}
""")

#: A block's tile: `n`, `tile`, `part`, `group`; threads: `lane`, `column`, and `width` vectors of a group.
TILE: Final = """\
for (u64 work = blockIdx.x; work < WORK; work += gridDim.x) {
const u64 part = work % PARTS, tile = work / PARTS % $tiles, n = work / PARTS / $tiles;
const unsigned lane = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;
const u64 group = tile * TILE + (TILE > 1 ? column / WIDTH : 0);
const bool active = lane < LANES && group < GROUPS;
"""

#: Loops over a thread's vectors: of rows, or of what lies behind each other.
COLUMNS: Final = """\
for (u64 at = (TILE > 1 ? column % WIDTH : column) + $first; active && at < $end; at += TILE > 1 ? WIDTH : COLUMNS) {
"""

STATISTICS: Final = Template("""\
KERNEL moments_of_parts(const $store *x, float *parts) {
  SHARED float counts[THREADS], means[THREADS], squares[THREADS];
  AWAIT_LAUNCH();
  $tile_loop
    moments own;
    own.n = own.mean = own.squares = 0;
    $column_loop
      for (u64 row = $begin + lane; row < $finish; row += LANES * $unroll) {
        float found[$unroll * V], sum = 0, around = 0;
        unsigned taken = 0;
        vector here[$unroll];
        #pragma unroll
        for (unsigned j = 0; j < $unroll; j++) /* all loads first, so that they wait together */
          if (row + j * LANES < $finish) here[j] = *(const vector *)(x + $x_at);
        #pragma unroll
        for (unsigned j = 0; j < $unroll; j++) {
          if (row + j * LANES < $finish) {
            #pragma unroll
            for (unsigned i = 0; i < V; i++) sum += found[j * V + i] = loaded(here[j].at[i]);
            taken = (j + 1) * V;
          }
        }
        moments more;
        more.n = (float)taken;
        more.mean = sum / more.n;
        #pragma unroll
        for (unsigned j = 0; j < $unroll * V; j++) {
          const float step = found[j] - more.mean;
          if (j < taken) around += step * step;
        }
        more.squares = around;
        own = merged(own, more);
      }
    }
    counts[threadIdx.x] = own.n; means[threadIdx.x] = own.mean; squares[threadIdx.x] = own.squares;
    SYNC();
    const unsigned along = TILE > 1 ? column % WIDTH : column;
    #pragma unroll 1
    for (unsigned step = 0; step < 2; step++) { /* lanes first, then the columns of a group */
      for (unsigned half = step ? $half_width : $half_lanes; half > 0; half /= 2) {
        const unsigned place = step ? along : lane, end = step ? $group_width : LANES;
        const bool takes = place < half && place + half < end && (step == 0 || lane == 0) && lane < LANES;
        const unsigned other = threadIdx.x + half * (step ? 1 : COLUMNS);
        if (takes) {
          moments a, b;
          a.n = counts[threadIdx.x]; a.mean = means[threadIdx.x]; a.squares = squares[threadIdx.x];
          b.n = counts[other]; b.mean = means[other]; b.squares = squares[other];
          a = merged(a, b);
          counts[threadIdx.x] = a.n; means[threadIdx.x] = a.mean; squares[threadIdx.x] = a.squares;
        }
        SYNC();
      }
    }
    if (active && lane == 0 && along == 0) {
      float *const to = parts + ((n * GROUPS + group) * PARTS + part) * 3;
      to[0] = counts[threadIdx.x]; to[1] = means[threadIdx.x]; to[2] = squares[threadIdx.x];
    }
    SYNC();
  }
}

KERNEL normalize(const $store *x, const float *scale, const float *bias, const float *parts, $store *__restrict__ y,
                 float *__restrict__ mean, float *__restrict__ inverse$running_parameters) {
  SHARED float centres[TILE], factors[TILE], counts[THREADS], means[THREADS], squares[THREADS];
  AWAIT_LAUNCH();
  $tile_loop
    const unsigned w = threadIdx.x / $share, p = threadIdx.x % $share;
    const bool has_group = w < TILE && tile * TILE + w < GROUPS;
    moments whole;
    whole.n = whole.mean = whole.squares = 0;
    for (unsigned k = p; has_group && k < PARTS; k += $share) {
      const float *const from = parts + ((n * GROUPS + tile * TILE + w) * PARTS + k) * 3;
      moments more;
      more.n = from[0]; more.mean = from[1]; more.squares = from[2];
      whole = merged(whole, more);
    }
    counts[threadIdx.x] = whole.n; means[threadIdx.x] = whole.mean; squares[threadIdx.x] = whole.squares;
    SYNC();
    for (unsigned half = $half_share; half > 0; half /= 2) {
      if (p < half && p + half < $share && has_group) {
        moments more;
        more.n = counts[threadIdx.x + half]; more.mean = means[threadIdx.x + half];
        more.squares = squares[threadIdx.x + half];
        whole = merged(whole, more);
        counts[threadIdx.x] = whole.n; means[threadIdx.x] = whole.mean; squares[threadIdx.x] = whole.squares;
      }
      SYNC();
    }
    if (p == 0 && has_group) {
      centres[w] = whole.mean;
      factors[w] = 1.0f / sqrtf(whole.squares / COUNT + $epsilon);
      if (part == 0) {
        mean[n * GROUPS + tile * TILE + w] = centres[w];
        inverse[n * GROUPS + tile * TILE + w] = factors[w];
        $running
      }
    }
    SYNC();
    const float centre = active ? centres[group - tile * TILE] : 0, factor = active ? factors[group - tile * TILE] : 0;
    $column_loop
      float by[V], more[V];
      #pragma unroll
      for (unsigned i = 0; i < V; i++) {
        const u64 c = channel_of(group, at, i);
        by[i] = scale[c * $scale_step] * factor;
        more[i] = bias[c * $bias_step];
      }
      #pragma unroll 4
      for (u64 row = $begin + lane; row < $finish; row += LANES) {
        const unsigned j = 0;
        const vector here = *(const vector *)(x + $x_at);
        vector made;
        #pragma unroll
        for (unsigned i = 0; i < V; i++) made.at[i] = stored((loaded(here.at[i]) - centre) * by[i] + more[i]);
        $store_y
      }
    }
    SYNC();
  }
}
""")

GRADIENTS: Final = Template("""\
/* For each channel of an image, of a part of its elements: the sums of dy, and of dy times what is normalized. */
KERNEL sums_of_parts(const $store *dy, const $store *x, const float *mean, const float *inverse, float *sums) {
  SHARED float plain[THREADS * V], along[THREADS * V];
  AWAIT_LAUNCH();
  $sum_loop
}

KERNEL gradient(const $store *dy, const $store *x, const float *scale, const float *mean, const float *inverse,
                const float *sums, $store *__restrict__ dx) {
  SHARED float plain[THREADS], along[THREADS];
  AWAIT_LAUNCH();
  $tile_loop
    const unsigned w = threadIdx.x / $share, p = threadIdx.x % $share;
    float first = 0, second = 0;
    if (w < TILE && tile * TILE + w < GROUPS) {
      for (u64 k = p; k < (u64)OWN * $sum_parts; k += $share) {
        const u64 c = (tile * TILE + w) * OWN + k % OWN;
        const float *const from = sums + ((n * $sum_parts + k / OWN) * CHANNELS + c) * 2;
        const float by = scale[c * $scale_step];
        first += by * from[0];
        second += by * from[1];
      }
    }
    plain[threadIdx.x] = first; along[threadIdx.x] = second;
    SYNC();
    for (unsigned half = $half_share; half > 0; half /= 2) {
      if (p < half && p + half < $share && w < TILE) {
        plain[threadIdx.x] += plain[threadIdx.x + half];
        along[threadIdx.x] += along[threadIdx.x + half];
      }
      SYNC();
    }
    const unsigned own = (unsigned)(active ? group - tile * TILE : 0) * $share;
    const float centre = active ? mean[n * GROUPS + group] : 0, factor = active ? inverse[n * GROUPS + group] : 0;
    const float constant = plain[own] / COUNT, linear = along[own] / COUNT;
    $column_loop
      float by[V];
      #pragma unroll
      for (unsigned i = 0; i < V; i++) by[i] = scale[channel_of(group, at, i) * $scale_step];
      #pragma unroll 2
      for (u64 row = $begin + lane; row < $finish; row += LANES) {
        const unsigned j = 0;
        const vector here = *(const vector *)(x + $x_at), slope = *(const vector *)(dy + $dy_at);
        vector made;
        #pragma unroll
        for (unsigned i = 0; i < V; i++) {
          const float unit = (loaded(here.at[i]) - centre) * factor;
          made.at[i] = stored((loaded(slope.at[i]) * by[i] - constant - unit * linear) * factor);
        }
        $store_dx
      }
    }
    SYNC();
  }
}

KERNEL parameters(const float *sums, float *__restrict__ dscale, float *__restrict__ dbias) {
  SHARED float plain[THREADS], along[THREADS];
  AWAIT_LAUNCH();
  const unsigned lane = threadIdx.x / 8, column = threadIdx.x % 8;
  for (u64 tile = blockIdx.x; tile * 8 < CHANNELS; tile += gridDim.x) {
    const u64 c = tile * 8 + column;
    float first = 0, second = 0;
    #pragma unroll 4
    for (u64 k = lane; c < CHANNELS && k < (u64)$images * $sum_parts; k += THREADS / 8) {
      first += sums[(k * CHANNELS + c) * 2];
      second += sums[(k * CHANNELS + c) * 2 + 1];
    }
    plain[threadIdx.x] = first; along[threadIdx.x] = second;
    SYNC();
    for (unsigned half = THREADS / 16; half > 0; half /= 2) {
      if (lane < half) {
        plain[threadIdx.x] += plain[threadIdx.x + half * 8];
        along[threadIdx.x] += along[threadIdx.x + half * 8];
      }
      SYNC();
    }
    if (lane == 0 && c < CHANNELS) {
      dbias[c * $dbias_step] = plain[threadIdx.x];
      dscale[c * $dscale_step] = along[threadIdx.x];
    }
    SYNC();
  }
}
""")

#: Channels last: a thread has the same vector of channels in many rows.
SUMS_LAST: Final = """\
for (u64 work = blockIdx.x; work < (u64)$images * $sum_tiles * $sum_parts; work += gridDim.x) {
  const u64 part = work % $sum_parts, tile = work / $sum_parts % $sum_tiles, n = work / $sum_parts / $sum_tiles;
  const unsigned lane = threadIdx.x / $sum_columns, column = threadIdx.x % $sum_columns;
  const u64 at = tile * $sum_columns + column;
  const bool active = lane < $sum_lanes && at < CHANNELS / V;
  const u64 group = active ? at * V / OWN : 0;
  const float centre = mean[n * GROUPS + group], factor = inverse[n * GROUPS + group];
  float first[V], second[V];
  #pragma unroll
  for (unsigned i = 0; i < V; i++) first[i] = second[i] = 0;
  #pragma unroll 2
  for (u64 row = part * $sum_rows + lane; active && row < ROWS && row < (part + 1) * $sum_rows; row += $sum_lanes) {
    const vector here = *(const vector *)(x + $x_whole), slope = *(const vector *)(dy + $dy_whole);
    #pragma unroll
    for (unsigned i = 0; i < V; i++) {
      const float by = loaded(slope.at[i]);
      first[i] += by;
      second[i] += by * ((loaded(here.at[i]) - centre) * factor);
    }
  }
  #pragma unroll
  for (unsigned i = 0; i < V; i++) {
    plain[threadIdx.x * V + i] = first[i];
    along[threadIdx.x * V + i] = second[i];
  }
  SYNC();
  for (unsigned k = threadIdx.x; k < $sum_columns * V; k += THREADS) {
    const u64 c = tile * $sum_columns * V + k;
    float a = 0, b = 0;
    for (unsigned l = 0; l < $sum_lanes; l++) {
      a += plain[l * $sum_columns * V + k];
      b += along[l * $sum_columns * V + k];
    }
    if (c < CHANNELS) {
      float *const to = sums + ((n * $sum_parts + part) * CHANNELS + c) * 2;
      to[0] = a; to[1] = b;
    }
  }
  SYNC();
}
"""

#: Channels first: 32 threads have a channel, whose elements lie behind each other.
SUMS_FIRST: Final = """\
for (u64 work = blockIdx.x; work * (THREADS / 32) < (u64)$images * CHANNELS * $sum_parts; work += gridDim.x) {
  const u64 line = work * (THREADS / 32) + threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  const bool active = line < (u64)$images * CHANNELS * $sum_parts;
  const u64 c = line % CHANNELS, part = line / CHANNELS % $sum_parts, n = active ? line / CHANNELS / $sum_parts : 0;
  const float centre = mean[n * GROUPS + c / OWN], factor = inverse[n * GROUPS + c / OWN];
  float first = 0, second = 0;
  #pragma unroll 2
  for (u64 at = part * $sum_rows + lane; active && at < $spatial / V && at < (part + 1) * $sum_rows; at += 32) {
    const vector here = *(const vector *)(x + $x_whole), slope = *(const vector *)(dy + $dy_whole);
    #pragma unroll
    for (unsigned i = 0; i < V; i++) {
      const float by = loaded(slope.at[i]);
      first += by;
      second += by * ((loaded(here.at[i]) - centre) * factor);
    }
  }
  plain[threadIdx.x] = first; along[threadIdx.x] = second;
  SYNC();
  for (unsigned half = 16; half > 0; half /= 2) {
    if (lane < half) {
      plain[threadIdx.x] += plain[threadIdx.x + half];
      along[threadIdx.x] += along[threadIdx.x + half];
    }
    SYNC();
  }
  if (active && lane == 0) {
    float *const to = sums + ((n * $sum_parts + part) * CHANNELS + c) * 2;
    to[0] = plain[threadIdx.x]; to[1] = along[threadIdx.x];
  }
  SYNC();
}
"""
