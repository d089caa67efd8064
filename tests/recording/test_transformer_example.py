"""The example whose training step and decode step are a message each."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

LENGTH, VOCABULARY = 6, 12


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load("transformer")


def _made(program: ModuleType, device: an.Device) -> Any:
    model = program.Transformer(device, program.weights_of(16, 2, VOCABULARY), 2)
    model.begin(LENGTH)
    return model


def _batch(program: ModuleType, device: an.Device, seed: int) -> list[an.GpuRef]:
    found = program.texts(np.random.default_rng(seed), 3, LENGTH, VOCABULARY)
    return [device.put(program.one_hot(x, VOCABULARY)) for x in found]


@pytest.mark.host_only
def test_gradients(program: ModuleType, device: an.Device) -> None:
    """Against the change of the loss, along a direction in which each weight's gradient is large."""
    model, loss = _made(program, device), device.zeros(())
    batch = _batch(program, device, 0)
    grads = {name: grad.numpy() for name, grad in model.gradients(*batch, loss).items()}
    assert sorted(grads) == sorted(model.w)
    for name, grad in grads.items():
        weights, step = model.w[name].numpy(), (np.sign(grad) * 2e-3).astype("float32")
        losses = []
        for sign in (1, -1):
            model.w[name] = device.put(weights + sign * step)
            model.gradients(*batch, loss)
            losses.append(float(loss))
        model.w[name] = device.put(weights)
        assert (losses[0] - losses[1]) / 2 == pytest.approx(float((grad * step).sum()), rel=0.02, abs=1e-6), name


@pytest.mark.host_only
def test_recorded_steps_equal_their_messages(program: ModuleType, device: an.Device) -> None:
    models = [_made(program, device) for _ in range(2)]
    losses = [device.zeros(()) for _ in models]
    batches = [_batch(program, device, seed) for seed in range(3)]
    plan = device.graph(models[1].train).plan(*batches[0], losses[1], step=1, rate=1e-2)
    first = last = 0.0
    for number in range(12):
        batch = batches[number % 3]
        models[0].train(*batch, losses[0], step=number + 1, rate=1e-2 / (1 + number))
        plan.tell(*batch, losses[1], step=number + 1, rate=1e-2 / (1 + number))
        last = float(losses[0])
        first = first or last
        assert float(losses[1]) == last
    assert last < 0.8 * first
    for name in models[0].w:
        np.testing.assert_array_equal(models[1].w[name].numpy(), models[0].w[name].numpy(), err_msg=name)


@pytest.mark.host_only
def test_recorded_decoding_equals_the_whole_text(program: ModuleType, device: an.Device) -> None:
    """Each token that the cache leads to is the likeliest after the text so far, as the training pass computes it."""
    model = _made(program, device)
    first = np.array([3, 7], "int64")
    caches, token = model.cache(2, LENGTH), device.put(first)
    plan = device.graph(model.decode).plan(token, caches, place=0.0)
    found = [first]
    for place in range(LENGTH - 1):
        plan.tell(token, place=float(place))
        found.append(token.numpy())
    rows = np.stack(found, axis=1)
    model.batch = 2
    x = device.put(program.one_hot(rows, VOCABULARY)) @ model.w["embedding"]
    for i in range(model.layers):
        x, _ = model.layer(i, x)
    logits = (device.fused.rms_norm(x, model.w["norm"]) @ model.w["embedding"].mT).numpy()
    np.testing.assert_array_equal(logits.argmax(-1).reshape(2, LENGTH)[:, :-1], rows[:, 1:])


def test_it_runs_as_a_program(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "host", "--width", "16", "--layers", "1", "--heads", "2", "--length", "4", "--steps", "3"]
    assert program.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [re.fullmatch(r"(\w+, [a-z ]+): .* ms a (step, loss|token,) (.*)", line) for line in lines[1:]]
    assert all(found), lines
    results = {one[1]: one[3] for one in found if one}
    for kind in ("training", "decoding"):
        assert results[f"{kind}, recorded"] == results[f"{kind}, message by message"]
    for refused in (["--heads", "3"], ["--width", "0"], ["--length", "1"]):
        with pytest.raises(SystemExit):
            program.main(refused)
