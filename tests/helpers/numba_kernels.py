"""Numba kernels of the tests, in a file, since their source is looked at."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice
from numba.cuda import random as cuda_random
from numba.cuda.libdevice import sinf


@cuda.jit(device=True)
def square(value: Any) -> Any:
    return value * value


@cuda.jit(device=True)
def put(array: Any, i: Any, value: Any) -> None:
    array[i] = value


@cuda.jit
def scale(x: Any, y: Any, factor: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        x[i] = square(y[i]) * factor


def plain(x, y):
    """Add, without a decorator."""
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        x[i, j] += y[i, j]


@cuda.jit
def sine_of_cuda(x):
    x[cuda.threadIdx.x] = cuda.libdevice.sinf(x[cuda.threadIdx.x])


@cuda.jit
def sine_of_numba(x):
    x[cuda.threadIdx.x] = numba.cuda.libdevice.sinf(x[cuda.threadIdx.x])


@cuda.jit
def sine_of_module(x):
    x[cuda.threadIdx.x] = libdevice.sinf(x[cuda.threadIdx.x])


@cuda.jit
def sine_of_function(x):
    x[cuda.threadIdx.x] = sinf(x[cuda.threadIdx.x])


@cuda.jit
def by_full_name(x):
    i = numba.cuda.grid(1)
    numba.cuda.syncthreads()
    if i < x.size:
        x[i] = numba.float32(3) * x[i]


@cuda.jit
def reverse(a, out, n):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    tile[t] = a[0, t]
    cuda.syncthreads()
    out[t] = tile[n - 1 - t]


@cuda.jit
def dynamic(x, n):
    tile = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    x[t] = tile[n - 1 - t]


@cuda.jit
def histogram(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.jit
def scalars(out, i8, u32, f32, c64, flag, pair):
    out[0] = i8
    out[1] = u32
    out[2] = f32
    out[3] = c64.real + 10 * c64.imag
    out[4] = 1 if flag else 0
    out[5] = pair[0] + 100 * pair[1]


@cuda.jit
def uniform(states, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = cuda_random.xoroshiro128p_uniform_float32(states, i)


@cuda.jit
def particles(records, dt):
    i = cuda.grid(1)
    if i < records.size:
        records[i].x += records[i].v * dt


@cuda.jit
def of_a_struct(out, p):
    out[0] = p.n
    out[1] = p.gain
    out[2] = p.at.x
    out[3] = p.at.y


@cuda.jit
def over_the_end(x, y):
    i = cuda.grid(1)
    x[i] = y[i + 1]


@cuda.jit
def over_by_device_function(x):
    put(x, cuda.grid(1) + 100, 1.0)


@cuda.jit
def over_by_atomic(x):
    cuda.atomic.add(x, -1 - x.size, 1.0)


PARTICLE = np.dtype([("x", np.float64), ("v", np.float64)])


def from_a_function(calls: Any) -> Any:
    """Return kernels that have `cuda`, and things of it, from the function that they are defined in."""
    from numba import cuda as here
    from numba.cuda import grid

    @here.jit(device=True)
    def place() -> Any:
        return here.blockIdx.x * here.blockDim.x + here.threadIdx.x

    @here.jit
    def places(x):
        i = here.grid(1)
        if i < x.size:
            x[i] = i * calls + (grid(1) - place())

    return places


@cuda.jit
def ring(x):
    i = cuda.grid(1)
    x[i] += 1
    neighbour = cuda.shared.array(8, float32)
    neighbour[i] = x[i]
    cuda.syncthreads()
    x[i] = neighbour[(i + 1) % 8]


@cuda.jit
def threads(out):
    t = cuda.threadIdx
    i = t.x + cuda.blockDim.x * (t.y + cuda.blockDim.y * t.z)
    out[cuda.blockIdx.x, i, 0] = t.x
    out[cuda.blockIdx.x, i, 1] = t.y
    out[cuda.blockIdx.x, i, 2] = t.z
    out[cuda.blockIdx.x, i, 3] = cuda.laneid


TABLE = np.arange(4, dtype=np.float32)
SHAPE = (2, 3)


@cuda.jit(device=True)
def total(row: Any, n: Any, start: Any = 0.0) -> Any:
    for k in range(n):
        start += row[k]
    return start


@cuda.jit
def over_in_many_ways(x, states, which):
    """Have an index out of bounds in one of many ways; x has 4 rows of 5."""
    i = cuda.grid(1)
    if which == 0:
        x[which][5 + i] = 1
    elif which == 1:
        place = (cuda.threadIdx.x, i - 6)
        x[place] += 1
    elif which == 2:
        few = cuda.local.array(3, float32)
        few[which + 1] = 1
        x[0, 0] = few[0]
    elif which == 3:
        x[..., which + 2][0] = 1
    elif which == 4:
        tile = cuda.shared.array(SHAPE, float32)
        tile[1, 3] = 1
    elif which == 5:
        x[0, 0] = cuda_random.xoroshiro128p_uniform_float32(states, i + 9)
    elif which == 6:
        x[1:, 0][which - 3] += 1
    elif which == 7:
        x[0, 0] = TABLE[which]
    elif which == 8:

        def inner(rows, k):
            return rows[k, 0] + x[k - 3, 7]

        x[0, 0] = inner(x, i + 2)
    elif which == 9:
        x[np.uint8(200), 0] = 1
    elif which == 10:
        x[0, 0] = total(x[1], n=6)
    elif which == 11:
        x.T[5, which - 11] = 1
    elif which == 12:
        cuda.atomic.add(x, (i + 1, which), 1)
    elif which == 13:
        cuda.atomic.max(x[3], which, 1)


#: Of each way: index, axis, size, and what the source says.
WAYS = [
    (5, 0, 5, "x[which][5 + i]"),
    (-6, 1, 5, "x[place]"),
    (3, 0, 3, "few[which + 1]"),
    (5, 1, 5, "x[..., which + 2]"),
    (3, 1, 3, "tile[1, 3]"),
    (9, 0, 9, "states"),
    (3, 0, 3, "x[1:, 0][which - 3]"),
    (7, 0, 4, "TABLE[which]"),
    (7, 1, 5, "x[k - 3, 7]"),
    (200, 0, 4, "x[np.uint8(200), 0]"),
    (5, 0, 5, "row[k]"),
    (5, 0, 5, "x.T[5, which - 11]"),
    (12, 1, 5, "cuda.atomic.add(x, (i + 1, which), 1)"),
    (13, 0, 5, "cuda.atomic.max(x[3], which, 1)"),
]


def third(out, numbers, by, n):
    i = cuda.grid(1)
    if i < n:
        out[i] = numbers[i] / by


@cuda.jit
def warps(x, out):
    """Ask each function of a warp."""
    i = cuda.grid(1)
    lane = cuda.laneid
    full = 0xFFFFFFFF
    total = x[i]
    step = 16
    while step > 0:
        total += cuda.shfl_xor_sync(full, total, step)
        step //= 2
    out[i, 0] = total
    out[i, 1] = cuda.shfl_up_sync(full, x[i], 1)
    out[i, 2] = cuda.shfl_down_sync(full, x[i], 2)
    out[i, 3] = cuda.shfl_sync(full, x[i], 3)
    out[i, 4] = cuda.popc(cuda.ballot_sync(full, lane % 2 == 0))
    out[i, 5] = cuda.any_sync(full, lane == 5) + 2 * cuda.all_sync(full, lane < 40) + 4 * cuda.eq_sync(full, lane < 1)
    out[i, 6] = cuda.popc(cuda.match_any_sync(full, lane // 4))
    out[i, 7] = cuda.popc(cuda.lanemask_lt())
    cuda.syncwarp()
    if lane < 4:
        out[i, 8] = cuda.shfl_sync(0xF, lane, 3 - lane)
        cuda.syncwarp(0xF)
    out[i, 9] = cuda.ldcg(out, (i, 7)) + cuda.ffs(cuda.ballot_sync(full, lane == 4))


@cuda.jit
def half(x, h, out):
    i = cuda.grid(1)
    if i < x.size:
        y = x.reshape(2, 4)
        out[i] = y[i // 4, i % 4] * h + x[i]


@cuda.jit
def copies(x, out):
    """Copy an array of up to four axes, element by element, by its shape."""
    rest = cuda.grid(1)
    if rest < x.size:
        a = rest // (x.shape[1] * x.shape[2] * x.shape[3])
        b = rest // (x.shape[2] * x.shape[3]) % x.shape[1]
        c = rest // x.shape[3] % x.shape[2]
        out[a, b, c, rest % x.shape[3]] = x[a, b, c, rest % x.shape[3]]


@cuda.jit
def of_one_element(x, out, value):
    out[()] = x[()]
    x[()] = value


TILE = 4


@cuda.jit
def tiled_matmul(a, b, out):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    row, column = cuda.grid(2)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        left[i, j] = 0
        right[i, j] = 0
        if row < a.shape[0] and tile * TILE + j < a.shape[1]:
            left[i, j] = a[row, tile * TILE + j]
        if tile * TILE + i < b.shape[0] and column < b.shape[1]:
            right[i, j] = b[tile * TILE + i, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[i, k] * right[k, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@cuda.jit
def block_sum(x, total):
    part = cuda.shared.array(32, dtype=np.float64)
    t = cuda.threadIdx.x
    part[t] = 0
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        part[t] += x[i]
    cuda.syncthreads()
    step = cuda.blockDim.x // 2
    while step > 0:
        if t < step:
            part[t] += part[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(total, 0, part[0])


@cuda.jit(device=True)
def mean_of_neighbours(x: Any, i: Any, j: Any) -> Any:
    return 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@cuda.jit
def jacobi(before, after, error):
    i, j = cuda.grid(2)
    n, m = before.shape
    if 1 <= i < n - 1 and 1 <= j < m - 1:
        after[i, j] = mean_of_neighbours(before, i, j)
        cuda.atomic.max(error, 0, abs(after[i, j] - before[i, j]))


@cuda.jit
def evolve(cells, out):
    place = cuda.grid(2)
    if place[0] >= cells.shape[0] or place[1] >= cells.shape[1]:
        return
    around = 0
    for down in range(-1, 2):
        for right in range(-1, 2):
            if down != 0 or right != 0:
                around += cells[(place[0] + down) % cells.shape[0], (place[1] + right) % cells.shape[1]]
    out[place] = 1 if around == 3 or (around == 2 and cells[place] == 1) else 0


@cuda.jit
def pi(states, points, out):
    i = cuda.grid(1)
    inside = 0
    for _ in range(points):
        x = cuda_random.xoroshiro128p_uniform_float32(states, i)
        y = cuda_random.xoroshiro128p_uniform_float32(states, i)
        if x * x + y * y <= 1:
            inside += 1
    out[i] = 4 * inside / points


@cuda.jit
def heat(one, other, steps):
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for step in range(steps):
        old, new = (one, other) if step % 2 == 0 else (other, one)
        if 0 < i < old.size - 1:
            new[i] = old[i] + 0.25 * (old[i - 1] - 2 * old[i] + old[i + 1])
        grid.sync()
