"""A layer of experts, as in mixture-of-experts transformers: each token goes to the experts that a router prefers.

    y = sum over a token's experts e of  gate * (silu(x @ w1[e]) * (x @ w3[e])) @ w2[e]

The device sorts the tokens by expert and counts them, and nothing waits for the counts: grouped products read them when
they run.  SiLU, the product of the two halves and the gate are epilogues.  The result is compared with float64, and the
time with that of PyTorch, one expert after the other, where it is installed.

    python examples/experts.py                                   # on cuda:0, or on the host where there is no GPU
    python examples/experts.py --tokens 8192 --width 2048 --inner 1408 --experts 64 --best 6
"""

import argparse
import sys
import time

import numpy as np

import atomr_native as an
from atomr_native import array_api as xp


def reference(p, best):
    """The layer in float64, and each token's experts and gates."""
    x, router, w1, w3, w2 = (p[name].astype(np.float64) for name in ("x", "router", "w1", "w3", "w2"))
    scores = np.exp(x @ router)
    scores /= scores.sum(1, keepdims=True)
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :best]
    y = np.zeros_like(x)
    for expert in range(router.shape[1]):
        token, place = np.nonzero(chosen == expert)
        rows = x[token]
        z = rows @ w1[expert]
        inner = z / (1 + np.exp(-z)) * (rows @ w3[expert])
        np.add.at(y, token, scores[token, chosen[token, place]][:, None] * (inner @ w2[expert]))
    return y


def layer(dev, p, best, dtype):
    """The layer as messages; nothing of it waits for the device."""
    w1, w3, w2 = (dev.put(p[name], dtype=dtype) for name in ("w1", "w3", "w2"))
    x, router = dev.put(p["x"]), dev.put(p["router"])
    rows = dev.put(p["x"], dtype=dtype)
    (tokens, width), experts = p["x"].shape, p["router"].shape[1]
    numbers = dev.put(np.arange(experts))
    owner = dev.put(np.repeat(np.arange(tokens), best))  # of each pair of a token and an expert

    def step():
        scores = xp.exp(dev.blas_lt.matmul(x, router))
        scores = scores / xp.sum(scores, axis=1, keepdims=True)
        chosen = xp.argsort(scores, descending=True)[:, :best]
        gates = xp.sort(scores, descending=True)[:, :best]
        flat = xp.reshape(chosen, (-1,))
        order = xp.argsort(flat)  # pairs by expert
        ends = xp.searchsorted(xp.take(flat, order), numbers, side="right")
        sent = xp.take(rows, xp.take(owner, order), axis=0)
        gate = xp.reshape(xp.take(xp.reshape(gates, (-1,)), order), (-1, 1))
        products = dev.cutlass.grouped_gemm
        half = products(sent, w1, ends, epilogue="silu(acc)")
        inner = products(sent, w3, ends, c=half, epilogue="acc * c")
        made = products(inner, w2, ends, epilogue="acc * gate", operands={"gate": gate}, out_dtype="float32")
        back = xp.take(made, xp.argsort(order), axis=0)
        return xp.sum(xp.reshape(back, (tokens, best, width)), axis=1)

    return step


def with_torch(p, best):
    """PyTorch's own, expert by expert, in bfloat16 on a GPU; None without either."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    r = {name: torch.tensor(value, dtype=torch.bfloat16, device="cuda") for name, value in p.items()}

    def step():
        gates, chosen = torch.softmax(r["x"].float() @ r["router"].float(), 1).topk(best)
        y = torch.zeros_like(r["x"], dtype=torch.float32)
        for expert in range(r["router"].shape[1]):
            token, place = torch.nonzero(chosen == expert, as_tuple=True)
            rows = r["x"][token]
            inner = torch.nn.functional.silu(rows @ r["w1"][expert]) * (rows @ r["w3"][expert])
            y.index_add_(0, token, gates[token, place, None] * (inner @ r["w2"][expert]).float())
        torch.cuda.synchronize()
        return y

    return step


def timed(step, rounds, wait):
    """Return the result of a step, and the seconds that one takes."""
    wait(step())
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
    add("--tokens", type=int, default=256, metavar="N", help="rows of x (%(default)s)")
    add("--width", type=int, default=128, metavar="N", help="columns of x, a multiple of 8 (%(default)s)")
    add("--inner", type=int, default=192, metavar="N", help="columns inside an expert, a multiple of 8 (%(default)s)")
    add("--experts", type=int, default=8, metavar="N", help="number of experts (%(default)s)")
    add("--best", type=int, default=2, metavar="N", help="experts of each token (%(default)s)")
    add("--rounds", type=int, default=5, metavar="N", help="steps that are timed (%(default)s)")
    options = parser.parse_args(argv)
    for name in ("tokens", "experts", "best", "rounds"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name} {value}; it must be 1 or more")
    for name in ("width", "inner"):
        if (value := getattr(options, name)) < 1 or value % 8:
            parser.error(f"--{name} {value}; it must be a multiple of 8")
    if options.best > options.experts:
        parser.error(f"--best {options.best}; there are {options.experts} experts")
    return options


def parameters(options):
    """Return the layer's input and weights."""
    rng = np.random.default_rng(0)
    t, w, i, e = options.tokens, options.width, options.inner, options.experts
    shapes = {"x": (t, w), "router": (w, e), "w1": (e, w, i), "w3": (e, w, i), "w2": (e, i, w)}
    p = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    for name in ("router", "w1", "w3", "w2"):
        p[name] /= np.sqrt(p[name].shape[-2])
    return p


def run(options):
    """Run the layer and compare it."""
    p = parameters(options)
    want = reference(p, options.best)
    with an.System() as system:
        dev = system.device(options.device) if options.device else system.device()
        place = dev.facts.get("name", "the processor")
        print(f"{options.tokens} tokens, {options.best} of {options.experts} experts each, on {dev.name} ({place})")
        for dtype in ("float32", "bfloat16"):
            found, seconds = timed(layer(dev, p, options.best, dtype), options.rounds, lambda y: y.wait())
            error = np.abs(found.numpy() - want).max() / np.abs(want).max()
            print(f"{dtype:10} {seconds * 1e3:9.2f} ms a step   error {error:.1e}")
    step = with_torch(p, options.best)
    if step is not None:
        found, seconds = timed(step, options.rounds, lambda _: None)
        error = np.abs(found.cpu().numpy() - want).max() / np.abs(want).max()
        print(f"{'torch':10} {seconds * 1e3:9.2f} ms a step   error {error:.1e}")


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
