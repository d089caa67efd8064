"""Install each extra into a fresh environment, and do there what it is for: ``make extras``.

``make extras EXTRA=kernels`` is for one of them.
It needs the package index, minutes, and up to 10 GB below build/extras, which it removes again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "extras"
EXTRAS = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
PLAIN = "plain"  # no extra

#: A program that needs no extra.
FIRST = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
assert FIRST
KERNEL = """
import numpy as np
from numba import cuda
import atomr_native as an

@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

with an.System() as system:
    dev = system.device("host")
    x = dev.put(np.ones(100, np.float32))
    dev.kernel(scale).forall(100)(x, 3.0).result(60)
    assert (x.numpy() == 3).all()
    y = dev.blas_lt.matmul(dev.put(np.eye(4, dtype=np.float32)), dev.put(np.ones((4, 4), np.float32)),
                           epilogue=an.epilogues.silu)
    assert y.numpy().shape == (4, 4)
"""
OBSERVE = """
import atomr_native as an
from atomr_native import observe

with an.System() as system, observe.spans(system), observe.ranges(system):
    system.device("host").put([1.0]).numpy()
    observe.serve_metrics(system, port=0).close()
"""
CLUSTER = """
import atomr_native as an
from atomr_native.ray import Cluster

class Echo(an.Actor):
    def receive(self, message):
        return message

if __name__ == "__main__":
    with Cluster(nodes=1) as cluster:
        assert cluster.spawn(Echo).ask(7).result(60) == 7
"""
#: NVRTC, nvJitLink and NVVM work without a GPU: a kernel of Numba's becomes machine code, and CUDA C++ an image.
COMPILE = """
import numpy as np
from numba import cuda
from atomr_native.compile import nvrtc

assert nvrtc.version()[0] == {major}
def scale(x, factor):
    x[cuda.grid(1)] *= factor
ptx, _ = cuda.compile_ptx(scale, (cuda.types.float32[:], cuda.types.float32), cc=(9, 0))
assert ".entry" in ptx
"""

#: Programs and commands that show the use of an extra; texts are programs, lists are commands.
USES: dict[str, list[str | list[str]]] = {
    PLAIN: [FIRST[1]],
    "kernels": [KERNEL],
    "demo": [["-m", "atomr_native", "demo", "--output", "out"], [str(ROOT / "examples" / "digits.py")],
             [str(ROOT / "examples" / "data_parallel.py"), "--steps", "10"]],
    "examples": [
        [str(ROOT / "examples" / "mandelbrot.py"), "--device", "host", "--width", "60", "--output", "m.png"],
        [str(ROOT / "examples" / "reaction_diffusion.py"), "--device", "host", "--size", "16", "--steps", "20",
         "--output", "r.png"],
        [str(ROOT / "examples" / "fp8_digits.py"), "--device", "host", "--steps", "30"],
        [str(ROOT / "examples" / "serve.py"), "--help"],
    ],
    "ray": [CLUSTER],
    "observe": [OBSERVE],
    "cu12": [KERNEL, COMPILE.format(major=12)],
    "cu13": [KERNEL, COMPILE.format(major=13)],
    "test-cuda": [KERNEL, COMPILE.format(major=13)],
    "test": [["-m", "pytest", "--version"], ["-c", "import hypothesis, nvtx, prometheus_client, uvicorn, xdist"]],
    "bench": [["-c", "import pykka, xoscar"]],
    "docs": [["-m", "sphinx", "--version"], ["-c", "import furo, myst_parser"]],
    "dev": [["-m", "mypy", "--version"], ["-m", "ruff", "--version"], ["-m", "build", "--version"]],
}  # fmt: skip
#: The doctor's word for the use of an extra.
DOCTOR = {"kernels": "kernels", "demo": "demo", "examples": "examples", "observe": "observe", "cu12": "gpu",
          "cu13": "gpu"}  # fmt: skip


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command; return its output, or end the program with it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=1800
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(map(str, command))[:500]}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def check(extra: str, wheel: Path) -> None:
    """Install an extra into a fresh environment and use it there."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", folder / "venv")
        before = megabytes(folder)
        python = folder / "venv" / "bin" / "python"
        suffix = "" if extra == PLAIN else f"[{extra}]"
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", f"{wheel}{suffix}")
        installed, size = time.monotonic() - begin, megabytes(folder) - before
        run(python, "-m", "pip", "check")
        packages = json.loads(run(python, "-m", "pip", "list", "--disable-pip-version-check", "--format", "json"))
        nvidia = [package["name"] for package in packages if package["name"].startswith(("nvidia-", "cuda-toolkit"))]
        if bool(nvidia) != (extra in ("cu12", "cu13", "test-cuda")):
            raise SystemExit(f"[{extra}] brings {nvidia or 'nothing of NVIDIA'}")
        for use in USES[extra]:
            program = folder / "program.py"
            program.write_text(use if isinstance(use, str) else "")
            run(python, *([program] if isinstance(use, str) else use), cwd=folder)
        report = json.loads(run(python, "-m", "atomr_native", "doctor", "--json", cwd=folder))
        missing = {use["name"]: use for use in report["purposes"] if use["missing"]}
        if DOCTOR.get(extra) in missing:
            raise SystemExit(f"[{extra}] is installed, and the doctor misses {missing[DOCTOR[extra]]}")
        if extra == PLAIN and set(missing) != set(DOCTOR.values()):
            raise SystemExit(f"without an extra the doctor misses only {list(missing)}")
        sys.stdout.write(
            f"{extra:10} {len(packages) - 3:3} packages, {size:6.0f} MB, installed in {installed:4.0f} s, "
            f"{len(nvidia)} of NVIDIA's\n"
        )
        sys.stdout.flush()


def main(chosen: list[str]) -> None:
    """Check the extras given, or all."""
    for extra in chosen:
        if extra not in USES:
            raise SystemExit(f"unknown extra {extra!r}; allowed: {', '.join(USES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheels = FOLDER / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT)
    (wheel,) = wheels.glob("*.whl")
    for extra in chosen or [PLAIN, *EXTRAS]:
        check(extra, wheel)
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main(sys.argv[1:])
