"""Group norms that read their images once: a block keeps its groups in shared memory until their moments are known.

A block has a group whose elements lie together, or some neighbouring groups whose channels are innermost, so that what
it reads of each row fills sectors of memory.  Elsewhere two kernels read the image twice, see `group_norm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import Final

from ....builders.cuda.target import Target

__all__ = ["WHOLE", "Whole", "whole_blocks"]

#: What blocks may be, the best first: bytes of a row that a block reads at least, and blocks of a multiprocessor.
_CHOICES: Final = ((64, 2), (32, 2), (32, 1))
#: Threads of a multiprocessor, and vectors that a thread loads before it merges their moments.
_THREADS: Final = 1024
_UNROLL: Final = 4
#: Bytes of shared memory of a block that the system keeps.
_KEPT: Final = 1024
#: Bytes of shared memory of a thread, for its moments.
_MOMENTS: Final = 12


@dataclass(frozen=True, slots=True)
class Whole:
    """How a block has groups.

    Attributes
    ----------
    tile : int
        Groups of a block.
    columns : int
        Vectors of its part of a row; 1 where elements of a group lie together.
    vectors : int
        That it has.
    threads, resident : int
        Threads of a block, and blocks of a multiprocessor.
    blocks : int
    nbytes : int
        Of vectors in shared memory.
    """

    tile: int
    columns: int
    vectors: int
    threads: int
    resident: int
    blocks: int
    nbytes: int

    def words(self, groups: int, row: int) -> dict[str, object]:
        """Return what the text of the kernel is filled with; a group has `row` vectors of a row."""
        return {
            "whole_threads": self.threads, "whole_resident": self.resident, "whole_tile": self.tile,
            "whole_tiles": groups // self.tile, "whole_columns": self.columns, "whole_vectors": self.vectors,
            "whole_lanes": self.threads // self.columns, "whole_width": row, "whole_unroll": _UNROLL,
        }  # fmt: skip


def whole_blocks(
    images: int, groups: int, own: int, spatial: int, last: bool, vector: int, itemsize: int, target: Target
) -> Whole | None:
    """Return how blocks have whole groups in shared memory, or None where they cannot, or would be few.

    Parameters
    ----------
    images, groups, own, spatial : int
        Images, groups of each, channels of a group, elements of a channel.
    last : bool
        Whether channels are innermost.
    vector, itemsize : int
        Elements of a load, and bytes of an element.
    target : Target
    """
    row = own // vector if last else own * spatial // vector
    for least, resident in _CHOICES:
        threads = _THREADS // resident
        room = target.shared_memory // resident - _KEPT - 4096 - _MOMENTS * threads
        tile = 1
        while last and tile * own * itemsize < least and groups % (2 * tile) == 0:
            tile *= 2
        columns = tile * row if last else 1
        nbytes = tile * own * spatial * itemsize
        fits = nbytes <= room and columns & (columns - 1) == 0 and columns <= threads
        if not fits or (last and tile * own * itemsize < least):
            continue
        blocks = images * (groups // tile)
        if blocks < target.sm_count * resident // 2 or nbytes < vector * itemsize * threads:
            continue
        return Whole(tile, columns, nbytes // (vector * itemsize), threads, resident, blocks, nbytes)
    return None


WHOLE: Final = Template("""\
extern "C" __global__ void __launch_bounds__($whole_threads, $whole_resident) whole(
    const $store *x, const float *scale, const float *bias, $store *__restrict__ y, float *__restrict__ mean,
    float *__restrict__ inverse) {
#if defined(__CUDA_ARCH__)
  extern __shared__ vector kept[];
#else
  SHARED vector kept[$whole_vectors];
#endif
  SHARED float counts[$whole_threads], means[$whole_threads], squares[$whole_threads];
  AWAIT_LAUNCH();
  const u64 n = blockIdx.x / $whole_tiles, tile = blockIdx.x % $whole_tiles;
  const unsigned column = threadIdx.x % $whole_columns;
  moments own;
  own.n = own.mean = own.squares = 0;
  for (unsigned first = threadIdx.x; first < $whole_vectors; first += $whole_unroll * $whole_threads) {
    vector here[$whole_unroll];
    float sum = 0, around = 0;
    unsigned taken = 0;
    #pragma unroll
    for (unsigned j = 0; j < $whole_unroll; j++) { /* all loads first, so that they wait together */
      const unsigned i = first + j * $whole_threads;
      if (i < $whole_vectors) here[j] = *(const vector *)(x + $whole_at);
    }
    #pragma unroll
    for (unsigned j = 0; j < $whole_unroll; j++) {
      const unsigned i = first + j * $whole_threads;
      if (i < $whole_vectors) {
        kept[i] = here[j];
        #pragma unroll
        for (unsigned k = 0; k < V; k++) sum += loaded(here[j].at[k]);
        taken = (j + 1) * V;
      }
    }
    moments more;
    more.n = (float)taken;
    more.mean = sum / more.n;
    #pragma unroll
    for (unsigned j = 0; j < $whole_unroll; j++)
      if (j * V < taken) {
        #pragma unroll
        for (unsigned k = 0; k < V; k++) {
          const float step = loaded(here[j].at[k]) - more.mean;
          around += step * step;
        }
      }
    more.squares = around;
    own = merged(own, more);
  }
  counts[threadIdx.x] = own.n; means[threadIdx.x] = own.mean; squares[threadIdx.x] = own.squares;
  SYNC();
  #pragma unroll 1
  for (unsigned half = $whole_lanes / 2; half > 0; half /= 2) {
    if (threadIdx.x < half * $whole_columns) {
      const unsigned other = threadIdx.x + half * $whole_columns;
      moments more;
      more.n = counts[other]; more.mean = means[other]; more.squares = squares[other];
      own = merged(own, more);
      counts[threadIdx.x] = own.n; means[threadIdx.x] = own.mean; squares[threadIdx.x] = own.squares;
    }
    SYNC();
  }
  own.n = own.mean = own.squares = 0;
  for (unsigned k = 0; k < ($whole_columns > 1 ? $whole_width : 1); k++) { /* each thread, of its own group */
    const unsigned other = $whole_columns > 1 ? column / $whole_width * $whole_width + k : 0;
    moments more;
    more.n = counts[other]; more.mean = means[other]; more.squares = squares[other];
    own = merged(own, more);
  }
  const float centre = own.mean, factor = 1.0f / sqrtf(own.squares / COUNT + $epsilon);
  const u64 group = tile * $whole_tile + ($whole_columns > 1 ? column / $whole_width : 0);
  if (threadIdx.x < $whole_columns && column % $whole_width == 0) {
    mean[n * GROUPS + group] = centre;
    inverse[n * GROUPS + group] = factor;
  }
  float by[V], more[V];
  #pragma unroll
  for (unsigned k = 0; k < V; k++) {
    const u64 c = (tile * $whole_tile * OWN + column * V + k) % CHANNELS;
    by[k] = scale[c * $scale_step] * factor;
    more[k] = bias[c * $bias_step];
  }
  #pragma unroll $whole_unroll
  for (unsigned i = threadIdx.x; i < $whole_vectors; i += $whole_threads) {
    const vector here = kept[i];
    vector made;
    $whole_parameters
    #pragma unroll
    for (unsigned k = 0; k < V; k++) made.at[k] = stored((loaded(here.at[k]) - centre) * by[k] + more[k]);
    *(vector *)(y + $whole_at) = made;
  }
}
""")
