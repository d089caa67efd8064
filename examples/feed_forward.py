"""The feed-forward block of a transformer, forward and backward, in bfloat16 and float8.

    y = gelu(x @ w1.T + b1) @ w2.T + b2

A product each is a message; bias, GELU, its derivative and the bias gradients are epilogues of the products.  The
results are compared with float64, and their time with that of PyTorch in bfloat16 where it is installed.

    python examples/feed_forward.py                                   # on cuda:0, or on the host where there is no GPU
    python examples/feed_forward.py --tokens 4096 --width 4096 --tune
"""

import argparse
import sys
import time

import numpy as np

import atomr_native as an


def reference(p):
    """The block and its gradients in float64; the loss is sum(y * seed)."""
    x, w1, b1, w2, b2, seed = (p[name].astype(np.float64) for name in ("x", "w1", "b1", "w2", "b2", "seed"))
    z = x @ w1.T + b1
    t = np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))
    h = 0.5 * z * (1 + t)
    slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * z * z)
    dz = (seed @ w2) * slope
    return {
        "y": h @ w2.T + b2, "w2": seed.T @ h, "b2": seed.sum(0), "w1": dz.T @ x, "b1": dz.sum(0), "x": dz @ w1,
    }  # fmt: skip


def bfloat16(dev, p, tune):
    """All operands in bfloat16."""
    lt, r = dev.blas_lt, {name: dev.put(value, dtype="bfloat16") for name, value in p.items()}
    options = {"tune": True} if tune else {}

    def step():
        h, z, *_ = lt.matmul(r["x"], r["w1"], trans_b=True, bias=r["b1"], epilogue="gelu_aux_bias", **options)
        y = lt.matmul(h, r["w2"], trans_b=True, bias=r["b2"], epilogue="bias", **options)
        second = lt.matmul(r["seed"], h, trans_a=True, epilogue="bgrada", **options)
        dz, _, b1, _ = lt.matmul(r["seed"], r["w2"], aux=z, epilogue="dgelu_bgrad", **options)
        first = lt.matmul(dz, r["x"], trans_a=True, **options)
        dx = lt.matmul(dz, r["w1"], **options)
        return {"y": y, "w2": second.out, "b2": second.bias_grad, "w1": first, "b1": b1, "x": dx}

    return step


def float8(dev, p, tune):
    """Activations and weights in e4m3, gradients in e5m2, each with one scale; sums, GELU and biases in more.

    Each tensor is cast once, with its transpose, since float8 products want both operands dense along what they sum
    over.  `copies=True` is for numbers of tokens that are no multiples of 16.
    """
    lt = dev.blas_lt
    options = {"copies": True, **({"tune": True} if tune else {})}
    r = {name: dev.put(value, dtype="bfloat16") for name, value in p.items()}

    def cast(ref, dtype="float8_e4m3fn"):
        return dev.float8.quantize(ref, dtype, transposed=True)

    def product(a, b, a_scale, b_scale, **more):
        return lt.matmul(a, b, trans_b=True, a_scale=a_scale, b_scale=b_scale, **more, **options)

    x, w1, w2 = (cast(r[name]) for name in ("x", "w1", "w2"))

    def step():
        h, z, *_ = product(x.q, w1.q, x.scale, w1.scale, bias=r["b1"], epilogue="gelu_aux_bias")
        h8 = cast(h)
        y = product(h8.q, w2.q, h8.scale, w2.scale, bias=r["b2"], epilogue="bias")
        seed = cast(r["seed"], "float8_e5m2")
        second = product(seed.transposed, h8.transposed, seed.scale, h8.scale)
        dz, _, b1, _ = product(seed.q, w2.transposed, seed.scale, w2.scale, aux=z, epilogue="dgelu_bgrad")
        dz8 = cast(dz, "float8_e5m2")
        first = product(dz8.transposed, x.transposed, dz8.scale, x.scale)
        dx = product(dz8.q, w1.transposed, dz8.scale, w1.scale)
        b2 = lt.matmul(r["seed"], r["ones"], trans_a=True)
        return {"y": y, "w2": second, "b2": b2.reshape(b2.shape[0]), "w1": first, "b1": b1, "x": dx}

    return step


def with_torch(p):
    """PyTorch's own in bfloat16, and what waits for it, if it is there; on a GPU if it finds one."""
    try:
        import torch
    except ImportError:
        return None
    place = "cuda" if torch.cuda.is_available() else "cpu"
    r = {
        name: torch.tensor(value, dtype=torch.bfloat16, device=place, requires_grad=name != "seed")
        for name, value in p.items()
    }

    def step():
        for one in r.values():
            one.grad = None
        h = torch.nn.functional.gelu(torch.nn.functional.linear(r["x"], r["w1"], r["b1"]), approximate="tanh")
        y = torch.nn.functional.linear(h, r["w2"], r["b2"])
        y.backward(r["seed"])
        return {"y": y.detach(), **{name: r[name].grad for name in ("w2", "b2", "w1", "b1", "x")}}

    def wait(_):
        if place == "cuda":
            torch.cuda.synchronize()

    return step, wait


def report(name, found, want, seconds):
    """Print the largest error of each result, a NumPy array, relative to its largest element."""
    errors = []
    for key, value in want.items():
        errors.append(f"{key} {np.abs(found[key].astype(np.float64) - value).max() / np.abs(value).max():.1e}")
    print(f"{name:10} {seconds * 1e3:9.2f} ms a step   errors: {', '.join(errors)}")


def timed(step, rounds, wait):
    """Return the result of a step, and the seconds that one takes."""
    result = step()
    wait(result)
    began = time.perf_counter()
    for _ in range(rounds):
        result = step()
    wait(result)
    return result, (time.perf_counter() - began) / rounds


def parse(argv):
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--tokens", type=int, default=256, metavar="N", help="rows of x, a multiple of 16 (%(default)s)")
    add("--width", type=int, default=256, metavar="N", help="columns of x, a multiple of 16 (%(default)s)")
    add("--rounds", type=int, default=5, metavar="N", help="steps that are timed (%(default)s)")
    add("--tune", action="store_true", help="measure the library's algorithms first")
    options = parser.parse_args(argv)
    for name in ("tokens", "width"):  # over both of them GPUs sum products of float8
        if (value := getattr(options, name)) < 1 or value % 16:
            parser.error(f"--{name} {value}; it must be a multiple of 16")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}; it must be 1 or more")
    return options


def run(options):
    """Run the block in each precision."""
    tokens, width = options.tokens, options.width
    rng = np.random.default_rng(0)
    shapes = {
        "x": (tokens, width), "w1": (4 * width, width), "b1": (4 * width,), "w2": (width, 4 * width), "b2": (width,),
        "seed": (tokens, width),
    }  # fmt: skip
    p = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    p["w1"] /= np.sqrt(width)
    p["w2"] /= np.sqrt(4 * width)
    want = reference(p)
    # Of what float8 lacks in one call, products lie in the workspace: two times float32 of the widest gradient.
    with an.System(workspace_limit=max(32 << 20, 2 * 4 * tokens * 4 * width + 4096)) as system:
        dev = system.device(options.device) if options.device else system.device()
        print(f"{tokens} tokens, width {width}, on {dev.name} ({dev.facts.get('name', 'the processor')})")
        for name, make in (("bfloat16", bfloat16), ("float8", float8)):
            extra = {"ones": np.ones((tokens, 1), np.float32)} if name == "float8" else {}
            step = make(dev, p | extra, options.tune)
            wait = lambda result: an.gather(*result.values())  # noqa: E731
            found, seconds = timed(step, options.rounds, wait)
            report(name, {key: value.numpy() for key, value in found.items()}, want, seconds)
    made = with_torch(p)
    if made is not None:
        found, seconds = timed(made[0], options.rounds, made[1])
        report("torch", {key: value.float().cpu().numpy() for key, value in found.items()}, want, seconds)


def main(argv=None):
    """Return the exit status: 0, 1 if something went wrong, 2 if it cannot run here."""
    options = parse(argv)
    try:
        run(options)
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, an.InvalidRequest | an.Unsupported) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
