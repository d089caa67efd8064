"""The example of tensor networks and coupled cluster equations, against NumPy."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.mark.parametrize("name", ["host", GPU])
def test_the_network_is_the_sum_over_spins(name: str) -> None:
    program = load("tensor_network")
    total = 0.0
    for spins in itertools.product((-1, 1), repeat=9):
        grid = np.reshape(spins, (3, 3))
        total += np.exp(0.4 * ((grid[1:] * grid[:-1]).sum() + (grid[:, 1:] * grid[:, :-1]).sum()))
    with an.System(isolation="thread", standby="off") as system:
        found, path = program.partition(system.device(name), 3, 0.4)
    assert found == pytest.approx(total, rel=1e-12)
    assert len(path.steps) == 8


@pytest.mark.parametrize("name", ["host", GPU])
def test_energies_are_those_of_numpy(name: str) -> None:
    program = load("tensor_network")
    with an.System(isolation="thread", standby="off") as system:
        found = program.coupled_cluster(system.device(name), 3, 4, 6, 7)
    v = program.integrals(3, 4, 7)
    t, energies = np.zeros(v["oovv"].shape), []
    for _ in range(7):
        energies.append(0.25 * np.einsum("ijab,ijab->", v["oovv"], t))
        r = v["oovv"] + 0.5 * np.einsum("abcd,ijcd->ijab", v["vvvv"], t)
        r += 0.5 * np.einsum("klij,klab->ijab", v["oooo"], t) + np.einsum("kbcj,ikac->ijab", v["ovvo"], t)
        r += 0.5 * np.einsum("klcd,ikac,jlbd->ijab", v["oovv"], t, t)
        t = r * v["denominators"]
    np.testing.assert_allclose(found, energies[1:], rtol=1e-9)
    assert abs(found[-1] - found[-2]) < 1e-2 * abs(found[-1])


def test_it_runs_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    program, png = load("tensor_network"), tmp_path / "new" / "path.png"
    assert program.main(["--device", "host", "--sites", "3", "--output", str(png)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "log Z of each spin: 0." in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert program.main(["--output", str(tmp_path / "file" / "x.png")]) == 2
    for wrong in (["--sites", "1"], ["--coupling", "0"], ["--output", "x.jpg"]):
        with pytest.raises(SystemExit):
            program.main(wrong)
