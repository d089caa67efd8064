"""A transformer that learns to write Python, character by character, from the standard library's own sources.

The layers are those of `transformer.py`; their attention, forward and backward, is a message of the cuDNN actor in
bfloat16, on queries, keys and values that are parts of one product and are not copied.  Losses are of texts that the
training does not see, and the same within the arithmetic's error on the host and on a GPU.

    python examples/characters.py                                # on cuda:0, or on the host where there is no GPU
    python examples/characters.py --steps 400 --plot curve.png   # the loss curve needs matplotlib
"""

import argparse
import sys
from pathlib import Path
from sysconfig import get_path

import numpy as np
import transformer

import atomr_native as an

#: Modules whose sources are the text.
MODULES = ("textwrap", "shlex", "bisect", "heapq", "fnmatch", "glob", "sched", "string", "keyword", "abc")


def sources(names=MODULES):
    """Return the text of modules, in ASCII."""
    folder = Path(get_path("stdlib"))
    return b"".join((folder / f"{name}.py").read_bytes() for name in names).decode("ascii", "ignore").encode()


class Characters(transformer.Transformer):
    """The transformer, with attention by the cuDNN actor."""

    def part(self, x):
        """(batch * length, heads * width of a head) as (batch, length, heads, width of a head) in bfloat16."""
        return x.astype("bfloat16").reshape(self.batch, self.length, self.heads, -1)

    def layer(self, i, x):
        """Return a layer's output, and what its backward pass needs."""
        lt, fused, w = self.device.blas_lt, self.device.fused, self.w
        n1 = fused.rms_norm(x, w[f"norm1.{i}"])
        qkv = lt.matmul(n1, w[f"wqkv.{i}"]).astype("bfloat16").reshape(self.batch, self.length, 3, self.heads, -1)
        given = [qkv[:, :, j] for j in range(3)]
        y, statistics = self.device.cudnn.attention(*given, mask="causal", layout="bshd", statistics=True)
        mixed = y.reshape(x.shape).astype("float32")
        n2, middle = fused.rms_norm(lt.matmul(mixed, w[f"wo.{i}"]), w[f"norm2.{i}"], x)
        h, z, *_ = lt.matmul(n2, w[f"w1.{i}"], epilogue="gelu_aux")
        return middle + lt.matmul(h, w[f"w2.{i}"]), (x, n1, given, y, statistics, mixed, middle, n2, z, h)

    def layer_backward(self, i, dy, kept, grads):
        """Return the gradient of a layer's input; note those of its weights."""
        lt, fused, w = self.device.blas_lt, self.device.fused, self.w
        x, n1, given, y, statistics, mixed, middle, n2, z, h = kept
        grads[f"w2.{i}"] = lt.matmul(h, dy, trans_a=True)
        dz = lt.matmul(dy, w[f"w2.{i}"], trans_b=True, aux=z, epilogue="dgelu")
        grads[f"w1.{i}"] = lt.matmul(n2, dz, trans_a=True)
        second = fused.rms_norm_backward(lt.matmul(dz, w[f"w1.{i}"], trans_b=True), middle, w[f"norm2.{i}"], dy)
        dmiddle, grads[f"norm2.{i}"] = second[0], second[1]
        grads[f"wo.{i}"] = lt.matmul(mixed, dmiddle, trans_a=True)
        dmixed = self.part(lt.matmul(dmiddle, w[f"wo.{i}"], trans_b=True))
        parts = self.device.cudnn.attention_backward(*given, y, statistics, dmixed, mask="causal", layout="bshd")
        dqkv = self.device.empty((x.shape[0], 3 * self.width))
        for j, part in enumerate(parts):
            own = dqkv[:, j * self.width : (j + 1) * self.width]
            self.device.copy(part.reshape(x.shape).astype("float32"), out=own)
        grads[f"wqkv.{i}"] = lt.matmul(n1, dqkv, trans_a=True)
        first = fused.rms_norm_backward(lt.matmul(dqkv, w[f"wqkv.{i}"], trans_b=True), x, w[f"norm1.{i}"], dmiddle)
        grads[f"norm1.{i}"] = first[1]
        return first[0]


def batches(text, options, seed):
    """Yield places in a text: rows of characters, and of the characters after them."""
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(text) - options.length - 1, (options.batch, 1))
        rows = text[starts + np.arange(options.length + 1)]
        yield rows[:, :-1], rows[:, 1:]


def train(options, device, report=print):
    """Train; return the losses of the texts that are not trained on, one for each tenth of the steps."""
    letters, text = np.unique(np.frombuffer(sources(), "uint8"), return_inverse=True)
    unseen, seen = text[: len(text) // 10], text[len(text) // 10 :]
    weights = transformer.weights_of(options.width, options.layers, len(letters), seed=options.seed)
    model = Characters(device, weights, options.heads)
    model.begin(options.length)

    def put(pair):
        return [device.put(transformer.one_hot(rows, len(letters))) for rows in pair]

    tests = [put(pair) for _, pair in zip(range(4), batches(unseen, options, seed=2), strict=False)]
    loss, losses = device.zeros(()), []
    for step, pair in zip(range(1, options.steps + 1), batches(seen, options, seed=1), strict=False):
        model.train(*put(pair), loss, step=step, rate=3e-3)
        if step == 1 or step % max(options.steps // 10, 1) == 0:
            found = []
            for test in tests:
                model.gradients(*test, loss)
                found.append(float(loss))
            losses.append((step, float(np.mean(found))))
            report(f"step {step:4}: loss {losses[-1][1]:.4f}")
    report(written(model, device, letters, options.length))
    return losses


def written(model, device, letters, length):
    """Return what the model writes, always taking the likeliest character."""
    first = np.searchsorted(letters, np.frombuffer(b"d", "uint8")).astype("int64")
    caches, token = model.cache(1, length), device.put(first)
    rows, _ = transformer.decoded(device, model.decode, token, first, caches, length, "")
    return "d" + letters[rows[0]].tobytes().decode()


def plot(losses, path):
    """Draw the loss curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.add_subplot()
    axes.plot(*zip(*losses, strict=True), marker="o")
    axes.set(xlabel="step", ylabel="cross entropy of a character (nats)", title="Texts that are not trained on")
    figure.savefig(path, dpi=150, bbox_inches="tight")


def parse(argv):
    """Return the options."""
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--width", type=int, default=64, metavar="N", help="of the layers (%(default)s)")
    add("--layers", type=int, default=2, metavar="N", help="(%(default)s)")
    add("--heads", type=int, default=4, metavar="N", help="the width of a head is a multiple of 8 (%(default)s)")
    add("--length", type=int, default=64, metavar="N", help="characters of a text (%(default)s)")
    add("--batch", type=int, default=16, metavar="N", help="texts of a step (%(default)s)")
    add("--steps", type=int, default=200, metavar="N", help="(%(default)s)")
    add("--seed", type=int, default=0, metavar="N", help="of the weights (%(default)s)")
    add("--plot", metavar="FILE", help="where to draw the loss curve")
    options = parser.parse_args(argv)
    for name in ("width", "layers", "heads", "batch", "steps"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    if options.length < 2:
        parser.error(f"--length {options.length}; it must be 2 or more")
    if options.width % (8 * options.heads):
        parser.error(f"--heads {options.heads}; the width, {options.width}, must be a multiple of 8 for each")
    return options


def main(argv=None):
    """Return the exit status: 0, or 1 if something went wrong."""
    options = parse(argv)
    try:
        with an.System() as system:
            device = system.device(options.device) if options.device else system.device()
            print(f"{options.layers} layers of {options.width}, on {device.name}")
            losses = train(options, device)
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.plot:
        plot(losses, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
