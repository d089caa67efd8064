"""Heat in a plate, step by step and implicitly: each step solves a sparse system in one message.

    u_t = div(k grad u), and u = 0 on the boundary

The plate has a ring that conducts badly.  A step of backward Euler solves (I + dt A) u_next = u, by conjugate gradients
that the device ends, so all steps are enqueued and the program waits once, for the pictures.

    pip install '.[examples]'                               # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/heat_equation.py                        # on cuda:0; without a GPU on the host
    python examples/heat_equation.py --device host --size 64 --steps 12
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

import atomr_native as an

PACKAGES = {"matplotlib": "matplotlib"}


def conductivity(size):
    """Return how well each point conducts, (size, size): little in a ring."""
    y, x = np.mgrid[0:size, 0:size] / size - 0.5
    radius = np.hypot(x, y)
    return np.where((radius > 0.22) & (radius < 0.3), 0.02, 1.0)


def plate(size):
    """Return A of the heat equation as CSR: harmonic means of the conductivity between neighbours."""
    k = np.pad(conductivity(size), 1, mode="edge")
    number = np.arange(size * size).reshape(size, size)
    middle = k[1:-1, 1:-1]
    diagonal, parts = np.zeros((size, size)), []
    for step in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        other = np.roll(k, (-step[0], -step[1]), (0, 1))[1:-1, 1:-1]
        flow = 2 * middle * other / (middle + other) * size**2
        diagonal += flow
        inside = np.roll(np.pad(number, 1, constant_values=-1), (-step[0], -step[1]), (0, 1))[1:-1, 1:-1]
        here = inside >= 0
        parts.append((-flow[here], number[here], inside[here]))
    parts.append((diagonal.ravel(), number.ravel(), number.ravel()))
    values, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(size * size, size * size)).tocsr()


def begin(size):
    """Return the heat at the start, (size, size): a hot spot beside the middle."""
    y, x = np.mgrid[0:size, 0:size] / size - 0.5
    return np.exp(-((x - 0.08) ** 2 + y**2) / 0.004)


def heat(device, size, steps, dt, tolerance):
    """Return the heat after each step, the start included; and the rounds of each solver."""
    system = scipy.sparse.csr_array(scipy.sparse.eye_array(size * size) + dt * plate(size))
    solver = device.sparse.solver(device.sparse.matrix(system), method="cg", limit=10 * size)
    u = device.put(begin(size).ravel())
    results = []
    for _ in range(steps):  # enqueued: nothing waits
        results.append(solver.tell(u, tolerance=tolerance))
        u = results[-1].x
    pictures = [begin(size), *(result.x.numpy().reshape(size, size) for result in results)]
    return pictures, [int(result.rounds) for result in results]


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--size", type=int, default=192, metavar="N", help="points of a side, 8 or more (%(default)s)")
    add("--steps", type=int, default=24, metavar="N", help="(%(default)s)")
    add("--dt", type=float, default=0.001, metavar="T", help="time of a step (%(default)s)")
    add("--tolerance", type=float, default=1e-8, metavar="T", help="of each solver (%(default)s)")
    add("--output", type=Path, default=Path("heat_equation.png"), metavar="PNG", help="(%(default)s)")
    options = parser.parse_args(argv)
    for name, least in (("size", 8), ("steps", 1)):
        if (value := getattr(options, name)) < least:
            parser.error(f"--{name} {value}; it must be {least} or more")
    if not options.dt > 0:
        parser.error(f"--dt {options.dt}; it must be above 0")
    if options.output.suffix.lower() != ".png":
        parser.error(f"--output {options.output}; its name must end in .png")
    return options


def run(options):
    from matplotlib.image import imsave

    with an.System() as system:
        device = system.device(options.device) if options.device else system.device()
        print(f"{options.size} x {options.size} points on {device.name}", flush=True)
        pictures, rounds = heat(device, options.size, options.steps, options.dt, options.tolerance)
    print(f"{options.steps} steps, {min(rounds)} to {max(rounds)} rounds each")
    for step in (0, options.steps):
        print(f"heat after {step} steps: {pictures[step].mean():.5f} in the mean, {pictures[step].max():.3f} at most")
    chosen = [pictures[options.steps * i // 3] for i in range(4)]
    imsave(
        options.output, np.hstack([np.sqrt(np.maximum(u, 0) / max(u.max(), 1e-300)) for u in chosen]), cmap="inferno"
    )
    print(f"wrote {options.output}")


def main(argv=None):
    """Step: 0 if it worked, 1 if it failed, 2 if it cannot be done here."""
    options = parse(argv)
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"needs {' and '.join(missing)}: pip install '.[examples]' in a clone of atomr_native", file=sys.stderr)
        return 2
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.output.parent):  # better known now than afterwards
            pass
        run(options)
    except OSError as error:
        print(f"cannot write {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, an.InvalidRequest | an.Unsupported) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
