"""Predict the progress of diabetes by a Gaussian process: the likelihoods of all candidates in one batch.

The data ship with scikit-learn.  For each pair of a length and a noise the program makes the covariance of the training
set, factors all of them by one message, and takes the pair of the largest marginal likelihood.  A covariance that is
not positive definite fails alone: its likelihood is NaN, and it is not taken.

    pip install '.[examples]'
    python examples/gaussian_process.py
    python examples/gaussian_process.py --device cuda:0 --picture prediction.png
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes

import atomr_native as an

Array = np.ndarray[Any, Any]
LENGTHS, NOISES = (0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 0.3, 0.5, 0.7, 0.9)
TESTED = 92


class Data(NamedTuple):
    """Patients to learn from, and to predict: features and progress, with mean 0 and deviation 1."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array


class Prediction(NamedTuple):
    """The likelihoods of all candidates, the best one, and its means and deviations for the patients to predict."""

    likelihoods: Array
    length: float
    noise: float
    mean: Array
    deviation: Array


def data() -> Data:
    features, progress = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(progress))
    x, y = features[order] / features.std(0), progress[order]
    y = (y - y[TESTED:].mean()) / y[TESTED:].std()
    return Data(x[TESTED:], y[TESTED:], x[:TESTED], y[:TESTED])


def squared_distances(device: an.Device, x: an.GpuRef, z: an.GpuRef) -> an.GpuRef:
    run, reduce = device.elementwise.run, device.elementwise.reduce
    of_x, of_z = (reduce("sum", run("x * x", x=part), 1) for part in (x, z))
    product = device.blas_lt.matmul(x, z.mT)
    return run("maximum(r + c - 2.0 * p, 0.0)", r=of_x[:, None], c=of_z[None, :], p=product)


def predict(device: an.Device, given: Data, lengths: Any = LENGTHS, noises: Any = NOISES) -> Prediction:
    """Find the best candidate, and predict by it; waits for the likelihoods, and for the prediction."""
    run, reduce, solver = device.elementwise.run, device.elementwise.reduce, device.solver
    pairs = np.array([(length, noise) for length in lengths for noise in noises])
    length, noise = (device.put(column.reshape(-1, 1, 1)) for column in pairs.T)
    n = len(given.y)
    x, y = device.put(given.x), device.put(given.y)

    near, one = squared_distances(device, x, x), device.put(np.eye(n))
    covariance = run("exp(-0.5 * d / (s * s)) + v * v * e", d=near, s=length, v=noise, e=one)
    factor, _ = solver.cholesky(covariance, check=False)  # (candidates, n, n)
    weights = solver.cholesky_solve(factor, y)  # (candidates, n)
    fit = reduce("sum", run("w * y", w=weights, y=y), 1)
    # Of the factor's diagonal only the elements that are not 0 have a logarithm.
    logs = reduce("sum", run("where(e > 0.0, log(f), 0.0)", e=one, f=factor), (1, 2))
    likelihoods = run("-0.5 * q - g", q=fit, g=logs).numpy() - n / 2 * np.log(2 * np.pi)

    best = int(np.nanargmax(likelihoods))
    across = run("exp(-0.5 * d / (s * s))", d=squared_distances(device, x, device.put(given.x_test)), s=length[best])
    mean = device.blas_lt.matmul(weights[best, None, :], across)[0]
    half = solver.solve_triangular(factor[best], across)
    deviation = run("sqrt(1.0 + v * v - s)", v=noise[best, 0], s=reduce("sum", run("h * h", h=half), 0))
    return Prediction(likelihoods, *pairs[best].tolist(), mean.numpy(), deviation.numpy())


def draw(given: Data, found: Prediction, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    order = np.argsort(found.mean)
    places = np.arange(len(order))
    low, high = found.mean - 2 * found.deviation, found.mean + 2 * found.deviation
    axes.fill_between(places, low[order], high[order], alpha=0.25, label="two deviations")
    axes.plot(places, found.mean[order], label="mean")
    axes.plot(places, given.y_test[order], ".", label="measured")
    axes.set_xlabel("patients, by their prediction")
    axes.set_ylabel("progress in deviations")
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="host")
    parser.add_argument("--picture", help="file for a picture of the prediction")
    options = parser.parse_args(arguments)
    given = data()
    with an.System() as system:
        found = predict(system.device(options.device), given)
    error = np.sqrt(np.mean((found.mean - given.y_test) ** 2))
    inside = np.mean(abs(found.mean - given.y_test) < 2 * found.deviation)
    print(f"{len(found.likelihoods)} candidates; best: length {found.length:g}, noise {found.noise:g}, "
          f"log likelihood {np.nanmax(found.likelihoods):.1f}")  # fmt: skip
    print(f"{len(given.y_test)} patients: error {error:.2f} deviations (of the mean: "
          f"{np.sqrt(np.mean(given.y_test**2)):.2f}); {inside:.0%} within two deviations")  # fmt: skip
    if options.picture:
        draw(given, found, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
