"""docs/kernels.md: its Numba examples run; the one in CUDA C++ is compiled, and run on a GPU, by test_tensor_map.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_files_that_are_named_exist() -> None:
    for name in re.findall(r"`(tests/\w+\.py)`", TEXT):
        assert (ROOT / name).exists(), name
