"""Building and running the C twins that need no GPU: each file in a folder ``native`` beside cases is one."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from bench.harness.unavailable import Unavailable

__all__ = ["FLAGS", "PROGRAMS", "build", "compiler", "folder", "run"]

BENCH = Path(__file__).resolve().parents[1]
HEADERS = BENCH / "harness" / "native"
#: Sources by the name of the program.
PROGRAMS = {path.stem: path for group in ("cases", "libraries") for path in sorted(BENCH.glob(f"{group}/*/native/*.c"))}
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-pthread")
LIMIT_SECONDS = 90.0


def compiler() -> str:
    """The C compiler: ``$CC``, else gcc.

    Raises
    ------
    Unavailable
        There is none on the path.
    """
    name = os.environ.get("CC", "gcc")
    if shutil.which(name) is None:
        raise Unavailable(f"no C compiler {name!r} on the path: install gcc or set CC")
    return name


@cache
def folder() -> Path:
    """This process's temporary folder for programs; removed at its end."""
    made = Path(tempfile.mkdtemp(prefix="bench-twins-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def build(program: str) -> Path:
    """Compile one twin into this process's temporary folder, once; waits for the compiler.

    Raises
    ------
    ValueError
        There is no such twin.
    Unavailable
        There is no compiler.
    RuntimeError
        The compiler failed; the message is its own.
    """
    if program not in PROGRAMS:
        raise ValueError(f"no twin {program!r}; there are {', '.join(PROGRAMS)}")
    binary = folder() / program
    command = [compiler(), *FLAGS, f"-I{HEADERS}", "-o", str(binary), str(PROGRAMS[program])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program}.c does not compile: {done.stderr.strip()}")
    return binary


def run(binary: Path, arguments: Sequence[str]) -> float:
    """Run a twin once; returns microseconds per operation.

    Raises
    ------
    RuntimeError
        It failed, or printed something else than its line.
    """
    done = subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{binary.name} ended with {done.returncode}: {done.stderr.strip()}")
    try:
        return float(json.loads(done.stdout)["us"])
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{binary.name} printed {done.stdout[:200]!r}") from error
