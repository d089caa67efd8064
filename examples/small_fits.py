"""Fit the motions of 100 000 bodies at once: a batch of weighted least squares with three unknowns each.

Each body moves with a constant acceleration, and is seen at a few times with an error of its own in each place.  The
normal equations of all bodies are one product, and one message factors them by Cholesky.  A body that was never seen
has no answer: its info number says so, and the others are not touched by it.

    python examples/small_fits.py
    python examples/small_fits.py --device cuda:0 --bodies 1000000
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, NamedTuple

import numpy as np

import atomr_native as an

Array = np.ndarray[Any, Any]
TIMES = np.linspace(-1, 1, 12)
#: Place, velocity, and half of the acceleration, at each of the times.
POWERS = TIMES[:, None] ** np.arange(3)


class Data(NamedTuple):
    """Bodies: their true motions (bodies, 3, 3), what was seen (bodies, times, 3), and its weights (bodies, times)."""

    motions: Array
    seen: Array
    weights: Array


class Fits(NamedTuple):
    """Motions (bodies, 3, 3), their deviations (bodies, 3), and whether a body has any (bodies,)."""

    motions: Array
    deviations: Array
    found: Array


def data(bodies: int, seed: int) -> Data:
    """Make bodies; one in a thousand was never seen."""
    rng = np.random.default_rng(seed)
    motions = rng.standard_normal((bodies, 3, 3))
    errors = rng.uniform(0.01, 0.1, (bodies, len(TIMES)))
    seen = POWERS @ motions + errors[..., None] * rng.standard_normal((bodies, len(TIMES), 3))
    weights = np.where(rng.random((bodies, len(TIMES))) < 0.8, errors**-2, 0.0)
    weights[:: max(1, min(1000, bodies // 2))] = 0
    return Data(motions, seen, weights)


def fit(device: an.Device, given: Data) -> Fits:
    """Fit all motions; waits for the results."""
    run, product, solver = device.elementwise.run, device.blas_lt.matmul, device.solver
    powers, seen, weights = device.put(POWERS), device.put(given.seen), device.put(given.weights)
    weighted = run("p * w", p=powers, w=weights[..., None])  # (bodies, times, 3)
    normal = product(weighted.mT, powers)  # (bodies, 3, 3)
    factor, info = solver.cholesky(normal, check=False)
    motions = solver.cholesky_solve(factor, product(weighted.mT, seen))
    covariance, _ = solver.inv(normal, assume="positive_definite", check=False)
    variances = device.elementwise.reduce("sum", run("c * e", c=covariance, e=device.put(np.eye(3))), 2)
    return Fits(motions.numpy(), np.sqrt(variances.numpy()), info.numpy() == 0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host", help="host (default), cuda:0 and so on")
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.bodies < 1:
        parser.error(f"--bodies {options.bodies}: 1 or more")
    given = data(options.bodies, options.seed)
    with an.System() as system:
        device = system.device(options.device)
        fit(device, Data(*(part[:8] for part in given)))  # plans are built
        start = time.perf_counter()
        fits = fit(device, given)
        seconds = time.perf_counter() - start
    off = (fits.motions - given.motions) / fits.deviations[..., None]
    print(f"{options.bodies} bodies in {1e3 * seconds:.0f} ms on {options.device}")
    print(f"without an answer: {np.count_nonzero(~fits.found)}")
    print(f"errors over their deviations: {np.sqrt(np.mean(off[fits.found] ** 2)):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
