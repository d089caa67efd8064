"""The table of waits, capture and equal bits: its data beside the documentation, and beside recorded programs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.fft.behaviour import BEHAVIOUR

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "fft.md").read_text(encoding="utf-8")


@pytest.mark.plain
@pytest.mark.alike
def test_the_documentation_has_the_table() -> None:
    section = TEXT.partition("## What messages do")[2]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines() if line.startswith("| ")][2:]
    named = set()
    for _, methods, waits, captured, deterministic, _ in rows:
        for name in re.findall(r"`(\w+)`", methods):
            named.add(name)
            assert waits.startswith("no"), name
            assert captured.startswith("yes"), name
            assert ("on every device" in deterministic) == BEHAVIOUR[name].same_everywhere, name
    assert named == set(BEHAVIOUR)


@pytest.mark.plain
@pytest.mark.alike
def test_every_method_has_a_row() -> None:
    public = {name for name in dir(an.Fft) if not name.startswith("_")}
    assert public - {"ask", "plan", "tell"} == set(BEHAVIOUR)


def send(fft: an.Fft, name: str, x: an.GpuRef, z: an.GpuRef) -> None:
    if name in ("fftfreq", "rfftfreq"):
        getattr(fft, name)(8)
    elif name == "many":
        fft.many("fft", an.FftLayout(n=8, batch=8), z.reshape(64), x.device.zeros((64,), "complex64"))
    elif name == "transform":
        fft.transform("rfft", x, load="2 * value")
    elif name == "half":
        fft.half("rfft", x.device.zeros((8, 8), "float16"))
    elif name == "stft":
        fft.stft(x, 4)
    elif name == "istft":
        fft.istft(z[:3], 4)
    elif name in ("convolve", "correlate"):
        getattr(fft, name)(x, x)
    else:
        getattr(fft, name)(z if name.startswith(("fft", "ifft", "irfft", "hfft")) else x)


@pytest.mark.parametrize("place", ["host", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_programs_have_every_method_in_their_graph(place: str) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    with an.System(standby="off") as system:
        device = system.device(place)
        x, z = device.put(np.ones((8, 8), np.float32)), device.put(np.ones((8, 8), np.complex64))
        for name in BEHAVIOUR:
            with device.record() as g:
                send(device.fft, name, x, z)
            g.plan.wait(60)
            assert "not as a CUDA graph" not in " ".join(g.plan.notes), name
            assert len(g.plan.notes) > 0 or place == "host", name
