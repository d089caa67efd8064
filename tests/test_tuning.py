"""Tuning: what is measured and kept, and files that carry it elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native._matmul_spec import MatmulRequest, matmul_spec
from atomr_native.errors import InvalidRequest, LibraryError, OutOfMemory
from atomr_native.tuning import TuningStore, as_progress, read_file, write_file
from atomr_native.worker.cuda.lt_description import MatmulDescription
from atomr_native.worker.cuda.matmul import matmul_description
from atomr_native.worker.cuda.tuning import Tuner, operand_bytes

FACTS = {"name": "GPU", "compute_capability": (9, 0), "multiprocessors": 132}


class Memory:
    """Device memory in this process."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit, self.live, self.asked = limit, 0, list[int]()

    def borrow(self, nbytes: int) -> int:
        self.asked.append(nbytes)
        if nbytes > self.limit:
            raise OutOfMemory("full", nbytes, 0, 0, 0)
        self.live += 1
        return 1 << 32

    def give_back(self, address: int, nbytes: int) -> None:
        assert (address, nbytes) == (1 << 32, self.asked[-1])
        self.live -= 1

    def copy_now(self, target: int, source: int, nbytes: int) -> None:
        assert (1 << 32) <= target <= target + nbytes <= (1 << 32) + self.asked[-1]


class Algorithms:
    """A matmul whose algorithms take the times they are told to."""

    def __init__(self, times: dict[int, float]) -> None:
        self.times, self.calls = times, list[tuple[int, int, int]]()

    def candidates(self, limit: int, most: int) -> list[Any]:
        every = [((n, *[0] * 7), 1 << 20 if n >= 10 else 0, {"id": n}) for n in self.times]
        return [one for one in every if one[1] <= limit][:most]

    def time(self, algo: Any, addresses: list[int], sets: int, launches: int, workspace: int, nbytes: int) -> float:
        assert len(addresses) % sets == 0
        assert len(set(addresses)) == len(addresses)
        assert all(address % 256 == 0 for address in addresses)
        assert (nbytes == 0) or workspace == 1 << 32
        self.calls.append((algo[0], sets, launches))
        taken = self.times[algo[0]]
        if taken < 0:
            raise LibraryError("cublaslt", 15, "CUBLAS_STATUS_NOT_SUPPORTED", "measuring")
        return taken


def description(m: int = 64, **options: Any) -> MatmulDescription:
    a, b = np.zeros((m, 128), np.float32), np.zeros((128, 32), np.float32)
    return matmul_description(matmul_spec(MatmulRequest(a=a, b=b, **options)).to_json(), workspace_bytes=32 << 20)


def test_the_fastest_wins_and_is_kept(tmp_path: Path) -> None:
    algorithms, store = Algorithms({1: 5.0, 2: -1.0, 3: 4.0, 12: 3.0}), TuningStore(tmp_path)
    memory, seen = Memory(), list[tuple[int, int]]()
    tuner = Tuner(memory, 130102, FACTS, store)
    best, line = tuner.tuned(
        description(), algorithms, measure=True, progress=lambda done, total, _: seen.append((done, total))
    )
    assert (best.has_algo, best.algo[0]) == (1, 12)
    assert "3.0 us, 5.0 us by the heuristic's" in line
    assert memory.live == 0
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][0] == seen[-1][1]
    # More than the cache holds, taken in turn; the last passes are round by round.
    assert memory.asked[0] > 0
    assert algorithms.calls[0][1] > 1
    assert [algo for algo, _, _ in algorithms.calls[-4:]] == [1, 12, 3, 2]
    before = len(algorithms.calls)
    again, _ = Tuner(memory, 130102, FACTS, store).tuned(description(), algorithms, measure=True)
    assert (again, len(algorithms.calls)) == (best, before)
    known, _ = Tuner(memory, 130102, FACTS, store).tuned(description(), algorithms, measure=False)
    assert known == best
    for other in (Tuner(memory, 130103, FACTS, store), Tuner(memory, 130102, FACTS | {"name": "other"}, store)):
        assert other.tuned(description(), algorithms, measure=False) == (description(), "")
    assert tuner.tuned(description(65), algorithms, measure=False)[1] == ""


def test_the_heuristics_choice_stays_unless_beaten(tmp_path: Path) -> None:
    best, line = Tuner(Memory(), 1, FACTS, TuningStore(tmp_path)).tuned(
        description(), Algorithms({1: 5.0, 2: 4.99}), measure=True
    )
    assert best.algo[0] == 1
    assert "5.0 us, 5.0 us" in line


def test_little_memory_means_fewer_sets_or_no_tuning(tmp_path: Path) -> None:
    one = sum(operand_bytes(description()))
    memory = Memory(2 * one + 4096)
    algorithms = Algorithms({1: 5.0, 2: 1.0})
    best, _ = Tuner(memory, 1, FACTS, TuningStore(tmp_path)).tuned(description(), algorithms, measure=True)
    assert (best.algo[0], algorithms.calls[0][1] <= 2) == (2, True)
    nothing = Tuner(Memory(16), 1, FACTS, TuningStore(tmp_path / "x")).tuned(description(), algorithms, measure=True)
    assert nothing == (description(), "")


def test_faults_of_the_device_are_not_swallowed(tmp_path: Path) -> None:
    class Faulty(Algorithms):
        def time(self, *_: Any) -> float:
            raise LibraryError("cuda", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "measuring")

    memory = Memory()
    with pytest.raises(LibraryError, match="ILLEGAL"):
        Tuner(memory, 1, FACTS, TuningStore(tmp_path)).tuned(description(), Faulty({1: 1.0}), measure=True)
    assert memory.live == 0


def test_bytes_of_operands() -> None:
    d = description(64, epilogue="gelu_aux")
    assert operand_bytes(d) == [64 * 128 * 4, 128 * 32 * 4, 64 * 32 * 4, 64 * 32 * 4]
    d = description(64, epilogue="relu_aux")
    assert operand_bytes(d)[3] == 64 * 16
    a, b = np.zeros((3, 8, 4), np.float32), np.zeros((3, 4, 16), np.float32)
    d = matmul_description(matmul_spec(MatmulRequest(a=a, b=b)).to_json())
    assert operand_bytes(d) == [a.nbytes, b.nbytes, 3 * 8 * 16 * 4]


def entry(n: int) -> dict[str, Any]:
    return {
        "library": 130102, "gpu": {"name": "GPU", "multiprocessors": 132}, "description": [n], "algorithm": [n] * 8,
        "workspace": 0, "microseconds": 1.0, "heuristic_microseconds": 2.0, "config": {},
    }  # fmt: skip


def test_files_carry_entries(tmp_path: Path) -> None:
    here, there = TuningStore(tmp_path / "here"), TuningStore(tmp_path / "there")
    for n in range(3):
        here.keep(entry(n))
    write_file(tmp_path / "shipped.json", list(here.entries()))
    for one in read_file(tmp_path / "shipped.json"):
        there.keep(one)
    assert [e["description"] for e in there.entries()] == [e["description"] for e in here.entries()]
    assert there.find(130102, entry(1)["gpu"], [1])["algorithm"] == [1] * 8


def test_damage_is_noticed(tmp_path: Path) -> None:
    store = TuningStore(tmp_path / "store")
    store.keep(entry(7))
    (path,) = (tmp_path / "store").glob("*/*.json")
    good = path.read_bytes()
    gpu = entry(7)["gpu"]
    for bad in (good[:-5], good.replace(b"[7,7", b"[7,8"), b"[]", b"\xff", json.dumps(entry(7)).encode()):
        path.write_bytes(bad)
        assert store.find(130102, gpu, [7]) is None
        assert list(store.entries()) == []
    file = tmp_path / "file.json"
    write_file(file, [])
    assert read_file(file) == []
    for text, word in (
        ("{}", "format None"),
        ("x", "no tuning file"),
        (file.read_text().replace("[]", "[1]"), "damaged"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidRequest, match=word):
            read_file(file)
    with pytest.raises(InvalidRequest, match="progress=7"):
        as_progress(7)


def test_a_device_tunes_once(
    cuda_system: an.System, cuda_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = cuda_system.device("cuda:0")
    rng = np.random.default_rng(0)
    # Extents that nothing else has, so that nothing is known of them.
    shape = tuple(int(n) for n in rng.integers(40, 90, 2)) if cuda_engine == "fake" else (1232, 1168)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape[::-1]))
    x, y = device.put(a), device.put(b)
    steps: list[tuple[int, int, str]] = []
    plan = device.blas_lt.plan(x, y, tune=True, progress=lambda *step: steps.append(step))
    assert plan.tuning.startswith("tuned: ")
    assert steps == [] or steps[-1][0] <= steps[-1][1]
    out = device.empty((shape[0], shape[0]))
    plan.ask(x, y, out=out).result(60)
    np.testing.assert_allclose(out.numpy(), a.astype(float) @ b, rtol=1e-3, atol=1e-3)
    known = device.blas_lt.plan(x, y, tune="known")
    assert known.tuning == plan.tuning
    assert device.blas_lt.plan(x, y).tuning == ""
    path = tmp_path / "tuning.json"
    assert device.blas_lt.export_tuning(path) > 0
    assert device.blas_lt.import_tuning(path) == 0
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "elsewhere"))
    assert device.blas_lt.import_tuning(path) > 0


def test_a_gradient_is_tuned_in_the_product_and_after_it(cuda_system: an.System, cuda_engine: str) -> None:
    device = cuda_system.device("cuda:0")
    rng = np.random.default_rng(1)
    m, n, k = (24, 40, 16) if cuda_engine == "fake" else (1040, 1048, 1056)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    mask = np.full((m, -(-n // 128) * 16), 0x5A, np.uint8)
    x, y, aux = device.put(a), device.put(b), device.put(mask)
    plan = device.blas_lt.plan(x, y, aux=aux, epilogue="drelu", tune=True)
    assert plan.tuning.count("tuned: ") == 1  # of the call that is made
    assert not plan.notes or re.search("the call takes .* us with all of it, .* us without that", plan.notes[0])
    out = device.empty((m, n))
    plan.ask(x, y, aux, out=out).result(60)
    keep = np.unpackbits(mask, axis=-1, count=n, bitorder="little")
    np.testing.assert_allclose(out.numpy(), (a.astype(float) @ b) * keep, rtol=1e-3, atol=1e-3)
    known = device.blas_lt.plan(x, y, aux=aux, epilogue="drelu", tune="known")
    assert (known.tuning, known.notes) == (plan.tuning, plan.notes)


def test_tune_is_checked() -> None:
    a = np.zeros((2, 2), np.float32)
    with pytest.raises(InvalidRequest, match=r"tune='always'; allowed: False, True, 'known'"):
        MatmulRequest(a=a, b=a, tune="always")
