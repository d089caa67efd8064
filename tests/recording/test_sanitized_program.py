"""A recorded program with branches and a loop under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scripts
from sanitizer import compute_sanitizer

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

WORK = """
import numpy as np
import atomr_native as an

with an.System(standby="off") as system:
    device = system.device("cuda:0")
    eye = np.eye(33, dtype="float32")
    first, w, sums, more = device.put(eye), device.put(2 * eye), device.zeros(33), device.ones((), dtype="bool")
    left, total = device.zeros((), dtype="int32"), device.zeros((33, 33))
    with device.record() as g:
        x, rate = g.operand("x", first), g.scalar("rate", 1.0)
        h = device.blas_lt.matmul(x, w)
        device.copy(x.sum(axis=0), out=sums)  # beside the product
        device.elementwise.run("out = h * rate", h=h, rate=rate, out=total)
        left.fill(3)
        device.elementwise.run("out = n > 0", n=left, out=more)
        with g.while_(more, limit=5):
            with g.if_(device.elementwise.run("out = n == 2", n=left)):
                device.copy(device.blas_lt.matmul(total, w), out=total)
            with g.else_():
                device.copy(total + 1, out=total)
            device.elementwise.run("out = n - 1", n=left, out=left)
            device.elementwise.run("out = n > 0", n=left, out=more)
    for turn in range(6):
        rate = float(turn // 2 + 1)
        given = device.put((turn + 1) * eye)
        g.plan.ask(given, rate=rate).result(120)
        want = (2 * rate * (turn + 1) * eye + 1) * 2 + 1
        assert (total.numpy() == want).all(), turn
        assert (sums.numpy() == turn + 1).all()
    assert g.plan.replays.launched > 0, g.plan.notes
    system.close(60.0)  # the tool sums up what it has found
print("right")
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "ATOMR_NATIVE_WORKER_PREFIX", f"{compute_sanitizer()} --tool {tool} --log-file {tmp_path / 'log'}.%p"
    )
    assert scripts.run(WORK) == "right\n"
    text = "".join(path.read_text() for path in tmp_path.glob("log.*"))
    assert re.findall(r"SUMMARY: (\d+) ", text) == ["0"], text
