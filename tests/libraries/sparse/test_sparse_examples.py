"""The examples that solve the heat equation and rank pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse.linalg
from example_programs import load

import atomr_native as an

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.mark.parametrize("name", ["host", GPU])
def test_heat_is_that_of_a_direct_solver(name: str) -> None:
    program = load("heat_equation")
    with an.System(isolation="thread", standby="off") as system:
        pictures, rounds = program.heat(system.device(name), 16, 3, 0.001, 1e-10)
    a = program.plate(16)
    assert abs(a - a.T).max() == 0
    u = program.begin(16).ravel()
    for picture in pictures[1:]:
        u = scipy.sparse.linalg.spsolve(scipy.sparse.eye_array(256, format="csc") + 0.001 * a.tocsc(), u)
        np.testing.assert_allclose(picture.ravel(), u, atol=1e-7)
    assert all(2 < n < 160 for n in rounds)


@pytest.mark.parametrize("name", ["host", GPU])
def test_ranks_are_those_of_a_direct_solver(name: str) -> None:
    program = load("pagerank")
    links = program.network(60, 3, 1)
    with an.System(isolation="thread", standby="off") as system:
        ranks, rounds = program.PageRank(system.device(name), links).ranks(0.8)
    degree = links.sum(axis=1)
    walk = np.where(degree[:, None] > 0, links.toarray() / np.maximum(degree, 1)[:, None], 1 / 60)
    want = np.linalg.solve(np.eye(60) - 0.8 * walk.T, np.full(60, 0.2 / 60))
    np.testing.assert_allclose(ranks, want, atol=1e-9)
    assert 5 < rounds < 200


@pytest.mark.parametrize(
    ("name", "small", "wrong"),
    [
        ("heat_equation", ["--size", "8", "--steps", "2"], (["--size", "2"], ["--dt", "0"], ["--output", "x.jpg"])),
        ("pagerank", ["--pages", "30"], (["--pages", "1"], ["--damping", "1"], ["--output", "x.jpg"])),
    ],
)
def test_they_run_as_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, small: list[str], wrong: tuple[list[str], ...]
) -> None:
    program, png = load(name), tmp_path / "new" / "picture.png"
    assert program.main(["--device", "host", *small, "--output", str(png)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "rounds" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert program.main(["--output", str(tmp_path / "file" / "x.png")]) == 2
    for options in wrong:
        with pytest.raises(SystemExit):
            program.main(options)
