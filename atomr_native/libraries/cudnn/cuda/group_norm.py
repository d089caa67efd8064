"""Kernels of norms that cuDNN does not have, and of their gradients: group norms, and batch norms of odd channels.

Group norms are of images with the channels first or last in memory.  A batch norm is the group norm of one image that
has the elements of all, with a group for each channel, and the channels last.  A block has some neighbouring groups of
an image, and a part of their elements.  The first kernel leaves means and squared deviations of parts, which the second
merges, so that nothing is lost where the mean is large.  Sums are in a fixed order.
"""

from __future__ import annotations

import math
import struct
from string import Template
from typing import Any, Final, NamedTuple

from ....builders.cuda.codegen import THREADS, alignment, convert, kernels, next_power
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from ....builders.cuda.workspace import padded
from ....dtypes import as_dtype
from ..attributes import GraphAttributes, NodeSpec, TensorSpec
from ..support import NORM_CHANNELS
from .group_norm_text import COLUMNS, GRADIENTS, SOURCE, STATISTICS, SUMS_FIRST, SUMS_LAST, TILE
from .steps import Part

__all__ = ["group_norm_kernels", "group_norm_source", "has_kernels"]

#: Blocks for each multiprocessor, and the most parts of an image's elements.
_BLOCKS: Final = 8
_PARTS: Final = 32
#: Ports of images.
_IMAGES: Final = ("x", "y", "dy", "dx")
#: Bytes of the widest load.
_VECTOR: Final = 16
#: Rows that a thread loads before it merges them.
_ROWS: Final = 4


class _Sizes(NamedTuple):
    """Of images: how many, groups, channels of a group, elements of a channel; and whether channels are innermost."""

    images: int
    groups: int
    own: int
    spatial: int
    last: bool


def _is_last(tensor: TensorSpec) -> bool:
    """Whether the channels of a dense tensor are innermost."""
    inner = [step for n, step in zip(tensor.shape[2:], tensor.strides[2:], strict=True) if n > 1]
    return tensor.shape[1] > 1 and tensor.strides[1] == 1 and bool(inner)


def _steps(tensor: TensorSpec) -> tuple[int, int, int]:
    """Return steps between images, channels and the elements of a channel, in elements."""
    spatial = math.prod(tensor.shape[2:])
    if _is_last(tensor):
        return tensor.shape[1] * spatial, 1, tensor.shape[1]
    return tensor.shape[1] * spatial, spatial, 1


def _width(sizes: _Sizes, dtype: str) -> int:
    """Return how many elements a thread loads at once."""
    size, run = as_dtype(dtype).itemsize, sizes.own if sizes.last else sizes.spatial
    return math.gcd(run, _VECTOR // size)


def _halves(count: int) -> int:
    """Return the distance with which a sum over so many threads begins."""
    return next_power(count) // 2


def _geometry(sizes: _Sizes, v: int, target: Target) -> dict[str, Any]:
    """Return how elements are dealt out to blocks and threads."""
    images, groups, own, spatial, last = sizes
    rows = spatial if last else 1
    width = max(1, own // v if last else own * spatial // v)
    tile = max(1, min(groups, THREADS // width)) if last and width <= THREADS else 1
    columns = tile * width if width <= THREADS and last else min(width, THREADS)
    lanes = max(1, THREADS // columns) if last else 1
    tiles = -(-groups // tile)
    along = rows if last else width
    share = lanes * _ROWS if last else columns * _ROWS
    wanted = -(-target.sm_count * _BLOCKS // max(images * tiles, 1))
    parts = max(1, min(_PARTS, wanted, -(-along // share)))
    each = -(-along // parts)
    words: dict[str, Any] = {
        "columns": columns, "width": width, "lanes": lanes, "tile": tile, "tiles": tiles, "rows": rows, "parts": parts,
        "half_lanes": _halves(lanes), "group_width": width if tile > 1 else columns,
        "half_width": _halves(width if tile > 1 else columns), "unroll": _ROWS if last else 1,
        "blocks": images * tiles * parts, "first": "0", "begin": "0", "end": f"{width}u", "finish": "1",
    }  # fmt: skip
    begin, end = f"part * {each}ull", f"lesser({rows if last else width}ull, (part + 1) * {each}ull)"
    words |= {"begin": begin, "finish": end} if last else {"first": begin, "end": end}
    return words | _sums_geometry(sizes, v, target) | {"share": THREADS // tile, "half_share": _halves(THREADS // tile)}


def _sums_geometry(sizes: _Sizes, v: int, target: Target) -> dict[str, Any]:
    """Return how the sums of each channel are dealt out."""
    images, groups, own, spatial, last = sizes
    columns = min(groups * own // v, THREADS) if last else 32
    lanes = max(1, THREADS // columns) if last else 1
    tiles = -(-groups * own // v // columns) if last else groups * own
    length = spatial if last else spatial // v
    lines = max(1, images * tiles if last else -(-images * tiles * 32 // THREADS))
    each = 8 * (lanes if last else 32)
    parts = max(1, min(_PARTS, -(-target.sm_count * _BLOCKS // 2 // lines), -(-length // each)))
    return {
        "sum_columns": columns, "sum_lanes": lanes, "sum_tiles": tiles, "sum_parts": parts,
        "sum_rows": f"{-(-length // parts)}ull", "sum_blocks": lines * parts,
    }  # fmt: skip


def _place(steps: tuple[int, int, int], channel: str, element: str) -> str:
    """Return the C expression of an element's place in a tensor."""
    image, own, step = steps
    return f"n * {image}ull + ({channel}) * {own}ull + ({element}) * {step}ull"


def _sizes_of(node: NodeSpec, ports: dict[str, TensorSpec]) -> tuple[_Sizes, dict[str, tuple[int, int, int]]]:
    """Return the sizes of a norm, and the steps of its images."""
    x, names = ports["x"], [name for name in _IMAGES if name in ports]
    channels, spatial = x.shape[1], math.prod(x.shape[2:])
    if node.mode == "batch":
        return _Sizes(1, channels, 1, x.shape[0] * spatial, last=True), dict.fromkeys(names, (0, 1, channels))
    images, groups = ports["mean_out" if node.op == "norm_forward" else "mean"].shape[:2]
    sizes = _Sizes(images, groups, channels // groups, spatial, _is_last(x))
    return sizes, {name: _steps(ports[name]) for name in names}


def _running(ports: dict[str, TensorSpec]) -> tuple[str, str]:
    """Return parameters for running statistics, and the statements that update them."""
    if "momentum" not in ports:
        return "", ""
    share = _literal(float.fromhex(ports["momentum"].value))
    lines = []
    for name, value in (("mean", "centres[w]"), ("var", "whole.squares / (COUNT > 1 ? COUNT - 1 : 1)")):
        place = f"running_{name}[(tile * TILE + w) * {ports[f'running_{name}_out'].strides[1]}ull]"
        lines.append(f"{place} = (1.0f - {share}) * {place} + {share} * ({value});")
    return ", float *running_mean, float *running_var", " ".join(lines)


def _literal(value: float) -> str:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return f"bits_float({bits}u)"


def group_norm_source(graph: GraphAttributes, part: Part, target: Target) -> tuple[str, list[Launch], int]:
    """Return the kernels of a group norm or of its gradient, their launches, and the bytes of workspace."""
    (node,) = part.nodes
    ports = {port: graph.tensors[at] for port, at in node.ports}
    x, forward = ports["x"], node.op == "norm_forward"
    sizes, steps = _sizes_of(node, ports)
    images, groups, own, spatial, _ = sizes
    # Vectors are of what lies together in all arrays.
    v = _width(sizes, x.dtype) if len(set(steps.values())) == 1 else 1
    size = as_dtype(x.dtype).itemsize
    words = _geometry(sizes, v, target)
    within = (f"group * {own}ull + at * V", "row + j * LANES") if sizes.last else (
        f"group * {own}ull + at * V / {spatial}ull", f"at * V % {spatial}ull"
    )  # fmt: skip
    whole = ("at * V", "row") if sizes.last else ("c", "at * V")
    words |= {
        "threads": THREADS, "groups": groups, "vector": v, "own": own, "channels": groups * own, "images": images,
        "count": f"{own * spatial}.0f", "aligned": v * size, "store": STORAGE[x.dtype], "spatial": f"{spatial}ull",
        "loaded": convert(x.dtype, "float32", "stored"), "stored": convert("float32", x.dtype, "value"),
        "channel": "group * OWN + at * V + i" if sizes.last else f"group * OWN + at * V / {spatial}ull",
    }  # fmt: skip
    for name, own_steps in steps.items():
        words[f"{name}_at"] = _place(own_steps, *within)
        words[f"{name}_whole"] = _place(own_steps, *whole)
    for name in ("scale", "bias", "dscale", "dbias"):
        if name in ports:
            words[f"{name}_step"] = f"{ports[name].strides[1]}ull"
    for name in ("y", "dx"):
        if name in ports:
            words[f"store_{name}"] = f"*(vector *)({name} + {words[f'{name}_at']}) = made;"
    if forward:
        words["epsilon"] = _literal(float.fromhex(ports["epsilon"].value))
        words["running_parameters"], words["running"] = _running(ports)
    loops = {"tile_loop": TILE, "column_loop": COLUMNS, "sum_loop": SUMS_LAST if sizes.last else SUMS_FIRST}
    words |= {name: Template(loop).safe_substitute(words) for name, loop in loops.items()}
    text = "DEVICE u64 lesser(u64 a, u64 b) { return a < b ? a : b; }\n" + SOURCE.substitute(words)
    places = {port: part.bound.index(at) for port, at in node.ports if at in part.bound}

    def launch(name: str, blocks: int, *arguments: str) -> Launch:
        given: list[Argument] = [("operand", places[one]) if one in places else ("workspace", 0) for one in arguments]
        grid = max(1, min(blocks, 2**31 - 1))
        return Launch(name, (grid, 1, 1), (THREADS, 1, 1), 0, tuple(given))

    if forward:
        text += STATISTICS.substitute(words)
        made = [
            "y",
            "mean_out",
            "inv_variance_out",
            *(["running_mean_out", "running_var_out"] if words["running"] else []),
        ]
        launches = [
            launch("moments_of_parts", words["blocks"], "x", "parts"),
            launch("normalize", words["blocks"], "x", "scale", "bias", "parts", *made),
        ]
        return text, launches, padded(images * groups * words["parts"] * 3 * 4)
    text += GRADIENTS.substitute(words)
    statistics = ("mean", "inv_variance")
    launches = [
        launch("sums_of_parts", words["sum_blocks"], "dy", "x", *statistics, "sums"),
        launch("gradient", words["blocks"], "dy", "x", "scale", *statistics, "sums", "dx"),
        launch("parameters", -(-groups * own // 8), "sums", "dscale", "dbias"),
    ]
    return text, launches, padded(images * words["sum_parts"] * groups * own * 2 * 4)


def has_kernels(graph: GraphAttributes, node: NodeSpec) -> bool:
    """Whether a node is a norm that these kernels compute, or its gradient."""
    if node.op not in ("norm_forward", "norm_backward"):
        return False
    channels = graph.tensors[dict(node.ports)["x"]].shape[1]
    return node.mode == "group" or (node.mode == "batch" and bool(channels % NORM_CHANNELS))


def group_norm_kernels(graph: GraphAttributes, part: Part, target: Target) -> Any:
    """Compile the kernels of a group norm or of its gradient, a `KernelProgram`.  Waits for the compiler."""
    source, launches, workspace = group_norm_source(graph, part, target)
    (node,) = part.nodes
    dtypes = [graph.tensors[at].dtype for at in part.bound]
    images = {at for port, at in node.ports if port in _IMAGES}
    alignments = [_VECTOR if at in images else alignment(graph.tensors[at].dtype) for at in part.bound]
    return kernels(
        source, launches, target, dtypes={*dtypes, "float32"}, alignments=alignments, workspace=workspace
    ).run
