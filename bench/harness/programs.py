"""Building the C programs that need a CUDA device, and talking to them while they run.

``loops`` holds plain C loops on the driver and on NVIDIA's libraries: each ``twin.c`` beside cases; ``lanes`` the
core's lanes without Python; ``ranks`` collectives of NCCL, with a process for each of two GPUs.  All stay alive for a
case and answer one request a sample (see serve.h), so that a context is made once, and the order is the harness's.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from bench.harness.machine import ROOT
from bench.harness.twins import compiler, folder
from bench.harness.unavailable import Unavailable

__all__ = ["PROGRAMS", "Program", "build", "environment", "start"]

BENCH = ROOT / "bench"
HERE = Path(__file__).parent / "native"
NATIVE = ROOT / "cython"
#: Sources of each program, as patterns in this repository; the library's native core is linked to all of them.
PROGRAMS = {
    "loops": ("harness/native/loops.c", "harness/native/serve.c", "cases/*/twin.c", "libraries/*/twin.c"),
    "lanes": ("cases/runtime/lanes.c", "harness/native/serve.c"),
    "ranks": ("cases/communicators/ranks.c", "harness/native/serve.c"),
}
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-pthread")
LIMIT_SECONDS = 45.0
#: What programs load besides the driver, as cuda.pathfinder calls it.
LIBRARIES = ("cublasLt", "cublas", "cufft", "curand", "nccl")


def _compile(source: Path) -> Path:
    """Compile one file of C, once."""
    target = folder() / f"{'-'.join(source.relative_to(ROOT).with_suffix('').parts)}.o"
    if not target.exists():
        _run([compiler(), *FLAGS, f"-I{NATIVE}", f"-I{HERE}", "-c", "-o", str(target), str(source)], source.name)
    return target


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{what} does not compile: {done.stderr.strip()}")


@cache
def build(name: str) -> Path:
    """Compile one program, without any header of CUDA; waits for the compiler.

    Raises
    ------
    ValueError
        There is no such program.
    Unavailable
        There is no compiler.
    RuntimeError
        The compiler failed; the message is its own.
    """
    if name not in PROGRAMS:
        raise ValueError(f"no program {name!r}; there are {', '.join(PROGRAMS)}")
    sources = [path for pattern in PROGRAMS[name] for path in sorted(BENCH.glob(pattern))]
    generated = {path.with_suffix(".c") for path in NATIVE.rglob("*.pyx")}
    sources += [path for path in sorted(NATIVE.rglob("*.c")) if path not in generated]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(_compile, sources))
    binary = folder() / f"cuda-{name}"
    _run([compiler(), *FLAGS, "-o", str(binary), *map(str, objects), "-ldl", "-lm"], name)
    return binary


def environment() -> dict[str, str]:
    """This process's, with the libraries that the library's workers take."""
    found = dict(os.environ)
    for name in LIBRARIES:
        variable = f"ATOMR_NATIVE_{name.upper()}"
        if not found.get(variable):
            try:
                from cuda.pathfinder import load_nvidia_dynamic_lib  # type: ignore[import-not-found,unused-ignore]

                found[variable] = str(load_nvidia_dynamic_lib(name).abs_path or "")
            except (ImportError, RuntimeError):
                pass  # the program looks for it by its name
    return found


class Program:
    """A running program that answers requests.

    Raises
    ------
    RuntimeError
        From `check` and `sample`: it ended, fell silent, or answered nonsense; with what it wrote to standard error.
    """

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._rest = b""

    def check(self, name: str) -> None:
        """Prepare a contender.

        Raises
        ------
        Unavailable
            It cannot run here.
        """
        answer = self._ask(name, 0)
        if "unavailable" in answer:
            raise Unavailable(str(answer["unavailable"]))

    def sample(self, name: str, count: int) -> float:
        """Microseconds for each of `count` operations."""
        answer = self._ask(name, count)
        us = answer.get("us")
        if not isinstance(us, float) or not us > 0.0:
            raise RuntimeError(f"{self._name} answered {answer!r} to {name}")
        return us

    def _ask(self, name: str, count: int) -> dict[str, object]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{name} {count}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(self._last_words()) from None
        line = self._line(name)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RuntimeError(f"{self._name} answered {line[:200]!r} to {name}")
        return answer

    def _line(self, name: str) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([fd], [], [], LIMIT_SECONDS)[0]:
                self._process.kill()
                raise RuntimeError(f"{self._name} did not answer {name} within {LIMIT_SECONDS:g} s")
            data = os.read(fd, 4096)
            if not data:
                raise RuntimeError(self._last_words())
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    @property
    def _name(self) -> str:
        return Path(str(self._process.args[0])).name  # type: ignore[index]

    def _last_words(self) -> str:
        status = self._process.wait(LIMIT_SECONDS)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        return f"{self._name} ended with {status}: {said or 'not a word'}"

    def close(self) -> None:
        """Let it end, or end it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def start(command: Sequence[str]) -> Iterator[Program]:
    """Start a program; it ends with the context."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment()
        )
        running = Program(process, errors)
        try:
            yield running
        finally:
            running.close()
