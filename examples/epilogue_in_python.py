"""A matrix product whose epilogue is a Python function: compiled on the spot, and inlined into the product's kernel.

    y = swish_gate(x @ w, gate),   of which any element is a function of the sum and of the gate's element

The result is compared with float64, and the time with that of the plain product, and of torch.compile where it is
installed.

    python examples/epilogue_in_python.py                        # on cuda:0, or on the host where there is no GPU
    python examples/epilogue_in_python.py --rows 8192 --columns 8192 --inner 8192
"""

import argparse
import math
import sys
import time

import numpy as np

import atomr_native as an


def swish_gate(acc, gate):
    """An element of the result."""
    return acc * gate / (1.0 + math.exp(-acc))


def reference(x, w, gate):
    """The result in float64."""
    acc = x.astype(np.float64) @ w.astype(np.float64)
    return acc * gate / (1 + np.exp(-acc))


def with_torch(x, w, gate):
    """The same by torch.compile, in bfloat16 on a GPU; None without either."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    placed = [torch.tensor(value, dtype=torch.bfloat16, device="cuda") for value in (x, w, gate)]
    compiled = torch.compile(lambda x, w, gate: torch.nn.functional.silu(x @ w) * gate)

    def step():
        y = compiled(*placed)
        torch.cuda.synchronize()
        return y

    return step


def timed(step, rounds, wait):
    """Return the result of a step, the seconds of the first one, and those of one of the others."""
    began = time.perf_counter()
    wait(step())
    first = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(rounds):
        result = step()
    wait(result)
    return result, first, (time.perf_counter() - began) / rounds


def parse(argv):
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--rows", type=int, default=256, metavar="N", help="rows of x (%(default)s)")
    add("--columns", type=int, default=256, metavar="N", help="columns of w, a multiple of 8 (%(default)s)")
    add("--inner", type=int, default=128, metavar="N", help="columns of x, a multiple of 8 (%(default)s)")
    add("--rounds", type=int, default=20, metavar="N", help="products that are timed (%(default)s)")
    options = parser.parse_args(argv)
    for name in ("rows", "columns", "inner", "rounds"):
        unit = 8 if name in ("columns", "inner") else 1
        if (value := getattr(options, name)) < 1 or value % unit:
            parser.error(f"--{name} {value}; it must be 1 or more, in multiples of {unit}")
    return options


def run(options):
    """Send the products and compare them."""
    rng = np.random.default_rng(0)
    m, n, k = options.rows, options.columns, options.inner
    x, w, gate = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n), (m, n)))
    w /= np.sqrt(k)
    want = reference(x, w, gate)
    with an.System() as system:
        dev = system.device(options.device) if options.device else system.device()
        place = dev.facts.get("name", "the processor")
        print(f"({m}, {k}) by ({k}, {n}) in bfloat16 on {dev.name} ({place})")
        a, b, c = (dev.put(value, dtype="bfloat16") for value in (x, w, gate))
        for name, options_of in (
            ("plain", {"epilogue": "acc"}), ("Python", {"epilogue": swish_gate, "operands": {"gate": c}})
        ):  # fmt: skip
            step = lambda given=options_of: dev.cutlass.gemm(a, b, **given)  # noqa: E731
            found, first, seconds = timed(step, options.rounds, lambda y: y.wait())
            error = np.abs(found.numpy().astype("f8") - want).max() / np.abs(want).max() if name == "Python" else 0
            print(f"{name:14} first {first:6.2f} s, then {seconds * 1e3:8.3f} ms   error {error:.1e}")
    step = with_torch(x, w, gate)
    if step is not None:
        found, first, seconds = timed(step, options.rounds, lambda _: None)
        error = np.abs(found.float().cpu().numpy() - want).max() / np.abs(want).max()
        print(f"{'torch.compile':14} first {first:6.2f} s, then {seconds * 1e3:8.3f} ms   error {error:.1e}")


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
