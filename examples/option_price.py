"""Price an Asian option by Monte Carlo, with the same digits on every device.

The option pays by how much the mean of a share's daily prices exceeds the strike, and has no exact formula.  Each path
of the price is a product of lognormal numbers.  An element of `device.random` depends on the seed and its position
alone, so the host and a GPU, and batches of any size, give the same paths.

    pip install '.[examples]'                               # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/option_price.py                         # on cuda:0; without a GPU on the host
    python examples/option_price.py --device host --paths 20000 --batch 5000
"""

import argparse
import hashlib
import math
import sys

import numpy as np

import atomr_native as an

START, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 100.0, 0.05, 0.2, 1.0
DAYS = 64


def price(device, paths, batch, seed):
    """Return the mean payment, its standard error, and a digest of all random numbers.

    Products and sums along a path are taken in one order, and `math.fsum` rounds once, so batches make no difference.
    """
    step = YEARS / DAYS
    drift, spread = (RATE - VOLATILITY**2 / 2) * step, VOLATILITY * math.sqrt(step)
    digest, payments = hashlib.sha256(), []
    for first in range(0, paths, batch):
        count = min(batch, paths - first)
        growth = device.random.lognormal(
            (count, DAYS), "float64", drift, spread, seed=seed, offset=first * DAYS
        ).numpy()
        digest.update(growth.tobytes())
        prices = START * np.multiply.accumulate(growth, axis=1)
        mean = np.add.accumulate(prices, axis=1)[:, -1] / DAYS
        payments.append(math.exp(-RATE * YEARS) * np.maximum(mean - STRIKE, 0.0))
    paid = np.concatenate(payments)
    expected = math.fsum(paid) / paths
    variance = math.fsum((paid - expected) ** 2) / max(1, paths - 1)
    return expected, math.sqrt(variance / paths), digest.hexdigest()[:16]


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--paths", type=int, default=100_000, metavar="N", help="paths of the price (%(default)s)")
    add("--batch", type=int, default=20_000, metavar="N", help="paths of a message (%(default)s)")
    add("--seed", type=int, default=7, metavar="N", help="(%(default)s)")
    options = parser.parse_args(argv)
    for name in ("paths", "batch"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    return options


def main(argv=None):
    """Price the option: 0 if it worked, 1 if it failed."""
    options = parse(argv)
    try:
        with an.System() as system:
            device = system.device(options.device) if options.device else system.device()
            expected, error, digest = price(device, options.paths, options.batch, options.seed)
            print(f"{options.paths} paths on {device.name}, random numbers {digest}")
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"price {expected:.10f}, standard error {error:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
