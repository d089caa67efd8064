"""Expressions under NVIDIA's compute-sanitizer: no kernel touches memory that it was not given."""

from __future__ import annotations

from pathlib import Path

import pytest
import scripts
from fake_cuda import using
from sanitizer import run_sanitized

pytestmark = pytest.mark.slow

#: Runs with the device in this very process.
PROGRAM = """
import numpy as np
import atomr_native as an
from atomr_native.dtypes import as_dtype

rng = np.random.default_rng(0)


def random(shape, dtype="float32"):
    return rng.standard_normal(shape).astype(as_dtype(dtype))


with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    tensor, results = device.tensor, []
    for dtype in ("float32", "bfloat16", "complex128"):
        a, b = device.put(random((6, 5, 7), dtype)), device.put(random((7, 9, 5), dtype))
        for route in ("auto", "kernel", "blas_lt"):
            results.append(tensor.einsum("ijk,klj->il", a, b, route=route))
            results.append(tensor.contract("ijk,klj->li", a[:, ::-1], b, alpha=2, route=route))
        results.append(tensor.permute("abc->cba", device.put(random((20, 3, 33), dtype))[:, :, 1:]))
        results.append(tensor.permute("abcdef->fedcba", device.put(random((3, 4, 5, 6, 7, 2), dtype))[:, 1:]))
    for dtype in ("float32", "float16", "float64"):
        x = device.put(random((7, 5, 3, 24), dtype))
        for op in ("sum", "max", "min", "norm2"):
            results += [tensor.reduce(op, f"abcd->{kept}", x[:, 1:]) for kept in ("", "a", "d", "bd", "abc", "ca")]
            results.append(tensor.reduce(op, "abcd->bd", x[..., 1:]))
    m, n = (device.put(random(shape, "bfloat16")) for shape in ((40, 32), (32, 24)))
    bias, gate = device.put(random((24,), "bfloat16")), device.put(random((40, 24), "bfloat16"))
    for given, tail in (
        ({"bias": bias}, lambda r, bias: np.maximum(r + bias, 0)),
        ({"gate": gate}, lambda r, gate: r / (1 + np.exp(-gate))),
        ({}, lambda r: np.maximum(r, 0)),
    ):
        results.append(tensor.einsum("ij,jk->ik", m, n, tail=tail, tail_operands=given))
    narrow = [device.put(random((32, 48), "float8_e4m3fn")) for _ in range(2)]
    results.append(tensor.einsum("ij,kj->ik", *narrow, compute="float8"))
    chain = [device.put(random((9, 9))) for _ in range(4)]
    results.append(tensor.einsum("ab,bc,cd,de->ae", *chain))
    results.append(tensor.einsum("ab,bc,cd->ad", *chain[:3], memory_limit=81))
    cut = an.BlockTensor.of(random((6, 8)), [(4, 2), (5, 3)])
    blocks = an.BlockTensor(device.put(cut.values), cut.sections, cut.blocks)
    results.append(tensor.block_contract("ij,kj->ik", blocks, blocks).values)
    for one in results:
        one.wait()
print("results:", len(results))
"""
COUNT = 3 * 8 + 3 * 4 * 7 + 3 + 4


def test_the_program_has_all_results(fake_environment: dict[str, str]) -> None:
    """On the fake driver, so that the one below does not fail for a mistake in it."""
    with using(fake_environment):
        assert f"results: {COUNT}" in scripts.run(PROGRAM)


@pytest.mark.gpu
def test_tensors_touch_nothing_else(tmp_path: Path) -> None:
    assert f"results: {COUNT}" in run_sanitized(PROGRAM, tmp_path)
