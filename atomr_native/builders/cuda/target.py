"""The target of CUDA builders, and the kernel programs that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["Argument", "KernelProgram", "Launch", "Target", "number_of"]

#: Where a kernel's argument comes from: ``("operand", i)`` the address of operand i; ``("float64", j)``,
#: ``("float32", j)``, ``("float16", j)`` and ``("int64", j)`` scalar j of the message, the narrower ones converted;
#: ``("int32", j)`` and the other narrow integers, and ``("bool", j)``, scalar j if it is in their range, else the
#: message fails; ``("uint64", value)`` a constant; ``("workspace", offset)`` the address at that byte of the plan's
#: workspace; ``("bytes", b)`` a struct; ``("scalars", j)`` a struct whose bytes are the scalars from j on;
#: ``("tensor_map", (i, axes, modes))`` a tensor map of operand i, see `atomr_native.libraries.kernel.tensor_map`;
#: ``("filled", (bytes, places))`` a struct, in which each message fills places ``(kind, offset, index, added, map)``:
#: an ``"operand"`` or ``"workspace"`` address plus `added` bytes, scalar `index` as ``"float64"`` or ``"float32"``, or
#: a ``"tensor_map"`` of operand `index`, with ``map`` as ``(axes, modes)``; at most one argument of a launch.
Argument = tuple[
    Literal[
        "operand", "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint32", "uint16", "uint8",
        "bool", "uint64", "workspace", "bytes", "scalars", "tensor_map", "filled",
    ],
    Any,
]  # fmt: skip

Extents = tuple[int, int, int]


def number_of(arch: str) -> int:
    """Return the number of an architecture: 90 of ``"sm_90a"``."""
    return int(arch.removeprefix("sm_").rstrip("af"))


@dataclass(frozen=True, slots=True)
class Target:
    """The device that plans are built for.

    Attributes
    ----------
    arch : str
        Architecture of the machine code, as NVRTC spells it: ``"sm_90a"``.
    sm_count : int
        Streaming multiprocessors, by which grids are sized.
    """

    arch: str
    sm_count: int = 132

    @property
    def overlaps(self) -> bool:
        """Whether a launch can begin before the previous one has ended: compute capability 9.0 and later."""
        return number_of(self.arch) >= 90

    @property
    def clusters(self) -> bool:
        """Whether blocks of a cluster can see each other's shared memory: compute capability 9.0 and later."""
        return number_of(self.arch) >= 90

    @property
    def shared_memory(self) -> int:
        """Shared memory of a multiprocessor in bytes, 1024 of which go to each block (CUDA programming guide)."""
        number = number_of(self.arch)
        return 1024 * (228 if 90 <= number < 120 else 164 if number in (80, 87) else 100 if number > 80 else 64)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    function : str
        Name of the kernel in the program's module.
    grid, block : tuple of int
        Blocks of the grid and threads of a block, by x, y, z.
    shared : int
        Bytes of dynamic shared memory.
    arguments : tuple of Argument
        The kernel's parameters in order.
    cooperative : bool
        Whether all blocks run at once and may wait for each other.
    cluster : tuple of int, optional
        Blocks of a cluster, by x, y, z.
    overlaps : bool
        Whether it may begin before the previous launch has ended, and waits for that itself (``AWAIT_LAUNCH()``); only
        where `Target.overlaps`.
    """

    function: str
    grid: Extents
    block: Extents
    shared: int
    arguments: tuple[Argument, ...]
    cooperative: bool = False
    cluster: Extents | None = None
    overlaps: bool = False


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """Launches of one module, to be enqueued in order on one stream.

    Attributes
    ----------
    cubin : bytes
        Machine code to load as a module.
    launches : tuple of Launch
    workspace : int
        Bytes of device memory, aligned to 256, that belong to the plan: their content means nothing between messages,
        and two messages must not use them at once.
    alignments : tuple of int
        Bytes to whose multiple the address of each operand must be aligned: a message with another address must not be
        launched, since the device would fault.
    source : str
        The CUDA C++ that `cubin` was compiled from.
    report : int
        Operand, in host memory, to which kernels report an index that is out of bounds: the lane waits for them, and
        the message then fails.  -1 for kernels that do not.
    sites : tuple of str
        Places in the source, by the numbers of reports.
    sets, needs : str
        Names of marks of the device, or nothing: a message sets the one when it is enqueued, and fails, saying
        `lacking`, where the other is not set.
    lacking : str
    info : tuple, optional
        Where the kernels leave an int32 that is not 0 if they have failed: at the start of ``("operand", i)``, or at
        ``("workspace", byte)``.  The message fails once its work is done, and no lane waits for that.
    """

    kind: ClassVar[Literal["kernels"]] = "kernels"  # for `CudaBackend`

    cubin: bytes
    launches: tuple[Launch, ...]
    workspace: int = 0
    alignments: tuple[int, ...] = ()
    source: str = ""
    report: int = -1
    sites: tuple[str, ...] = ()
    sets: str = ""
    needs: str = ""
    lacking: str = ""
    info: tuple[Literal["operand", "workspace"], int] | None = None
