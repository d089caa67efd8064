"""The example that filters a picture by a function inside a transform."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.mark.parametrize("name", ["host", GPU])
def test_stripes_and_noise_are_gone(name: str) -> None:
    program = load("spectral_filter")
    clean, noisy = program.picture(96, 7)
    with an.System(isolation="thread", standby="off") as system:
        found = program.clear(system.device(name), noisy, 0.08)
    up = np.abs(np.fft.fftfreq(96))[:, None]
    across = np.fft.rfftfreq(96)
    near = (abs(up - program.STRIPES) < 0.01) & (abs(across - program.STRIPES) < 0.01)
    kept = np.where(near, 0, 1 / (1 + ((up**2 + across**2) / 0.08**2) ** 2))
    want = np.fft.irfft2(np.fft.rfft2(noisy.astype(float)) * kept, (96, 96))
    np.testing.assert_allclose(found, want, atol=1e-4)
    assert np.std(found - clean) < 0.5 * np.std(noisy - clean)


def test_it_runs_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, png = load("spectral_filter"), tmp_path / "new" / "filtered.png"
    assert program.main(["--device", "host", "--size", "32", "--output", str(png)]) == 0
    data = png.read_bytes()
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (64, 32)
    assert "filtered: 0." in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert program.main(["--output", str(tmp_path / "file" / "x.png")]) == 2
    for wrong in (["--size", "2"], ["--cutoff", "0"], ["--output", "x.jpg"]):
        with pytest.raises(SystemExit):
            program.main(wrong)
