"""NVIDIA's compute-sanitizer finds nothing in what the worker launches, and does find what is planted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scripts
from sanitizer import compute_sanitizer

pytestmark = pytest.mark.gpu

WORK = """
import sys
import ml_dtypes, numpy as np
import atomr_native as an
from actions import eventually
rng = np.random.default_rng(0)
with an.System(standby="off", allow_crash=True) as system:
    device = system.device("cuda:0")
    if sys.argv[1:]:
        device.inject_fault(sys.argv[1])
        eventually(lambda: device.generation > 1, 60)
        sys.exit()
    a = rng.standard_normal((65, 33)).astype(np.float32)
    x, w = device.put(a), device.put(a.T, durable=True)
    group = device.durable_group({"w": w}, checksum=True)
    group.commit(1).result(60)
    for dtype, tolerance in (("float32", 1e-4), (ml_dtypes.bfloat16, 0.3)):
        u, v = device.copy(x, dtype=dtype), device.copy(w, dtype=dtype)
        y = device.blas_lt.matmul(u, v, bias=device.zeros(65, dtype), epilogue="gelu_bias")
        plain = device.blas_lt.matmul(u, v).numpy().astype(float)
        assert np.abs(plain - a.astype(float) @ a.T).max() < tolerance
        assert np.isfinite(y.numpy().astype(float)).all()
    z = device.elementwise.run("exp(x) * 2 + y", x=x[::2, 1:], y=x[::2, :-1])
    np.testing.assert_allclose(z.numpy(), np.exp(a[::2, 1:]) * 2 + a[::2, :-1], atol=1e-5)
    np.testing.assert_allclose(device.elementwise.reduce("sum", x, axis=0).numpy(), a.sum(axis=0), rtol=1e-4, atol=1e-4)
    assert (device.copy(x.T[::3], dtype="float64").numpy() == a.T[::3]).all()
    x[1:, ::4].fill(7)
    host = device.host_array((33, 65), "float32")
    assert device.get_into(x.T, host).result(60)[0, 1] == 7
    big = rng.standard_normal(3 << 20).astype(np.float32)
    assert (device.get(device.put(big)) == big).all()
    system.close(60.0)  # the tool sums up what it has found
print("right")
"""


def report(tool: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Run the program with its worker under a tool; what that has to say."""
    monkeypatch.setenv(
        "ATOMR_NATIVE_WORKER_PREFIX", f"{compute_sanitizer()} --tool {tool} --log-file {folder / 'log'}.%p"
    )
    out = scripts.run(WORK, *arguments)
    assert arguments or out == "right\n"
    return "".join(path.read_text() for path in folder.glob("log.*"))


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = report(tool, tmp_path, monkeypatch)
    assert re.findall(r"SUMMARY: (\d+) ", text) == ["0"], text


def test_what_is_planted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = report("memcheck", tmp_path, monkeypatch, "illegal address")
    assert "Invalid __global__ write" in text
