"""The example that learns to write Python: its gradients, and that it learns."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

LENGTH, VOCABULARY = 6, 12


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load("characters")


@pytest.mark.host_only
def test_gradients_are_those_of_attention_by_products(program: ModuleType, device: an.Device) -> None:
    """Within the rounding of bfloat16."""
    other = load("transformer")
    weights = other.weights_of(16, 2, VOCABULARY)
    rng, found, losses = np.random.default_rng(0), [], []
    rows = [device.put(other.one_hot(x, VOCABULARY)) for x in other.texts(rng, 3, LENGTH, VOCABULARY)]
    for kind in (program.Characters, other.Transformer):
        model, loss = kind(device, weights, 2), device.zeros(())
        model.begin(LENGTH)
        found.append({name: grad.numpy() for name, grad in model.gradients(*rows, loss).items()})
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=5e-3)
    for name, wanted in found[1].items():
        assert np.abs(found[0][name] - wanted).max() <= 0.03 * np.abs(wanted).max(), name


@pytest.mark.host_only
def test_losses_of_unseen_texts_fall(program: ModuleType, device: an.Device) -> None:
    options = program.parse(["--steps", "10", "--length", "8", "--batch", "4", "--width", "16", "--heads", "2"])
    said: list[str] = []
    losses = program.train(options, device, said.append)
    assert [step for step, _ in losses] == list(range(1, 11))
    assert losses[-1][1] < losses[0][1] - 0.2
    assert len(said[-1]) == 8


def test_options(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in [(["--heads", "3"], "a multiple of 8 for each"), (["--steps", "0"], "it must be 1 or more")]:
        with pytest.raises(SystemExit):
            program.parse(arguments)
        assert text in capsys.readouterr().err
