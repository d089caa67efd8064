"""A small transformer: a training step and a decode step, each one message.

The training step is forward, backward and AdamW over all weights; the decode step takes a token, writes keys and
values into a cache, and gives the next token.  Both are functions of messages: called as they are, they send their
messages one by one, and `plan` records them.  Batches, tokens, the position and the optimizer's numbers change with
each message.  The results are those of the messages; the time of training stands beside PyTorch's if it is installed.

    python examples/transformer.py                                    # on cuda:0, or on the host where there is no GPU
    python examples/transformer.py --width 256 --layers 4 --steps 200
"""

import argparse
import sys
import time

import numpy as np

import atomr_native as an

WEIGHTS = ("norm1", "wqkv", "wo", "norm2", "w1", "w2")


def weights_of(width, layers, vocabulary, seed=0):
    """Return the weights as arrays of NumPy: of the layers, the last norm, and the embedding, also the output's."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype("float32")

    ones = np.ones(width, "float32")
    made = {}
    for i in range(layers):
        one = (ones, normal(width, 3 * width), normal(width, width), ones, normal(width, 4 * width),
               normal(4 * width, width))  # fmt: skip
        made.update({f"{name}.{i}": value for name, value in zip(WEIGHTS, one, strict=True)})
    return made | {"norm": ones, "embedding": normal(width, vocabulary).T.copy()}


class Transformer:
    """The messages of both steps; weights are arrays of the device.

    Parameters
    ----------
    device : Device
    weights : dict of str to array
    heads : int
    """

    def __init__(self, device, weights, heads):
        self.device, self.heads = device, heads
        self.w = {name: device.put(value, durable=True) for name, value in weights.items()}
        self.moments = {name: (device.zeros(x.shape, durable=True), device.zeros(x.shape, durable=True))
                        for name, x in self.w.items()}  # fmt: skip
        self.layers = sum(name.startswith("wo.") for name in weights)
        self.vocabulary, self.width = weights["embedding"].shape

    def split(self, x):
        """(batch * length, width) as (batch, heads, length, width of a head), a view."""
        batch, rows = self.batch, x.shape[0] // self.batch
        return x.reshape(batch, rows, self.heads, -1).transpose(0, 2, 1, 3)

    def joined(self, x):
        """The reverse, in memory of its own."""
        batch, heads, rows, size = x.shape
        out = self.device.empty((batch, rows, heads, size))
        self.device.copy(x.transpose(0, 2, 1, 3), out=out)
        return out.reshape(batch * rows, heads * size)

    def softmax(self, x):
        """Over the last axis."""
        run = self.device.elementwise.run
        e = run("out = exp(x - m)", x=x, m=x.max(axis=-1, keepdims=True))
        return run("out = e / s", e=e, s=e.sum(axis=-1, keepdims=True))

    # ---- training

    def begin(self, length):
        """Prepare for texts of a length: places after a token's own are not seen."""
        self.length = length
        self.mask = self.device.put(np.triu(np.full((length, length), -1e30, "float32"), 1))

    def layer(self, i, x):
        """Return a layer's output, and what its backward pass needs."""
        lt, fused, w = self.device.blas_lt, self.device.fused, self.w
        n1 = fused.rms_norm(x, w[f"norm1.{i}"])
        qkv = lt.matmul(n1, w[f"wqkv.{i}"])
        q, k, v = (self.split(qkv[:, j * self.width : (j + 1) * self.width]) for j in range(3))
        scale = q.shape[-1] ** -0.5
        p = self.softmax(self.device.elementwise.run(f"out = s * {scale!r} + m", s=q @ k.mT, m=self.mask))
        mixed = self.joined(p @ v)
        after = fused.rms_norm(lt.matmul(mixed, w[f"wo.{i}"]), w[f"norm2.{i}"], x)
        n2, middle = after
        h, z, *_ = lt.matmul(n2, w[f"w1.{i}"], epilogue="gelu_aux")
        return middle + lt.matmul(h, w[f"w2.{i}"]), (x, n1, q, k, v, scale, p, mixed, middle, n2, z, h)

    def layer_backward(self, i, dy, kept, grads):
        """Return the gradient of a layer's input; note those of its weights."""
        lt, fused, w = self.device.blas_lt, self.device.fused, self.w
        x, n1, q, k, v, scale, p, mixed, middle, n2, z, h = kept
        grads[f"w2.{i}"] = lt.matmul(h, dy, trans_a=True)
        dz = lt.matmul(dy, w[f"w2.{i}"], trans_b=True, aux=z, epilogue="dgelu")
        grads[f"w1.{i}"] = lt.matmul(n2, dz, trans_a=True)
        second = fused.rms_norm_backward(lt.matmul(dz, w[f"w1.{i}"], trans_b=True), middle, w[f"norm2.{i}"], dy)
        dmiddle, grads[f"norm2.{i}"] = second[0], second[1]
        grads[f"wo.{i}"] = lt.matmul(mixed, dmiddle, trans_a=True)
        dmixed = self.split(lt.matmul(dmiddle, w[f"wo.{i}"], trans_b=True))
        dp = dmixed @ v.mT
        inner = (p * dp).sum(axis=-1, keepdims=True)
        ds = self.device.elementwise.run(f"out = p * (d - t) * {scale!r}", p=p, d=dp, t=inner)
        dqkv = self.device.empty((x.shape[0], 3 * self.width))
        for j, part in enumerate((ds @ k, ds.mT @ q, p.mT @ dmixed)):
            self.device.copy(self.joined(part), out=dqkv[:, j * self.width : (j + 1) * self.width])
        grads[f"wqkv.{i}"] = lt.matmul(n1, dqkv, trans_a=True)
        first = fused.rms_norm_backward(lt.matmul(dqkv, w[f"wqkv.{i}"], trans_b=True), x, w[f"norm1.{i}"], dmiddle)
        grads[f"norm1.{i}"] = first[1]
        return first[0]

    def gradients(self, tokens, targets, loss):
        """Write the mean cross-entropy to `loss`; return the gradients by name.

        `tokens` and `targets` are one-hot rows, so that the embedding and its gradient are products.
        """
        run, lt, fused, w = self.device.elementwise.run, self.device.blas_lt, self.device.fused, self.w
        self.batch = tokens.shape[0] // self.length
        x, kept, grads = lt.matmul(tokens, w["embedding"]), [], {}
        for i in range(self.layers):
            x, one = self.layer(i, x)
            kept.append(one)
        n = fused.rms_norm(x, w["norm"])
        p = self.softmax(lt.matmul(n, w["embedding"], trans_b=True))
        rows = tokens.shape[0]
        picked = (p * targets).sum(axis=-1)
        self.device.copy(run(f"out = -log(q) / {rows}.0", q=picked).sum(), out=loss)
        dlogits = run(f"out = (p - t) / {rows}.0", p=p, t=targets)
        output = lt.matmul(dlogits, n, trans_a=True)
        last = fused.rms_norm_backward(lt.matmul(dlogits, w["embedding"]), x, w["norm"])
        dx, grads["norm"] = last[0], last[1]
        for i in reversed(range(self.layers)):
            dx = self.layer_backward(i, dx, kept[i], grads)
        grads["embedding"] = lt.matmul(tokens, dx, trans_a=True) + output
        return grads

    def train(self, tokens, targets, loss, step, rate):
        """Send a training step."""
        for name, grad in self.gradients(tokens, targets, loss).items():
            m, v = self.moments[name]
            self.device.fused.adamw(self.w[name], grad, m, v, step=step, lr=rate, weight_decay=0.01)

    # ---- decoding

    def cache(self, batch, length):
        """Return empty keys and values of all layers, and the numbers of their places."""
        shape = (batch, self.heads, length, self.width // self.heads)
        self.places = self.device.put(np.arange(length, dtype="float32").reshape(1, 1, length, 1))
        return [(self.device.zeros(shape), self.device.zeros(shape)) for _ in range(self.layers)]

    def decode(self, token, caches, place):
        """Put the next token in the place of `token`, int64 of shape (batch,), whose number in the text is `place`."""
        run, lt, fused, w = self.device.elementwise.run, self.device.blas_lt, self.device.fused, self.w
        self.batch = token.shape[0]
        x = w["embedding"].take(token, axis=0)
        columns = self.places.transpose(0, 1, 3, 2)
        for i, (keys, values) in enumerate(caches):
            qkv = lt.matmul(fused.rms_norm(x, w[f"norm1.{i}"]), w[f"wqkv.{i}"])
            q, k, v = (self.split(qkv[:, j * self.width : (j + 1) * self.width]) for j in range(3))
            for cached, new in ((keys, k), (values, v)):
                run("out = where(t == n, x, c)", t=self.places, n=place, x=new, c=cached, out=cached)
            scale = q.shape[-1] ** -0.5
            s = run(f"out = where(t <= n, s * {scale!r}, -1e30)", t=columns, n=place, s=q @ keys.mT)
            mixed = self.joined(self.softmax(s) @ values)
            n2, middle = fused.rms_norm(lt.matmul(mixed, w[f"wo.{i}"]), w[f"norm2.{i}"], x)
            x = middle + lt.matmul(lt.matmul(n2, w[f"w1.{i}"], epilogue="gelu"), w[f"w2.{i}"])
        logits = lt.matmul(fused.rms_norm(x, w["norm"]), w["embedding"], trans_b=True)
        self.device.copy(logits.argmax(axis=-1), out=token)


def one_hot(values, vocabulary):
    """Rows with a one at the place that each value names."""
    return np.eye(vocabulary, dtype="float32")[values.ravel()]


def texts(rng, batch, length, vocabulary):
    """Numbers that go up by the same step, which the text's first two tell: tokens, and the tokens after them."""
    start, by = rng.integers(0, vocabulary, (batch, 1)), rng.integers(1, 4, (batch, 1))
    rows = (start + by * np.arange(length + 1)) % vocabulary
    return rows[:, :-1], rows[:, 1:]


def with_torch(weights, heads, batches, rate):
    """Return a function of a step's number that trains by PyTorch, and one that waits; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    place = "cuda" if torch.cuda.is_available() else "cpu"
    w = {name: torch.tensor(value, device=place, requires_grad=True) for name, value in weights.items()}
    layers = sum(name.startswith("wo.") for name in weights)
    optimizer = torch.optim.AdamW(list(w.values()), lr=rate, weight_decay=0.01, fused=True)
    given = [[torch.tensor(x.astype("int64"), device=place) for x in pair] for pair in batches]
    norm, attend = torch.nn.functional.rms_norm, torch.nn.functional.scaled_dot_product_attention

    def step(number):
        tokens, targets = given[number % len(given)]
        x = w["embedding"][tokens]
        for i in range(layers):
            n = norm(x, x.shape[-1:], w[f"norm1.{i}"], 1e-5)
            q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (n @ w[f"wqkv.{i}"]).chunk(3, dim=-1))
            x = x + attend(q, k, v, is_causal=True).transpose(1, 2).flatten(-2) @ w[f"wo.{i}"]
            n = norm(x, x.shape[-1:], w[f"norm2.{i}"], 1e-5)
            x = x + torch.nn.functional.gelu(n @ w[f"w1.{i}"], approximate="tanh") @ w[f"w2.{i}"]
        logits = norm(x, x.shape[-1:], w["norm"], 1e-5) @ w["embedding"].T
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def wait():
        if place == "cuda":
            torch.cuda.synchronize()

    return step, wait


def timed(step, wait, rounds):
    """Return the milliseconds of a step, after three that are not counted."""
    for number in range(3):
        step(number)
    wait()
    began = time.perf_counter()
    for number in range(3, 3 + rounds):
        step(number)
    wait()
    return (time.perf_counter() - began) * 1e3 / rounds


def run(options, device):
    """Train and decode, message by message and recorded; print the losses and times of each."""
    weights = weights_of(options.width, options.layers, options.vocabulary)
    rng = np.random.default_rng(1)
    batches = [texts(rng, options.batch, options.length, options.vocabulary) for _ in range(8)]
    given = [[device.put(one_hot(x, options.vocabulary)) for x in pair] for pair in batches]
    loss, rate = device.zeros(()), 3e-3
    for name in ("message by message", "recorded"):
        model = Transformer(device, weights, options.heads)
        model.begin(options.length)
        train = model.train
        if name == "recorded":
            train = device.graph(model.train).plan(*given[0], loss, step=1, rate=rate).tell

        def step(number, train=train):
            tokens, targets = given[number % len(given)]
            train(tokens, targets, loss, step=number + 1, rate=rate)

        milliseconds = timed(step, loss.wait, options.steps)
        print(f"training, {name}: {milliseconds:.3f} ms a step, loss {float(loss):.4f}")
    made = with_torch(weights, options.heads, batches, rate)
    if made is not None:
        print(f"training, torch: {timed(*made, options.steps):.3f} ms a step, loss {float(made[0](0)):.4f}")

    first = batches[0][0][:, 0].astype("int64")
    caches, token = model.cache(options.batch, options.length), device.put(first)
    for name in ("message by message", "recorded"):
        decode = model.decode
        if name == "recorded":
            decode = device.graph(model.decode).plan(token, caches, place=0.0).tell
        found = decoded(device, decode, token, first, caches, options.length, name)
        print(f"decoding, {name}: {found[1]:.3f} ms a token, {' '.join(map(str, found[0][0]))}")


def decoded(device, decode, token, first, caches, length, name):
    """Return the tokens of all texts after their first, and the milliseconds of one."""
    rows = []
    device.copy(device.put(first), out=token)
    token.wait()
    began = time.perf_counter()
    for place in range(length - 1):
        decode(token, place=float(place)) if name == "recorded" else decode(token, caches, float(place))
        rows.append(device.copy(token))
    token.wait()
    seconds = time.perf_counter() - began
    return np.stack([row.numpy() for row in rows], axis=1), seconds * 1e3 / len(rows)


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
    add("--heads", type=int, default=4, metavar="N", help="of the attention; they divide the width (%(default)s)")
    add("--length", type=int, default=16, metavar="N", help="tokens of a text (%(default)s)")
    add("--batch", type=int, default=8, metavar="N", help="texts of a step (%(default)s)")
    add("--vocabulary", type=int, default=32, metavar="N", help="tokens that there are (%(default)s)")
    add("--steps", type=int, default=30, metavar="N", help="training steps that are timed (%(default)s)")
    options = parser.parse_args(argv)
    for name in ("width", "layers", "heads", "batch", "vocabulary", "steps"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    if options.length < 2:
        parser.error(f"--length {options.length}; it must be 2 or more")
    if options.width % options.heads:
        parser.error(f"--heads {options.heads}; they must divide the width, {options.width}")
    return options


def main(argv=None):
    """Return the exit status: 0, or 1 if something went wrong."""
    options = parse(argv)
    try:
        with an.System() as system:
            device = system.device(options.device) if options.device else system.device()
            shape = f"{options.layers} layers of {options.width}, {options.batch} texts of {options.length} tokens"
            print(f"{shape}, on {device.name}")
            run(options, device)
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
