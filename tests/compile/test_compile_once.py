"""The cache of users' kernels: compiled once for threads and processes, and found whatever was compiled before."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from atomr_native._support import disk_cache, locks
from atomr_native.compile import linker, nvrtc
from atomr_native.compile.numba import api
from atomr_native.compile.numba import cache as _numba_cache
from atomr_native.compile.numba import compiler as _numba_compile

ROOT = Path(__file__).resolve().parents[2]
HOPPER = (9, 0)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# ------------------------------------------------------------------------------------------ single flight


def numba_kernel(number: int) -> Callable[[], bytes]:
    """Return what compiles a Numba kernel, one for each number."""

    def kernel(x: Any) -> None:
        x[0] = number

    return lambda: _numba_cache.ltoir(kernel, (), HOPPER, dict(_numba_compile.OPTIONS)).code


def cuda_kernel(number: int) -> Callable[[], bytes]:
    """Return what compiles a kernel in CUDA C++, one for each number."""
    return lambda: nvrtc.compile_program(f"// {number}", "sm_90").code


@pytest.fixture(params=[numba_kernel, cuda_kernel])
def compiler(request: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str], threading.Event]:
    """Lend a kernel, whose compiler says in a list what it is asked for, and waits with 1 for an event."""
    calls: list[str] = []
    go = threading.Event()

    def compile_ltoir(function: Any, *_: Any) -> _numba_compile.Compiled:
        number = function.__closure__[0].cell_contents
        calls.append(str(number))
        assert number != 1 or go.wait(30)
        return _numba_compile.Compiled(b"code %d" % number, "kernel", (), False)

    def compile_source(source: str, *_: Any) -> bytes:
        calls.append(source[3:])
        assert source != "// 1" or go.wait(30)
        return bytes([2, *[0] * 7]) + b"{}code " + source[3:].encode()

    monkeypatch.setattr(_numba_compile, "compile_ltoir", compile_ltoir)
    monkeypatch.setattr(nvrtc, "_compile", compile_source)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    return request.param, calls, go


def test_threads_compile_once_and_another_key_meanwhile(
    compiler: tuple[Any, list[str], threading.Event], cache: Path
) -> None:
    kernel, calls, go = compiler
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(kernel(1)())) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        assert kernel(2)() == b"code 2"
        assert not found
    finally:
        go.set()
        for thread in threads:
            thread.join(30)
    assert found == [b"code 1"] * 2
    assert sorted(calls) == ["1", "2"]
    assert not disk_cache._flights


#: Makes the value of one key, when standard input says so, and says when it waits for another process.
ASKING = """
import sys, time
from atomr_native._support.disk_cache import cached

def wait(seconds, sleep=time.sleep, told=[]):
    if not told:
        told.append(print("waits", flush=True))
    sleep(seconds)

time.sleep = wait

def make():
    print("made", flush=True)
    sys.stdin.readline()
    return b"value"

print("ready", flush=True)
sys.stdin.readline()
print(cached("kind", (b"key",), make).decode(), flush=True)
"""


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def asking(cache: Path) -> Iterator[list[subprocess.Popen[str]]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ASKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(2)
    ]
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("dies", [False, True])
def test_processes_compile_once_and_another_key_meanwhile(
    asking: list[subprocess.Popen[str]], cache: Path, dies: bool
) -> None:
    first, second = asking
    assert [read(process) for process in asking] == ["ready", "ready"]
    say(first)
    assert read(first) == "made"
    say(second)
    assert read(second) == "waits"
    assert disk_cache.cached("kind", (b"another",), lambda: b"other") == b"other"
    if dies:
        first.kill()
        assert read(second) == "made"
        say(second)
    else:
        say(first)
        assert read(first) == "value"
    assert read(second) == "value"


def test_a_process_that_takes_too_long_is_not_waited_for(
    asking: list[subprocess.Popen[str]], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = asking
    assert read(first) == "ready"
    say(first)
    assert read(first) == "made"
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.05)
    assert disk_cache.cached("kind", (b"key",), lambda: b"mine") == b"mine"


#: Holds a lock in a thread, and forks.
FORKING = """
import os, sys, threading, time
from pathlib import Path
from atomr_native._support.locks import exclusive

held = threading.Event()

def hold():
    with exclusive(Path(sys.argv[1]), "0" * 64):
        held.set()
        time.sleep(300)

threading.Thread(target=hold, daemon=True).start()
held.wait()
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(300)
"""


def test_a_child_does_not_keep_the_lock_of_a_parent_that_dies(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        child = int(read(parent))
    finally:
        parent.kill()
        parent.wait(30)
    try:
        with locks.exclusive(tmp_path, "0" * 64) as contended:
            assert not contended
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate(timeout=30)


def test_a_child_may_be_forked_under_a_lock(cache: Path) -> None:
    def make() -> bytes:
        pid = os.fork()
        if pid == 0:
            return b"child"
        return b"%d" % os.waitpid(pid, 0)[1]

    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12 warns of threads
        try:
            made = disk_cache.cached("kind", (b"key",), make)
        except BaseException:
            made = b"failed"
    if os.getpid() != parent:
        os._exit(made != b"child")
    assert made == b"0"


# ------------------------------------------------------------------------------------------ any order


KERNELS = """
from numba import cuda
import settings

FACTOR = 2.0

@cuda.jit(device=True)
def twice(x):
    return x * FACTOR

@cuda.jit
def f(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = twice(x[i]) + settings.OFFSET

def made(n):
    @cuda.jit
    def g(x):
        x[0] = n
    return g

g = made(3)
"""
#: Compiles kernels in the order of its arguments; says which of them, and prints a digest of each one's machine code.
COMPILING = """
import sys, numpy
import user_kernels
from atomr_native.compile import linker
from atomr_native.compile.numba import api
from atomr_native.compile.numba import compiler as _numba_compile

compiled, real = [], _numba_compile.compile_ltoir
def compile_ltoir(function, *rest):
    compiled.append(function.__name__)
    return real(function, *rest)
_numba_compile.compile_ltoir = compile_ltoir
types = (api.array_type(numpy.dtype("float32"), 1, "C"),)
for name in sys.argv[1:]:
    kernel = getattr(user_kernels, name)
    options = _numba_compile.jit_options(kernel)
    made = linker.machine_code(kernel.py_func, types, (9, 0), options)
    print(name, made.entry, made.code.digest)
print(*compiled)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "user_kernels.py").write_text(KERNELS)
    (tmp_path / "settings.py").write_text("OFFSET = 1.0\n")
    return tmp_path


def compiling(folder: Path, *names: str) -> tuple[set[str], str]:
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", COMPILING, *names],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    *kernels, compiled = done.stdout.split("\n")[:-1]
    return set(kernels), compiled


def test_the_order_of_compilation_does_not_matter(modules: Path, cache: Path) -> None:
    made, compiled = compiling(modules, "f", "g")
    assert compiled == "f g"
    entries = sorted(path for path in cache.rglob("*") if path.is_file() and path.stat().st_size)
    found, compiled = compiling(modules, "g", "f")
    assert compiled == ""
    assert found == made
    assert sorted(path for path in cache.rglob("*") if path.is_file() and path.stat().st_size) == entries


@pytest.fixture
def user_kernels(modules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(modules))
    yield importlib.import_module("user_kernels")
    for name in ("user_kernels", "settings"):
        del sys.modules[name]


def key(kernel: Any, dtype: str = "float32", capability: tuple[int, int] = HOPPER, **options: Any) -> bytes:
    chosen = {**_numba_compile.jit_options(kernel), **options}
    types = (api.array_type(np.dtype(dtype), 1, "C"),)
    return _numba_cache._key(api.python_function(kernel), types, capability, chosen)


def test_what_a_kernel_reaches_is_in_its_key(user_kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = key(user_kernels.f)
    assert first == key(user_kernels.f)
    assert len({first, key(user_kernels.f, "float64"), key(user_kernels.f, capability=(8, 0)),
                key(user_kernels.f, fastmath=True), key(user_kernels.f, lineinfo=True)}) == 5  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(user_kernels, "FACTOR", 3.0)  # of the device function
        assert key(user_kernels.f) != first
    with monkeypatch.context() as patch:
        patch.setattr(user_kernels.settings, "OFFSET", 2.0)
        assert key(user_kernels.f) != first
    with monkeypatch.context() as patch:
        patch.setattr(user_kernels, "twice", api.cuda.jit(device=True)(lambda x: x + 2.0))
        assert key(user_kernels.f) != first
    with monkeypatch.context() as patch:
        patch.setattr(user_kernels, "OTHER", 1, raising=False)
        patch.setenv("NUMBA_CACHE_DIR", "elsewhere")
        assert key(user_kernels.f) == first
        patch.setenv("NUMBA_OPT", "0")
        assert key(user_kernels.f) != first
    assert key(user_kernels.g) == key(user_kernels.made(3))
    assert len({key(user_kernels.made(n)) for n in (3, 4, 3.0, True, (3, 3), "3")}) == 6


def test_overloads_of_users_are_in_the_key(user_kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside Numba's own, of which some name no module."""
    from numba.cuda.extending import overload

    registry = _numba_compile.registries()[0]
    monkeypatch.setattr(registry, "functions", list(registry.functions))
    before = key(user_kernels.f)
    found = []
    for factor in (2.0, 3.0, 3.0):

        def another(x: Any) -> Any:
            return x

        def implementation(x: Any, factor: float = factor) -> Any:
            return lambda x: x * factor

        with monkeypatch.context() as patch:
            patch.setattr(registry, "functions", list(registry.functions))
            overload(another)(implementation)
            found.append(key(user_kernels.f))
    assert len({before, *found}) == 3
    assert found[1] == found[2]
    assert key(user_kernels.f) == before


def test_declared_functions_and_what_they_bring(user_kernels: Any) -> None:
    def calling(text: str) -> Any:
        declared = api.cuda.declare_device("cube", "float32(float32)", link=api.cuda.CUSource(text))

        def kernel(x: Any) -> None:
            x[0] = declared(x[0])

        return kernel

    assert key(calling("// 1")) == key(calling("// 1")) != key(calling("// 2"))


def test_what_has_no_content_is_compiled_each_time(
    cache: Path, monkeypatch: pytest.MonkeyPatch, user_kernels: Any
) -> None:
    thing = object()

    def kernel(x: Any) -> None:
        x[0] = thing

    calls = []
    made = _numba_compile.Compiled(b"code", "kernel", (), True)
    monkeypatch.setattr(_numba_compile, "compile_ltoir", lambda *given: (calls.append(given), made)[1])
    for _ in range(2):
        assert _numba_cache.ltoir(kernel, (), HOPPER, dict(_numba_compile.OPTIONS)) == made
    assert len(calls) == 2
    assert not list(cache.rglob("*.numba"))


def test_what_is_kept_comes_back_whole() -> None:
    links = tuple(linker.LinkPart(kind, kind.encode(), "name", "folder") for kind in ("cu", "ptx"))
    made = _numba_compile.Compiled(b"code", "entry", links, True)
    assert _numba_cache._loaded(_numba_cache._dumped(made)) == made
