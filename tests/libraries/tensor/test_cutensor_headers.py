"""The table of cuTENSOR beside the headers of every version that is found.  Needs no GPU.

ATOMR_NATIVE_CUDA_WHEELS names unpacked wheels: 2.2.0 is the oldest that the extras allow.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cuda_wheels import find
from lt_emulator import source

pytest.importorskip("pycparser", reason="pip install -e '.[test-cuda]'")

from native_headers import Header, NotInstalledError, headers
from native_tables import CYTHON, names

pytestmark = [pytest.mark.abi, pytest.mark.plain]


def types(header: Header, function: str) -> tuple[str, ...]:
    """Return a function's types; until 2.2 those of elements are an enum of their own, with the same numbers."""
    return tuple(text.replace("cutensorDataType_t", "cudaDataType_t") for text in header.signature(function).types)


def test_every_version_has_the_same_functions_and_numbers() -> None:
    listed = names(CYTHON / "libraries/cutensor/names.toml")
    try:
        newest = headers(listed.header)[0]
    except NotInstalledError as error:
        pytest.skip(str(error))
    numbers = dict(re.findall(r"    C\((\w+), (-?\d+)\)", source("libraries/cutensor/names.h").read_text()))
    for path in find("cutensor.h"):
        header = Header(listed.header, newest.major, (Path(path).parent, *newest.folders))
        assert header.values(listed.constants) == {name: int(numbers[name]) for name in listed.constants}
        for name in listed.functions:
            assert types(header, name) == types(newest, name), (path, name)
