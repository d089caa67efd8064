"""The native matmul plan without a GPU: compiled against a fake cuBLASLt whose matmuls NumPy computes.

`emulate` is cublasLtMatmul on flat memory: column-major matrices by address, leading dimension and batch step.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from atomr_native.builders.cuda.sequence import SequenceProgram
from atomr_native.dtypes import DTYPES
from atomr_native.errors import Unsupported
from atomr_native.libraries.blas_lt.cuda import tables
from atomr_native.libraries.blas_lt.cuda.native import MatmulDescription
from atomr_native.libraries.blas_lt.host.general import round_bits

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "cython"
TYPES = {number: DTYPES[name] for name, (number, _) in tables.TYPES.items()}
PLAN = (
    *(f"libraries/cublaslt/{name}.c" for name in ("plan", "describe", "run", "table")),
    "cuda/library.c",
    "runtime/failure.c",
)
NOT_RUN, UNSUPPORTED = 14, 2


def source(name: str) -> Path:
    """Return a C source or header by its path from cython/."""
    return SOURCES / name


def compile_shared(out: Path, sources: list[Path], *flags: str) -> Path:
    """Compile C11 into a shared library; skips the test where there is no gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    command = [gcc, "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    command += [f"-I{SOURCES}"] + [str(s) for s in sources] + ["-o", str(out)]
    subprocess.run(command, check=True)
    return out


class Layout(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in ("type", "rows", "columns", "ld", "order", "count", "step", "mode")]


class Op(ctypes.Structure):
    _fields_ = [
        *((n, ctypes.c_int64) for n in ("compute", "scale", "trans_a", "trans_b", "epilogue")),
        *((n, ctypes.c_int64) for n in ("bias_step", "aux_ld", "aux_step")),
        ("bias", ctypes.c_uint64),
        ("aux", ctypes.c_uint64),
        *((n, ctypes.c_int64) for n in ("bias_type", "aux_type", "fast", "mode_a", "mode_b", "on_device")),
        *((n, ctypes.c_uint64) for n in ("a_scale", "b_scale", "d_scale", "amax")),
    ]


class Record(ctypes.Structure):
    _fields_ = [
        *((n, Layout) for n in ("a", "b", "c", "d")),
        ("op", Op),
        *((n, ctypes.c_uint64) for n in ("A", "B", "C", "D", "workspace", "workspace_bytes", "algo", "stream")),
        *((n, ctypes.c_uint64) for n in ("alpha_at", "beta_at")),
        ("factors", ctypes.c_double * 4),
    ]


Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Record))


class Call(ctypes.Structure):
    """An atomr_call."""

    _fields_ = [
        ("lane", ctypes.c_uint),
        ("n_operands", ctypes.c_uint),
        ("n_scalars", ctypes.c_uint),
        ("ticket", ctypes.c_uint64),
        ("pointers", ctypes.c_void_p),
        ("scalars", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
    ]


class _Field(ctypes.Structure):
    """An atomr_field."""

    _fields_ = [("name", ctypes.c_char_p), ("count", ctypes.c_uint)]


class Failure(ctypes.Structure):
    """An atomr_failure."""

    _fields_ = [
        ("status", ctypes.c_int32),
        ("lib", ctypes.c_char * 16),
        ("name", ctypes.c_char * 64),
        ("text", ctypes.c_char * 872),
    ]


def at(address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Return an array over memory; strides in elements."""
    span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    raw = (ctypes.c_char * (span * dtype.itemsize)).from_address(address)
    return np.ndarray(shape, dtype, raw, strides=tuple(s * dtype.itemsize for s in strides))


def matrix(address: int, layout: Layout, i: int) -> np.ndarray:
    """Return the i-th matrix of a layout."""
    dtype = TYPES[layout.type]
    strides = (layout.ld, 1) if layout.order else (1, layout.ld)
    if layout.mode:
        address = int(at(address, np.dtype(np.uint64), (layout.count,), (1,))[i])
        i = 0
    return at(address + i * layout.step * dtype.itemsize, dtype, (layout.rows, layout.columns), strides)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_gradient(x: np.ndarray) -> np.ndarray:
    t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def scales(address: int, mode: int, outer: int, k: int) -> np.ndarray:
    """Return scales as (outer, k)."""
    if not address:
        return np.ones((1, 1), np.float32)
    float32, blocks = np.dtype(np.float32), -(-k // 128)
    if mode == 0:
        return at(address, float32, (1, 1), (1, 1))
    if mode == 3:
        return at(address, float32, (outer, 1), (1, 1))
    if mode == 4:
        return np.repeat(at(address, float32, (outer, blocks), (1, outer)), 128, 1)[:, :k]
    four = -(-blocks // 4) * 4
    rows = np.repeat(at(address, float32, (-(-outer // 128), blocks), (four, 1)), 128, 0)[:outer]
    return np.repeat(rows, 128, 1)[:, :k]


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply with one order of additions for every shape: BLAS has several, by processor and place in the matrix."""
    x = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[1]):
        x += a[:, i : i + 1] * b[i]
    return x


def store(into: np.ndarray, x: np.ndarray) -> None:
    """Round as the library does: 8 bits saturate."""
    if into.dtype.itemsize == 1 and into.dtype.kind != "u":
        limit = 127 if into.dtype.kind == "i" else float(ml_dtypes.finfo(into.dtype).max)
        x = np.clip(np.rint(x) if into.dtype.kind == "i" else x, -limit - (into.dtype.kind == "i"), limit)
    into[...] = x.astype(into.dtype)


def emulate(r: Record) -> None:
    """Do what cublasLtMatmul documents, matrix by matrix; every write goes to memory at once."""
    acc = TYPES[r.op.scale].type if r.op.scale != 2 else np.float32
    wide = np.float64 if TYPES[r.a.type].kind == "i" else acc
    dtype, epilogue = TYPES[r.d.type], r.op.epilogue
    side = TYPES[r.op.bias_type] if r.op.bias_type >= 0 else dtype
    kept = TYPES[r.op.aux_type] if r.op.aux_type >= 0 else dtype
    m, n = r.d.rows, r.d.columns
    alpha: Any
    beta: Any
    if r.op.on_device:
        alpha, beta = (at(address, TYPES[r.op.scale], (1,), (1,))[0] for address in (r.alpha_at, r.beta_at))
    else:
        alpha, beta = r.factors[0], r.factors[1]
        if TYPES[r.op.scale].kind == "c":
            alpha, beta = complex(alpha, r.factors[2]), complex(beta, r.factors[3])
    largest = 0.0
    for i in range(r.d.count):
        a, b = matrix(r.A, r.a, i).astype(wide), matrix(r.B, r.b, i).astype(wide)
        a, b = (a.T if r.op.trans_a else a), (b.T if r.op.trans_b else b)
        a, b = (a.conj() if r.op.trans_a == 2 else a), (b.conj() if r.op.trans_b == 2 else b)
        if TYPES[r.a.type].itemsize == 1:
            a = a * scales(r.op.a_scale, r.op.mode_a, m, a.shape[1])
            b = b * scales(r.op.b_scale, r.op.mode_b, n, a.shape[1]).T
        if r.op.compute == 77:
            a, b = round_bits(a, 10), round_bits(b, 10)
        x = (acc(alpha) * product(a, b)).astype(acc)
        if beta != 0:
            x = x + acc(beta) * matrix(r.C, r.c, i).astype(acc)
        vector_at = r.op.bias + i * r.op.bias_step * side.itemsize
        if epilogue & 4:
            x = x + at(vector_at, side, (m,), (1,)).astype(acc)[:, None]
        if epilogue & 2:
            if epilogue & 128:
                bits = np.packbits(x > 0, axis=0, bitorder="little")  # and nothing beyond, as the worst case
                at(r.op.aux + i * r.op.aux_step // 8, np.dtype(np.uint8), bits.shape, (1, r.op.aux_ld // 8))[:] = bits
            x = np.maximum(x, 0)
        if epilogue & 32:
            if epilogue & 128:
                store(at(r.op.aux + i * r.op.aux_step * kept.itemsize, kept, (m, n), (1, r.op.aux_ld)), x)
            x = gelu(x)
        if epilogue & 8:
            shape = (-(-m // 8), n)
            bits = at(r.op.aux + i * r.op.aux_step // 8, np.dtype(np.uint8), shape, (1, r.op.aux_ld // 8))
            x = np.where(np.unpackbits(bits, axis=0, count=m, bitorder="little"), x, 0).astype(acc)
        if epilogue & 64:
            z = at(r.op.aux + i * r.op.aux_step * kept.itemsize, kept, (m, n), (1, r.op.aux_ld)).astype(acc)
            x = x * gelu_gradient(z)
        sums = {16: lambda x=x: x.sum(1), 256: lambda a=a: a.sum(1), 512: lambda b=b: b.sum(0)}
        for bit, total in sums.items():
            if epilogue & bit:
                values = total()
                store(at(vector_at, side, values.shape, (1,)), values)
        largest = max(largest, float(np.max(abs(x), initial=0)))
        if r.op.d_scale:
            x = x * at(r.op.d_scale, np.dtype(np.float32), (1,), (1,))[0]
        store(matrix(r.D, r.d, i), x)
    if r.op.amax:
        at(r.op.amax, np.dtype(np.float32), (1,), (1,))[0] = largest


class Prepared:
    """A native plan of a rig, as `matmul_program` wants it."""

    def __init__(self, rig: Rig, description: MatmulDescription) -> None:
        code, self.plan = rig.new(description)
        if code != 0:
            raise (Unsupported if code == UNSUPPORTED else AssertionError)(rig.failure.text.decode())
        self.workspace = int(rig.plan.atomr_matmul_workspace(self.plan) or 0)


class Address:
    """Stands for an array of which only the address is known."""

    class _At:
        def __init__(self, data: int) -> None:
            self.data = data

    def __init__(self, address: int) -> None:
        self.ctypes = self._At(address)


def run_program(
    rig: Rig, kernels: Any, program: SequenceProgram, addresses: list[int], scalars: tuple[float, ...]
) -> None:
    """Run the steps of a program: matmuls by the rig, kernels by the emulator of kernels."""
    raw = np.full(program.workspace + 256, 0xA5, np.uint8)
    base = -(-raw.ctypes.data // 256) * 256
    for step in program.steps:
        places = [addresses[value] if kind == "operand" else base + value for kind, value in step.operands]
        values = [
            scalars[value] if kind == "scalar" else np.uint64(value).view(np.float64) for kind, value in step.scalars
        ]
        if isinstance(step.run, Prepared):
            code = rig.run(step.run.plan, places, tuple(values))
            assert code == 0, rig.failure.text
        else:
            assert all(at % align == 0 for at, align in zip(places, step.run.alignments, strict=False))
            kernels.run(step.run, tuple(map(Address, places)), tuple(values))
    for step in program.steps:
        if isinstance(step.run, Prepared):
            rig.delete(step.run.plan)


class Rig:
    """The plan code and the fake library, loaded."""

    def __init__(self, folder: Path) -> None:
        fake_c = HERE / "fake_cublaslt.c"
        self.fake_path = compile_shared(folder / "libfake_cublaslt.so", [fake_c])
        plan_path = compile_shared(folder / "libplan.so", [fake_c, *map(source, PLAN)], "-DBACKEND")
        self.fake, self.plan = ctypes.CDLL(str(self.fake_path)), ctypes.CDLL(str(plan_path))
        self.records: list[Record] = []
        self.error: BaseException | None = None
        self.compute: Callable[[Record], None] = emulate
        self._callback = Callback(self._matmul)
        ctypes.c_void_p.in_dll(self.fake, "fake_matmul").value = ctypes.cast(self._callback, ctypes.c_void_p).value
        self.plan.atomr_matmul_workspace.restype = ctypes.c_void_p
        self.owner = ctypes.c_void_p()
        self.failure = Failure()
        why = ctypes.create_string_buffer(1024)
        self.plan.atomr_cublaslt_load(str(self.fake_path).encode(), why, ctypes.c_size_t(len(why)))
        code = self.plan.atomr_blas_lt_open(None, ctypes.byref(self.owner), ctypes.byref(self.failure))
        assert code == 0, (why.value, self.failure.text)

    def _matmul(self, record: Any) -> int:
        try:
            self.records.append(Record.from_buffer_copy(record.contents))
            self.compute(record.contents)
        except BaseException as error:  # a callback cannot raise
            self.error = error
            return NOT_RUN
        return 0

    def knob(self, name: str, kind: Any = ctypes.c_uint64) -> Any:
        return kind.in_dll(self.fake, name)

    def members(self) -> list[tuple[str, int]]:
        """Return the members of ``atomr_matmul_spec`` as C has them: names, and how many integers each is."""
        table = (_Field * 100).in_dll(self.plan, "atomr_matmul_fields")
        return [(f.name.decode(), f.count) for f in itertools.takewhile(lambda f: f.name is not None, table)]

    def new(self, description: MatmulDescription) -> tuple[int, ctypes.c_void_p]:
        """Make a plan; return (atomr_code, plan)."""
        made, words, given = ctypes.c_void_p(), list[int](), description.fields()
        for name, count in self.members():
            words += [given.pop(name)] if count == 1 else given.pop(name)
        assert not given
        spec = (ctypes.c_int64 * len(words))(*words)
        return self.plan.atomr_matmul_new(self.owner, spec, ctypes.byref(made), ctypes.byref(self.failure)), made

    def run(
        self,
        plan: ctypes.c_void_p,
        addresses: list[int],
        scalars: tuple[float, ...],
        workspace: tuple[int, int] = (0, 0),
    ) -> int:
        """Run a plan; return its atomr_code."""
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        words = (ctypes.c_double * len(scalars))(*scalars)
        call = Call(3, len(addresses), len(scalars), 1, ctypes.addressof(pointers), ctypes.addressof(words), *workspace)
        self.failure = Failure()
        code = self.plan.atomr_matmul_run(plan, ctypes.byref(call), ctypes.byref(self.failure))
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return int(code)

    def delete(self, plan: ctypes.c_void_p) -> None:
        self.plan.atomr_matmul_delete(plan)
