"""Plans of kernels that ship with the library, run by Numba's simulator: the launches that a GPU would get."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import greenlet
import numpy as np
import pytest
from msgspec.structs import replace
from numba.cuda.simulator import kernel, kernelapi
from plan_builds import build_cuda

from atomr_native.builders.cuda.target import Target
from atomr_native.compile import shipped
from atomr_native.compile.link_parts import LinkPart
from atomr_native.compile.linking import run_linker
from atomr_native.compile.numba import simulated_block, simulated_cuda, simulator
from atomr_native.compile.nvrtc import arch_of
from atomr_native.plans.spec import PlanSpec, ShippedCode
from atomr_native.protocol.binaries import Binary

__all__ = ["bodies", "check_order", "linked_ptx", "ptx_of", "simulate", "simulate_program"]


def _memory(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return the memory of an array from its first element on, as a pointer to `dtype` sees it."""
    words = array.view(dtype) if array.ndim else array.reshape(1).view(dtype)
    if words.size == 0:
        return np.empty(0, dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(words.shape, words.strides, strict=True)) // words.itemsize
    return np.lib.stride_tricks.as_strided(words, (span,), (words.itemsize,))


def simulate(
    module: str, parts: Sequence[shipped.Part], spec: PlanSpec, arrays: Sequence[np.ndarray[Any, Any]], blocks: int = 1,
    scalars: Sequence[float] = (),
) -> None:  # fmt: skip
    """Run the plan of a specification on arrays and scalars, in its order, with `blocks` multiprocessors."""
    names = tuple((part.name, part.name) for part in parts)
    described = replace(spec, attributes=replace(spec.attributes, shipped=ShippedCode(names, Binary(b""))))
    simulate_program(module, parts, build_cuda(described, Target("sm_90", blocks)).run, arrays, scalars)


def simulate_program(
    module: str, parts: Sequence[shipped.Part], program: Any, arrays: Sequence[np.ndarray[Any, Any]],
    scalars: Sequence[float] = (), watch: Callable[[np.ndarray[Any, Any]], object] = lambda workspace: None,
) -> None:  # fmt: skip
    """Run launches of shipped kernels on arrays, in the order of their operands, and scalars.

    `watch` gets the workspace before they run.
    """
    made = {part.name: shipped.made(module, part) for part in parts}
    workspace = np.full(program.workspace, 0xA5, np.uint8)
    watch(workspace)
    for launch in program.launches:
        function, types = made[launch.function]
        arguments: list[Any] = []
        for (kind, what), type_ in zip(launch.arguments, types, strict=True):
            if kind == "operand":
                memory = _memory(arrays[what], type_[1:]) if type_[1:] in _fitting(arrays[what]) else None
                arguments.append(simulator.simulated_array(np.empty(0, type_[1:]) if memory is None else memory))
            elif kind == "workspace":
                arguments.append(simulator.simulated_array(workspace[what:].view(type_[1:])))
            elif kind in ("int64", "float32", "float64"):
                assert type_ == kind
                arguments.append(int(scalars[what]) if kind == "int64" else np.dtype(kind).type(scalars[what]))
            else:
                assert kind == "uint64"
                assert type_ in ("int64", "float64")
                bits = np.uint64(what).view(type_)
                arguments.append(int(bits) if type_ == "int64" else bits)
        with _in_turns():
            simulator.simulated(function)[launch.grid, launch.block, 0, launch.shared](*arguments)  # type: ignore[index]


class _Thread(kernel.BlockThread):  # type: ignore[misc]
    """A thread of a block, which is no system thread: it runs when it is told to, until the next barrier or its end."""

    running: _Thread | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._steps = greenlet.greenlet(self.run)

    def run(self) -> None:
        with np.errstate(all="ignore"):
            super().run()

    def syncthreads(self) -> None:
        self._steps.parent.switch()

    def step(self) -> bool:
        """Go on; return whether it has not ended."""
        _Thread.running = self
        self._steps.switch()
        if self.exception:
            raise self.exception[0].with_traceback(self.exception[1])
        return not self._steps.dead


class _Threading:
    """The module `threading`, for the simulator."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def current_thread(self) -> Any:
        return _Thread.running or threading.current_thread()


class _Turns(simulated_block.Block):  # type: ignore[misc]
    """A block without system threads, whose starts and switches take most of the time: kernels here have no locks."""

    def run(self, grid_point: tuple[int, ...], *arguments: Any) -> None:
        if not self._f.meets:
            super().run(grid_point, *arguments)
            return
        threads = [
            _Thread(lambda: self._f(*arguments), self, grid_point, point, self._debug)
            for point in np.ndindex(*self._block_dim)
        ]
        try:
            while threads:
                threads = [thread for thread in threads if thread.step()]
        finally:
            _Thread.running = None


@contextmanager
def _in_turns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "BlockManager", _Turns)
        for module in (kernelapi, simulated_cuda):
            patch.setattr(module, "threading", _Threading())
        yield


def linked_ptx(module: str, parts: Sequence[shipped.Part], capability: tuple[int, int]) -> str:
    """Return what the linker makes of kernels before the last step, as text; look at their order on the way."""
    text = ptx_of([_compiled(module, part, capability) for part in parts], capability)
    assert len(bodies(text)) == len(parts)
    if capability >= (9, 0):
        for body in bodies(text):
            check_order(body)
    return text


def bodies(ptx: str) -> list[str]:
    """Return what the kernels of a module do, in PTX."""
    return [part.partition("\n}\n")[0] for part in ptx.split(".entry ")[1:]]


def check_order(body: str) -> None:
    """Fail unless a kernel touches memory only when the launch before has ended."""
    assert body.count("griddepcontrol.wait") == 1
    before, after = body.split("griddepcontrol.wait")
    memory = r"\b(ld|st|atom|red)\.(?!param)"
    assert not re.search(memory, before)
    assert re.search(memory, after)


#: Several plans have kernels in common.
_compiled = functools.cache(shipped.compiled)


def ptx_of(codes: Sequence[bytes], capability: tuple[int, int]) -> str:
    """Return what the linker makes of LTO-IR before the last step, as text."""
    parts = [LinkPart("ltoir", code) for code in codes]
    return run_linker(parts, (f"-arch={arch_of(capability)}", "-lto", "-ptx"), "ptx").decode()


def _fitting(array: np.ndarray[Any, Any]) -> tuple[str, ...]:
    """Return the types by which a kernel may point to an array: another is a parameter that it does not use."""
    four = ("uint32", "int32", "float32")
    return {
        1: ("uint8",),
        2: ("uint16", "int16"),
        4: four,
        8: ("float64", "int64", "complex64"),
        16: ("int64", "complex128"),
    }[array.itemsize]
