"""Direct solvers, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

import ctypes
import gc
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from actions import eventually
from cuda_wheels import find
from fake_cuda import compiling_here, using
from lt_emulator import source
from placements import Placement
from scripts import run as run_program
from sparse_checks import tolerance, values_of

import atomr_native as an
from atomr_native.libraries.sparse.direct import solver as module

RNG = np.random.default_rng(27)


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    made = cuda_system.device(request.param)
    try:
        made.sparse.direct(made.sparse.matrix(np.eye(2)))
    except an.Unsupported as error:
        pytest.skip(str(error))
    return made


def matrix(dtype: str, kind: str = "general", n: int = 30) -> np.ndarray[Any, Any]:
    """Return a matrix with small diagonal elements, unless it is positive definite."""
    stored = RNG.random((n, n)) < 0.15
    np.fill_diagonal(stored, True)
    a = np.where(stored, values_of(RNG, (n, n), dtype), 0).astype(dtype)
    if kind == "symmetric":
        a = a + a.T
    if kind in ("hermitian", "positive"):
        a = a + a.conj().T
    if kind == "positive":
        a += np.diag(np.abs(a).sum(axis=1) + 1).astype(dtype)  # a row may have a diagonal only, which was negative
    return a.astype(dtype)


def near(a: np.ndarray[Any, Any], x: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    """Hold the residual relative to what rounding of a backward stable solve leaves."""
    size = np.linalg.norm(a) * np.linalg.norm(x) + np.linalg.norm(b)
    assert np.linalg.norm(a @ x - b) <= 5 * tolerance(str(a.dtype)) * size


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("float32", "general"), ("float64", "symmetric"), ("float64", "positive"), ("complex64", "hermitian"),
        ("complex128", "general"), ("complex128", "positive"),
    ],
)  # fmt: skip
def test_solves(device: an.Device, dtype: str, kind: str) -> None:
    a = matrix(dtype, kind)
    given = device.sparse.matrix(a, index_dtype="int64" if dtype == "float64" else "int32")
    solver = device.sparse.direct(given, kind=kind, columns=2)
    assert repr(solver) == f"<DirectSolver {kind} (30, 30) {dtype}>"
    with pytest.raises(an.InvalidRequest, match=r"the solver has no factors; send factor\(\) first"):
        solver.solve(device.put(np.zeros(30, dtype)))
    solver.factor()
    for columns in (None, 1, 2, 5):  # more than it has room for are several messages
        b = values_of(RNG, (30,) if columns is None else (30, columns), dtype)
        near(a, solver.solve(device.put(b)).numpy(), b)
        if columns:
            turned = device.put(np.ascontiguousarray(b.T)).T
            out = device.zeros(b.shape, dtype)
            assert solver.solve(turned, out=out) is out
            near(a, out.numpy(), b)
    assert solver.solve(device.zeros((30, 0), dtype)).numpy().shape == (30, 0)


def test_solutions_go_where_they_are_wanted(device: an.Device) -> None:
    """Into out itself where its columns follow each other and b lies apart, and by a copy elsewhere."""
    a = matrix("float64")
    solver = device.sparse.direct(device.sparse.matrix(a), columns=2)
    solver.factor()
    b = values_of(RNG, (30, 2), "float64")
    wide = device.zeros((30, 6), "float64")
    for out in (wide[:, 1:5:2], device.zeros((2, 30), "float64").T, device.zeros((3, 30), "float64")[1:].T):
        assert solver.solve(device.put(b), out=out) is out
        near(a, out.numpy(), b)
    assert (wide.numpy()[:, ::2] == 0).all()
    whole = device.put(np.concatenate([b[:, 0], b[:, 1]]))
    for of, to in ((slice(0, 30), slice(0, 30)), (slice(0, 30), slice(15, 45))):  # in place, and over a part of b
        given = device.copy(whole)
        near(a, solver.solve(given[of], out=given[to]).numpy(), b[:, 0])
    odd, at = device.put(np.concatenate([[7.0], b[:, 0]])), device.zeros((33,), "float64")
    near(a, solver.solve(odd[1:], out=at[1:31]).numpy(), b[:, 0])
    assert (at.numpy()[[0, 31, 32]] == 0).all()
    skipping = device.put(np.repeat(b[:, 0], 2))[::2]
    near(a, solver.solve(skipping, out=device.zeros((60,), "float64")[::2]).numpy(), b[:, 0])


@pytest.mark.parametrize("triangle", ["lower", "upper"])
@pytest.mark.parametrize(("dtype", "kind"), [("float64", "positive"), ("complex128", "hermitian"),
                                             ("complex64", "symmetric")])  # fmt: skip
def test_triangles(device: an.Device, dtype: str, kind: str, triangle: str) -> None:
    a = matrix(dtype, kind)
    part = np.tril(a) if triangle == "lower" else np.triu(a)
    solver = device.sparse.direct(device.sparse.matrix(part), kind=kind, triangle=triangle)
    solver.factor()
    b = values_of(RNG, (30, 3), dtype)
    near(a, solver.solve(device.put(b)).numpy(), b)


def test_new_values_and_a_pattern_that_stays(device: an.Device) -> None:
    a = matrix("float64")
    given = device.sparse.matrix(a)
    solver = device.sparse.direct(given)
    b = values_of(RNG, (30,), "float64")
    solver.factor()
    given.values.fill(np.nan)  # the solver has its own
    given.indices.fill(10**6)
    near(a, solver.solve(device.put(b)).numpy(), b)
    stored = scipy.sparse.csr_array(a)
    for factor, send in ((2.0, solver.refactor), (-3.0, solver.factor), (0.5, solver.refactor)):
        send(device.put(factor * stored.data))
        near(factor * a, solver.solve(device.put(b)).numpy(), b)
    assert solver.nbytes > stored.data.nbytes * 1.5


def test_batches(device: an.Device) -> None:
    a = matrix("float64", "positive", 12)
    stored = scipy.sparse.csr_array(a)
    values = np.stack([stored.data * factor for factor in (1.0, 2.0, -0.0 + 5.0)])
    given = device.sparse.matrix(a).with_values(device.put(values))
    solver = device.sparse.direct(given, kind="positive", columns=2)
    assert repr(solver).endswith("float64, batch of 3>")
    solver.factor()
    for shape in ((3, 12), (3, 12, 2)):
        b = values_of(RNG, shape, "float64")
        found = solver.solve(device.put(b)).numpy()
        for i, factor in enumerate((1.0, 2.0, 5.0)):
            near(factor * a, found[i], b[i])
    with pytest.raises(an.InvalidRequest, match=r"b has 3 columns; the solver of a batch has room for 2: columns="):
        solver.solve(device.put(np.zeros((3, 12, 3))))


@pytest.mark.parametrize("check", [False, True])
def test_programs(device: an.Device, check: bool) -> None:
    """A program has a lane of its own, and its solver was analysed by way of another."""
    a = matrix("float64", "positive")
    solver = device.sparse.direct(device.sparse.matrix(a), kind="positive", columns=1)
    solver.factor()
    b, values = device.put(values_of(RNG, (30,), "float64")), device.put(scipy.sparse.csr_array(a).data)
    out = device.zeros((30,), "float64")

    @device.graph
    def step(values: an.GpuRef, b: an.GpuRef, out: an.GpuRef) -> None:
        solver.factor(values, check=check)
        solver.solve(b, out=out)

    plan = step.plan(values, b, out)
    for factor in (2.0, 4.0, 3.0):
        given = device.put(factor * values.numpy())
        for _ in range(3):  # the same operands again, which a graph would be captured for
            plan.tell(given, b, out=out)
            near(factor * a, out.numpy(), b.numpy())
    solver.factor()  # a message beside the program
    near(3 * a, solver.solve(b).numpy(), b.numpy())


def test_messages_that_nobody_waits_for(device: an.Device) -> None:
    a = matrix("float64", "positive")
    solver = device.sparse.direct(device.sparse.matrix(a), kind="positive", columns=1)
    b, out = device.put(values_of(RNG, (30,), "float64")), device.zeros((30,), "float64")
    for factor in (2.0, 4.0, 3.0):
        values = device.put(factor * scipy.sparse.csr_array(a).data)
        for _ in range(3):
            solver.factor(values, check=False)
            solver.solve(b, out=out)
        near(factor * a, out.numpy(), b.numpy())


def test_solves_stand_between_what_their_lane_does_before_and_after(device: an.Device) -> None:
    """The library works in a stream of the solver's."""
    a, wide = matrix("float64", "positive"), RNG.standard_normal((30, 20000))
    solver = device.sparse.direct(device.sparse.matrix(a), kind="positive", columns=1)
    solver.factor()
    before, after = device.sparse.matrix(wide), device.sparse.matrix(a)
    for scale in (1.0, 2.0, 3.0):
        b = device.sparse.spmv(before, device.put(np.full(20000, scale)))  # takes long
        again = device.sparse.spmv(after, solver.solve(b))
        want = scale * wide.sum(axis=1)
        np.testing.assert_allclose(again.numpy(), want, atol=1e-9 * abs(wide).sum())


def test_matrices_without_factors(device: an.Device) -> None:
    a = np.diag([1.0, 2.0, -3.0])
    solver = device.sparse.direct(device.sparse.matrix(a), kind="positive")
    solver.factor()
    with pytest.raises(an.NotPositiveDefinite, match=r"sparse\.direct: the matrix is not positive definite") as caught:
        solver.solve(device.put(np.ones(3))).numpy()
    assert caught.value.info in ((3,) if device.kind == "host" else (1, 2, 3))  # cuDSS may count in its own order
    for before in ((), (np.array([1.0, -2.0, 3.0]),)):  # the second is not looked at, and counts no longer
        for values in before:
            solver.factor(device.put(values), check=False)
        solver.factor(device.put(np.array([1.0, 2.0, 3.0])))  # ends it
        near(np.diag([1.0, 2.0, 3.0]), solver.solve(device.put(np.ones(3))).numpy(), np.ones(3))


def test_singular_matrices_on_the_host(cuda_system: an.System) -> None:
    """A GPU replaces pivots that are too small, and says nothing."""
    device = cuda_system.device("host")
    solver = device.sparse.direct(device.sparse.matrix(np.array([[1.0, 1.0], [1.0, 2.0]])))
    solver.factor(device.put(np.ones(4)))
    with pytest.raises(an.SingularMatrix) as caught:
        solver.solve(device.put(np.ones(2))).numpy()
    assert caught.value.info == 2


def test_factors_leave_their_memory_on_the_host() -> None:
    """SciPy frees it only in the thread that made them; see ``direct/host.py``."""
    run_program("""
        import os
        import numpy as np
        import scipy.sparse
        import atomr_native as an

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        line = scipy.sparse.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(90, 90))
        plane = scipy.sparse.kronsum(line, line, "csr")
        with an.System(isolation="thread", allow_crash=True) as system:
            device = system.device("host")
            b = device.put(np.ones(plane.shape[0]))
            matrix = device.sparse.matrix(plane)
            for i in range(45):
                if i == 5:
                    before = resident()
                solver = device.sparse.direct(matrix)
                solver.factor()
                solver.solve(b).wait()
                del solver
            grown = resident() - before
        assert grown < 40 * 2**20, f"{grown >> 20} MiB are left of 40 solvers"
    """)


def test_what_cannot_be(device: an.Device) -> None:
    sparse = device.sparse
    good = sparse.matrix(np.eye(3))
    for a, options, words in (
        (sparse.matrix(scipy.sparse.csc_array(np.eye(3))), {}, "a is csc; direct takes csr"),
        (sparse.matrix(np.ones((2, 3))), {}, r"shape=\(2, 3\) .*direct takes a square matrix"),
        (sparse.matrix(np.eye(3, dtype="f2")), {}, "values has dtype float16; direct allows: float32"),
        (good, {"kind": "spd"}, "kind='spd'; allowed: 'general', 'symmetric', 'hermitian', 'positive'"),
        (good, {"triangle": "lower"}, "triangle='lower' of kind='general'; allowed: 'full'"),
        (good, {"columns": 0}, "columns=0"),
        (an.SparseMatrix("csr", (2, 2), device.put(np.ones(3)), device.put(np.array([1, 0, 1], "i4")),
                         device.put(np.array([0, 2, 3], "i4"))), {}, "rows that are not in order"),
        (an.SparseMatrix("csr", (2, 2), device.put(np.ones(2)), device.put(np.array([0, 7], "i4")),
                         device.put(np.array([0, 1, 2], "i4"))), {}, r"indices\[1\] is 7; allowed: 0 to 1"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=words):
            sparse.direct(a, **options)
    solver = sparse.direct(good)
    for values in (np.ones(2), np.ones(3, "f4")):
        with pytest.raises(an.InvalidRequest, match=r"values has shape .*allowed: \(3,\) of float64"):
            solver.factor(device.put(values))
    solver.factor()
    for b, words in ((np.ones(4), r"b has shape \(4,\); allowed: \(3,\)"), (np.ones(3, "f4"), "b has dtype float32")):
        with pytest.raises(an.InvalidRequest, match=words):
            solver.solve(device.put(b))
    with pytest.raises(an.InvalidRequest, match=r"out has shape \(3, 1\)"):
        solver.solve(device.put(np.ones(3)), out=device.zeros((3, 1)))


def test_a_restart_leaves_durable_solvers_usable(worker_process: Placement) -> None:
    with worker_process.system(allow_crash=True) as system:
        device = system.device(worker_process.device)
        a = matrix("float64")
        try:
            lasting, lost = (device.sparse.direct(device.sparse.matrix(a), durable=kept) for kept in (True, False))
        except an.Unsupported as error:
            pytest.skip(str(error))
        b = device.put(values_of(RNG, (30,), "float64"), durable=True)
        for solver in (lasting, lost):
            solver.factor()
            near(a, solver.solve(b).numpy(), b.numpy())
        generation = device.generation
        device.inject_fault("abort")
        eventually(lambda: device.generation > generation, 60)
        device.wait_ready(60)
        near(a, lasting.solve(b).numpy(), b.numpy())
        with pytest.raises(an.GpuRefStale):
            lost.solve(b)


def test_memory_that_is_too_small_is_made_larger(
    fake_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with using(fake_environment), an.System() as system:
        device = system.device("cuda:0")
        a = matrix("float64")
        monkeypatch.setattr(module, "_FIRST", 512)
        monkeypatch.setattr(module, "_EACH", 0)
        solver = device.sparse.direct(device.sparse.matrix(a))
        solver.factor()
        b = values_of(RNG, (30,), "float64")
        near(a, solver.solve(device.put(b)).numpy(), b)
        monkeypatch.setattr(module, "_SLACK", -(10**5))  # factors that need more than the library said
        small = device.sparse.direct(device.sparse.matrix(matrix("float64", n=100)), columns=1)
        small.factor()
        with pytest.raises(an.OutOfMemory, match=r"factorization: cuDSS wants \d+ bytes more, and the solver has"):
            small.solve(device.put(np.ones(100))).numpy()


@pytest.mark.parametrize("status", [2, 6])
def test_other_failures_of_the_library_ask_for_no_memory(
    fake_environment: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    """An analysis asks for more than there is, goes on with less, and then fails with its own reason."""
    refusals = tmp_path / "refusals"
    refusals.write_text(f"cudssExecute {status} 1\n")
    with using({**fake_environment, "FAKE_CUDA_REFUSE": str(refusals)}), an.System() as system:
        device = system.device("cuda:0")
        given = device.sparse.matrix(np.eye(3))
        with pytest.raises(an.LibraryError, match="analysis: Device allocation observed prior CUDA error 36") as caught:
            device.sparse.direct(given)
        assert (caught.value.lib, caught.value.status) == ("cudss", status)
        solver = device.sparse.direct(given)  # the next one works
        solver.factor()
        assert solver.solve(device.put(np.ones(3))).numpy().tolist() == [1.0] * 3
        assert solver.nbytes < 2 * (module._FIRST + module._SLACK)
    assert "[CUDSS]" not in capfd.readouterr().out  # the reason is in the error alone


def test_deterministic_solvers_take_columns_one_by_one(device: an.Device) -> None:
    a = matrix("complex64")
    solver = device.sparse.direct(device.sparse.matrix(a), columns=3, deterministic=True)
    solver.factor()
    b = values_of(RNG, (30, 5), "complex64")
    found = [solver.solve(device.put(b)).numpy() for _ in range(2)]
    near(a, found[0], b)
    np.testing.assert_array_equal(*found)
    batch = device.sparse.matrix(np.eye(2)).with_values(device.ones((3, 2)))
    if device.kind == "host":
        device.sparse.direct(batch, deterministic=True)
        return
    with pytest.raises(an.Unsupported, match=r"a batch of 3 matrices: cuDSS .*a\.with_values\(a\.values\[i\]\)"):
        device.sparse.direct(batch, deterministic=True)


def test_handles_that_come_with_an_error_are_destroyed(fake_environment: dict[str, str], tmp_path: Path) -> None:
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUDSS"])
    alive = ctypes.c_uint.in_dll(library, "fake_direct_objects")
    before = alive.value
    refusals = tmp_path / "refusals"
    refusals.write_text("cudssCreate 6 1\n")
    environment = {**fake_environment, "FAKE_CUDA_REFUSE": str(refusals)}
    with using(environment), compiling_here(), an.System(isolation="thread", standby="off") as system:
        device = system.device("cuda:0")
        with pytest.raises(an.LibraryError, match="cudssCreate: cublasCreate failed"):
            device.sparse.direct(device.sparse.matrix(np.eye(3)))
        gc.collect()
        eventually(lambda: alive.value == before)


def test_solvers_end_with_their_plans(fake_environment: dict[str, str]) -> None:
    """In this process: what cuDSS keeps ends with the last plan of a solver, and one analysis serves all phases."""
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUDSS"])
    alive, analyses = (ctypes.c_uint.in_dll(library, f"fake_direct_{name}") for name in ("objects", "analyses"))
    before = alive.value, analyses.value
    with using(fake_environment), compiling_here(), an.System(isolation="thread", standby="off") as system:
        device = system.device("cuda:0")
        solver = device.sparse.direct(device.sparse.matrix(np.eye(3)))
        for send in (solver.factor, solver.refactor):
            send()
            assert solver.solve(device.put(np.ones((3, 2)))).numpy().tolist() == [[1.0, 1.0]] * 3
        assert (alive.value, analyses.value) == (before[0] + 3, before[1] + 1)
    del solver, send
    gc.collect()
    eventually(lambda: alive.value == before[0])


def test_without_the_library(fake_environment: dict[str, str]) -> None:
    with using({**fake_environment, "ATOMR_NATIVE_CUDSS": "/nowhere/libcudss.so.1"}), an.System() as system:
        device = system.device("cuda:0")
        with pytest.raises(an.Unsupported, match=r"cuDSS.*pip install '.\[cudss-cu13\]'"):
            device.sparse.direct(device.sparse.matrix(np.eye(3)))


@pytest.mark.abi
@pytest.mark.plain
def test_every_function_is_exported() -> None:
    found = find("libcudss.so.1")
    if not found:
        pytest.skip("libcudss not found; pip install nvidia-cudss-cu13, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cudss\w+),", source("libraries/cudss/names.h").read_text())
    assert len(names) == 19
    for path in found:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        exported = {name.partition("@")[0] for name in re.findall(r" T (\S+)", listed.stdout)}
        assert [name for name in names if name not in exported] == []
