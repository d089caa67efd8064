"""What requests about structured matrices refuse; cuSPARSELt's headers and symbols.  Needs no device."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_wheels import find
from lt_emulator import source

import atomr_native as an
from atomr_native.libraries.sparse.structured.matrix import compressed_bytes
from atomr_native.libraries.sparse.structured.patterns import TILES

pytestmark = pytest.mark.plain
A: dict[str, Any] = {
    "compressed": np.zeros(compressed_bytes((32, 64), "float16"), "uint8"), "shape": (32, 64), "dtype": "float16",
}  # fmt: skip
X = np.zeros((16, 64), "float16")


def test_tiles() -> None:
    assert len(TILES) == 90 == len(set(TILES))
    for places in TILES:
        counts = [[place // 4 for place in places].count(i) for i in range(4)]
        counts += [[place % 4 for place in places].count(i) for i in range(4)]
        assert counts == [2] * 8


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"shape": (32, 60)}, r"shape=\(32, 60\) of float16 has 60 columns; allowed: multiples of 16"),
        ({"shape": (8, 64)}, r"has 8 rows; allowed: multiples of 16"),
        ({"dtype": "int8", "shape": (16, 64)}, "has 16 rows; allowed: multiples of 32"),
        ({"dtype": "float32"}, "dtype=float32; allowed: int8, float16, bfloat16, float8_e4m3fn, float8_e5m2"),
        ({"compressed": np.zeros(5, "uint8")}, r"compressed has shape \(5,\) and dtype uint8; allowed: \(20480,\)"),
        ({"x": X[:, :32]}, r"x has shape \(16, 32\); allowed: \(any, 64\)"),
        ({"x": X.astype("f4")}, "x has dtype float32; allowed: float16"),
        ({"x": np.zeros((12, 64), "float16")}, r"x has shape \(12, 64\) of float16; allowed: multiples of 8"),
        ({"x": np.zeros((16, 128), "float16")[:, ::2]}, r"x has strides \(256, 4\); allowed: rows or columns without"),
        ({"x": np.zeros((16, 65), "float16")[:, :64]}, r"x has strides \(130, 2\); allowed: .*device.copy makes them"),
        ({"out": np.zeros((16, 64), "float16")}, r"out has shape \(16, 64\); allowed: \(16, 32\)"),
        ({"out": np.zeros((16, 32), "float32")}, "out has dtype float32; allowed: float16"),
        ({"out": np.zeros((16, 64), "float16")[:, ::2]}, "out has strides .*allowed: rows or columns without gaps"),
        ({"out_dtype": "float32"}, "out_dtype='float32'; allowed: 'float16'"),
        ({"bias": np.zeros(16, "float16")}, r"bias has shape \(16,\) and dtype float16; allowed: \(32,\) of float16"),
        ({"bias": np.zeros(32, "float32")}, r"bias .* dtype float32; allowed: \(32,\) of float16"),
        ({"row_alpha": np.zeros(32)}, r"row_alpha .*float64; allowed: \(32,\) of float32"),
        ({"row_alpha": np.zeros(64, "f4")[::2]}, r"row_alpha has strides \(8,\); allowed: no gaps"),
        ({"scale_a": np.zeros(2, "f4")}, r"scale_a .*allowed: \(\) or \(1,\) or \(32,\) of float32"),
        ({"scale_x": np.zeros(32, "f4")}, r"scale_x .*allowed: \(\) or \(1,\) of float32"),
        ({"row_beta": np.zeros(32, "f4")}, r"row_beta is given with beta=0"),
        ({"beta": 2.0}, r"beta=2.0, and out is missing"),
        ({"alpha": 1j}, "alpha=1j"),
        ({"activation": "tanh"}, "activation='tanh'; allowed: 'none', 'relu', 'gelu'"),
        ({"tune": "always"}, "tune='always'; allowed: True, False, 'known'"),
        ({"out": A["compressed"][: 2 * 16 * 32].view("float16").reshape(16, 32)}, "out overlaps compressed"),
    ],
)
def test_products_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    an.StructuredProductRequest(**A, x=X)
    given = {**A, "x": X, **changed}
    if given["dtype"] != "float16":
        given["x"] = X.astype(given["dtype"])
    with pytest.raises(an.InvalidRequest, match=words):
        an.StructuredProductRequest(**given)


def test_eight_bits() -> None:
    shape = (32, 64)
    memory = np.zeros(compressed_bytes(shape, "int8"), "uint8")
    given: dict[str, Any] = {"compressed": memory, "shape": shape, "dtype": "int8", "x": np.zeros((16, 64), "int8")}
    made = an.StructuredProductRequest(**given)
    assert made.lowered.operands[-1].spec.dtype == "int32"
    an.StructuredProductRequest(**given, bias=np.zeros(32, "f4"))
    with pytest.raises(an.InvalidRequest, match=r"x has strides .*allowed: rows without gaps"):
        an.StructuredProductRequest(**{**given, "x": np.zeros((64, 16), "int8").T})
    with pytest.raises(an.InvalidRequest, match="activation='gelu' of int32; allowed: floating results"):
        an.StructuredProductRequest(**given, activation="gelu")
    with pytest.raises(an.InvalidRequest, match=r"x has shape \(8, 64\) of int8; allowed: multiples of 16"):
        an.StructuredProductRequest(**{**given, "x": np.zeros((8, 64), "int8")})
    eight = {**given, "dtype": "float8_e4m3fn", "x": np.zeros((16, 64), ml_dtypes.float8_e4m3fn)}
    assert an.StructuredProductRequest(**eight).lowered.operands[-1].spec.dtype == "bfloat16"
    with pytest.raises(an.InvalidRequest, match="out_dtype='float8_e4m3fn'; allowed: 'bfloat16', 'float16', 'float32'"):
        an.StructuredProductRequest(**eight, out_dtype="float8_e4m3fn")


def test_what_cannot_be_pruned_or_compressed() -> None:
    for request, words in (
        ({"x": np.zeros((4, 6), "f4")}, r"x has shape \(4, 6\); allowed: a multiple of 4 columns; pad with zeros"),
        ({"x": np.zeros((6, 4), "f4"), "method": "tile"}, "allowed: multiples of 4 rows and columns"),
        ({"x": np.zeros(4, "f4")}, r"x has shape \(4,\); allowed: two axes"),
        ({"x": np.zeros((4, 4))}, "x has dtype float64; allowed: int8"),
        ({"x": np.zeros((4, 4), "f4"), "method": "best"}, "method='best'; allowed: 'strip', 'tile'"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            an.StructuredPruneRequest(**request)
    for x, words in (
        (np.zeros((32, 40), "f2"), "has 40 columns; allowed: multiples of 16"),
        (np.zeros((32, 32), "f4"), "dtype=float32; allowed: int8"),
        (np.zeros((32, 32), "f2").T, "allowed: rows without gaps, and a multiple of 32 bytes"),
        (np.zeros((32, 40), "f2")[:, :32], r"x has strides \(80, 2\)"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            an.StructuredCompressRequest(x=x)


@pytest.mark.abi
def test_every_function_is_exported() -> None:
    found = find("libcusparseLt.so.0")
    if not found:
        pytest.skip("libcusparseLt not found; pip install nvidia-cusparselt-cu13, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cusparseLt\w+),", source("libraries/cusparselt/names.h").read_text())
    assert len(names) == 18
    for path in found:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        exported = {name.partition("@")[0] for name in re.findall(r" T (\S+)", listed.stdout)}
        assert [name for name in names if name not in exported] == []


@pytest.mark.abi
def test_every_version_has_the_same_numbers() -> None:
    """ATOMR_NATIVE_CUDA_WHEELS names unpacked wheels; 0.8.0 is the oldest that is known to do."""
    pytest.importorskip("pycparser", reason="pip install -e '.[test-cuda]'")
    from native_headers import Header, NotInstalledError, headers
    from native_tables import CYTHON, names

    listed = names(CYTHON / "libraries/cusparselt/names.toml")
    try:
        newest = headers(listed.header)[0]
        found = [
            (path, Header(listed.header, newest.major, (path.parent, *newest.folders))) for path in find("cusparseLt.h")
        ]
        for _, header in found:
            header.check()
    except NotInstalledError as error:
        pytest.skip(str(error))
    numbers = dict(re.findall(r"    C\((\w+), (-?\d+)\)", source("libraries/cusparselt/names.h").read_text()))
    for path, header in found:
        assert header.values(listed.constants) == {name: int(numbers[name]) for name in listed.constants}, path
        for name in listed.functions:
            assert header.signature(name).types == newest.signature(name).types, (path, name)
