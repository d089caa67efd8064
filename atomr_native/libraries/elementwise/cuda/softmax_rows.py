"""How rows are cut for softmax cross entropy's kernels: threads, registers, shared memory, clusters of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....builders.cuda.codegen import THREADS, next_power
from ....builders.cuda.target import Target
from .softmax_elements import Kind

__all__ = ["LONG", "Rows", "cut"]

#: Registers of a thread that hold its row: within a warp, within a block, and at most, also where the row is longer.
_FEW: Final = 16
_HELD: Final = 16
_MOST: Final = 32
#: Threads of a block for a row that fits, and for one that does not.
_BLOCK: Final = 512
LONG: Final = 1024
#: Threads of a block whose row may need a cluster, and how many such blocks share a multiprocessor; in this order.
_SHARING: Final = ((256, 4), (512, 2))
#: Blocks of a cluster, at most.
_RANKS: Final = 8
#: Registers of a multiprocessor, and of a thread besides its row; threads on a multiprocessor, and those for float64.
_REGISTERS: Final = 65536
_OTHERS: Final = 24
_RESIDENT: Final = 1536
_DOUBLE: Final = 512
#: Bytes of shared memory of a block besides what is kept: the sums of warps at most, and what CUDA takes for itself.
_BESIDES: Final = 2 * 8 * _RANKS * _BLOCK // 32 + 1024


@dataclass(frozen=True, slots=True)
class Rows:
    """Partition of rows of `classes` elements: `lanes` threads a row, of `ranks` blocks or of a part of one block.

    Each has `held` groups in registers, and `kept` in shared memory.
    """

    kind: Kind
    n: int
    classes: int
    lanes: int
    held: int
    ranks: int = 1
    kept: int = 0

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self.kept * self.block * self.kind.registers * 4

    @property
    def whole(self) -> int:
        """Groups of a row that are full."""
        return self.classes // self.kind.width

    @property
    def block(self) -> int:
        """Threads of a block."""
        return max(self.lanes, THREADS) if self.lanes <= 32 else self.lanes // self.ranks

    @property
    def rows(self) -> int:
        """Rows of a block, or of a cluster."""
        return max(1, self.block // self.lanes)

    @property
    def sums(self) -> int:
        """Blocks, or clusters; each adds the losses of its rows."""
        return -(-self.n // self.rows)

    @property
    def bounds(self) -> str:
        """Return the launch bounds: threads of a block, blocks on a multiprocessor, and blocks of a cluster."""
        resident = min(_RESIDENT, _REGISTERS // (self.held * self.kind.registers + _OTHERS))
        resident = _DOUBLE if self.kind.dtype == "float64" else resident
        cluster = f"__cluster_dims__({self.ranks}, 1, 1) " if self.ranks > 1 else ""
        return f"{cluster}__launch_bounds__({self.block}, {max(1, resident // self.block)})"


def cut(kind: Kind, n: int, classes: int, target: Target) -> Rows:
    """Choose how rows are cut, as was measured: few threads, which hold much, and no more blocks than a row needs."""
    words, most = kind.registers, _most(kind)
    whole = classes // kind.width
    lanes = min(32, next_power(-(-whole * words // _FEW)))
    while lanes < _BLOCK and whole * words > lanes * _HELD:
        lanes *= 2
    if whole * words <= lanes * most:
        return Rows(kind, n, classes, lanes, -(-whole // lanes))
    if target.clusters:
        return _over_blocks(kind, n, classes, target)
    return Rows(kind, n, classes, LONG, min(-(-whole // LONG), most // words))


def _most(kind: Kind) -> int:
    """Return how many registers of a thread hold its row, at most; exponentials of float64 need many themselves."""
    return _HELD if kind.dtype == "float64" else _MOST


def _over_blocks(kind: Kind, n: int, classes: int, target: Target) -> Rows:
    """Partition rows that one block cannot hold in registers: over shared memory and the blocks of a cluster."""
    most, whole = _most(kind) // kind.registers, classes // kind.width
    for threads, beside in _SHARING:
        room = (target.shared_memory // beside - _BESIDES) // (threads * kind.registers * 4) // kind.batch * kind.batch
        ranks = 1
        while ranks < _RANKS and whole > ranks * threads * (most + room):
            ranks *= 2
        lanes = ranks * threads
        held = min(-(-whole // lanes), most)
        rest = -(-whole // lanes) - held
        if rest <= room:
            return Rows(kind, n, classes, lanes, held, ranks, -(-rest // kind.batch) * kind.batch)
    return Rows(kind, n, classes, lanes, held, ranks)
