"""docs/kernels.md: its Numba examples run; the one in CUDA C++ is compiled, and run on a GPU, by test_tensor_map.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import atomr_native as an
from atomr_native._kernel_methods import KernelMethods

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
EXAMPLES = [text for text in re.findall(r"```python\n(.*?)```", TEXT, re.S) if "@cuda.jit" in text]


@pytest.mark.parametrize("number", range(2))
def test_examples(number: int, tmp_path: Path) -> None:
    assert len(EXAMPLES) == 2
    file = tmp_path / "example.py"  # Numba's kernels have their source in a file
    file.write_text(EXAMPLES[number])
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_the_fragment_in_cuda_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    fragment = next(text for text in re.findall(r"```python\n(.*?)```", TEXT, re.S) if '"scale<float>"' in text)
    source = """#include "factor.cuh"
        template <class T> __global__ void scale(T *x, const T *y, T factor, int n) {
          if (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n) x[i] = y[i] * factor * FACTOR;
        }"""
    with an.System(isolation="thread", standby="off") as system:
        host = system.device("host")
        device = SimpleNamespace(name="cuda:0", _compute_capability=lambda: (9, 0), _kernel_actor=host._kernel_actor)
        device.cuda_kernel = lambda *given, **options: KernelMethods.cuda_kernel(device, *given, **options)
        names = {"device": device, "source": source, "text": "#define FACTOR 2"}
        exec(fragment.splitlines()[0], names)
        kernel = names["kernel"]
        assert [kernel.classify(name, value)[0] for name, value in (("factor", 2.0), ("n", 1000))] == ["scalar"] * 2
        assert "kernel.forall(1000)(x, y, 2.0, 1000)" in fragment
        assert kernel.parameters == ("x", "y", "factor", "n")


def test_the_files_that_are_named_exist() -> None:
    for name in re.findall(r"`(tests/\w+\.py)`", TEXT):
        assert (ROOT / name).exists(), name
