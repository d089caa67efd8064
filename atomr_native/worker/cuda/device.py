"""A CUDA device in a worker: lanes, plans, recovery and proof."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..._lib.cuda import CudaBackend, Kernels
from ..._lib.lanes import Lanes
from ...builders.context import Built
from ...builders.cuda.context import CudaContext
from ...builders.cuda.target import Target
from ...builders.cuda.workspace import beyond_limit
from ...compile.nvrtc import arch_of
from ...errors import Unsupported
from ...libraries.memory.cuda import groups
from ...libraries.memory.recovery import recover
from ...plans.spec import FreeAttributes, PlanSpec
from ...plans.workspace_limits import WorkspaceLimits
from ..build import build
from .faults import build_fault
from .proof import prove

__all__ = ["CudaDevice"]

#: Bytes for work outside messages, while no lane runs.
_SCRATCH = 1 << 20


class _Memory:
    """Device memory by segment and offset, for the recovery of groups."""

    def __init__(self, lanes: Lanes, backend: CudaBackend, target: Target, scratch: int) -> None:
        self._lanes, self._backend, self._target, self._scratch = lanes, backend, target, scratch
        self._adder: tuple[Kernels, int] | None = None

    def read(self, place: tuple[int, int], nbytes: int) -> bytes:
        host = np.empty(nbytes, np.uint8)
        if nbytes:
            self._backend.copy_now(host.ctypes.data, self._lanes.address(*place, nbytes), nbytes)
        return host.tobytes()

    def write(self, place: tuple[int, int], data: bytes) -> None:
        host = np.frombuffer(data, np.uint8)
        if data:
            self._backend.copy_now(self._lanes.address(*place, len(data)), host.ctypes.data, len(data))

    def copy(self, source: tuple[int, int], target: tuple[int, int], nbytes: int) -> None:
        if nbytes:
            self._backend.copy_now(self._lanes.address(*target, nbytes), self._lanes.address(*source, nbytes), nbytes)

    def checksum(self, total: int, place: tuple[int, int], nbytes: int, offset: int) -> int:
        if not nbytes:
            return total
        if self._adder is None:
            program, blocks = groups.build_checksum(self._target)
            self._adder = self._backend.load(program), blocks
        kernels, blocks = self._adder
        self._backend.run(kernels, self._lanes.address(*place, nbytes), nbytes, offset // 8, self._scratch)
        sums = np.empty(blocks, np.uint64)
        self._backend.copy_now(sums.ctypes.data, self._scratch, sums.nbytes)
        return groups.signed(total + int(sums.sum(dtype=np.uint64)))


class CudaDevice:
    """One CUDA device in a worker.

    Parameters
    ----------
    ordinal : int
        Number of the device, among those that CUDA_VISIBLE_DEVICES leaves.
    uuid : str
        Its UUID, once known; the device is then found by it, regardless of its current number.
    workspace_limit : int, optional
        ``System(workspace_limit=)``.
    deterministic : bool
        ``System(deterministic=)``.
    launch_records : {"auto", "all", "off"}
        ``System(launch_records=)``.
    allow_crash : bool
        Whether plans that make the GPU fault can be built; for tests.
    backend : CudaBackend, optional
        Backend of this device, prepared by a hot standby.

    Raises
    ------
    Unsupported
        If this machine cannot run it.
    DeviceLost
        If no device has that UUID any more.
    """

    def __init__(
        self,
        ordinal: int,
        uuid: str = "",
        *,
        workspace_limit: int | None = None,
        deterministic: bool = False,
        launch_records: str = "auto",
        allow_crash: bool = False,
        backend: CudaBackend | None = None,
    ) -> None:
        self.backend = CudaBackend(ordinal, uuid) if backend is None else backend
        self.backend.make_records(launch_records)
        self.facts: dict[str, Any] = self.backend.facts()
        self.target = Target(arch_of(self.facts["compute_capability"]), self.facts["multiprocessors"])
        self._limits = WorkspaceLimits.of(workspace_limit, self.facts["total_memory"])
        self._deterministic = deterministic
        self._allow_crash = allow_crash
        self._crashing: Kernels | None = None
        self._meetings: Mapping[int, Any] = {}
        #: Builds operations of tests, as steps of programs.
        self.special: Callable[[PlanSpec], Built | None] | None = None
        #: Sends a notification to the parent, without waiting.
        self.notify: Callable[[dict[str, Any]], object] | None = None

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes of the GPU's memory, from its driver."""
        return self.backend.memory()

    def lanes(self, p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> Lanes:
        """Make the lanes of a worker over this device."""
        lanes = Lanes(
            p_fd, p_bytes, parent_pidfd=parent_pidfd, spin_us=spin_us, fault_fd=fault_fd, backend=self.backend
        )
        self._meetings = lanes.meetings
        return lanes

    def build(self, spec: PlanSpec, plan: int, workspace: int | None = None, /) -> Built:
        """Build a plan: compile its kernels, or prepare its library call.  Waits for the compiler."""
        limits = self._limits.within(workspace)
        op = spec.op
        if op == "test.gpu_fault" and self._allow_crash:
            return self._fault(spec)
        try:
            return self._build_within(limits.preferred, limits.most, spec, plan)
        except Unsupported as error:
            if "workspace_limit" not in error.lifted_by or limits.most == limits.preferred:
                raise
        return self._build_within(limits.most, limits.most, spec, plan)

    def _build_within(self, limit: int, most: int, spec: PlanSpec, plan: int) -> Built:
        context = CudaContext(
            self.target, limit, self.facts, self.notify, self.backend, plan, self._deterministic, self.special,
            self._meetings, most,
        )  # fmt: skip
        built = build(spec, context)
        if built.workspace > context.most:
            raise beyond_limit(spec.op, f"{spec.op} of these shapes", built.workspace, context.most)
        return built

    def _fault(self, spec: PlanSpec[FreeAttributes]) -> Built:
        fault = build_fault(spec, self.target)
        if dict(spec.attributes).get("when") == "build":  # for example a plan that faults while it is tuned
            self.backend.run(self.backend.load(fault), 0)
        return Built(fault)

    def assign(self, lane: int) -> Callable[[np.ndarray[Any, Any], float], None]:
        """Return a function that fills contiguous device memory in a lane's order, and waits."""

        def fill(array: np.ndarray[Any, Any], value: float) -> None:
            source = np.full(array.shape, value, array.dtype)
            self.backend.copy_in_lane(lane, array.ctypes.data, source.ctypes.data, source.nbytes)

        return fill

    def crash(self, how: str) -> None:
        """Launch a kernel that faults, on a separate stream, without waiting."""
        attributes = (("how", how.removesuffix(" while idle")),)
        program = build_fault(PlanSpec("test.gpu_fault", (), (), attributes), self.target)
        self._crashing = self.backend.load(program)
        self.backend.start(self._crashing, 0)

    def recover(self, lanes: Lanes, described: list[Any]) -> list[Any]:
        """Restore durable groups to their last commits, before the lanes run."""
        with self._scratch() as address:
            recovered = recover(_Memory(lanes, self.backend, self.target, address), described)
        for group, found in zip(described, recovered, strict=True):
            if found["sequence"]:
                self.backend.set_mark(groups.committed(group["number"]))
        return recovered

    def self_test(self) -> None:
        """Prove the device; see `atomr_native.worker.cuda.proof.prove`."""
        with self._scratch() as address:
            prove(self.backend, self.target, address)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[int]:
        address = self.backend.allocate(_SCRATCH)
        try:
            yield address
        finally:
            self.backend.free(address, _SCRATCH)
