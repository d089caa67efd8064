"""Take stripes and noise out of a picture, by a Python function inside a Fourier transform.

The picture goes to its frequencies and back, two messages.  The inverse transform calls a function on each frequency
that it loads: it knows the frequency from the element's offset, keeps the low ones, and drops those of the stripes.
The numbers of the filter travel with the message, so every filter of a series uses one plan.

    pip install '.[examples]'                               # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/spectral_filter.py                      # on cuda:0; without a GPU on the host
    python examples/spectral_filter.py --device host --size 256 --cutoff 0.05
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np

import atomr_native as an

PACKAGES = {"matplotlib": "matplotlib", "numba": "numba-cuda"}
STRIPES = 0.1875  # cycles per pixel, along columns and rows


def smooth(value, offset, rows, columns, cutoff, stripes):
    """Return a frequency of the half spectrum of a picture, if it belongs to neither noise nor stripes."""
    half = columns // 2 + 1
    row, column = offset // half, offset % half
    if row > rows // 2:
        row -= rows
    up, across = abs(row) / rows, column / columns
    if abs(up - stripes) < 0.01 and abs(across - stripes) < 0.01:
        return 0 * value
    square = (up * up + across * across) / (cutoff * cutoff)
    return value / (1 + square * square)


def picture(size, seed):
    """Return rings, and the same with stripes and noise; float32 (size, size)."""
    y, x = np.mgrid[0:size, 0:size].astype("float32")
    radius = np.hypot(x - size / 2, y - size / 2) / size
    clean = (0.5 + 0.5 * np.cos(40 * radius)) * (radius < 0.45)
    noise = np.random.default_rng(seed).standard_normal((size, size))
    return clean, (clean + 0.5 * np.cos(2 * np.pi * STRIPES * (x + y)) + 0.3 * noise).astype("float32")


def clear(device, noisy, cutoff):
    """Return the picture without stripes and noise, float32."""
    rows, columns = noisy.shape
    spectrum = device.fft.rfft2(device.put(noisy))
    found = device.fft.transform(
        "irfft", spectrum, (rows, columns), load=smooth,
        operands={"rows": rows, "columns": columns, "cutoff": cutoff, "stripes": STRIPES},
    )  # fmt: skip
    return found.numpy()


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--size", type=int, default=512, metavar="N", help="pixels of a side, 16 or more (%(default)s)")
    add("--cutoff", type=float, default=0.08, metavar="F", help="cycles per pixel that are kept (%(default)s)")
    add("--seed", type=int, default=7, metavar="N", help="of the noise (%(default)s)")
    add("--output", type=Path, default=Path("spectral_filter.png"), metavar="PNG", help="(%(default)s)")
    options = parser.parse_args(argv)
    if options.size < 16:
        parser.error(f"--size {options.size}; it must be 16 or more")
    if not 0 < options.cutoff < 1:
        parser.error(f"--cutoff {options.cutoff}; it must be between 0 and 1")
    if options.output.suffix.lower() != ".png":
        parser.error(f"--output {options.output}; its name must end in .png")
    return options


def run(options):
    from matplotlib.image import imsave

    clean, noisy = picture(options.size, options.seed)
    with an.System() as system:
        device = system.device(options.device) if options.device else system.device()
        print(f"{options.size} x {options.size} pixels on {device.name}", flush=True)
        found = clear(device, noisy, options.cutoff)
    for name, image in (("with stripes and noise", noisy), ("filtered", found)):
        print(f"{name}: {np.sqrt(np.mean((image - clean) ** 2)):.3f} from the picture without them")
    imsave(options.output, np.hstack([noisy, found]), cmap="gray", vmin=-0.5, vmax=1.5)
    print(f"wrote {options.output}")


def main(argv=None):
    """Filter: 0 if it worked, 1 if it failed, 2 if it cannot be done here."""
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
