"""The feed-forward block of a transformer, divided over several devices, forward and backward.

    y = gelu(x @ w1.T + b1) @ w2.T + b2

Each device has a part of the hidden units: rows of w1 and b1, columns of w2.  It computes its part of the sum that y
is, and of the gradient of x; an all-reduce each adds them up.  The gradients of the weights stay where the weights are.
The results are compared with those of one device, and with float64.

    python examples/tensor_parallel.py
    python examples/tensor_parallel.py --devices cuda:0 cuda:1 --dtype bfloat16 --tokens 4096 --width 4096
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import atomr_native as an

Arrays = dict[str, np.ndarray[Any, Any]]
#: Axis along which the ranks' parts of a result are joined; the others are the same on all ranks.
PARTS = {"w1": 0, "b1": 0, "w2": 1}


def parameters(tokens: int, width: int) -> Arrays:
    """Return input, weights, and the gradient of the loss by y."""
    rng = np.random.default_rng(0)
    shapes = {
        "x": (tokens, width), "w1": (4 * width, width), "b1": (4 * width,), "w2": (width, 4 * width), "b2": (width,),
        "seed": (tokens, width),
    }  # fmt: skip
    return {
        name: rng.normal(0, shape[-1] ** -0.5 if name in ("w1", "w2") else 1.0, shape).astype("float32")
        for name, shape in shapes.items()
    }


def reference(p: Arrays) -> Arrays:
    """Return the block and its gradients in float64; the loss is sum(y * seed)."""
    x, w1, b1, w2, b2, seed = (p[name].astype(np.float64) for name in ("x", "w1", "b1", "w2", "b2", "seed"))
    z = x @ w1.T + b1
    t = np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))
    h = 0.5 * z * (1 + t)
    slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * z * z)
    dz = (seed @ w2) * slope
    return {
        "y": h @ w2.T + b2, "w2": seed.T @ h, "b2": seed.sum(0), "w1": dz.T @ x, "b1": dz.sum(0), "x": dz @ w1,
    }  # fmt: skip


class Block:
    """The block on the devices of a communicator."""

    def __init__(self, comm: an.Communicator, p: Arrays, dtype: str) -> None:
        self.comm = comm
        root = comm.devices[0]
        whole = {name: comm.broadcast(root.put(p[name], dtype=dtype)) for name in ("x", "b2", "seed")}
        self.ranks: list[dict[str, an.GpuRef]] = []
        for rank, device in enumerate(comm.devices):
            parts = {name: np.split(p[name], comm.size, axis)[rank] for name, axis in PARTS.items()}
            mine = {name: device.put(part, dtype=dtype) for name, part in parts.items()}
            self.ranks.append({**mine, **{name: refs[rank] for name, refs in whole.items()}})

    def step(self) -> list[dict[str, an.GpuRef]]:
        """Send a forward and a backward pass; return the results of each rank by name."""
        forward = []
        for device, r in zip(self.comm.devices, self.ranks, strict=True):
            h, z, *_ = device.blas_lt.matmul(r["x"], r["w1"], trans_b=True, bias=r["b1"], epilogue="gelu_aux_bias")
            forward.append((h, z, device.blas_lt.matmul(h, r["w2"], trans_b=True)))
        y = [part for *_, part in forward]
        self.comm.all_reduce(y, out=y)
        found: list[dict[str, an.GpuRef]] = []
        for device, r, (h, z, _), sum_ in zip(self.comm.devices, self.ranks, forward, y, strict=True):
            lt = device.blas_lt
            device.elementwise.run("y = y + b", y=sum_, b=r["b2"])
            second = lt.matmul(r["seed"], h, trans_a=True, epilogue="bgrada")
            hidden = lt.matmul(r["seed"], r["w2"], aux=z, epilogue="dgelu_bgrad")
            found.append({
                "y": sum_, "w2": second.out, "b2": second.bias_grad, "b1": hidden.bias_grad,
                "w1": lt.matmul(hidden.out, r["x"], trans_a=True), "x": lt.matmul(hidden.out, r["w1"]),
            })  # fmt: skip
        dx = [results["x"] for results in found]
        self.comm.all_reduce(dx, out=dx)
        return found


def joined(found: list[dict[str, an.GpuRef]]) -> Arrays:
    """Wait for the results, and return them as if one device had them."""
    return {
        name: np.concatenate([mine[name].numpy().astype(np.float64) for mine in found], PARTS[name])
        if name in PARTS
        else found[-1][name].numpy().astype(np.float64)
        for name in found[0]
    }


def run(system: an.System, names: Sequence[str], p: Arrays, dtype: str, steps: int) -> tuple[Arrays, float]:
    """Return the results of a step on these devices, and the seconds that one takes."""
    comm = system.communicator(names)
    block = Block(comm, p, dtype)
    found = joined(block.step())
    start = time.perf_counter()
    for _ in range(steps):
        last = block.step()
    for mine in last:
        for ref in mine.values():
            ref.wait()
    seconds = (time.perf_counter() - start) / steps
    comm.close()
    return found, seconds


def apart(found: Arrays, want: Arrays) -> float:
    """Return the largest difference of any result, relative to the result's largest element."""
    return max(float(np.abs(found[name] - want[name]).max() / np.abs(want[name]).max()) for name in want)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the block on all devices and on the first alone; print how far apart the results are."""
    parser = argparse.ArgumentParser(description="A feed-forward block divided over several devices.")
    parser.add_argument("--devices", nargs="+", default=["host", "host:1"], help="their number divides 4 * --width")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args(arguments)
    if min(given.tokens, given.width, given.steps) < 1 or 4 * given.width % len(given.devices):
        parser.error("--tokens, --width and --steps are at least 1, and the number of --devices divides 4 * --width")
    p = parameters(given.tokens, given.width)
    with an.System(standby="off") as system:
        together, seconds = run(system, given.devices, p, given.dtype, given.steps)
        alone, longer = run(system, given.devices[:1], p, given.dtype, given.steps)
    want = reference(p)
    for name, value, taken in ((", ".join(given.devices), together, seconds), (given.devices[0], alone, longer)):
        print(f"{name}: {taken * 1e3:.2f} ms a step, at most {apart(value, want):.1e} from float64")
    print(f"at most {apart(together, alone):.1e} from one device")
    return 0


if __name__ == "__main__":
    sys.exit(main())
