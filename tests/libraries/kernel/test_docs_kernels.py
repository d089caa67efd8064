"""docs/libraries/kernel.md: its fragment in CUDA C++ fits its text, and the test files that it names exist.

test_tensor_map.py compiles the example in CUDA C++, and runs it on a GPU.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import atomr_native as an
from atomr_native.device.kernels import KernelMethods

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "libraries" / "kernel.md").read_text(encoding="utf-8")


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
        state = SimpleNamespace(kind="cuda", compute_capability=lambda: (9, 0), kernel_actor=host._state.kernel_actor)
        device = SimpleNamespace(_state=state)
        device.cuda_kernel = lambda *given, **options: KernelMethods.cuda_kernel(device, *given, **options)
        names = {"device": device, "source": source, "text": "#define FACTOR 2"}
        exec(fragment.splitlines()[0], names)
        kernel = names["kernel"]
        assert [kernel.classify(name, value)[0] for name, value in (("factor", 2.0), ("n", 1000))] == ["scalar"] * 2
        assert "kernel.forall(1000)(x, y, 2.0, 1000)" in fragment
        assert kernel.parameters == ("x", "y", "factor", "n")


def test_the_files_that_are_named_exist() -> None:
    names = re.findall(r"`(tests/[\w/]+\.py)`", TEXT)
    assert len(names) > 10
    for name in names:
        assert (ROOT / name).exists(), name
