"""Tuning: what is measured and kept, and files that carry it elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_builds import received

import atomr_native as an
from atomr_native.errors import InvalidRequest, LibraryError, OutOfMemory
from atomr_native.libraries.blas_lt.cuda.description import matmul_description
from atomr_native.libraries.blas_lt.cuda.native import MatmulDescription
from atomr_native.libraries.blas_lt.cuda.tuning import MatmulTuner as Tuner
from atomr_native.libraries.blas_lt.cuda.tuning import operand_bytes
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.tuning import OLDER_FORMATS, is_sound
from atomr_native.plans.tuning import (
    Entry,
    ProgressBar,
    TuningKey,
    TuningStore,
    as_progress,
    read_file,
    spec_digest,
    write_file,
)

INVALID_VALUE = 1
FACTS = {"name": "GPU", "compute_capability": (9, 0), "multiprocessors": 132}


class Memory:
    """Device memory in this process."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit, self.live, self.asked = limit, 0, list[int]()

    def allocate(self, nbytes: int) -> int:
        self.asked.append(nbytes)
        if nbytes > self.limit:
            raise OutOfMemory("full", requested=nbytes)
        self.live += 1
        return 1 << 32

    def free(self, address: int, nbytes: int) -> None:
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
    return matmul_description(received(MatmulRequest(a=a, b=b, **options).lowered.spec()), workspace_bytes=32 << 20)


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
    assert [done for done, _ in seen[:-1]] == list(range(1, len(seen)))
    assert seen[-1][0] == seen[-1][1]
    # More than the cache holds, taken in turn; the last passes are round by round.
    assert memory.asked[0] > 0
    assert algorithms.calls[0][1] > 1
    assert [algo for algo, _, _ in algorithms.calls[-6::2]] == [1, 12, 3]  # not the one that is refused
    assert [sets for _, sets, _ in algorithms.calls[-6:]] == [algorithms.calls[0][1], 1] * 3  # cold, and warm
    before = len(algorithms.calls)
    again, _ = Tuner(memory, 130102, FACTS, store).tuned(description(), algorithms, measure=True)
    assert (again, len(algorithms.calls)) == (best, before)
    known, _ = Tuner(memory, 130102, FACTS, store).tuned(description(), algorithms, measure=False)
    assert known == best
    for other in (
        Tuner(memory, 130103, FACTS, store),
        Tuner(memory, 130102, FACTS | {"name": "other"}, store),
    ):
        assert other.tuned(description(), algorithms, measure=False) == (description(), "")
    assert tuner.tuned(description(65), algorithms, measure=False)[1] == ""


def test_the_heuristics_choice_stays_unless_beaten(tmp_path: Path) -> None:
    best, line = Tuner(Memory(), 1, FACTS, TuningStore(tmp_path)).tuned(
        description(), Algorithms({1: 5.0, 2: 4.99}), measure=True
    )
    assert best.algo[0] == 1
    assert "5.0 us, 5.0 us" in line


class Moods(Algorithms):
    """Algorithms that take other times where operands come from memory (cold) and from a cache (warm)."""

    def __init__(self, cold: dict[int, Sequence[float]], warm: dict[int, float] | None = None) -> None:
        super().__init__(dict.fromkeys(cold, 0.0))
        self.cold, self.warm = {algo: list(several) for algo, several in cold.items()}, warm

    def time(self, algo: Any, addresses: list[int], sets: int, launches: int, workspace: int, nbytes: int) -> float:
        super().time(algo, addresses, sets, launches, workspace, nbytes)
        if self.warm is not None and sets == 1:
            return self.warm[algo[0]]
        several = self.cold[algo[0]]
        return several.pop(0) if len(several) > 1 else several[0]


def test_operands_that_fit_into_the_cache_count_cold_and_warm(tmp_path: Path) -> None:
    """The first is best from memory only, the second from the cache only, the third is good at both."""
    cold, warm = {1: [4.0], 2: [9.0], 3: [5.0]}, {1: 9.0, 2: 2.0, 3: 3.0}
    best, line = Tuner(Memory(), 1, FACTS, TuningStore(tmp_path)).tuned(description(), Moods(cold, warm), measure=True)
    assert best.algo[0] == 3
    assert "3.9 us, 6.0 us by the heuristic's" in line
    large = Moods(cold, warm)
    best, _ = Tuner(Memory(), 1, FACTS, TuningStore(tmp_path)).tuned(description(1 << 16), large, measure=True)
    assert best.algo[0] == 1
    assert {sets for _, sets, _ in large.calls} == {large.calls[0][1]}


def test_measurements_go_on_until_they_repeat(tmp_path: Path) -> None:
    quick, slow = 2.0, 4.0
    disturbed = Moods({1: [5.0], 2: [quick] * 6 + [slow] * 5 + [quick], 3: [3.0]})
    best, _ = Tuner(Memory(), 1, FACTS, TuningStore(tmp_path)).tuned(description(1 << 16), disturbed, measure=True)
    assert best.algo[0] == 2
    assert len(disturbed.calls) == 3 * (1 + 4 * 5)
    steady = Moods({1: [5.0], 2: [quick], 3: [3.0]})
    Tuner(Memory(), 2, FACTS, TuningStore(tmp_path)).tuned(description(1 << 16), steady, measure=True)
    assert len(steady.calls) == 3 * (1 + 2 * 5)


def test_what_is_far_from_the_fastest_is_not_timed_again(tmp_path: Path) -> None:
    """And what takes long is launched less often."""
    times = Moods({1: [9000.0], 2: [3000.0], 3: [4000.0], 4: [6000.0]})
    best, _ = Tuner(Memory(), 1, FACTS, TuningStore(tmp_path)).tuned(description(1 << 16), times, measure=True)
    assert best.algo[0] == 2
    timed = [algo for algo, _, _ in times.calls]
    assert [timed.count(algo) for algo in (1, 2, 3, 4)] == [1 + 2 * 5, 1 + 2 * 5, 1 + 2 * 5, 1]
    assert [launches for _, _, launches in times.calls[:4]] == [10, 3, 3, 3]


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
    d = matmul_description(received(MatmulRequest(a=a, b=b).lowered.spec()))
    assert operand_bytes(d) == [a.nbytes, b.nbytes, 3 * 8 * 16 * 4]


OPERATION = "blas_lt.matmul"


def entry(n: int, operation: str = OPERATION) -> Entry:
    gpu = {"name": "GPU", "compute_capability": [9, 0], "multiprocessors": 132}
    value = {"choice": [n] * 8, "workspace": 0, "microseconds": 1.0, "heuristic_microseconds": 2, "config": {}}
    return TuningKey("cublaslt", 130102, gpu, operation, spec_digest([n])), value


def read(path: Path) -> list[Entry]:
    return read_file(path, OPERATION, is_sound, OLDER_FORMATS)


def test_files_carry_entries(tmp_path: Path) -> None:
    here, there = TuningStore(tmp_path / "here"), TuningStore(tmp_path / "there")
    for n in range(3):
        here.keep(*entry(n))
    here.keep(*entry(0, "other"))
    write_file(tmp_path / "shipped.json", here.entries(OPERATION))
    for one in read(tmp_path / "shipped.json"):
        there.keep(*one)
    assert list(there.entries(OPERATION)) == list(here.entries(OPERATION))
    assert len(list(there.entries(OPERATION))) == 3
    assert there.find(entry(1)[0]) == entry(1)[1]
    assert here.find(entry(0, "other")[0]) == entry(0)[1]
    assert there.find(entry(0, "other")[0]) is None


def test_the_store_takes_any_json(tmp_path: Path) -> None:
    """Keys and values of operations to come."""
    store = TuningStore(tmp_path)
    key = TuningKey("cudnn", 91000, {"name": "GPU"}, "cudnn.conv", spec_digest({"x": [1, 2], "pad": None}))
    for value in ("engine 7", [1, {"plan": "AAAA"}], {"knobs": {"1": 2}}, 3):
        store.keep(key, value)
        assert store.find(key) == value
    for other in (
        replace(key, library="cudnn_frontend"),
        replace(key, version=91001),
        replace(key, gpu={"name": "other"}),
        replace(key, operation="cudnn.pool"),
        replace(key, spec=spec_digest({"x": [1, 2], "pad": 0})),
    ):
        assert store.find(other) is None


#: Written by version 0.1 before results were generalised.
FIRST_FORMAT = {
    "checksum": "dd17aafed92c3723028a4c256a8f5ae93a04abd8e305110d4c539d5bf7f0a717",
    "entries": [
        {
            "algorithm": [9223372036854775815, 7, 0, 0, 0, 0, 0, 0],
            "checksum": "36299bd1b919c19384cb16569cadab35293fe02c30026e737d4760692c760586",
            "config": {"id": 7},
            "description": [7, -1],
            "gpu": {"compute_capability": [9, 0], "multiprocessors": 132, "name": "GPU"},
            "heuristic_microseconds": 7,
            "library": 130102,
            "microseconds": 3.5,
            "workspace": 1048576,
        }
    ],
    "format": "atomr-native tuning 1",
}


def sealed(part: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a part of a file with its checksum."""
    part = {name: value for name, value in (part | changes).items() if name != "checksum"}
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return part | {"checksum": hashlib.sha256(text.encode()).hexdigest()}


def test_files_of_the_first_format_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(FIRST_FORMAT))
    ((key, value),) = read(path)
    assert key == replace(entry(0)[0], spec=spec_digest([7, -1]))
    store = TuningStore(tmp_path / "store")
    store.keep(key, value)
    known = description()
    words = replace(known, zero=0, has_algo=0, algo=(0,) * 8).numbers()
    store.keep(replace(key, spec=spec_digest(words)), value)
    best, line = Tuner(Memory(), 130102, FACTS, store).tuned(known, Algorithms({}), measure=False)
    assert best.algo == (7 - 2**63, 7, 0, 0, 0, 0, 0, 0)
    assert line == "tuned: 3.5 us, 7.0 us by the heuristic's choice; id 7"
    (old,) = FIRST_FORMAT["entries"]
    for wrong in ({"algorithm": [7]}, {"algorithm": [2**64] * 8}, {"description": 7}, {"workspace": True}):
        path.write_text(json.dumps(sealed(FIRST_FORMAT, entries=[sealed(old, **wrong)])))
        with pytest.raises(InvalidRequest, match="entry 0 is not sound"):
            read(path)


def test_damage_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = TuningStore(tmp_path / "store")
    key, value = entry(7)
    store.keep(key, value)
    (path,) = (tmp_path / "store").glob("*/*.json")
    good = path.read_bytes()
    for bad in (
        good[:-5],
        good.replace(b"[7,7", b"[7,8"),
        b"[]",
        b"\xff",
        b"[" * 100_000,
        good.replace(b"1.0", b"Infinity"),
        json.dumps({"value": value}).encode(),
        json.dumps(sealed({"value": value})).encode(),
        json.dumps(sealed(json.loads(good), library=7)).encode(),
        json.dumps(sealed(json.loads(good), version=7)).encode(),
    ):
        path.write_bytes(bad)
        assert store.find(key) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"the tuning result {path} is damaged and not used; tuning measures it again"
    ]
    path.unlink()
    assert store.find(key) is None
    assert len(caplog.records) == 1
    assert list(TuningStore(tmp_path / "elsewhere").entries(OPERATION)) == []
    file = tmp_path / "file.json"
    write_file(file, [])
    assert read(file) == []
    empty = json.loads(file.read_text())
    unsound = [value | {"choice": [1]}, value | {"choice": [1.5] * 8}, value | {"more": 1}, 7, None]
    write_file(tmp_path / "other.json", [entry(1, "other")])
    write_file(tmp_path / "unsound.json", [entry(1), (key, unsound[0])])
    for text, why in (
        ("{}", "format None"),
        ("[]", "format 'list'"),
        ('{"format": []}', r"format \[\]; allowed: 'atomr-native tuning 2', 'atomr-native tuning 1'"),
        ("x", "not a tuning file"),
        ('{"entries": NaN}', "not a tuning file: NaN"),
        ("[" * 100_000, "not a tuning file: it is nested too deeply"),
        (file.read_text().replace("[]", "[1]"), "damaged"),
        (json.dumps(sealed(empty, entries=[7])), "entry 0 is not sound"),
        ((tmp_path / "other.json").read_text(), "has an entry of 'other'; allowed: 'blas_lt.matmul'"),
        ((tmp_path / "unsound.json").read_text(), "entry 1 is not sound"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidRequest, match=why):
            read(file)
    assert [is_sound(one) for one in (value, *unsound)] == [True, *[False] * 5]
    with pytest.raises(InvalidRequest, match="progress=7"):
        as_progress(7, "tuning")


def test_an_unsound_result_is_measured_again(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    tuner = Tuner(Memory(), 1, FACTS, store)
    tuner.tuned(description(), Algorithms({1: 5.0, 2: 1.0}), measure=True)
    ((key, value),) = store.entries(OPERATION)
    for wrong in (7, value | {"choice": [1, 2]}):
        store.keep(key, wrong)
        assert tuner.tuned(description(), Algorithms({}), measure=False) == (description(), "")
        best, _ = tuner.tuned(description(), Algorithms({1: 5.0, 3: 1.0}), measure=True)
        assert best.algo[0] == 3


def test_one_at_a_time_measures_however_many_wait(tmp_path: Path) -> None:
    """A lock file that goes with its holder would let a waiter in by the old file, and the next one by a new file."""
    key, inside, most, failures = entry(0)[0], 0, 0, []

    def measure() -> None:
        nonlocal inside, most
        try:
            store = TuningStore(tmp_path)
            for _ in range(5):
                with store.single_flight(key):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.005)
                    inside -= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    assert most == 1


def test_another_matmul_is_measured_meanwhile(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    with store.single_flight(entry(0)[0]), store.single_flight(entry(1)[0]):
        pass
    (tmp_path / "file").touch()
    with TuningStore(tmp_path / "file").single_flight(entry(0)[0]):
        pass  # where nothing can be kept, everybody may measure


def test_a_bar_shows_how_tuning_gets_on(capsys: pytest.CaptureFixture[str]) -> None:
    for steps in ([(1, 3), (3, 3)], [(1, 3)], []):
        bar = as_progress(True, "tuning a convolution")
        assert isinstance(bar, ProgressBar)
        for done, total in steps:
            bar(done, total, "12.5 us")
        bar.close()
        said = capsys.readouterr().out
        assert ("tuning a convolution: 12.5 us" in said) == bool(steps)
        assert ("100%" in said) == (steps[-1:] == [(3, 3)])


def test_watchers_of_a_build_go_with_it(cuda_system: an.System, capfd: pytest.CaptureFixture[str]) -> None:
    device = cuda_system.device("cuda:0")
    x = device.put(np.ones((24, 56), np.float32))
    with pytest.raises(an.Unsupported, match="no dense axis"):
        device.blas_lt.plan(x[:, ::2], x[:, ::2], trans_b=True, tune=True, copies=False, progress=True).wait()
    device.blas_lt.plan(x, x, trans_b=True, tune=True, progress=True).wait()
    assert device._state.plans.watchers == {}


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


def test_launches_are_measured_as_one_graph_or_one_by_one(
    refuse: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))  # in which nothing is known yet
    x = np.ones((24, 24), np.float32)
    refuse(cuGraphLaunch=(INVALID_VALUE, 1_000_000))
    with an.System(standby="off", launch_records="off") as system:
        device = system.device("cuda:0")
        with pytest.raises(an.LibraryError, match=r"CUDA_ERROR_INVALID_VALUE.* in measuring a matmul"):
            device.blas_lt.plan(device.put(x), device.put(x), tune=True).wait(60)
    refuse(cuStreamBeginCapture_v2=(INVALID_VALUE, 1_000_000))
    with an.System(standby="off", launch_records="off") as system:
        device = system.device("cuda:0")
        assert device.blas_lt.plan(device.put(x), device.put(x), tune=True).tuning.startswith("tuned: ")


def test_a_deterministic_system_measures_nothing(
    cuda_engine: str, make_system: Callable[..., an.System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))  # in which nothing is known yet
    shape = (56, 24) if cuda_engine == "fake" else (1176, 1144)
    x, y = np.ones(shape, np.float32), np.ones(shape[::-1], np.float32)
    fixed = make_system(deterministic=True).device("cuda:0")
    a, b = fixed.put(x), fixed.put(y)
    assert fixed.blas_lt.plan(a, b, tune=True).tuning == ""
    free = make_system().device("cuda:0")
    measured = free.blas_lt.plan(free.put(x), free.put(y), tune=True).tuning
    assert fixed.blas_lt.plan(a, b, tune="known").tuning == measured


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
