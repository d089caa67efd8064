"""`examples/gaussian_process.py` against scikit-learn's own Gaussian process."""

from __future__ import annotations

from pathlib import Path

import example_programs
import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("sklearn")


def test_likelihoods_and_predictions_are_those_of_scikit_learn() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    program = example_programs.load("gaussian_process")
    whole = program.data()
    given = whole._replace(x=whole.x[:80], y=whole.y[:80], x_test=whole.x_test[:5], y_test=whole.y_test[:5])
    lengths, noises = (1.0, 4.0), (0.5, 0.7)
    with an.System() as system:
        found = program.predict(system.device("host"), given, lengths, noises)
        again = program.predict(system.device("host"), given, (*lengths, 1e9), (*noises, 0.0))
    models = [
        GaussianProcessRegressor(RBF(length), alpha=noise**2, optimizer=None).fit(given.x, given.y)
        for length in lengths
        for noise in noises
    ]
    wanted = [model.log_marginal_likelihood_value_ for model in models]
    np.testing.assert_allclose(found.likelihoods, wanted, rtol=1e-9)
    mean, deviation = models[int(np.argmax(wanted))].predict(given.x_test, return_std=True)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.deviation**2, deviation**2 + found.noise**2, rtol=1e-7)
    assert np.isnan(again.likelihoods[-1])  # a covariance of ones, without noise
    assert (again.length, again.noise) == (found.length, found.noise)


def test_the_program_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    program = example_programs.load("gaussian_process")
    picture = tmp_path / "prediction.png"
    assert program.main(["--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "25 candidates; best: length" in said
    assert "within two deviations" in said
    assert picture.stat().st_size > 1000
