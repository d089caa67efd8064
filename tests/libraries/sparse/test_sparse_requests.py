"""What sparse requests refuse, with values and rules; the library's symbols.  Needs no device."""

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

pytestmark = pytest.mark.plain
V, I, O = np.ones(3), np.arange(3, dtype="i4"), np.arange(4, dtype="i4")  # noqa: E741
CSR: dict[str, Any] = {"format": "csr", "shape": (3, 3), "values": V, "indices": I, "offsets": O}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"format": "ell"}, "format='ell'; allowed: 'csr', 'csc', 'coo', 'bsr'"),
        ({"shape": (3,)}, r"shape=\(3,\); allowed: two integers"),
        ({"shape": (4, 3)}, r"offsets has shape \(4,\); allowed: \(5,\), one more than the 4 lines"),
        ({"values": np.ones((3, 1, 1))}, r"values has shape \(3, 1, 1\); allowed: one axis"),
        ({"indices": I[:2]}, r"indices has shape \(2,\); allowed: \(3,\)"),
        ({"values": np.stack((V, V)), "indices": np.stack((I, I))}, r"\(2, 3\); allowed: \(3,\), .* have one pattern"),
        ({"values": V.astype("u1")}, "values has dtype uint8; allowed: int8"),
        ({"indices": I.astype("i8")}, "indices has dtype int64 and offsets int32; allowed: both int32, or both int64"),
        ({"rows": I}, "the format csr takes offsets and no rows"),
        ({"format": "coo"}, "the format coo takes rows and no offsets"),
        ({"shape": (3, 2**31)}, "allowed: int64 indices"),
        ({"values": np.ones(6)[::2]}, r"values has strides \(16,\); allowed: C order"),
        ({"ordered": 1}, "ordered=1"),
    ],
)
def test_matrices_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        an.SparseMatrix(**CSR | changed)


def test_blocks_that_cannot_be() -> None:
    blocks = {**CSR, "format": "bsr", "values": np.ones((3, 2, 2)), "shape": (6, 6)}
    assert an.SparseMatrix(**blocks).nnz == 12
    for changed, words in (
        ({"values": V}, r"\(3,\); allowed: \(blocks, b, b\)"),
        ({"values": np.ones((3, 2, 1))}, r"allowed: \(blocks, b, b\)"),
        ({"shape": (6, 7)}, "allowed: multiples of 2"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            an.SparseMatrix(**blocks | changed)
    with pytest.raises(an.InvalidRequest, match="by convert"):
        _ = an.SparseMatrix(**blocks).T


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"routine": "spgemm"}, "routine='spgemm'; allowed: 'spmv', 'spmm', 'sddmm'"),
        ({"x": None}, "spmv needs x"),
        ({"x": np.ones((3, 1))}, r"x has shape \(3, 1\); spmv takes a vector"),
        ({"routine": "spmm"}, r"x has shape \(3,\); spmm takes a matrix"),
        ({"x": np.ones(4)}, r"x has shape \(4,\); allowed: \(3,\)"),
        ({"x": V.astype("f4")}, "x has dtype float32; allowed: float64"),
        ({"y": V}, "spmv does not take y"),
        ({"beta": 1.0}, "beta=1.0, and out is missing"),
        ({"alpha": 1j}, "alpha=1j"),
        ({"out": V}, "out overlaps values"),
        ({"out": np.ones(4)}, r"out has shape \(4,\); allowed: \(3,\)"),
        ({"out": np.ones(3, "f4")}, "out has dtype float32; allowed: float64"),
        ({"alpha_at": np.ones(())}, "alpha_at is given alone"),
        ({"alpha_at": np.ones(()), "beta_at": np.ones(())}, "beta is on the device, and out is missing"),
        ({"alpha_at": np.ones(2), "beta_at": np.ones(()), "out": np.ones(3)}, "one element of float64"),
        ({"trans": 1}, "trans=1"),
        ({"routine": "sddmm", "x": np.ones((3, 2)), "y": np.ones((3, 3))}, r"allowed: \(3, k\) times \(k, 3\)"),
        ({"routine": "sddmm", "trans": True}, "sddmm does not take trans=True"),
    ],
)
def test_products_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        an.SparseProductRequest(**{"routine": "spmv", **CSR, "x": np.ones(3), **changed})


def test_dtypes_of_products() -> None:
    half = {**CSR, "values": V.astype("f2"), "x": V.astype("f2"), "routine": "spmv"}
    for out in ("f2", "f4"):
        assert an.SparseProductRequest(**half, out=np.zeros(3, out)).lowered.attributes.compute == "float32"
    narrow = {**CSR, "values": V.astype("i1"), "x": V.astype("i1"), "routine": "spmv"}
    assert an.SparseProductRequest(**narrow).lowered.operands[-1].spec.dtype == "int32"
    with pytest.raises(an.InvalidRequest, match=r"alpha=0\.5 of int8 values; allowed: integers"):
        an.SparseProductRequest(**narrow, alpha=0.5)
    with pytest.raises(an.InvalidRequest, match="values has dtype int32; products allow: int8"):
        an.SparseProductRequest(**{**narrow, "values": V.astype("i4"), "x": V.astype("i4")})
    wide = V.astype(ml_dtypes.bfloat16)
    assert an.SparseProductRequest(**{**half, "values": wide, "x": wide}).lowered.operands[-1].spec.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"format": "csc"}, "format='csc' with trans=False"),
        ({"trans": True}, "format='csr' with trans=True"),
        ({"shape": (3, 4)}, r"shape=\(3, 4\); a triangle is square"),
        ({"values": V.astype("f2")}, "values has dtype float16; allowed: float32"),
        ({"b": np.ones(4)}, r"b has shape \(4,\); allowed: \(3,\) or \(3,\) and an axis more"),
        ({"b": V.astype("f4")}, "b has dtype float32; allowed: float64"),
        ({"unit": "no"}, "unit='no'"),
    ],
)
def test_solves_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        an.SparseSolveRequest(**{**CSR, "b": np.ones(3), **changed})


@pytest.mark.abi
def test_every_function_is_exported() -> None:
    found = find("libcusparse.so.12")
    if not found:
        pytest.skip("libcusparse not found; pip install nvidia-cusparse, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cusparse\w+),", source("libraries/cusparse/names.h").read_text())
    assert len(names) == 16
    for path in found:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        exported = {name.partition("@")[0] for name in re.findall(r" T (\S+)", listed.stdout)}
        assert [name for name in names if name not in exported] == []
