"""Python actors of a build without counters, or without the hooks of tracing, in processes of their own.

What a counter costs cannot be seen in one build.  So the extension module of actors is compiled anew, with gcc and
Cython, from its source less some lines; everything else is the package as it is installed.  To be compared with it, the
module is compiled in the same way from its whole source, too.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench.harness import twins
from bench.harness.machine import ROOT
from bench.harness.unavailable import Unavailable

__all__ = ["LEFT_OUT", "Remote", "remote", "source", "use"]

NATIVE = ROOT / "cython"
MODULE = "actor_cell"
CORE = ("runtime/actor_mailbox.c", "runtime/shm.c")
FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-pthread")

_COUNTERS = (("        self.processed += 1\n", "", 1),)
_HOOKS = (
    ("        if observer is not None and envelope.mark is None:\n            self.note(envelope)\n", "", 2),
    (
        "            if (<Envelope>found).mark is None:\n"
        "                self.handle(<Envelope>found)\n"
        "            else:\n"
        "                self.handle_marked(<Envelope>found)\n",
        "            self.handle(<Envelope>found)\n",
        1,
    ),
)
#: What each build leaves out: text, what is there instead, and how often it is in the source.
LEFT_OUT: dict[str, tuple[tuple[str, str, int], ...]] = {
    "as it is": (),
    "without counters": _COUNTERS,
    "without counters and hooks": _COUNTERS + _HOOKS,
}


def source(build: str) -> str:
    """Source of the module, less what a build leaves out.

    Raises
    ------
    Unavailable
        There is no source beside the benchmarks.
    ValueError
        It has not the lines that are to be left out.
    """
    path = NATIVE / "runtime" / f"{MODULE}.pyx"
    if not path.exists():
        raise Unavailable(f"{path.name} is not there: this needs the repository")
    text = path.read_text(encoding="utf-8")
    for old, new, times in LEFT_OUT[build]:
        if text.count(old) != times:
            raise ValueError(f"{path.name} has {text.count(old)} times, not {times}: {old.strip()!r}")
        text = text.replace(old, new)
    return text


@cache
def overlay(build: str) -> Path:
    """Make a folder to import the package from, with this build of the module; waits for the compilers."""
    compiler = twins.compiler()
    for needed in ("Cython", "numpy"):
        if importlib.util.find_spec(needed) is None:
            raise Unavailable(f"{needed} is not installed")
    installed = Path(str(importlib.import_module("atomr_native").__file__)).parent
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    made = Path(tempfile.mkdtemp(prefix=f"{build.replace(' ', '-')}-", dir=twins.folder()))
    package, library, include = made / "atomr_native", made / "atomr_native" / "_lib", made / "include"
    library.mkdir(parents=True)
    (include / "atomr_native").mkdir(parents=True)
    for at, names in ((package, installed), (library, installed / "_lib")):
        for each in names.iterdir():
            if each.name not in ("_lib", "__pycache__", f"{MODULE}{suffix}"):
                (at / each.name).symlink_to(each)
    # Editable installs keep compiled modules elsewhere.
    for name in sorted(path.stem for path in NATIVE.rglob("*.pyx") if path.stem != MODULE):
        found = importlib.util.find_spec(f"atomr_native._lib.{name}")
        if found is not None and found.origin is not None and not (library / Path(found.origin).name).exists():
            (library / Path(found.origin).name).symlink_to(found.origin)
    (include / "atomr_native" / "_lib").mkdir()
    for each in NATIVE.rglob("*.p[xy][dix]"):  # flat, as CMakeLists.txt links them for Cython
        (include / "atomr_native" / "_lib" / each.name).symlink_to(each)
    pyx, generated = made / f"{MODULE}.pyx", made / f"{MODULE}.c"
    pyx.write_text(source(build), encoding="utf-8")
    folders = ("-I", str(include), "-I", str(include / "atomr_native" / "_lib"))
    _do([sys.executable, "-m", "cython", "-3", "-X", "freethreading_compatible=True", *folders,
         "--module-name", f"atomr_native._lib.{MODULE}", "-o", str(generated), str(pyx)], include)  # fmt: skip
    _do([compiler, *FLAGS, "-I", str(NATIVE), "-I", sysconfig.get_path("include"), str(generated),
         *(str(NATIVE / name) for name in CORE), "-o", str(library / f"{MODULE}{suffix}")], made)  # fmt: skip
    return made


def _do(command: list[str], include: Path) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(include)}
    )
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-1000:]}")


class Remote:
    """A process with an idle actor, that measures when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sample(self, what: str, count: int) -> Callable[[], float]:
        """Sample: ``"ask"`` or ``"tell"``, `count` times; microseconds each."""

        def sample() -> float:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{what} {count}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"the process of rebuilt actors has ended with {self._process.wait()}")
            return float(line)

        return sample


@contextmanager
def remote(build: str, program: str) -> Iterator[Remote]:
    """Start a module as a program that is given the folder of a build; it calls `use`, and answers `Remote`.

    Raises
    ------
    Unavailable
        It cannot be made here.
    """
    folder = overlay(build)
    process = subprocess.Popen(
        [sys.executable, "-m", program, str(folder)], cwd=ROOT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Remote(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        process.stdout.close()


def use(folder: str) -> None:
    """Import the package from the folder of a build, in a process that has not imported it yet.

    Raises
    ------
    ImportError
        Another build of the module comes first.
    """
    sys.path.insert(0, folder)
    sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in type(each).__module__]
    module = importlib.import_module(f"atomr_native._lib.{MODULE}")
    if not str(module.__file__).startswith(folder):
        raise ImportError(f"{module.__file__} is not the build in {folder}")
