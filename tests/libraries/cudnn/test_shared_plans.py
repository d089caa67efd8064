"""Plans of cuDNN that several actors use at the same time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from cudnn_reference import random_images

import atomr_native as an

ACTORS = 8
RNG = np.random.default_rng(11)


def convolutions(device: an.Device) -> Any:
    x = device.put(random_images(RNG, (2, 8, 9, 9), "float16"))
    w, bias = (device.put(random_images(RNG, shape, "float16")) for shape in ((16, 8, 3, 3), (16,)))

    def send(dnn: an.Cudnn) -> list[an.GpuRef]:
        y = dnn.convolution(x, w, bias, padding=1, activation="relu", deterministic=True)
        return [y, dnn.convolution_backward_filter(x, y, 3, padding=1, deterministic=True)]

    return send


def attention(device: an.Device) -> Any:
    q, k, v = (device.put(random_images(RNG, (1, 2, 64, 32), "float16")) for _ in range(3))

    def send(dnn: an.Cudnn) -> list[an.GpuRef]:
        return list(dnn.attention(q, k, v, statistics=True, mask="causal"))

    return send


def gradients_of_attention(device: an.Device) -> Any:
    q, k, v, dy = (device.put(random_images(RNG, (1, 2, 64, 32), "float16")) for _ in range(4))
    y, statistics = device.cudnn.attention(q, k, v, statistics=True, mask="causal")

    def send(dnn: an.Cudnn) -> list[an.GpuRef]:
        how: dict[str, Any] = {"mask": "causal", "deterministic": True}
        return list(dnn.attention_backward(q, k, v, y, statistics, dy, **how))

    return send


def norms(device: an.Device) -> Any:
    x = device.put(random_images(RNG, (4, 8, 5, 5), "float32"))
    scale, bias = device.ones(8, "float32"), device.zeros(8, "float32")

    def send(dnn: an.Cudnn) -> list[an.GpuRef]:
        y, mean, inverse = dnn.norm("batch", x, scale, bias)
        return [y, *dnn.norm_backward("batch", y, x, scale, inverse, mean)]

    return send


@pytest.mark.parametrize("make", [convolutions, attention, gradients_of_attention, norms])
def test_eight_actors_give_the_same_bits_as_one(device: an.Device, make: Any) -> None:
    """They send from threads of their own, and all their messages name the same plans."""
    send = make(device)
    wanted = [array.numpy().tobytes() for array in send(device.cudnn)]
    actors = [an.Cudnn(device, f"{make.__name__} {i}") for i in range(ACTORS)]
    differ: list[tuple[int, int]] = []

    def run(at: int) -> None:
        for arrays in [send(actors[at]) for _ in range(4)]:
            found = [array.numpy().tobytes() for array in arrays]
            differ.extend((at, i) for i, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
        ended.append(at)

    ended: list[int] = []
    threads = [threading.Thread(target=run, args=(i,)) for i in range(ACTORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(ended) == list(range(ACTORS))
    assert differ == []  # actors, and numbers of results
