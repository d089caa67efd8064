"""Fixtures of all tests.  Helpers to import are in tests/helpers."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Several processes share the processors already, and each of the thousand workers would start threads of its own.
# Products by several threads have the tests marked `bits` (`make test-bits`).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
sys.path.insert(0, str(Path(__file__).parent / "mutation"))
sys.path.append(str(Path(__file__).parents[1]))  # for `bench`; last, so that the package that is installed comes first

import fake_cuda
import forked_workers
import gpu
import placements
from leaks import Baseline
from left_out import LeftOut
from placements import ENGINES, OPTIONS, PROCESSES, Placement

import atomr_native as an
from atomr_native._lib.sender import STAGING
from atomr_native.compile import nvrtc
from atomr_native.memory import growth
from atomr_native.system import has_gpu

hypothesis.settings.register_profile("atomr", deadline=None, max_examples=60, derandomize=True, database=None)
hypothesis.settings.load_profile("atomr")
# A test of standby workers asks for them.  The default is what programs get that tests start.
inspect.unwrap(an.System.__init__).__kwdefaults__["standby"] = "off"

#: Files that take long, the longest first. They are begun first, so that no process has the last of them for itself
#: while the others have nothing left.
LONG = (
    "runtime/test_cuda_faults.py", "plans/test_programs.py", "runtime/test_restart_moments.py",
    "project/test_doc_blocks.py", "plans/test_workspaces.py", "memory/test_restart_groups.py", "project/test_demo.py",
    "libraries/float8/test_float8_kernels.py", "libraries/blas_lt/test_matmul.py", "runtime/test_restart.py",
    "libraries/blas_lt/test_cuda_matmul.py", "memory/test_growth.py", "memory/test_transfers_restart.py",
    "runtime/test_cuda_restart.py", "runtime/test_worker_deaths.py", "runtime/test_lifetime.py",
    "libraries/elementwise/test_cuda_codegen.py", "memory/test_transfers.py", "plans/test_retry.py",
    "libraries/elementwise/test_elementwise.py", "compile/test_cutlass_toolchain.py",
    "compile/test_nvrtc.py", "runtime/test_wild_worker.py",
    "interop/test_peers.py", "libraries/fused/test_fused_kernels.py", "libraries/kernel/test_launch_order.py",
    "libraries/kernel/test_host_arithmetic.py", "plans/test_mailbox.py", "project/test_serve.py",
    "bench/test_bench_gpu.py", "runtime/test_model_restart.py", "libraries/solver/test_solver.py",
    "runtime/test_device_churn.py", "libraries/tensor/test_einsum.py", "libraries/tensor/test_reductions.py",
    "libraries/fft/test_fft_lines.py",
)  # fmt: skip
#: Folders and files of tests whose workers start as in programs.
STARTED = (
    "bench/", "project/test_command_line.py", "project/test_demo.py", "project/test_doctor.py", "project/test_serve.py",
    "runtime/test_assigned_gpus.py", "runtime/test_binaries.py", "runtime/test_control.py", "runtime/test_fork.py",
    "runtime/test_host_devices.py", "runtime/test_no_descriptors.py", "runtime/test_placement.py",
    "runtime/test_start_imports.py", "runtime/test_worker_process.py",
)  # fmt: skip
#: Tests where the size of segments matters.
OF_MEMORY = ("memory/",)
#: Name of the plugin that says which tests were left out.
LEFT_OUT = "atomr-left-out"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test-plain` asks for."""
    parser.addoption(
        "--one-each",
        action="store_true",
        help="of tests that are not marked plain only the first of each file; none of those in files that take long",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have programs that tests start listen to Ctrl-C, which jobs in the background of a shell are made to ignore."""
    config.pluginmanager.register(LeftOut(), LEFT_OUT)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what cannot run on this machine, or is marked not to run on every kind of device.

    What takes long comes first.

    ``@pytest.mark.gpu``: only on a GPU.  ``@pytest.mark.host_only``: not on CUDA devices.
    ``@pytest.mark.fake_only(name=[values])``: on the fake driver only with these values of parameters, where all of
    them would take long and show no more.
    """
    without = not has_gpu()
    reasons = {}
    seen: set[str] = set()
    for item in items:
        if _is_dropped(item) or (config.getoption("one_each") and _is_another(item, seen)):
            reasons[item] = ""
        elif without and item.get_closest_marker("gpu"):
            reasons[item] = "no NVIDIA GPU on this machine"
    config.pluginmanager.get_plugin(LEFT_OUT).drop(config, items, reasons)
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


def _is_another(item: pytest.Item, seen: set[str]) -> bool:
    """Whether `--one-each` leaves it out: its file has been seen, or takes long."""
    if item.get_closest_marker("plain"):
        return False
    name = str(item.path.relative_to(Path(__file__).parent))
    if name in seen or name in LONG:
        return True
    seen.add(name)
    return False


def _is_dropped(item: pytest.Item) -> bool:
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    kinds = {value for value in parameters.values() if isinstance(value, str)}
    if kinds & {"fake", "gpu"} and item.get_closest_marker("host_only"):
        return True
    return "fake" in kinds and any(
        parameters[name] not in allowed
        for mark in item.iter_markers("fake_only")
        for name, allowed in mark.kwargs.items()
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Drop the arguments of a test before its fixtures end, so that these can look for what is left behind."""
    getattr(item, "funcargs", {}).clear()


@pytest.fixture(scope="module", autouse=True)
def young_garbage() -> None:
    """Have the many garbage collections in tests of lifetimes look at what the module's own tests made, and no more."""
    gc.collect()
    gc.freeze()


def _is_below(request: pytest.FixtureRequest, places: tuple[str, ...]) -> bool:
    """Whether the module of a test is one of these files, or in one of these folders."""
    return request.path.relative_to(Path(__file__).parent).as_posix().startswith(places)


@pytest.fixture(scope="module", autouse=True)
def quick_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have workers forked, but where they are what is tested."""
    if _is_below(request, STARTED):
        yield
        return
    with forked_workers.install():
        yield


@pytest.fixture(scope="module", autouse=True)
def small_staging(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have staging segments of 2 MiB: to make the pages of 64 MiB takes half of the start of a fake device."""
    if _is_below(request, STARTED + OF_MEMORY):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(growth._LEAST, STAGING, 2 << 20)
        yield


@pytest.fixture(scope="session")
def fake_environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables with which workers use the fake CUDA driver; what is built for it stays for the next run."""
    if reason := fake_cuda.available():
        pytest.skip(reason)
    cache = getattr(request.config, "cache", None)
    folder = tmp_path_factory.mktemp("fake-cuda") if cache is None else Path(cache.mkdir("atomr-fake-cuda"))
    return fake_cuda.environment(folder, machine=f"pytest{os.getpid()}")


@pytest.fixture
def refuse(fake_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Have calls of the fake driver fail, in the Systems that are made from here on: ``refuse(cuInit=(999, 1))``."""
    path = tmp_path / "refusals"

    def write(**calls: tuple[int, int]) -> Path:
        path.write_text("".join(f"{name} {error} {times}\n" for name, (error, times) in calls.items()))
        return path

    with fake_cuda.using({**fake_environment, "FAKE_CUDA_REFUSE": str(path)}):
        yield write


@pytest.fixture
def compiler_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have NVRTC's results go into an empty folder; skips the test where it is not installed."""
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    try:
        nvrtc.version()
    except an.Unsupported as error:
        pytest.skip(str(error))
    return tmp_path / "cache"


@pytest.fixture(scope="module", params=ENGINES)
def cuda_engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have the Systems of a module find the fake driver, then the real one."""
    engine: str = request.param
    if engine == "gpu":
        yield engine
        return
    with fake_cuda.using(request.getfixturevalue("fake_environment")):
        yield engine


@pytest.fixture(scope="module")
def cuda_system(cuda_engine: str) -> Iterator[an.System]:
    """Lend a System for tests of what its devices compute, a CUDA device and the host."""
    with an.System(watchdog=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def cuda(cuda_system: an.System) -> an.Device:
    """Return the CUDA device of that System."""
    return cuda_system.device("cuda:0")


@pytest.fixture(scope="module")
def nothing_left() -> Iterator[None]:
    """Fail when the module's tests leave a process, a descriptor, a thread or memory behind."""
    gpu.open_driver(context=False)  # the compiler opens it too
    before = Baseline()
    yield
    before.check()


@pytest.fixture(scope="module", params=placements.ALL)
def placement(request: pytest.FixtureRequest) -> Placement:
    """Return each kind of device in turn, in a process and in a thread."""
    return placements.resolve(request)


@pytest.fixture(scope="module", params=PROCESSES)
def worker_process(request: pytest.FixtureRequest) -> Placement:
    """Return each kind of device in turn, in a process, which can die."""
    return placements.resolve(request)


@pytest.fixture(scope="module")
def isolation(placement: Placement) -> str:
    """Return the isolation of each placement in turn."""
    return placement.isolation


@pytest.fixture(scope="module")
def system(placement: Placement, nothing_left: None) -> Iterator[an.System]:
    """Lend a System that the tests of a module share; none of them may break it."""
    with placement.system(**OPTIONS) as made:
        yield made


@pytest.fixture
def device(system: an.System) -> Iterator[an.Device]:
    """Lend a device that the tests of a module share; it must be in order after each."""
    found = system.device()
    yield found
    stats = found.stats()
    assert stats["state"] == "open"
    assert stats["restarts"] == 0
    system.dead_letters.clear()


@pytest.fixture
def make_system(request: pytest.FixtureRequest, nothing_left: None) -> Iterator[Callable[..., an.System]]:
    """Make Systems that one test has for itself: with the placement of its other fixtures, else of the host."""
    made: list[an.System] = []
    found = [name for name in ("worker_process", "placement") if name in request.fixturenames]
    chosen: Placement = request.getfixturevalue(found[0]) if found else placements.HOST

    def make(**options: Any) -> an.System:
        made.append(chosen.system(**{**OPTIONS, **options}))
        return made[-1]

    yield make
    for system in made:
        system.close(1.0)
