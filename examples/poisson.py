"""Poisson's equation on a square, by conjugate gradients in one message: the device decides when it is done.

    -u_xx - u_yy = b, and u = 0 on the boundary

The loop is recorded once.  Each message solves for another right side, to a tolerance of its own, and nothing waits for
the host between the rounds.  The same loop, message by message, reads a flag in each round.

    python examples/poisson.py                        # on cuda:0, or on the host where there is no GPU
    python examples/poisson.py --size 1023 --sides 5
"""

import argparse
import sys
import time

import numpy as np

import atomr_native as an

LIMIT = 100_000


class Solver:
    """Conjugate gradients for grids of size x size points inside of the boundary."""

    def __init__(self, device, size):
        self.device, self.size = device, size
        shape, scalar = (size, size), {"dtype": "float64"}
        self.x, self.residual = device.zeros(shape, **scalar), device.zeros(shape, **scalar)
        self.direction = device.zeros((size + 2, size + 2), **scalar)  # with the boundary, where it stays 0
        self.product = device.zeros(shape, **scalar)
        self.square, self.more = device.zeros((), **scalar), device.zeros((), dtype="bool")
        self.rounds = device.zeros((), dtype="int64")
        self.plan = self.record()

    def begin(self, b, tolerance):
        """Start at zero."""
        run = self.device.elementwise.run
        self.x.fill(0)
        self.rounds.fill(0)
        self.device.copy(b, out=self.residual)
        self.device.copy(b, out=self.direction[1:-1, 1:-1])
        self.device.copy((b * b).sum(), out=self.square)
        run("out = s > t * t", s=self.square, t=tolerance, out=self.more)

    def step(self, tolerance):
        """One round."""
        run, p, q = self.device.elementwise.run, self.direction, self.product
        inner = p[1:-1, 1:-1]
        run(
            "out = 4.0 * c - n - s - w - e",
            c=inner,
            n=p[:-2, 1:-1],
            s=p[2:, 1:-1],
            w=p[1:-1, :-2],
            e=p[1:-1, 2:],
            out=q,
        )
        length = self.square / (inner * q).sum()
        run("out = x + a * p", x=self.x, a=length, p=inner, out=self.x)
        run("out = r - a * q", r=self.residual, a=length, q=q, out=self.residual)
        square = (self.residual * self.residual).sum()
        run("out = r + s / before * p", r=self.residual, s=square, before=self.square, p=inner, out=inner)
        self.device.copy(square, out=self.square)
        run("out = n + 1", n=self.rounds, out=self.rounds)
        run("out = s > t * t", s=square, t=tolerance, out=self.more)

    def record(self):
        """The loop as a plan; its messages take a right side and a tolerance, and leave the solution in `x`."""
        given = self.device.zeros((self.size, self.size), dtype="float64")
        with self.device.record() as g:
            b, tolerance = g.operand("b", given), g.scalar("tolerance", 1e-8)
            self.begin(b, tolerance)
            with g.while_(self.more, limit=LIMIT):
                self.step(tolerance)
        return g.plan

    def one_by_one(self, b, tolerance):
        """The same without a recording."""
        self.begin(b, tolerance)
        while bool(self.more):
            self.step(tolerance)


def right_side(size, seed):
    """Random charges, times the square of the grid's spacing."""
    return np.random.default_rng(seed).standard_normal((size, size)) / (size + 1) ** 2


def error_of(x, b):
    """The largest error of the equation, relative to the right side."""
    u = np.pad(x, 1)
    left = 4 * x - u[:-2, 1:-1] - u[2:, 1:-1] - u[1:-1, :-2] - u[1:-1, 2:]
    return float(np.abs(left - b).max() / np.abs(b).max())


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--size", type=int, default=127, metavar="N", help="points along each side (%(default)s)")
    add("--sides", type=int, default=3, metavar="N", help="right sides to solve for (%(default)s)")
    add("--tolerance", type=float, default=1e-10, metavar="T", help="norm of the residual (%(default)s)")
    options = parser.parse_args(argv)
    for name in ("size", "sides"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    return options


def main(argv=None):
    """Solve, by messages and recorded: 0 if it worked, 1 if it failed."""
    options = parse(argv)
    try:
        with an.System() as system:
            device = system.device(options.device) if options.device else system.device()
            print(f"{options.size} x {options.size} points on {device.name}")
            solver = Solver(device, options.size)
            for name, solve in (("message by message", solver.one_by_one), ("recorded", solver.plan.tell)):
                for seed in range(options.sides):
                    b = right_side(options.size, seed)
                    given = device.put(b)
                    began = time.perf_counter()
                    solve(given, tolerance=options.tolerance)
                    rounds = int(solver.rounds)  # waits
                    microseconds = (time.perf_counter() - began) * 1e6 / max(rounds, 1)
                    error = error_of(solver.x.numpy(), b)
                    print(f"{name}: {rounds} rounds, {microseconds:.1f} us each, error {error:.1e}")
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
