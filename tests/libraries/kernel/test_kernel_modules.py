"""Kernels in modules that a worker cannot import, and what they refer to there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from atomr_native.compile import linker

SETTINGS = """
import enum
from numba import cuda

OFFSET = 40.0
UNRELATED = vars(dict)["fromkeys"]  # which cannot travel

class Mode(enum.IntEnum):
    ADD = 1
    LEAVE = 2

@cuda.jit(device=True)
def twice(x):
    return 2 * x
"""
KERNELS = """
import their_settings
from numba import cuda, njit
from their_settings import Mode

@njit
def third(x):
    return x + Mode.LEAVE.value

def plain(x, mode):
    i = cuda.grid(1)
    if i < x.size and mode == Mode.ADD:
        x[i] = third(their_settings.twice(x[i])) + their_settings.OFFSET
"""
LIBRARY = """
scale = 3.0
size = vars(dict)["fromkeys"]  # which cannot travel, and has the name of something that the kernel uses
"""
PROGRAM = """
import numpy as np
import their_library
from numba import cuda
import atomr_native as an

def scaled(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = their_library.scale

if __name__ == "__main__":
    with an.System() as system:
        x = system.device("host").zeros(4)
        system.device("host").kernel(scaled)[1, 4](x).result(60)
        print(x.numpy().sum())
"""


def test_numba_is_imported_in_one_module() -> None:
    package = Path(an.__file__).parent
    importing = re.compile(r"^\s*(from|import) +numba\b", re.MULTILINE)
    assert [f.name for f in package.rglob("*.py") if importing.search(f.read_text())] == ["api.py"]


def test_modules_of_the_program_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_settings.py").write_text(SETTINGS)
    (tmp_path / "their_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    import their_kernels  # type: ignore[import-not-found]
    import their_settings  # type: ignore[import-not-found]

    modules: tuple[Any, ...] = their_kernels, their_settings
    try:
        with an.System() as system:
            device = system.device("host")
            x = device.put(np.arange(4.0))
            device.kernel(their_kernels.plain)[1, 4](x, their_settings.Mode.ADD).result(60)
            np.testing.assert_array_equal(x.numpy(), 2 * np.arange(4.0) + 42)
    finally:
        for module in modules:
            del sys.modules[module.__name__]


class _Nested:
    """Has a function pickled while it is pickled itself, as a callback of the garbage collector may."""

    def __reduce__(self) -> Any:
        linker.pickled(lambda x: x)
        return int, ()


NESTED = _Nested()


def test_a_function_is_not_pickled_inside_of_another() -> None:
    with pytest.raises(an.NestedCall):
        linker.pickled(lambda x: x + NESTED)
    assert linker.pickled(lambda x: x)


def _environment_above(folder: Path, *places: str) -> Path:
    """Make a virtual environment whose packages are those of other folders, which a `.pth` file names; its Python."""
    venv.create(folder, symlinks=True)
    (named,) = folder.glob("lib/python*/site-packages")
    below = [line for place in places for line in (place, f"import site; site.addsitedir({place!r})")]
    (named / "below.pth").write_text("\n".join(below) + "\n")
    return folder / "bin" / "python"


@pytest.mark.parametrize("named", ["PYTHONPATH", "pth"])
def test_what_is_installed_into_another_folder_does_not_travel(tmp_path: Path, named: str) -> None:
    """It can be of any kind: NumPy, for one."""
    library = tmp_path / "library"
    described = library / "their_library-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: their-library\nVersion: 1.0\n")
    (described / "top_level.txt").write_text("their_library\n")
    (library / "their_library.py").write_text(LIBRARY)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment, python = scripts.environment(), sys.executable
    if named == "pth":
        installed = [place for place in sys.path if place.endswith("site-packages")]
        python = str(_environment_above(tmp_path / "environment", str(library), *installed))
    else:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(library), environment.get("PYTHONPATH"))))
    command = [python, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["12.0"], done.stderr
