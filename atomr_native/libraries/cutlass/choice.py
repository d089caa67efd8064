"""Which kernel a product gets: the heuristic table, as data, and what the user fixed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ...dtypes import as_dtype
from ...errors import Unsupported
from .attributes import OPERANDS, ConvolutionAttributes
from .kernels.kernel import Kernel, Node, Operand, walk
from .layouts import Array, Problem, problem_of

if TYPE_CHECKING:
    from ...plans.spec import PlanSpec
    from .attributes import GemmAttributes, KernelChoice

__all__ = ["Chosen", "NAMES", "ROW", "kernel_of", "node_names"]


class _Tile(NamedTuple):
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int]
    schedule: str
    stages: int = 0


#: Multiprocessors whose work is counted in waves, where the table chooses: those of an H200.
_MULTIPROCESSORS: Final = 132
#: Bytes of K in a tile of sm_90a: a row of 128 bytes, the widest swizzle.
ROW: Final = 128
#: Tiles of sm_90a, the largest first, in M and N; K is `ROW`.  The first one that gives most multiprocessors a tile
#: is taken.
_SM90: Final = (
    ((128, 256), (2, 1, 1), "cooperative"),
    ((128, 128), (2, 1, 1), "cooperative"),
    ((64, 128), (1, 1, 1), "pingpong"),
)
#: The first tile of a short sum of 16 bits: a group of warps computes its epilogue while the other one multiplies.  Its
#: main loop reads more of the operands for the same product.  On an H100 products of bfloat16 took 0.95 of the time of
#: the first of `_SM90` with M = N = 8192 and K = 2048, 0.94 with GELU, and 1.06 with K = 8192.
_HIDDEN: Final = ((128, 128), (2, 1, 1), "pingpong")
#: That of other types, if the epilogue takes time.
_HIDDEN_OTHERS: Final = ((64, 256), (2, 1, 1), "pingpong")
#: Largest K of a short sum.
_SHORT: Final = 2048
#: Columns and rows of a tile of the transposes of a product with few rows: narrow tiles are full, and more steps of the
#: larger operand are on their way.
_NARROW: Final = (16, 32, 64)
_HEIGHT: Final = 128
#: Rows of such tiles with the least columns where they are so many that each is worth a multiprocessor of its own.  On
#: an H100 products of 16 rows with (14336, 4096) and (4096, 14336) weights took 0.97 and 0.91 of the time by `_HEIGHT`.
_LOW, _MANY = 64, 64
#: Columns of such a product over its rows.
_FLAT: Final = 4
#: Numbers of neighbouring rows of tiles that may be at work together, and share operands in the cache.
_SWIZZLES: Final = (8, 4, 2)
#: Elements of K that a step of a product with a converted operand takes.
_STEP: Final = 64
#: Fewest rows of a tile whose two groups of warps share it.
_TALL: Final = 128
#: Tiles of sm_80, the largest first, by the operands' type.
_SM80: Final = {
    "float64": (_Tile((64, 64, 16), (1, 1, 1), "multistage", 4),),
    "float32": (_Tile((128, 128, 16), (1, 1, 1), "multistage", 3), _Tile((64, 64, 16), (1, 1, 1), "multistage", 3)),
    "tfloat32": (_Tile((128, 128, 16), (1, 1, 1), "multistage", 4), _Tile((64, 64, 16), (1, 1, 1), "multistage", 4)),
    "float16": (_Tile((128, 128, 32), (1, 1, 1), "multistage", 4), _Tile((64, 64, 32), (1, 1, 1), "multistage", 4)),
    "int8": (_Tile((128, 128, 64), (1, 1, 1), "multistage", 3), _Tile((64, 64, 64), (1, 1, 1), "multistage", 4)),
}
_SM80["bfloat16"] = _SM80["float16"]


#: Fewest bytes that asynchronous copies of sm_80 move; pipelines of two stages go through registers, and need none.
_COPIED: Final = 4
#: Tiles that are a part of the multiprocessors as small as this share a long sum: steps of K of a tile.
_FEW, _LONG = 4, 32
#: Fewest steps of K of a tile that a block sums, where blocks share the sums of a convolution.
_SLICE: Final = 16


_Row: TypeAlias = tuple[tuple[int, int], tuple[int, int, int], str]


class Chosen(NamedTuple):
    """A kernel for a plan.

    Attributes
    ----------
    kernel : Kernel
    problem : Problem
        What it computes.
    splits : int
        Blocks that share the sums of a tile.
    swizzle : int
        Neighbouring rows of tiles that are at work together, of ``sm_90a``.
    source : str
        The array that is the kernel's C; empty without one.
    turned : bool
        Whether it is the product of the transposes, whose D has contiguous columns.
    """

    kernel: Kernel
    problem: Problem
    splits: int = 1
    swizzle: int = 1
    source: str = ""
    turned: bool = False

    @property
    def title(self) -> str:
        """The kernel's form, for people."""
        one = self.kernel
        words = [f"{'x'.join(map(str, one.tile))} {one.schedule}"]
        if one.cluster != (1, 1, 1):
            words.append(f"clusters of {one.cluster[0]}x{one.cluster[1]}")
        if self.splits > 1:
            words.append(f"splits {self.splits}")
        elif one.decomposition != "tiles":
            words.append("stream-K")
        if self.swizzle > 1:
            words.append(f"swizzle {self.swizzle}")
        if self.turned:
            words.append("of the transposes")
        return ", ".join(words)


#: Names of a tree's arrays, scalars, constants and functions in kernels: by place, so equal kernels are one source.
NAMES: Final = {"array": "x", "scalar": "s", "number": "k", "function": "f"}


def node_names(attributes: GemmAttributes) -> dict[tuple[str, str | int], str]:
    """Return a kernel's name of each named thing in a tree: ``("name", "bias")`` is ``"x0"``."""
    found: dict[tuple[str, str | int], str] = {}
    counts = dict.fromkeys(NAMES, 0)

    def add(kind: str, key: tuple[str, str | int]) -> None:
        if key not in found:
            found[key] = f"{NAMES[kind]}{counts[kind]}"
            counts[kind] += 1

    for op, *rest in attributes.nodes:
        if op == "name":
            add("scalar" if rest[0] in attributes.scalars else "array", ("name", rest[0]))
        elif op in ("store", "reduce"):
            add("array", ("name", rest[0]))
        elif op in ("number", "function"):
            add(str(op), (str(op), rest[0]))
    return found


def _tree(attributes: GemmAttributes, arrays: Mapping[str, Array], source: str) -> Node:
    """Return a plan's tree as a kernel has it; the array `source` is its C."""
    names, nodes = node_names(attributes), attributes.nodes
    stored: set[str] = set()

    def made(place: int) -> Node:
        op, *rest = nodes[place]
        if op == "acc":
            return Node("acc", dtype=attributes.compute)
        if op == "number":
            return Node("scalar", dtype=attributes.compute, name=names["number", rest[0]], value="host")
        if op == "name":
            name = str(rest[0])
            if name in attributes.scalars:
                return Node("scalar", dtype=attributes.compute, name=names["name", name], value="host")
            array = arrays[name]
            if name == source:
                return Node("source", dtype=array.dtype)
            if array.kind == "scalar":
                return Node("scalar", dtype=array.dtype, name=names["name", name], value="pointer")
            kind = "tensor" if array.kind == "matrix" else array.kind
            return Node(kind, dtype=array.dtype, name=names["name", name], alignment=array.alignment)
        if op == "reduce":
            name, argument, how, _ = (str(one) for one in rest)
            value = made(int(argument))
            if name in stored:
                return value
            stored.add(name)
            known, kind = names["name", name], arrays[name].kind
            return Node(f"reduce_{kind}", (value,), attributes.compute, known, {"sum": "add"}.get(how, how))
        args = tuple(made(int(one)) for one in rest[1:])
        if op == "function":
            return Node("function", args, attributes.compute, names["function", rest[0]])
        if op == "store":
            name = str(rest[0])
            if name in stored:  # its value is used twice, and stored once
                return args[0]
            stored.add(name)
            return Node("aux_store", args, arrays[name].dtype, names["name", name], alignment=arrays[name].alignment)
        return Node(str(rest[0]), args, attributes.compute)

    return made(len(nodes) - 1)


def _why_not_sm90(p: Problem, attributes: GemmAttributes, capability: tuple[int, int]) -> str:
    """Return why a product has no kernel of sm_90a, or nothing."""
    if capability != (9, 0):
        return f"compute capability {capability[0]}.{capability[1]}; allowed: 9.0"
    if attributes.mode not in ("float32", "tf32", "int32") or (attributes.mode == "float32" and p.a.dtype == "float32"):
        return f"products of {p.a.dtype} with compute={attributes.mode!r}; allowed: tensor cores of 32 bits and less"
    scale = (("b_scale", p.scale),) if p.scale else ()
    for name, array in (("a", p.a), ("b", p.b), ("out", p.d), *scale, *p.arrays):
        if array.kind == "matrix" and array.nbytes != 16:
            return f"{name} is aligned to {array.nbytes} bytes; allowed: 16"
    if p.mixed:
        if p.a.layout != "row":
            return "b whose columns are not contiguous; allowed for a b that is converted: along K"
        if p.scale and p.group % _STEP and p.group != p.k:
            return f"b_scale for {p.group} neighbours along K; allowed: multiples of {_STEP}, K"
        return ""
    if as_dtype(p.a.dtype).itemsize != 2 and (p.a.layout, p.b.layout) != ("row", "column"):
        return f"a with contiguous {p.a.layout}s and b with contiguous {p.b.layout}s; allowed for {p.a.dtype}: along K"
    return ""


def _why_not_sm80(p: Problem) -> str:
    """Return why a product has no kernel of sm_80, or nothing."""
    if p.mixed:
        return f"products of {p.b.dtype} by {p.a.dtype}; allowed: compute capability 9.0"
    if p.a.dtype.startswith("float8"):
        return f"products of {p.a.dtype}; allowed: compute capability 9.0"
    if p.a.dtype == "int8" and (p.a.layout, p.b.layout) != ("row", "column"):
        return f"a with contiguous {p.a.layout}s and b with contiguous {p.b.layout}s; allowed for int8: both along K"
    return ""


def _arch(p: Problem, attributes: GemmAttributes, capability: tuple[int, int]) -> str:
    """Return the generation of a product's kernel."""
    old, new = _why_not_sm80(p), _why_not_sm90(p, attributes, capability)
    wanted = attributes.choice.arch
    if wanted == "sm_90a" or not wanted:
        if not new:
            return "sm_90a"
        if wanted or old:
            raise _unsupported(old if old and not wanted else new, new)
    if old:
        raise _unsupported(old, old)
    return "sm_80"


def _unsupported(first: str, second: str) -> Unsupported:
    reasons = first if first == second else f"{first}; and {second}"
    return Unsupported(f"CUTLASS has no kernel for {reasons}", rule="cutlass.kernel", lifted_by=("layout", "dtype"))


def _fill(p: Problem, tile: tuple[int, ...]) -> int:
    rows = p.m / p.batch if p.offsets else p.m  # groups share the rows
    return math.ceil(rows / tile[0]) * math.ceil(p.n / tile[1]) * p.batch


def _rows(p: Problem, tree: Node, schedule: str, fast: bool) -> tuple[_Row, ...]:
    """Return the tiles that a product of sm_90a may have."""
    exact = p.a.dtype.startswith("float8") and not p.mixed and not fast
    if exact:
        return _SM90[1:]  # exact sums of float8 have a second accumulator
    if schedule == "cooperative" or p.k > _SHORT or p.offsets or p.mixed:
        return _SM90
    if as_dtype(p.a.dtype).itemsize == 2:
        return (_HIDDEN, *_SM90[1:])
    return (_HIDDEN_OTHERS, *_SM90[1:]) if _takes_time(tree) else _SM90


def _takes_time(tree: Node) -> bool:
    """Whether an epilogue reads arrays, or does more than to scale the sums."""
    return any(node.op not in ("acc", "scalar", "mul", "identity") for node in walk(tree))


def _tile(p: Problem, arch: str, kind: str, tree: Node, choice: KernelChoice, *, fast: bool = False) -> _Tile:
    """Return the table's tile: the largest of the user's schedule that gives most multiprocessors one."""
    if arch == "sm_80":
        table = _SM80[kind]
    else:
        k = ROW // as_dtype((p.b if p.mixed else p.a).dtype).itemsize
        shares = choice.decomposition not in ("", "tiles")  # which pingpong kernels do not
        low = choice.tile is not None and choice.tile[0] < _TALL
        fits = choice.schedule or ("cooperative" if shares or (choice.tile and not low) else "pingpong" if low else "")
        if not fits and not choice.decomposition and _is_long(p, (*_SM90[-1][0], k)):
            fits = "cooperative"  # whose blocks can share the sums of a tile
        rows = _rows(p, tree, fits, fast)
        named = [row for row in rows if row[2] == fits]
        table = tuple(_Tile((*tile, k), cluster, schedule) for tile, cluster, schedule in named or rows)
    for one in table:
        if _fill(p, one.tile) * 4 >= _MULTIPROCESSORS * 3:
            return one
    return table[-1]


def _is_turned(p: Problem, choice: KernelChoice, arch: str) -> bool:
    """Whether a product has so few rows that a kernel computes that of the transposes."""
    if choice.turned or choice.tile or choice.cluster or choice.schedule or choice.swizzle:
        return choice.turned == "yes"
    plain = arch == "sm_90a" and p.offsets is None and not p.mixed
    return plain and p.m <= _NARROW[-1] and p.n >= max(_HEIGHT, _FLAT * p.m)


def _narrow(p: Problem, tree: Node, choice: KernelChoice) -> _Tile:
    """Return the tile of a product that is turned: as narrow as it."""
    columns = next((one for one in _NARROW if one >= p.n), _NARROW[-1])
    size = as_dtype(p.a.dtype).itemsize
    plain = columns == _NARROW[0] and size == 2 and not _takes_time(tree)  # which was measured
    if plain and choice.decomposition in ("", "tiles") and _fill(p, (_LOW, columns)) >= _MANY:
        return _Tile((_LOW, columns, 2 * ROW // size), (1, 1, 1), "pingpong")
    return _Tile((_HEIGHT, columns, ROW // size), (1, 1, 1), "cooperative")


def _is_long(p: Problem, tile: tuple[int, int, int]) -> bool:
    """Whether a product has few tiles, each with a long sum, which blocks should share."""
    alone = p.batch > 1 or p.offsets is not None or p.mixed
    return not alone and _fill(p, tile) * _FEW <= _MULTIPROCESSORS and p.k >= _LONG * tile[2]


def _swizzle(p: Problem, tile: _Tile, choice: KernelChoice, decomposition: str) -> int:
    """Return how many neighbouring rows of tiles are at work together: the most that add no empty tiles."""
    if choice.swizzle or p.offsets is not None or decomposition != "tiles":
        return choice.swizzle or 1
    clusters = (-(-p.m // (tile.tile[0] * tile.cluster[0])), -(-p.n // (tile.tile[1] * tile.cluster[1])))
    return next((one for one in _SWIZZLES if not any(count % one for count in clusters)), 1)


def _source(p: Problem, attributes: GemmAttributes, arch: str) -> str:
    """Return the array that is the kernel's C: that of this name, or for ``sm_90a`` another matrix that the tree reads.

    C's way through shared memory is also D's, if elements are of one size, so that it costs no stage of the main loop.
    """
    arrays = dict(p.arrays)
    if "c" in arrays and arrays["c"].kind == "matrix":
        return "c"
    read = [str(node[1]) for node in attributes.nodes if node[0] == "name" and node[1] in arrays]
    matrices = [name for name in read if arrays[name].kind == "matrix"]
    if arch == "sm_80" or not matrices:
        return ""
    size = as_dtype(p.d.dtype).itemsize
    return min(matrices, key=lambda name: as_dtype(arrays[name].dtype).itemsize != size)


def _changed(found: _Tile, choice: KernelChoice) -> _Tile:
    return _Tile(
        choice.tile or found.tile, choice.cluster or found.cluster, choice.schedule or found.schedule,
        choice.stages or found.stages,
    )  # fmt: skip


def kernel_of(spec: PlanSpec[GemmAttributes], capability: tuple[int, int]) -> Chosen:
    """Return the kernel of a plan.

    Raises
    ------
    Unsupported
        If no kernel computes it; the message names the operand or the option.
    """
    attributes = spec.attributes
    p = problem_of(spec)
    if isinstance(attributes, ConvolutionAttributes):
        return _convolution(p, attributes)
    arch = _arch(p, attributes, capability)
    turned = _is_turned(p, attributes.choice, arch)
    if turned:
        p = problem_of(spec, turned=True)
    arrays = dict(p.arrays)
    source = _source(p, attributes, arch)
    tree = _tree(attributes, arrays, source)
    kind = "tfloat32" if attributes.mode == "tf32" else p.a.dtype
    choice = attributes.choice
    fast = attributes.fast_accum
    table = _narrow(p, tree, choice) if turned else _tile(p, arch, kind, tree, choice, fast=fast)
    tile = _changed(table, choice)
    if arch == "sm_80" and min(p.a.nbytes, p.b.nbytes) < _COPIED:
        tile = tile._replace(stages=attributes.choice.stages or 2)
    decomposition = _decomposition(p, attributes, tile, arch)
    kernel = Kernel(
        family="grouped" if p.offsets else "gemm",
        arch=arch,
        a=Operand(kind, p.a.layout, 1 if kind == "float64" else p.a.alignment),  # tensor cores of float64 load singly
        b=Operand(
            "tfloat32" if attributes.mode == "tf32" else p.b.dtype,
            p.b.layout,
            1 if kind == "float64" else p.b.alignment,
        ),
        c=Operand(arrays[source].dtype, p.d.layout, arrays[source].alignment) if source else None,
        d=Operand(p.d.dtype, p.d.layout, min(p.d.alignment, 8) if arch == "sm_80" else p.d.alignment),
        accumulator={"tf32": "float32"}.get(attributes.mode, attributes.mode),
        tile=tile.tile,
        tree=tree,
        cluster=tile.cluster,
        schedule=tile.schedule,
        stages=tile.stages,
        swizzle=(attributes.choice.swizzle or 1) if arch == "sm_80" else 1,  # of others, a message's parameters say it
        fast_accumulation=attributes.fast_accum,
        offsets=p.offsets.dtype if p.offsets else "int32",
        decomposition=decomposition,
        scale=p.scale.dtype if p.scale else "",
    )
    swizzle = _swizzle(p, tile, attributes.choice, decomposition)
    return Chosen(kernel, p, attributes.choice.splits or 1, swizzle, source, turned)


def _decomposition(p: Problem, attributes: GemmAttributes, tile: _Tile, arch: str) -> str:
    """Return how blocks share a product: by tiles, but for the few tiles of a long sum."""
    chosen = attributes.choice.decomposition
    if chosen not in ("", "tiles") and arch == "sm_80" and p.batch > 1:
        raise Unsupported(
            f"CUTLASS has no kernel of sm_80 for decomposition={chosen!r} of {p.batch} products; allowed: 'tiles'",
            rule="cutlass.kernel", lifted_by=("config",),
        )  # fmt: skip
    if chosen:
        return "tiles" if chosen == "tiles" else "stream_k"  # which splits evenly, too
    if arch == "sm_80" or p.batch > 1 or p.offsets or p.mixed or tile.schedule == "pingpong":
        return "tiles"  # multistage kernels would share sums in no fixed order
    return "stream_k" if _is_long(p, tile.tile) else "tiles"


def _convolution(p: Problem, attributes: ConvolutionAttributes) -> Chosen:
    """Return the kernel of a convolution: multistage, on every GPU."""
    unit = all(attributes.numbers[f"stride_{axis}"] == 1 for axis in ("depth", "height", "width"))
    spatial = 3 if attributes.operation == "data_gradient" and not unit else attributes.spatial
    choice, arrays = attributes.choice, dict(p.arrays)
    if choice.arch == "sm_90a":
        raise Unsupported(
            "CUTLASS has no convolution of sm_90a; allowed: 'sm_80'", rule="cutlass.kernel", lifted_by=("config",)
        )
    kind = "tfloat32" if attributes.mode == "tf32" else p.a.dtype
    for name, array in zip(OPERANDS[attributes.operation], (p.a, p.b), strict=True):
        if array.nbytes < (16 if spatial == 3 and kind != "float64" else 4):
            what = "with strides" if spatial != attributes.spatial else f"of {spatial} axes"
            raise Unsupported(
                f"CUTLASS has no kernel for a {attributes.operation} {what} whose channels of {name} are "
                f"{array.nbytes} bytes; allowed: multiples of {16 if spatial == 3 else 4}",
                rule="cutlass.kernel", lifted_by=("shape", "dtype"),
            )  # fmt: skip
    source = _source(p, attributes, "sm_80")
    tree = _tree(attributes, arrays, source)
    tile = _changed(_tile(p, "sm_80", kind, tree, choice), choice)
    kernel = Kernel(
        family="convolution",
        arch="sm_80",
        a=Operand(kind, "row", 1 if kind == "float64" else p.a.alignment),
        b=Operand(kind, "column" if kind == "int8" else "row", 1 if kind == "float64" else p.b.alignment),
        c=Operand(arrays[source].dtype, "row", arrays[source].alignment) if source else None,
        d=Operand(p.d.dtype, "row", min(p.d.alignment, 8)),
        accumulator={"tf32": "float32"}.get(attributes.mode, attributes.mode),
        tile=tile.tile,
        tree=tree,
        schedule=tile.schedule,
        stages=tile.stages,
        swizzle=choice.swizzle or 1,
        operation=attributes.operation,
        spatial=spatial,
        unit_strides=unit,
    )
    # Each slice should sum what fills its pipeline a few times.
    most = max(1, min(_MULTIPROCESSORS // _fill(p, tile.tile), p.k // (_SLICE * tile.tile[2])))
    automatic = most if attributes.operation == "filter_gradient" else 1
    splits = choice.splits or (1 if choice.decomposition == "tiles" else automatic)
    return Chosen(kernel, p, splits, source=source)
