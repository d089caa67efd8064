"""`examples/convolution_digits.py`: it learns on the host device, and every kind of device takes the same steps."""

from __future__ import annotations

import example_programs
import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("sklearn")


def test_the_loss_falls() -> None:
    program = example_programs.load("convolution_digits")
    with an.System() as system:
        losses, right = program.train(system.device("host"), 80)
    assert losses[0] > 2
    assert np.mean(losses[-10:]) < 0.4
    assert right > 0.85


def test_steps_are_the_same_on_every_device(device: an.Device) -> None:
    """The gradients of a batch, by the weights after two steps, against the host device's."""
    program = example_programs.load("convolution_digits")
    rng = np.random.default_rng(2)
    x, labels = rng.standard_normal((4, 1, 8, 8)).astype("float32"), np.array([3, 1, 4, 1])

    def stepped(on: an.Device) -> dict[str, np.ndarray]:
        p = {name: on.put(value.astype("float32")) for name, value in program.weights_of().items()}
        momentum = {name: on.zeros(ref.shape, "float32") for name, ref in p.items()}
        for _ in range(2):
            program.train_step(on, p, momentum, on.put(x), on.put(labels))
        return {name: ref.numpy() for name, ref in p.items()}

    found = stepped(device)
    with an.System() as system:
        wanted = stepped(system.device("host"))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * max(1, float(abs(value).max())))
