"""Learn to read digits on several devices, lose one of them half-way, and get the curve of a single device.

Each device trains a replica on its part of the batch, and a communicator averages the gradients.  Half-way the program
kills the worker of the last device.  The replicas return to the last commit that all of them have, and training
continues.

    pip install '.[demo]'
    python examples/data_parallel.py
    python examples/data_parallel.py --devices host host:1 host:2 host:3
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import atomr_native as an

BATCH, HIDDEN, CLASSES, RATE = 96, 64, 10, 0.05


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images from -1 to 1, and labels."""
    images, labels = load_digits(return_X_y=True)
    return (images / 8 - 1).astype("float32"), labels


class Replica:
    """The network on one device, with its momentum, in durable memory."""

    def __init__(self, device: an.Device) -> None:
        self.device = device
        rng = np.random.default_rng(0)
        shapes = {"w1": (64, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}
        made = {name: rng.normal(0, (2 / shape[0]) ** 0.5, shape) * (len(shape) > 1) for name, shape in shapes.items()}
        self.weights = {name: device.put(value, dtype="float32", durable=True) for name, value in made.items()}
        self.momentum = {name: device.zeros(shape, durable=True) for name, shape in shapes.items()}
        self.state = {**self.weights, **{f"momentum of {name}": ref for name, ref in self.momentum.items()}}

    def gradients(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> tuple[an.GpuRef, dict[str, Any]]:
        """Send the forward and backward pass; return the loss, and the gradients by name."""
        dev, w = self.device, self.weights
        x, y = dev.put(images), dev.put(labels)
        first = dev.blas_lt.matmul(x, w["w1"], bias=w["b1"], epilogue="gelu_aux_bias")
        logits = dev.blas_lt.matmul(first.out, w["w2"], bias=w["b2"], epilogue="bias")
        loss, d_logits = dev.elementwise.softmax_cross_entropy(logits, y)
        second = dev.blas_lt.matmul(first.out, d_logits, trans_a=True, epilogue="bgradb")
        hidden = dev.blas_lt.matmul(d_logits, w["w2"], trans_b=True, epilogue="dgelu_bgrad", aux=first.aux)
        found = {"b1": hidden.bias_grad, "w2": second.out, "b2": second.bias_grad}
        return loss, {"w1": dev.blas_lt.matmul(x, hidden.out, trans_a=True), **found}

    def update(self, gradients: dict[str, an.GpuRef]) -> None:
        """Send the update of all parameters."""
        for name, ref in self.weights.items():
            self.device.elementwise.run(
                f"v = 0.9 * v + g; w -= {RATE} * v", w=ref, v=self.momentum[name], g=gradients[name]
            )


def one_step(
    comm: an.Communicator, replicas: Sequence[Replica], group: an.CommunicatorGroup, data: Any, step: int,
    halfway: Callable[[], object] = bool,
) -> float:  # fmt: skip
    """Make one step on all devices; return its loss when all have committed it.  `halfway` runs before the updates."""
    images, labels = data
    chosen = np.random.default_rng(step).choice(len(images), BATCH, replace=False)
    parts = np.split(chosen, len(replicas))
    found = [r.gradients(images[p], labels[p]) for r, p in zip(replicas, parts, strict=True)]
    losses, gradients = [loss for loss, _ in found], [of for _, of in found]
    with comm.group():  # one message a device
        mean = comm.all_reduce(losses, op="avg")
        for name in replicas[0].weights:
            given = [of[name] for of in gradients]
            comm.all_reduce(given, op="avg", out=given)
    halfway()
    for replica, of in zip(replicas, gradients, strict=True):
        replica.update(of)
    group.commit(tag=step).result()
    return float(mean[0].item())


def train(system: an.System, names: Sequence[str], steps: int, kill_at: int | None = None) -> list[float]:
    """Train on devices; return the loss of each step."""
    comm = system.communicator(names)
    replicas = [Replica(device) for device in comm.devices]
    group = comm.durable_group([replica.state for replica in replicas])
    data, curve = digits(), [0.0] * steps
    step = 0

    def kill() -> None:
        nonlocal kill_at
        if step == kill_at:
            kill_at, pid = None, comm.devices[-1].worker_pid
            print(f"step {step}: killing the worker of {comm.devices[-1].name}, process {pid}")
            if pid is not None:
                os.kill(pid, signal.SIGKILL)

    while step < steps:
        try:
            curve[step] = one_step(comm, replicas, group, data, step + 1, kill)
            step += 1
        except (an.DeviceFault, an.GpuRefStale, an.DependencyFailed) as error:
            print(f"step {step}: {type(error).__name__}")
            step = group.restore()
            print(f"back at step {step}, generation {comm.generation} of the communicator")
    comm.close()
    return curve


def main(arguments: Sequence[str] | None = None) -> int:
    """Train on all devices with a death, then on the first alone; print how far apart the curves are."""
    parser = argparse.ArgumentParser(description="Data-parallel training that survives the death of a rank.")
    parser.add_argument("--devices", nargs="+", default=["host", "host:1"], help="their number divides 96")
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args(arguments)
    if given.steps < 2 or BATCH % len(given.devices):
        parser.error(f"--steps is at least 2, and the number of --devices divides {BATCH}")
    # Each message that dies with a worker would be a warning; the program hears of it anyway.
    logging.getLogger("atomr_native.dead_letters").setLevel(logging.ERROR)
    with an.System(standby="off") as system:
        together = train(system, given.devices, given.steps, kill_at=given.steps // 2)
    with an.System(standby="off") as system:
        alone = train(system, given.devices[:1], given.steps)
    apart = max(abs(a - b) for a, b in zip(together, alone, strict=True))
    print(f"loss {together[0]:.3f} at first, {together[-1]:.3f} at last, on {len(given.devices)} devices")
    print(f"at most {apart:.1e} from the curve of one device")
    return 0


if __name__ == "__main__":
    sys.exit(main())
