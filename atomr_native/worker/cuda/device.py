"""What a worker needs of a CUDA device: lanes over it, plans for it, recovery and proof."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._lib.cuda import Blas, CudaBackend, Grouped, Kernels, Matmul
from ..._lib.lanes import Lanes
from ...errors import AtomrError, LibraryError, PlanQuarantined, Unsupported
from ..groups import recover
from . import build, groups
from .blas import blas_program, blas_words
from .custom_epilogue import custom_program
from .faults import build_fault
from .grouped import GroupDescription, grouped_program
from .lt_description import MatmulDescription
from .matmul_program import matmul_program
from .proof import prove
from .target import Target
from .tuning import Tuner

__all__ = ["CudaDevice", "library_file"]

_log = logging.getLogger("atomr_native.worker")

#: Bytes that work outside of messages may write, while no lane runs.
_SCRATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class _Built:
    run: Any
    workspace: int = 0
    notes: tuple[str, ...] = ()
    tuning: str = ""


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


def _refusal(text: str) -> Callable[..., None]:
    def run(*_: Any) -> None:
        raise PlanQuarantined(text)

    return run


class CudaDevice:
    """One CUDA device in a worker.

    Parameters
    ----------
    ordinal : int
        Which device, as the driver numbers those that CUDA_VISIBLE_DEVICES leaves.
    uuid : str
        Its UUID, once that is known: it is found by that, whatever its number is now.
    workspace_limit : int
        Bytes of workspace that a plan may want.
    allow_crash : bool
        Whether plans that make the GPU fault can be built, for tests.
    backend : CudaBackend, optional
        Of this device, as a hot standby has it ready.

    Raises
    ------
    Unsupported
        If it cannot be driven here.
    DeviceLost
        If the device with that UUID is gone.
    """

    def __init__(
        self,
        ordinal: int,
        uuid: str = "",
        *,
        workspace_limit: int = 32 << 20,
        allow_crash: bool = False,
        backend: CudaBackend | None = None,
    ) -> None:
        self.backend = CudaBackend(ordinal, uuid) if backend is None else backend
        self.facts: dict[str, Any] = self.backend.facts()
        major, minor = self.facts["compute_capability"]
        self.target = Target(f"sm_{major}{minor}{'a' if major == 9 else ''}", self.facts["multiprocessors"])
        self._blas_lt_version = 0
        self._workspace_limit = workspace_limit
        self._allow_crash = allow_crash
        self._crashing: Kernels | None = None
        #: Sends a notification to the parent, without waiting.
        self.notify: Callable[[dict[str, Any]], object] | None = None

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes of the GPU's memory, as its driver counts them."""
        return self.backend.memory()

    def lanes(self, p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> Lanes:
        """Make the lanes of a worker over this device."""
        return Lanes(p_fd, p_bytes, parent_pidfd=parent_pidfd, spin_us=spin_us, fault_fd=fault_fd, backend=self.backend)

    def build(self, spec: dict[str, Any]) -> _Built:
        """Build a plan: compile its kernels, or prepare its library call.  Waits for the compiler."""
        if spec["op"] in ("blas_lt.matmul", "blas_lt.grouped"):
            return self._matmul(spec)
        if str(spec["op"]).startswith("blas."):
            words = blas_words(spec)
            if not words:  # nothing to do
                return _Built("noop")
            self.backend.open_blas(library_file("cublas"))
            native = Blas(self.backend, words)
            program = blas_program(words, native, self.target)
            return _Built(program, program.workspace, program.notes) if program else _Built(native)
        if spec["op"] == "test.gpu_fault" and self._allow_crash:
            fault = build_fault(spec, self.target)
            if spec.get("when") == "build":  # as a plan that is tuned, and faults
                self.backend.run(self.backend.load(fault), 0)
            return _Built(fault)
        built = build(spec, self.target)
        if spec["op"] == "group.commit" and spec["checksum"]:
            groups.build_checksum(self.target)  # so that no restart waits for the compiler
        if built.workspace > self._workspace_limit:
            raise Unsupported(
                f"{spec['op']} of these shapes needs a workspace of {built.workspace} bytes, and the limit is "
                f"{self._workspace_limit}; raise System(workspace_limit=)"
            )
        run = _refusal(str(built.run)) if built.kind == "refusal" else built.run
        return _Built(run, built.workspace)

    def _matmul(self, spec: dict[str, Any]) -> _Built:
        if not self._blas_lt_version:
            self._blas_lt_version = self.backend.open_blas_lt(library_file("cublasLt"))

        lines: list[tuple[Matmul, str]] = []
        tuner = Tuner(self.backend, self._blas_lt_version, self.facts)

        def prepare(description: MatmulDescription) -> Matmul:
            made = Matmul(self.backend, description)
            if not spec["tune"] or description.pointers >= 0:
                return made
            best, line = tuner.tuned(
                description, made, measure=spec["tune"] == "measure", progress=self._progress(int(spec.get("plan", -1)))
            )
            if not line:
                return made
            try:
                tuned = Matmul(self.backend, best)
            except (Unsupported, LibraryError) as error:
                _log.warning("a tuned algorithm does not fit any more, the heuristic's is taken: %s", error)
                return made
            lines.append((tuned, line))
            return tuned

        on_device = any(o["name"].startswith("alpha") for o in spec["operands"])
        options: dict[str, Any] = {
            "version": self._blas_lt_version,
            "prepare": prepare,
            "workspace_bytes": self._workspace_limit,
            "zero": self.backend.zeros() if on_device else 0,
        }
        if spec["op"] == "blas_lt.grouped":
            program = grouped_program(spec, self.target, group=self._group, **options)
        elif "custom" in spec:
            program = custom_program(spec, self.target, **options)
        else:
            program = matmul_program(spec, self.target, measured=tuner.microseconds, **options)
        runs = [step.run for step in program.steps]
        tuning = "; ".join(line for made, line in lines if made in runs)
        run = runs[0] if len(runs) == 1 and isinstance(runs[0], Matmul) else program
        return _Built(run, program.workspace, program.notes, tuning)

    def _group(self, description: GroupDescription) -> Grouped:
        """Prepare the products of a group by cuBLAS."""
        self.backend.open_groups(library_file("cublas"))
        return Grouped(self.backend, description)

    def _progress(self, plan: int) -> Callable[[int, int, str], None]:
        """Return what tells the parent how the build of a plan gets on."""

        def progress(done: int, total: int, text: str) -> None:
            if self.notify is not None:
                self.notify({"op": "progress", "plan": plan, "done": done, "total": total, "text": text})

        return progress

    def assign(self, lane: int) -> Callable[[np.ndarray[Any, Any], float], None]:
        """Return what fills contiguous device memory in the order of a lane's stream, and waits."""

        def fill(array: np.ndarray[Any, Any], value: float) -> None:
            source = np.full(array.shape, value, array.dtype)
            self.backend.copy_in_lane(lane, array.ctypes.data, source.ctypes.data, source.nbytes)

        return fill

    def crash(self, how: str) -> None:
        """Launch a kernel that faults, on a stream that nobody waits for."""
        program = build_fault({"how": how.removesuffix(" while idle"), "operands": []}, self.target)
        self._crashing = self.backend.load(program)
        self.backend.start(self._crashing, 0)

    def recover(self, lanes: Lanes, described: list[Any]) -> list[Any]:
        """Bring durable groups to their last commit, before the lanes run."""
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
        address = self.backend.borrow(_SCRATCH)
        try:
            yield address
        finally:
            self.backend.give_back(address, _SCRATCH)


def library_file(name: str) -> str:
    """Return the file of an NVIDIA library, or "" to leave it to the loader."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError, AtomrError):
        return ""
    return found or ""
