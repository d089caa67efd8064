"""Draw the Mandelbrot set by a kernel of your own, into a PNG.

The kernel is one that any Numba user would write.  It is compiled here, travels to the device's actor as machine code,
and is prepared once: each band of the picture is one message to that plan, with a view of the same array.

    pip install '.[examples]'                               # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/mandelbrot.py                             # on cuda:0; without a GPU on the host, a small picture
    python examples/mandelbrot.py --device host --width 120
    python examples/mandelbrot.py --device cuda:0 --width 7680 --center -0.743643887 0.131825904 --span 0.0001

The host device runs kernels by Numba's simulator, thread after thread in Python: exactly, and slowly.
"""

import argparse
import importlib.util
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import atomr_native as an

PACKAGES = {"matplotlib": "matplotlib", "numba": "numba-cuda"}
HOST, GPU = 240, 3840  # counts in a row, by default
WIDE = 800  # pixels of the PNG, at least
BLOCK = 16, 16


def kernel():
    """Return the kernel, which needs Numba."""
    from numba import cuda

    @cuda.jit
    def escape(image, left, top, pixel, limit):
        """Of each point: after how many steps it leaves the circle of radius 256, smoothed; 0 if it does not."""
        column, row = cuda.grid(2)
        if row < image.shape[0] and column < image.shape[1]:
            x0, y0 = left + column * pixel, top - row * pixel
            x, y, n = x0, y0, 1
            while n < limit and x * x + y * y < 65536.0:
                x, y = x * x - y * y + x0, 2.0 * x * y + y0
                n += 1
            square = x * x + y * y
            image[row, column] = n + 4.0 - math.log2(math.log2(square)) if square >= 65536.0 else 0.0

    return escape


def draw(device, width, height, center, span, limit, bands, progress=iter):
    """Return smoothed counts, float32 (height, width), and the seconds that the device took for them."""
    pixel = span / width
    left, top = center[0] - (width - 1) / 2 * pixel, center[1] + (height - 1) / 2 * pixel
    rows = -(-height // bands)
    image = device.empty((bands * rows, width), "float32")  # the last band may have rows to spare
    grid = -(-width // BLOCK[0]), -(-rows // BLOCK[1])
    # Arrays lend their layouts, and every band has the same one; numbers are defaults.
    plan = device.kernel(kernel())[grid, BLOCK].plan(image[:rows], left, top, pixel, limit).wait()
    began = time.perf_counter()
    replies = [plan.ask(image[band * rows : (band + 1) * rows], top=top - band * rows * pixel) for band in range(bands)]
    for reply in progress(replies):
        reply.result()
    return image[:height].numpy(), time.perf_counter() - began


def save(path, counts):
    """Write the picture, at least `WIDE` pixels wide: colours by the logarithm of the count, and the set in black."""
    from matplotlib import colormaps
    from matplotlib.image import imsave

    outside = counts > 0
    shade = np.zeros_like(counts)
    shade[outside] = np.log(np.maximum(counts[outside], 1))
    low, high = (shade[outside].min(), shade[outside].max()) if outside.any() else (0, 0)
    picture = colormaps["twilight_shifted"]((shade - low) / max(high - low, 1e-6))
    picture[~outside] = 0, 0, 0, 1
    times = -(-WIDE // picture.shape[1])  # few counts become squares
    imsave(path, picture.repeat(times, axis=0).repeat(times, axis=1))


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--width", type=int, metavar="N", help=f"pixels; by default {GPU} on a GPU and {HOST} on the host")
    add("--height", type=int, metavar="N", help="pixels; by default two thirds of the width")
    add("--center", type=float, nargs=2, default=(-0.6, 0.0), metavar=("X", "Y"), help="by default -0.6 0")
    add("--span", type=float, default=3.2, metavar="X", help="what the width shows (%(default)s)")
    add("--limit", type=int, metavar="N", help="steps of each point, at most; 2000 on a GPU, 100 on the host")
    add("--output", type=Path, default=Path("mandelbrot.png"), metavar="PNG", help="(%(default)s)")
    options = parser.parse_args(argv)
    for name in ("width", "height", "limit"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    if not (options.span > 0 and all(map(math.isfinite, (options.span, *options.center)))):
        parser.error("--span must be greater than 0, and --center finite")
    if options.output.suffix.lower() != ".png":
        parser.error(f"--output {options.output}; its name must end in .png")
    return options


def run(options):
    from rich.progress import track

    with an.System() as system:
        device = system.device(options.device) if options.device else system.device()
        gpu = device.name != "host"
        width = options.width or (GPU if gpu else HOST)
        height = options.height or max(1, width * 2 // 3)
        limit = options.limit or (2000 if gpu else 100)
        print(f"{width} x {height} pixels on {device.name} ({device.facts.get('name', 'the processor')})", flush=True)
        bands = min(16, height)
        counts, seconds = draw(
            device, width, height, options.center, options.span, limit, bands,
            lambda replies: track(replies, "drawing"),
        )  # fmt: skip
    save(options.output, counts)
    print(f"{counts.size / seconds / 1e6:.4g} million pixels/s; {np.mean(counts == 0):.1%} are in the set")
    print(f"wrote {options.output}")


def main(argv=None):
    """Draw: 0 if it worked, 1 if it failed, 2 if it cannot be done here."""
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
