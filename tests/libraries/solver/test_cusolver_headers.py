"""The functions of cuSOLVER against the real library; `tests/libraries/test_native_tables.py` has its headers.

None of this needs a GPU.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from cuda_wheels import find
from lt_emulator import source

pytestmark = [pytest.mark.abi, pytest.mark.plain]


def test_every_function_is_exported() -> None:
    found = find("libcusolver.so.1[12]")
    if not found:
        pytest.skip("libcusolver not found; pip install nvidia-cusolver, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cusolver\w+),", source("libraries/cusolver/names.h").read_text())
    assert len(names) == 91
    for path in found:  # its symbols, without the libraries that it needs
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        exported = set(re.findall(r" T (\w+)", listed.stdout))
        assert [name for name in names if name not in exported] == []
