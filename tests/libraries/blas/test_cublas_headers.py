"""The functions of cuBLAS against the real library; `tests/libraries/test_native_tables.py` has its headers.

None of this needs a GPU.
"""

from __future__ import annotations

import ctypes
import re

import pytest
from cuda_wheels import find
from lt_emulator import source

pytestmark = [pytest.mark.abi, pytest.mark.plain]


def test_every_function_is_exported() -> None:
    found = find("libcublas.so.1[23]")
    if not found:
        pytest.skip("libcublas not found; pip install nvidia-cublas, or set ATOMR_NATIVE_CUDA_WHEELS")
    ctypes.CDLL(str(found[0].parent / found[0].name.replace("libcublas", "libcublasLt")), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(found[0]))
    names = re.findall(r"\bF\([^,()]+, (cublas\w+),", source("libraries/cublas/names.h").read_text())
    assert len(names) == 76
    assert [name for name in names if not hasattr(library, name)] == []
