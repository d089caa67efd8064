"""`examples/small_fits.py` against NumPy, body by body."""

from __future__ import annotations

import numpy as np
import pytest
from example_programs import load

import atomr_native as an


@pytest.mark.parametrize("name", ["host", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_fits_are_those_of_each_body_alone(name: str) -> None:
    program = load("small_fits")
    given = program.data(200, 3)
    with an.System(isolation="thread", standby="off") as system:
        fits = program.fit(system.device(name), given)
    assert np.flatnonzero(~fits.found).tolist() == [0, 100]
    assert np.isnan(fits.motions[~fits.found]).all()
    for body in np.flatnonzero(fits.found):
        root = np.sqrt(given.weights[body])[:, None]
        want = np.linalg.lstsq(root * program.POWERS, root * given.seen[body])[0]
        np.testing.assert_allclose(fits.motions[body], want, rtol=1e-8, atol=1e-8)
        normal = program.POWERS.T @ (given.weights[body][:, None] * program.POWERS)
        np.testing.assert_allclose(fits.deviations[body] ** 2, np.diag(np.linalg.inv(normal)), rtol=1e-8)


def test_it_runs_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("small_fits")
    assert program.main(["--bodies", "2000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "without an answer: 2"
    assert 0.9 < float(lines[2].rpartition(" ")[2]) < 1.1
    with pytest.raises(SystemExit):
        program.main(["--bodies", "0"])
