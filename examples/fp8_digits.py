"""Learn to read digits in float8, and compare with bfloat16 and float32, on the host and on a GPU.

The same network from the same weights over the same batches, once in each precision:

  float8     Activations and weights are float8_e4m3fn, gradients float8_e5m2.  Delayed scaling casts each tensor once,
             by the largest magnitudes of its last steps, together with its transpose for the backward products.
  bfloat16   The same products of bfloat16.
  float32    The same of float32, as a reference.

Products sum in float32; bias, GELU, its derivative and the bias gradients are their epilogues, and AdamW keeps float32
weights.  GPUs multiply float8 along K, a multiple of 16, with both operands dense along it: so weights are stored
(outputs, inputs), extents are multiples of 16, and the ten digits are ten of sixteen classes.

    pip install '.[examples]'                       # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/fp8_digits.py                   # on the host, and on cuda:0 if there is a GPU
    python examples/fp8_digits.py --device cuda:0 --hidden 512 256 --steps 2000

Exit status: 0 if float8 reads as many test images right as bfloat16 and float32, within noise; 1 if not; 2 if it cannot
run here.  Float8 products need a GPU of compute capability 8.9 or more.
"""

import argparse
import importlib.util
import math
import sys
import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np

import atomr_native as an

PACKAGES = {"sklearn": "scikit-learn"}
PRECISIONS = ("float32", "bfloat16", "float8")
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
INPUTS, CLASSES, EXTENT = 64, 16, 16
RATE, DECAY, HISTORY = 2e-3, 0.01, 16


class Data(NamedTuple):
    """Images to train and to test with, float32 of 64 pixels from -1 to 1, and what they show."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def load(seed=0):
    """Load the digits that come with scikit-learn, a quarter of them to test with."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype("float32")
    train_x, test_x, train_y, test_y = train_test_split(images, labels, stratify=labels, random_state=seed)
    return Data(train_x, train_y, test_x, test_y)


class Operand(NamedTuple):
    """A matrix as products take it: codes, those of its transpose, and what both are multiplied by."""

    q: an.GpuRef
    transposed: an.GpuRef
    scale: an.GpuRef | None


class Network:
    """A perceptron with GELU between its layers and AdamW; every operation is a message, and none is waited for."""

    def __init__(self, device, precision, hidden, seed):
        self.device, self.lt, self.precision = device, device.blas_lt, precision
        rng = np.random.default_rng(seed)
        self.wide = "float32" if precision == "float32" else "bfloat16"
        self.layers = range(1, len(hidden) + 2)
        self.steps = 0
        self.parameters, self.masters, self.moments = {}, {}, {}
        for i, (inputs, outputs) in enumerate(pairwise((INPUTS, *hidden, CLASSES)), 1):
            w = rng.normal(0, math.sqrt(2 / inputs), (outputs, inputs)).astype("float32")
            for name, value in ((f"w{i}", w), (f"b{i}", np.zeros(outputs, "float32"))):
                # Float8 is cast from the float32 weights in each step; what bfloat16 computes with is kept beside them.
                narrow = self.wide == "bfloat16" and not (precision == "float8" and name[0] == "w")
                self.parameters[name] = device.put(value, dtype="bfloat16" if narrow else "float32")
                self.masters[name] = device.put(value) if narrow else None
                self.moments[name] = device.zeros(value.shape), device.zeros(value.shape)
        # Delayed scaling remembers the largest magnitudes of each tensor that is cast.
        self.scaling = {}
        for i in self.layers if precision == "float8" else ():
            for kind, dtype in (("x", E4M3), ("w", E4M3), ("g", E5M2)):
                self.scaling[f"{kind}{i}"] = device.float8.delayed(dtype, length=HISTORY)

    def operand(self, x, name=None):
        """Send the cast of a tensor to float8, with its transpose; in other precisions it is taken as it is."""
        if self.precision != "float8":
            return Operand(x, x.T, None)
        # By the scale that its last steps call for; without a name, once, by the one that it calls for itself.
        made = self.device.float8.quantize(x, state=self.scaling.get(name), transposed=True)
        return Operand(made.q, made.transposed, made.scale)

    def product(self, a, b, a_scale, b_scale, **more):
        """Send ``a @ b.T``: both are dense along what is summed, unless they are views of wider numbers."""
        scales = {} if a_scale is None else {"a_scale": a_scale, "b_scale": b_scale}
        return self.lt.matmul(a, b, trans_b=True, **scales, **more)

    def forward(self, x, training=True):
        """Send the forward pass; return logits, what each layer was given and its weights, and GELU's inputs."""
        inputs, weights, before = {}, {}, {}
        for i in self.layers:
            inputs[i] = self.operand(x, f"x{i}" if training else None)
            weights[i] = self.operand(self.parameters[f"w{i}"], f"w{i}" if training else None)
            last = i == self.layers[-1]
            made = self.product(
                inputs[i].q, weights[i].q, inputs[i].scale, weights[i].scale, bias=self.parameters[f"b{i}"],
                epilogue="bias" if last else "gelu_aux_bias",
            )  # fmt: skip
            x, before[i] = (made, None) if last else (made.out, made.aux)
        return x, inputs, weights, before

    def gradients(self, x, labels):
        """Send both passes; return the handles of the mean loss, and of the gradient of each parameter."""
        logits, inputs, weights, before = self.forward(x)
        loss, delta = self.device.elementwise.softmax_cross_entropy(logits, labels)
        gradients = {f"b{self.layers[-1]}": self.device.elementwise.reduce("sum", delta, 0)}
        for i in reversed(self.layers):
            g, x, w = self.operand(delta, f"g{i}"), inputs[i], weights[i]
            gradients[f"w{i}"] = self.product(g.transposed, x.transposed, g.scale, x.scale, out_dtype="float32")
            if i > 1:
                made = self.product(
                    g.q, w.transposed, g.scale, w.scale, aux=before[i - 1], epilogue="dgelu_bgrad"
                )  # fmt: skip
                delta, gradients[f"b{i - 1}"] = made.out, made.bias_grad
        return loss, gradients

    def train(self, x, labels):
        """Send a step; return the handle of its mean loss."""
        loss, gradients = self.gradients(x, labels)
        self.steps += 1
        for name, gradient in gradients.items():
            m, v = self.moments[name]
            self.device.fused.adamw(
                self.parameters[name], gradient, m, v, step=self.steps, master=self.masters[name], lr=RATE,
                weight_decay=DECAY if name[0] == "w" else 0.0,
            )  # fmt: skip
        return loss

    def accuracy(self, images, labels):
        """Return the share of images that are read right; waits."""
        spare = -len(images) % EXTENT
        padded = np.concatenate([images, np.zeros((spare, images.shape[1]), images.dtype)])
        logits = self.forward(self.device.put(padded, dtype=self.wide), training=False)[0]
        read = self.device.elementwise.reduce("argmax", logits, 1).numpy()
        return float(np.mean(read[: len(labels)] == labels))


class Outcome(NamedTuple):
    """What became of a training."""

    accuracy: float
    loss: float  # mean of the last tenth of the steps
    rate: float  # steps a second


def training(device, precision, data, *, hidden, steps, batch, seed, progress=lambda: None):
    """Train a network from weights and over batches that the seed decides."""
    network = Network(device, precision, hidden, seed)
    rng = np.random.default_rng([seed, 1])
    losses, began, first = [], 0.0, min(10, steps - 1)
    for step in range(steps):
        chosen = rng.choice(len(data.train_x), batch, replace=False)
        x = device.put(data.train_x[chosen], dtype=network.wide)
        losses.append(network.train(x, device.put(data.train_y[chosen])))
        if step % 50 == first % 50:  # so that what is sent is not far ahead of what is done
            losses[-1].wait()
            began = began or time.perf_counter()  # not with the compilers
        progress()
    last = [float(loss.numpy()) for loss in losses[-max(1, steps // 10) :]]
    seconds = time.perf_counter() - began
    rate = (steps - 1 - first) / seconds if steps - 1 > first else math.nan
    return Outcome(network.accuracy(data.test_x, data.test_y), float(np.mean(last)), rate)


def noise(accuracy, images):
    """Return by how much an accuracy is uncertain: two standard errors of a share of so many images."""
    p = min(max(accuracy, 1 / images), 1 - 1 / images)
    return 2 * math.sqrt(p * (1 - p) / images)


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", nargs="+", help="host and cuda:N; by default host, and cuda:0 if there is a GPU")
    add("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS, help="by default all")
    add("--steps", type=int, default=400, metavar="N", help="of each training (%(default)s)")
    add("--batch", type=int, default=64, metavar="N", help="images in a step, a multiple of 16 (%(default)s)")
    add("--hidden", type=int, nargs="+", default=[128, 64], metavar="N",
        help="widths of the hidden layers, multiples of 16 (128 64)")  # fmt: skip
    add("--seeds", type=int, default=2, metavar="N", help="trainings of each kind (%(default)s)")
    options = parser.parse_args(argv)
    for name in ("steps", "seeds", "batch"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}; it must be 1 or more")
    if options.batch % EXTENT or options.batch > 1024:
        parser.error(f"--batch {options.batch}; it must be a multiple of {EXTENT}, up to 1024")
    if any(width < 1 or width % EXTENT for width in options.hidden):
        parser.error(f"--hidden {' '.join(map(str, options.hidden))}; each must be a multiple of {EXTENT}")
    return options


def run(options):
    """Train, print the table, and return the exit status."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    data, found, names = load(), {}, {}
    console = Console(width=None if sys.stdout.isatty() else 100)
    with an.System() as system:
        first = system.device().name
        wanted = options.device or (["host"] if first == "host" else ["host", first])
        for device in map(system.device, wanted):
            names[device.name] = device.facts.get("name", "the processor")
            for precision in options.precision:
                total = options.seeds * options.steps
                with_bar = iter(track(range(total), f"{device.name}, {precision}", console=console))
                found[device.name, precision] = [
                    training(
                        device, precision, data, hidden=options.hidden, steps=options.steps, batch=options.batch,
                        seed=seed, progress=lambda bar=with_bar: next(bar),
                    )
                    for seed in range(options.seeds)
                ]  # fmt: skip
                next(with_bar, None)
    table = Table("device", "precision", "accuracy", "of each seed", "loss", "steps/s")
    for (device, precision), outcomes in found.items():
        shares = [outcome.accuracy for outcome in outcomes]
        table.add_row(
            device, precision, f"{np.mean(shares):.2%}", " ".join(f"{share:.2%}" for share in shares),
            f"{np.mean([o.loss for o in outcomes]):.4f}", f"{np.mean([o.rate for o in outcomes]):,.0f}",
        )  # fmt: skip
    console.print(table)
    print("; ".join(f"{device}: {name}" for device, name in names.items()))
    return verdict(found, len(data.test_y))


def verdict(found, images):
    """Print how float8 compares on each device; 0 if it is within noise everywhere."""
    means = {key: float(np.mean([outcome.accuracy for outcome in outcomes])) for key, outcomes in found.items()}
    worst = 0
    for (device, precision), reference in means.items():
        if precision == "float8" or (device, "float8") not in means:
            continue
        difference, allowed = means[device, "float8"] - reference, noise(reference, images)
        within = difference >= -allowed
        worst = worst if within else 1
        print(
            f"{device}: float8 is {100 * difference:+.2f} points from {precision}, "
            f"{'within' if within else 'OUTSIDE'} the noise of {images} images ({100 * allowed:.2f} points)"
        )
    return worst


def main(argv=None):
    """Compare: 0 if float8 is as good, 1 if not, 2 if it cannot be done here."""
    options = parse(argv)
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"needs {' and '.join(missing)}: pip install '.[examples]' in a clone of atomr_native", file=sys.stderr)
        return 2
    try:
        return run(options)
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, an.InvalidRequest | an.Unsupported) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
