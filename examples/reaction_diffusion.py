"""Grow the patterns of a reaction-diffusion system by a kernel of your own, into a PNG.

The Gray-Scott model: two substances on a torus diffuse and react, u + 2 v -> 3 v, while u is fed and v decays.

    du/dt = Du laplacian(u) - u v**2 + F (1 - u)
    dv/dt = Dv laplacian(v) + u v**2 - (F + k) v

The kernel makes one step from one array into another, and is prepared once: each step is one message to that plan, with
the two arrays the other way around.  Nothing leaves the device before the end: pictures on the way are copies there.

    pip install '.[examples]'                          # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/reaction_diffusion.py                # on cuda:0; without a GPU on the host, a small torus
    python examples/reaction_diffusion.py --device host --size 64 --steps 1000
    python examples/reaction_diffusion.py --device cuda:0 --size 4096 --pattern maze --pictures 1

The host device runs kernels by Numba's simulator, thread after thread in Python: exactly, and slowly.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import atomr_native as an

PACKAGES = {"matplotlib": "matplotlib", "numba": "numba-cuda"}
HOST, GPU = (40, 300), (1024, 20_000)  # size and steps, by default
BLOCK = 32, 8
WIDE = 800  # pixels of the PNG, at least
SENT = 256  # steps between two replies, at most, so that the bar moves
#: F and k.  Names for some of the patterns of J. Pearson, "Complex patterns in a simple system", Science 261 (1993).
PATTERNS = {
    "maze": (0.029, 0.057), "worms": (0.050, 0.063), "coral": (0.0545, 0.062), "mitosis": (0.0367, 0.0649),
    "waves": (0.014, 0.045),
}  # fmt: skip
#: Pearson's rates of diffusion, in squares of a cell (2.5 / 256 wide) per step.
DU, DV = 2e-5 / (2.5 / 256) ** 2, 1e-5 / (2.5 / 256) ** 2


def kernel():
    """Return the kernel, which needs Numba."""
    from numba import cuda

    du, dv, one, four = map(np.float32, (DU, DV, 1, 4))  # Python's numbers would make it float64

    @cuda.jit
    def step(now, new, feed, kill):
        """One step of forward Euler, with the laplacian of five points; now and new are (2, rows, columns): u and v."""
        column, row = cuda.grid(2)
        rows, columns = now.shape[1], now.shape[2]
        if row < rows and column < columns:
            above, below = (row if row else rows) - 1, (row + 1 if row + 1 < rows else 0)
            left, right = (column if column else columns) - 1, (column + 1 if column + 1 < columns else 0)
            u, v = now[0, row, column], now[1, row, column]
            around_u = now[0, above, column] + now[0, below, column] + now[0, row, left] + now[0, row, right] - four * u
            around_v = now[1, above, column] + now[1, below, column] + now[1, row, left] + now[1, row, right] - four * v
            reaction = u * v * v
            new[0, row, column] = u + du * around_u - reaction + feed * (one - u)
            new[1, row, column] = v + dv * around_v + reaction - (feed + kill) * v

    return step


def start(size, seed):
    """Return the state to start from, float32 (2, size, size): u = 1 and v = 0, but for a few noisy squares."""
    rng = np.random.default_rng(seed)
    state = np.zeros((2, size, size), np.float32)
    state[0] = 1
    side = max(2, min(20, size // 6))
    corners = rng.integers(0, size, (max(1, size * size // 2000), 2))
    for row, column in corners:
        rows, columns = (row + np.arange(side)) % size, (column + np.arange(side)) % size
        state[0][np.ix_(rows, columns)], state[1][np.ix_(rows, columns)] = 0.5, 0.25
    state += rng.uniform(-0.01, 0.01, state.shape).astype(np.float32)
    return state.clip(0, 1)


def simulate(device, state, steps, feed, kill, pictures=1, progress=lambda _: None):
    """Make the steps; return v at `pictures` moments, the last one the end, and the seconds that the device took."""
    size = state.shape[1]
    now, new = device.put(state), device.empty(state.shape, "float32")
    grid = -(-size // BLOCK[0]), -(-size // BLOCK[1])
    # Arrays lend their layouts, and numbers are what the messages carry if they do not say otherwise.
    plan = device.kernel(kernel(), overwrites=["new"])[grid, BLOCK].plan(
        now, new, np.float32(feed), np.float32(kill)
    ).wait()  # fmt: skip
    moments = [round(steps * (i + 1) / pictures) for i in range(pictures)]
    device.copy(now[1]).wait()  # what it needs is compiled now, not among the steps
    taken, reply, made = [], None, 0
    began = time.perf_counter()
    for moment in moments:
        while made < moment:
            sent = min(SENT if device.name != "host" else 4, moment - made)
            for _ in range(sent - 1):
                plan.tell(now, new)
                now, new = new, now
            last, reply = reply, plan.ask(now, new)
            now, new = new, now
            if last is not None:
                last.result()  # of the steps before these: the device always has some to do
                progress(made)
            made += sent
        taken.append(device.copy(now[1]))  # a message like the steps, after them
    for copy in taken:
        copy.wait()
    seconds = time.perf_counter() - began
    progress(made)
    return [copy.numpy() for copy in taken], seconds


def save(path, pictures):
    """Write the pictures side by side, all by one scale, at least `WIDE` pixels wide: small cells become squares."""
    from matplotlib import colormaps
    from matplotlib.image import imsave

    gap = np.full((len(pictures[0]), max(1, len(pictures[0]) // 32)), np.nan, np.float32)
    row = [part for picture in pictures for part in (gap, picture)][1:]
    colors = colormaps["magma"].with_extremes(bad="white")
    values = np.ma.masked_invalid(np.concatenate(row, axis=1))
    times = -(-WIDE // values.shape[1])
    values = values.repeat(times, axis=0).repeat(times, axis=1)
    imsave(path, colors((values - values.min()) / max(values.max() - values.min(), 1e-6)))


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--size", type=int, metavar="N", help=f"cells on a side; {GPU[0]} on a GPU, {HOST[0]} on the host")
    add("--steps", type=int, metavar="N", help=f"{GPU[1]} on a GPU, {HOST[1]} on the host")
    add("--pattern", choices=sorted(PATTERNS), default="maze", help="F and k by name (%(default)s)")
    add("--feed", type=float, metavar="F", help="another F than the pattern's, from 0 to 0.1")
    add("--kill", type=float, metavar="K", help="another k than the pattern's, from 0 to 0.1")
    add("--seed", type=int, default=0, metavar="N", help="of the state to start from (%(default)s)")
    add(
        "--pictures", type=int, default=4, metavar="N", help="moments that are drawn, the last is the end (%(default)s)"
    )
    add("--output", type=Path, default=Path("reaction_diffusion.png"), metavar="PNG", help="(%(default)s)")
    options = parser.parse_args(argv)
    for name in ("size", "steps", "pictures"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    for name in ("feed", "kill"):
        if (value := getattr(options, name)) is not None and not 0 <= value <= 0.1:
            parser.error(f"--{name} {value}; it must be from 0 to 0.1")
    if options.seed < 0:
        parser.error(f"--seed {options.seed}; it must be 0 or more")
    if options.output.suffix.lower() != ".png":
        parser.error(f"--output {options.output}; its name must end in .png")
    return options


def run(options):
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with an.System() as system:
        device = system.device(options.device) if options.device else system.device()
        size, steps = GPU if device.name != "host" else HOST
        size, steps = options.size or size, options.steps or steps
        feed, kill = PATTERNS[options.pattern]
        feed = feed if options.feed is None else options.feed
        kill = kill if options.kill is None else options.kill
        print(
            f"{steps} steps of {size} x {size} cells, F {feed:g}, k {kill:g}, "
            f"on {device.name} ({device.facts.get('name', 'the processor')})",
            flush=True,
        )
        columns = TextColumn("{task.completed} steps"), BarColumn(), TextColumn("{task.fields[rate]}")
        with Progress(*columns, TimeRemainingColumn()) as bar:
            task, began = bar.add_task("steps", total=steps, rate=""), time.perf_counter()

            def progress(done):
                rate = done / (time.perf_counter() - began)
                bar.update(task, completed=done, rate=f"{rate:,.0f} steps/s")

            pictures, seconds = simulate(
                device, start(size, options.seed), steps, feed, kill, min(options.pictures, steps), progress
            )
    save(options.output, pictures)
    cells = size * size * steps / seconds
    print(f"{steps / seconds:,.1f} steps/s: {cells / 1e6:,.3f} million cells/s, {16 * cells / 1e9:,.3f} GB/s at least")
    print(f"v is {pictures[-1].min():.3f} to {pictures[-1].max():.3f}; wrote {options.output}")


def main(argv=None):
    """Simulate: 0 if it worked, 1 if it failed, 2 if it cannot be done here."""
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
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
