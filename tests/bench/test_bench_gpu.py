"""Benchmarks of CUDA devices: their C programs, their peers, and a run on the fake driver."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import fake_cuda
import pytest
from scripts import ROOT

from atomr_native.libraries.cutlass.precompile import wanted_of
from bench.harness import Effort, Setup, Unavailable, documents, gpu_peers, programs, run_case, twins
from bench.harness.discovery import all_cases
from bench.libraries.blas_lt import _gemm
from bench.libraries.cutlass import _kernels, figures
from bench.libraries.cutlass.cases import SIZES


@pytest.fixture(scope="module", autouse=True)
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have each source compiled once for all processes, and without optimisation: no speed is looked at."""
    try:
        compiler = twins.compiler()
    except Unavailable:
        yield
        return
    folder = tmp_path_factory.mktemp("compiler")
    script = folder / "cc"
    script.write_text(
        "#!/bin/sh\n"
        'for word; do [ "$before" = -o ] && out="$word"; before="$word"; done\n'
        f'kept="{folder}/$(basename "$out")"\n'
        f'[ -e "$kept" ] || {compiler} "$@" -O0 -o "$kept" || exit\n'
        'cp "$kept" "$out"\n'
    )
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(script))
        yield


@pytest.mark.parametrize("name", list(programs.PROGRAMS))
def test_gpu_programs_compile_without_cuda(name: str) -> None:
    try:
        assert programs.build(name).exists()
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_gpu_programs_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no program 'nonsense'"):
        programs.build("nonsense")
    script = tmp_path / "program"
    script.write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    name, count = line.split()\n"
        "    if name == 'dies':\n"
        "        sys.exit('the reason')\n"
        "    answers = {'works': '{\"us\": 1.5}', 'lacks': '{\"unavailable\": \"no pool\"}'}\n"
        "    print(answers.get(name, 'rubbish'), flush=True)\n"
    )
    with programs.start([sys.executable, str(script)]) as running:
        running.check("works")
        assert running.sample("works", 3) == 1.5
        with pytest.raises(Unavailable, match="no pool"):
            running.check("lacks")
        with pytest.raises(RuntimeError, match="answered b'rubbish' to other"):
            running.check("other")
        with pytest.raises(RuntimeError, match="ended with 1: the reason"):
            running.sample("dies", 1)
        with pytest.raises(RuntimeError, match="ended with 1"):
            running.sample("works", 1)


def test_peers_without_a_gpu_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        class cuda:  # noqa: N801
            is_available = staticmethod(lambda: False)

    gpu_peers._need.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="torch sees no GPU"):
        gpu_peers.torch_calls(0)
    monkeypatch.setitem(sys.modules, "cupy", None)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="cupy does not import"):
        gpu_peers.cupy_calls(0)
    monkeypatch.setattr(gpu_peers.importlib, "import_module", lambda _: 1 // 0)
    with pytest.raises(Unavailable, match=r"numba.cuda does not import: ZeroDivisionError"):
        gpu_peers.numba_calls(0)
    gpu_peers._need.cache_clear()


def test_what_a_peer_refuses_is_a_gap_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no such product\nand more")

    monkeypatch.setattr(gpu_peers, "torch", lambda _: MagicMock(from_numpy=refuse))
    monkeypatch.setattr(gpu_peers, "cupy", lambda _: MagicMock(asarray=refuse))
    monkeypatch.setattr(gpu_peers, "nvmath", lambda: MagicMock(Matmul=refuse))
    setup = Setup(Effort.QUICK)
    product = _gemm.Product(16, 8192, 8192, "float8_e4m3fn", turned=True)
    _gemm.add_torch(setup, "torch", product)
    _gemm.add_cupy(setup, "cupy", product)
    monkeypatch.setattr(gpu_peers, "torch", lambda _: MagicMock())
    _gemm.add_nvmath(setup, "nvmath", product)
    assert not setup.contenders
    for name, who in (("torch", "torch"), ("cupy", "CuPy"), ("nvmath", "nvmath")):
        series = setup.series[name]
        assert (series.status, series.reason) == ("skipped", f"{who} refuses it: RuntimeError: no such product")


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("tuned", [False, True])
def test_nvmath_plans_once_for_each_set(monkeypatch: pytest.MonkeyPatch, kind: str, tuned: bool) -> None:
    made: list[MagicMock] = []

    def matmul(*operands: object, **options: object) -> MagicMock:
        assert len(operands) == 2
        assert sorted(options) == ([] if kind == "bfloat16" else ["options", "quantization_scales"])
        made.append(MagicMock())
        return made[-1]

    monkeypatch.setattr(gpu_peers, "torch", lambda _: MagicMock())
    monkeypatch.setattr(gpu_peers, "nvmath", lambda: MagicMock(Matmul=matmul))
    setup = Setup(Effort.QUICK)
    with setup.stack:
        _gemm.add_nvmath(setup, "nvmath", _gemm.Product(16, 8192, 8192, kind, turned=True), tuned=tuned)
        ((_, sample),) = setup.contenders
        assert sample() > 0
        assert [one.plan.call_count for one in made] == [1, 1]
        assert [one.autotune.call_count for one in made] == [int(tuned)] * 2
        assert all(one.execute.call_count > 0 for one in made)
    assert [one.free.call_count for one in made] == [1, 1]


def _python_on_the_fake(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([environment["PYTHONPATH"], str(ROOT)])
    with fake_cuda.using({**environment, "PYTHONPATH": path, "FAKE_CUDA_PROTECT": "0", "FAKE_CUDA_DEVICES": "2"}):
        return subprocess.run(
            [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
        )


def test_what_hides_gpus_does_not_hide_the_fake(
    fake_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = _python_on_the_fake(fake_environment, "-c", "from bench.harness.driver import Driver; Driver(1).wait()")
    assert done.returncode == 0, done.stderr


def test_torch_records_one_graph_of_as_many_products_as_a_sample_has(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[str] = []

    class Graph:
        def replay(self) -> None:
            recorded.append("replay")

        def reset(self) -> None:
            recorded.append("reset")

    @contextmanager
    def record(graph: object) -> Iterator[None]:
        recorded.append("begin")
        yield
        recorded.append("end")

    torch = MagicMock()
    torch.mm.side_effect = lambda *_, **__: recorded.append("mm")
    torch.cuda.CUDAGraph, torch.cuda.graph = Graph, record
    monkeypatch.setattr(gpu_peers, "torch", lambda _: torch)
    setup = Setup(Effort.QUICK)
    with setup.stack:
        _gemm.add_torch_graph(setup, "torch graph", _gemm.Product(64, 64, 64, "bfloat16"))
        ((_, sample),) = setup.contenders
        assert sample() > 0
    assert recorded == ["mm", "mm", "begin", "mm", "mm", "end", "replay", "replay", "reset"]
    torch.cuda.graph = MagicMock(side_effect=RuntimeError("not while capturing"))
    _gemm.add_torch_graph(setup, "refused", _gemm.Product(64, 64, 64, "bfloat16"))
    assert setup.series["refused"].reason == "torch refuses it: RuntimeError: not while capturing"


#: Every loop of a twin.c, once, with the elementwise kernel in the place of Numba's.
LOOPS = """
import os
import re
from pathlib import Path
from bench.harness import Effort, Setup, gpu, programs
setup = Setup(Effort.TINY, device="cuda:0")
with setup.stack, gpu.program_command(setup, "loops") as command:
    kernel, function, block = (word.partition("=")[2] for word in command[2:])
    listed = Path(kernel).with_name("list")
    listed.write_text(f"{kernel} {function} {block} p0 3ff0000000000000 0 20\\n")
    with programs.start([*command, f"arguments={listed}"]) as running:
        text = "".join(path.read_text() for path in Path("bench").glob("*/*/twin.c"))
        for name in re.findall(r'\\{"([a-z0-9-]+)", ', text):
            if name.startswith("curand") and (name != "curand-uniform" or not os.environ["FAKE_CUDA_CURAND"]):  # slow
                continue
            # The fake has no pool; the others have the code of small products, and are slow there.
            if name == "allocate-free" or "-512-" in name or name.startswith("layer-"):
                continue
            running.check(name)
            print(name, running.sample(name, 3) > 0.0)
        for how in ("", "-sustained", "-overlapping"):
            print(f"arguments-0{how}", running.sample(f"arguments-0{how}", 3) > 0.0)
        try:
            running.check("arguments-1")
        except programs.Unavailable as reason:
            print(reason)
"""


def test_every_loop_of_the_twins_runs(fake_environment: dict[str, str]) -> None:
    done = _python_on_the_fake(fake_environment, "-c", LOOPS)
    assert done.returncode == 0, done.stderr
    *ran, last = done.stdout.splitlines()
    assert last == "no such kernel in the list"
    assert {line.partition(" ")[2] for line in ran} == {"True"}
    names = {line.partition(" ")[0] for line in ran}
    assert names >= {"launch-overlapping", "matmul-four-threads", "saxpy-sustained", "arguments-0-overlapping"}


#: Every work and way of the program with a process a GPU, once.
RANKS = """
from bench.harness import programs
with programs.start([str(programs.build("ranks")), "0", "1"]) as running:
    for work in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send", "copy"):
        for way in ("caller", "sustained", "synchronize"):
            running.check(f"{work}:4096:{way}")
            print(work, way, running.sample(f"{work}:{8192 if way == 'caller' else 4096}:{way}", 3) > 0.0)
    try:
        running.check("all_reduce:4096:never")
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.slow
def test_every_work_of_the_ranks_runs(fake_environment: dict[str, str]) -> None:
    done = _python_on_the_fake(fake_environment, "-c", RANKS)
    assert done.returncode == 0, done.stderr
    *ran, last = done.stdout.splitlines()
    assert len(ran) == 24
    assert all(line.endswith(" True") for line in ran)
    assert "ended with 2: no such request: all_reduce:4096:never 0" in last


def _bench_on_the_fake(environment: dict[str, str], target: Path, *words: str) -> dict[str, dict[str, object]]:
    options = ["--device", "cuda:0", "--quick", "--rounds", "1", "--force", "--json", str(target)]
    done = _python_on_the_fake(environment, "-m", "bench", *options, *words)
    assert target.exists(), done.stderr
    value = documents.load(target)
    states = {
        (case["name"], series["name"]): (series["status"], series.get("reason", ""))
        for case in value["cases"]
        for series in case["contenders"]
    }
    failed = {name: reason for name, (status, reason) in states.items() if status == "failed"}
    assert not failed
    assert done.returncode == 0, done.stderr
    assert value["machine"]["device"]["gpu"].startswith("Fake")
    return states


#: What runs on the fake driver only as far as saying what is missing.
PEERS = (
    "torch",
    "nvmath",
    "cupy",
    "CuPy",
    "Numba",
    "atomr Numba",
    "atomr float8",
    "atomr fused",
    "atomr random",
    "C cuMemAllocAsync",
    "frontend",
)
#: Cases of Numba's code, which the fake does not run.
NUMBA_ONLY = (
    "gpu_arguments", "gpu_arguments_told", "gpu_compile", "gpu_training",
    "gpu_cudnn_transformer", "gpu_cudnn_decode", "gpu_cudnn_compiled",
)  # fmt: skip
#: Cases of Ray's own transports of GPUs' arrays, which the fake does not run.
RAY_ONLY = ("gpu_cluster_results",)
#: Cases of CUTLASS's kernels begin so; the fake does not run these, and the host device computes the same products.
CUTLASS_ONLY = "gpu_cutlass"
#: Those of them that have functions in Python.
WITH_FUNCTIONS = ("gpu_cutlass_epilogues", "gpu_cutlass_stand_ins")


GPU_CASES = [
    name
    for name, case in all_cases().items()
    if case.devices[0] == "cuda" and name not in NUMBA_ONLY + RAY_ONLY and not name.startswith(CUTLASS_ONLY)
]


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name == "gpu_matmul" else pytest.mark.slow) for name in GPU_CASES]
)
def test_a_gpu_case_runs_on_the_fake_driver(case: str, fake_environment: dict[str, str], tmp_path: Path) -> None:
    states = _bench_on_the_fake(fake_environment, tmp_path / "result.json", case)
    skipped = {name: reason for (_, name), (status, reason) in states.items() if status == "skipped"}
    assert not {name: reason for name, reason in skipped.items() if not name.startswith(PEERS)}
    assert len(states) > len(skipped)


@pytest.mark.parametrize("name", [name for name in all_cases() if name.startswith(CUTLASS_ONLY)])
def test_a_case_of_cutlass_runs_on_the_host_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in WITH_FUNCTIONS:
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

    def compiled(wanted: list[Any], capability: tuple[int, int]) -> Iterator[tuple[Any, float, None]]:
        assert capability == (9, 0)
        yield wanted[0], 0.5, None

    monkeypatch.setattr("atomr_native.libraries.cutlass.precompile.precompile", compiled)
    result = run_case(all_cases()[name], Effort.TINY, random.Random(0), rounds=1)
    wrong = {one.name: one.reason for one in result.series if one.kind == "atomr" and one.status != "ok"}
    assert not wrong
    assert all(None not in one.samples for one in result.series if one.kind == "atomr")
    assert {one.status for one in result.series if one.kind == "peer"} <= {"skipped"}


def test_kernels_that_compile_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    product = figures._product

    def slow(shape: tuple[int, ...], dtype: str, actor: str, dev: Any) -> Any:
        if (dtype, actor) == ("float16", "cutlass"):
            assert end.wait(60)
        return product(shape, dtype, actor, dev)

    monkeypatch.setattr(figures, "_product", slow)
    monkeypatch.setattr(figures, "_PATIENCE", 0.5)
    monkeypatch.setattr(figures, "SHAPES", {one: figures.SHAPES[one][:1] for one in ("bfloat16", "float16")})
    case = all_cases()["gpu_cutlass_products"]
    result = run_case(case, Effort.TINY, random.Random(0), rounds=1)
    end.set()
    states = {one.name: (one.status, one.reason) for one in result.series if one.kind == "atomr"}
    late = states.pop("cutlass, 4096 x 4096 x 4096, float16")
    assert late == ("skipped", "its kernel was not compiled in 0 s")


def test_kernels_of_the_cases_of_cutlass_are_requested_ahead() -> None:
    wanted = list(wanted_of(_kernels.requests()))
    products = sum(map(len, figures.SHAPES.values()))
    assert len(wanted) == products + len(figures.EPILOGUES) + len(SIZES) + 1
    assert {one.spec.op for one in wanted} == {"cutlass.gemm", "cutlass.grouped_gemm"}
