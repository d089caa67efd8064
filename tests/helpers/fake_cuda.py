"""The whole of ``cuda:0`` without a GPU: builds the fake driver, and names the environment in which workers use it.

By hand::

    eval $(python tests/helpers/fake_cuda.py env)
    python -m atomr_native demo --device cuda:0

What the fake can be told by the environment is in fake_driver/fake_driver.h.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cuda_wheels
import kernel_shim

from atomr_native._support.locks import exclusive

__all__ = ["FORGOTTEN", "available", "build", "compiling_here", "environment", "using"]

_HERE = Path(__file__).resolve().parent
_CYTHON = _HERE.parents[1] / "cython"
_FAKE = _HERE / "fake_driver"
_SOURCES = (*sorted(_FAKE.glob("*.c")), _HERE / "fake_cublaslt.c")
_HEADERS = (
    *sorted(_FAKE.glob("fake_*.h")),
    _HERE / "fake_cublaslt.h",
    _CYTHON / "cuda/driver.h",
    _CYTHON / "cuda/driver_names.h",
    _CYTHON / "libraries/cublas_constants.h",
    _CYTHON / "libraries/cublaslt/names.h",
    _CYTHON / "libraries/cublaslt/table.h",
    _CYTHON / "libraries/cublas/call.h",
    _CYTHON / "libraries/cublas/names.h",
    _CYTHON / "libraries/cublas/table.h",
    _CYTHON / "libraries/cudss/direct.h",
    _CYTHON / "libraries/cudss/names.h",
    _CYTHON / "libraries/cudss/region.h",
    _CYTHON / "libraries/cudss/table.h",
    _CYTHON / "libraries/cudnn/names.h",
    _CYTHON / "libraries/cudnn/table.h",
    _CYTHON / "libraries/cufft/names.h",
    _CYTHON / "libraries/cufft/table.h",
    _CYTHON / "libraries/curand/names.h",
    _CYTHON / "libraries/curand/table.h",
    _CYTHON / "libraries/cusolver/call.h",
    _CYTHON / "libraries/cusolver/decompose.h",
    _CYTHON / "libraries/cusolver/names.h",
    _CYTHON / "libraries/cusolver/refine.h",
    _CYTHON / "libraries/cusolver/table.h",
    _CYTHON / "libraries/cusparse/call.h",
    _CYTHON / "libraries/cusparse/names.h",
    _CYTHON / "libraries/cusparse/table.h",
    _CYTHON / "libraries/cusparselt/names.h",
    _CYTHON / "libraries/cusparselt/plan.h",
    _CYTHON / "libraries/cusparselt/table.h",
    _CYTHON / "libraries/cutensor/blocks.h",
    _CYTHON / "libraries/cutensor/names.h",
    _CYTHON / "libraries/cutensor/plan.h",
    _CYTHON / "libraries/cutensor/table.h",
    _CYTHON / "libraries/nccl/names.h",
    _CYTHON / "libraries/nccl/table.h",
)
_FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread")
_NVRTC = "cuda.bindings.nvrtc"
#: Variables of the caller that the fake must not see.
FORGOTTEN = ("CUDA_VISIBLE_DEVICES",)


def available() -> str:
    """Return why there can be no fake device here, or nothing."""
    return kernel_shim.available()


def _hash(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def build(folder: Path) -> Path:
    """Compile the driver and cuBLASLt, one library, into `folder`, unless it is there; return its path.

    Of several processes one compiles, file by file in as many threads as there are processors; it takes 13 seconds of
    one.
    """
    digest = _hash(*_SOURCES, *_HEADERS)
    library = folder / f"libfake_cuda-{digest}.so"
    if library.exists():
        return library
    with exclusive(folder, digest):
        if not library.exists():
            _compile(library)
    return library


def _compile(library: Path) -> None:
    includes = [f"-I{path}" for path in (_CYTHON, _HERE, _FAKE)]
    with tempfile.TemporaryDirectory(dir=library.parent) as made, ThreadPoolExecutor(os.cpu_count()) as pool:

        def compiled(source: Path) -> str:
            out = f"{made}/{source.stem}.o"
            subprocess.run(["gcc", *_FLAGS, *includes, "-c", str(source), "-o", out], check=True)
            return out

        out = Path(made) / "made.so"
        objects = list(pool.map(compiled, sorted(_SOURCES, key=lambda source: -source.stat().st_size)))
        subprocess.run(["gcc", "-shared", "-pthread", *objects, "-o", str(out), "-ldl", "-lm"], check=True)
        os.replace(out, library)


def environment(folder: Path, **settings: object) -> dict[str, str]:
    """Build what is missing, and return the variables that make workers use the fake.

    Parameters
    ----------
    folder
        For what is built: the library, and later the kernels.
    settings
        ``FAKE_CUDA_<NAME>`` for each ``name``.
    """
    library = str(build(folder))
    kernels = folder / f"kernels-{_hash(_FAKE / 'shim.h', _HERE / 'kernel_shim.py')}"
    for left in kernels.glob(f"{kernel_shim.SCRATCH}*"):  # by workers that were killed
        if time.time() - left.stat().st_mtime > 600:
            shutil.rmtree(left, ignore_errors=True)
    kernel_shim.precompile(kernels)
    path = [str(_FAKE / "site"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "ATOMR_NATIVE_CUDA": library,
        "ATOMR_NATIVE_CUBLASLT": library,
        "ATOMR_NATIVE_CUBLAS": library,
        "ATOMR_NATIVE_CUDNN": library,
        "ATOMR_NATIVE_CUDSS": library,
        "ATOMR_NATIVE_CUFFT": library,
        "ATOMR_NATIVE_CURAND": library,
        "ATOMR_NATIVE_CUSOLVER": library,
        "ATOMR_NATIVE_CUSPARSE": library,
        "ATOMR_NATIVE_CUSPARSELT": library,
        "ATOMR_NATIVE_CUTENSOR": library,
        "ATOMR_NATIVE_NCCL": library,
        "ATOMR_NATIVE_CACHE": str(kernels),
        kernel_shim.HEADERS: str(kernels),
        "FAKE_CUDA_CURAND": str(next(iter(cuda_wheels.find("libcurand.so.10")), "")),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        **{f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()},
    }


@contextlib.contextmanager
def using(variables: dict[str, str]) -> Iterator[None]:
    """Have the Systems that are made meanwhile use these variables for their workers; without any, the GPU there."""
    wanted: dict[str, str | None] = {**dict.fromkeys(FORGOTTEN if variables else ()), **variables}
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


@contextlib.contextmanager
def compiling_here() -> Iterator[None]:
    """Have workers in threads of this process compile for the fake: theirs is the NVRTC of this process."""
    path = _FAKE / "site" / "cuda" / "bindings" / "nvrtc.py"
    spec = importlib.util.spec_from_file_location(_NVRTC, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(_NVRTC)
    sys.modules[_NVRTC] = module
    try:
        spec.loader.exec_module(module)
        yield
    finally:
        if before is None:
            del sys.modules[_NVRTC]
        else:
            sys.modules[_NVRTC] = before


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def main() -> int:
    """Print the variables as a shell takes them."""
    if sys.argv[1:] != ["env"]:
        print("usage: eval $(python tests/helpers/fake_cuda.py env)", file=sys.stderr)  # noqa: T201
        return 2
    if reason := available():
        print(reason, file=sys.stderr)  # noqa: T201
        return 1
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for name, value in environment(cache / "atomr_native-tests").items():
        print(f"export {name}={shlex.quote(value)};")  # noqa: T201
    print(f"unset {' '.join(FORGOTTEN)};")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
