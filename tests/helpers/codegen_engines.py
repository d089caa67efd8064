"""What runs the kernels that CUDA builders make, and what compares them with what the host builders compute.

There are two engines: ``cpu``, where gcc compiles the kernels' source, and ``gpu``, the machine code on a device.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import cuda_emulate
import cuda_run
import numpy as np
import pytest
from lowered import lowered
from plan_builds import build_cuda, build_host

from atomr_native.builders.cuda import codegen, cubin
from atomr_native.builders.cuda.target import KernelProgram, Target
from atomr_native.dtypes import DTYPES
from atomr_native.errors import Unsupported
from atomr_native.libraries.elementwise.expressions import FUNCTIONS as ALL
from atomr_native.libraries.elementwise.request import ElementwiseRequest
from atomr_native.plans.spec import WRITE, PlanSpec

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
#: A few units of the last place of the type that is computed in, then one rounding to what is stored.
STORE = {
    "float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2, "complex64": 2.0**-19, "complex128": 2.0**-48,
}  # fmt: skip


class Engine:
    """Builds plans for CUDA and runs them somewhere."""

    def __init__(self, target: Target, run: Callable[..., None], *, compiled: bool = True) -> None:
        self.target = target
        self._run = run
        self._compiled = compiled

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Have builders make machine code only if this engine runs it."""
        with pytest.MonkeyPatch.context() as patch:
            if not self._compiled:
                patch.setattr(codegen, "compile_cubin", lambda *_: b"")
            yield

    def build(self, spec: PlanSpec) -> Any:
        with self.building():
            return build_cuda(spec, self.target)

    def run(self, spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = ()) -> None:
        built = self.build(spec)
        if isinstance(built.run, str):
            assert built.run == "noop"
            return
        program = built.run
        assert isinstance(program, KernelProgram)
        check_order(program, self.target)
        assert built.workspace == program.workspace
        for array, align in zip(arrays, program.alignments, strict=True):
            assert array.ctypes.data % align == 0
        self.launch(program, arrays, scalars)

    def launch(self, program: KernelProgram, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = ()) -> None:
        """Run kernels on arrays in place."""
        self._run(program, arrays, scalars)


@contextlib.contextmanager
def engines(kind: str, folders: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend the engine of that name; skips the test where there is none."""
    if kind == "cpu":
        if reason := cuda_emulate.available():
            pytest.skip(reason)
        emulator = cuda_emulate.Emulator(folders.mktemp("kernels"))
        yield Engine(Target("sm_90a", 2), emulator.run, compiled=False)
        return
    found = cuda_run.device()
    if isinstance(found, str):
        pytest.skip(found)
    need_nvrtc()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOMR_NATIVE_CACHE", str(folders.mktemp("cache")))
        yield Engine(found.target, found.run)


def check_order(program: KernelProgram, target: Target) -> None:
    """Compare what is said of launches with their kernels: each waits for the launch before it, first thing.

    Addresses and numbers of the message, and what lies in shared memory, are no memory that a launch may have written.
    """
    assert all(launch.overlaps == target.overlaps for launch in program.launches)
    for launch in program.launches:
        _, _, body = program.source.partition(f" {launch.function}(")
        parameters, _, rest = body.partition("{\n")
        before, waits, _ = rest.partition("AWAIT_LAUNCH();\n")
        assert waits, launch.function
        for pointer in re.findall(r"\*(?:__restrict__ )?(\w+)", parameters):
            found = re.search(rf"(?<!\(u64\))\b{pointer}\b", before)
            assert not found, f"{launch.function} uses {pointer} before it waits"


def need_nvrtc() -> None:
    try:
        cubin.version()
    except Unsupported as error:
        pytest.skip(str(error))


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Random numbers: small ones for integers too, so that no operation overflows what NumPy defines."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype in INTEGERS:
        return np.asarray(rng.integers(0 if dtype.startswith("u") else -9, 10, shape)).astype(DTYPES[dtype])
    values = np.asarray(rng.standard_normal(shape) * 2)
    if dtype.startswith("complex"):
        values = values + 1j * np.asarray(rng.standard_normal(shape))
    return np.asarray(values).astype(DTYPES[dtype])


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return np.full((*shape, dtype.itemsize), 0x5B, np.uint8).view(dtype)[..., 0].copy()


def duplicate(array: np.ndarray) -> np.ndarray:
    """Copy an array with the bytes between its elements, and its alignment."""
    first, end = np.lib.array_utils.byte_bounds(array)
    count = end - first if array.size else 0
    memory = np.empty(count + 512, np.uint8)
    start = (first - memory.ctypes.data) % 256
    memory[start : start + count] = cuda_run.memory(first, first + count)
    return np.ndarray(array.shape, array.dtype, memory.data, start + array.ctypes.data - first, array.strides)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def compare(got: np.ndarray, expected: np.ndarray, rtol: float | None = None) -> None:
    """Compare within a tolerance; by their bits, but for those of NaN, where it is 0."""
    assert got.dtype == expected.dtype
    if got.dtype.kind in "biu" and not rtol:
        np.testing.assert_array_equal(got, expected)
        return
    if rtol == 0:
        real = {"complex64": np.float32, "complex128": np.float64}.get(got.dtype.name, got.dtype)
        mine, theirs = (np.atleast_1d(a.copy()).view(real) for a in (got, expected))
        with np.errstate(all="ignore"):
            nan = (mine != mine) & (theirs != theirs)
        bits = f"u{mine.dtype.itemsize}"
        assert ((mine.view(bits) == theirs.view(bits)) | nan).all(), (got, expected)
        return
    rtol = STORE.get(got.dtype.name, 1e-6) if rtol is None else rtol
    np.testing.assert_allclose(wide(got), wide(expected), rtol=rtol, atol=rtol * 1e-2, equal_nan=True)


def both(
    engine: Engine, spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = (), rtol: Any = None
) -> None:
    """Run a plan on copies, on the host and on the engine, and compare all operands."""
    expected, got = ([duplicate(a) for a in arrays] for _ in range(2))
    built = build_host(spec)
    assert callable(built.run)
    built.run(tuple(expected), scalars)
    engine.run(spec, tuple(got), scalars)
    for operand, mine, theirs in zip(spec.operands, got, expected, strict=True):
        compare(mine, theirs, rtol if operand.access & WRITE else 0)


def run_request(engine: Engine, request: Any, rtol: Any = None) -> None:
    """Run the message of a request as `both` says; outputs are allocated."""
    made = request.lowered
    arrays = [poison(o.spec.shape, DTYPES[o.spec.dtype]) if o.given is None else o.given for o in made.operands]
    both(engine, made.spec(), tuple(arrays), tuple(scalar.value for scalar in made.scalars), rtol)


def program(engine: Engine, source: Any, out: np.ndarray | None = None, rtol: Any = None, **operands: Any) -> None:
    run_request(engine, ElementwiseRequest(program=source, operands=operands, out=out), rtol)


UNARY = [*(name for name, arguments in ALL.items() if arguments == 1), "-"]
ARITHMETIC = ["+", "-", "*", "/", "**", "//", "%"]
COMPARE = ["<", "<=", ">", ">=", "==", "!="]


def each(names: list[str], source: str, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """One program with an output for each operation."""
    return {f"o{i}": source.format(name) for i, name in enumerate(names) if name not in skip}


def outputs(sources: dict[str, str], shape: tuple[int, ...], types: dict[str, str]) -> dict[str, np.ndarray]:
    """Outputs of the dtypes that their expressions have."""
    made = {}
    for name, source in sources.items():
        arrays = {n: np.zeros(shape, DTYPES[t]) for n, t in types.items() if re.search(rf"\b{n}\b", source)}
        _, fresh = lowered(ElementwiseRequest(program=source, operands=arrays))
        made[name] = poison(*fresh)
    return made
