"""Messages of cuDNN, for the test that records every operation."""

from __future__ import annotations

from typing import Any

import numpy as np
from recorded_cases import ARRAYS, Case, case

import atomr_native as an


def _attention(device: an.Device, ends: an.GpuRef, q: an.GpuRef) -> Any:
    kept = device.cudnn.attention(q, q, q, statistics=True, q_lengths=ends, kv_lengths=ends)
    return kept, device.cudnn.attention_backward(q, q, q, *kept, q, q_lengths=ends, kv_lengths=ends)


def _loss(device: an.Device, ones: an.GpuRef, sounds: an.GpuRef) -> Any:
    return device.cudnn.ctc_loss(sounds, ones.reshape(1, 1), ones, ones)


def _reserve(device: an.Device) -> int:
    x, weights = (device.zeros(*ARRAYS[name]) for name in ("steps", "weights"))
    return device.cudnn.rnn_reserve("tanh", x, weights, hidden=1, lengths=(2,))


def _recurrent(device: an.Device, _: Any, steps: an.GpuRef, weights: an.GpuRef) -> Any:
    how: dict[str, Any] = {"hidden": 1, "lengths": (2,)}
    y, hy, reserve, *_ = device.cudnn.rnn("tanh", steps, weights, training=True, **how)
    return y, hy, device.cudnn.rnn_backward("tanh", steps, weights, y, steps, reserve, **how)


CASES: dict[str, Case] = {
    "softmax": case(lambda d, _, x: d.cudnn.softmax(x), "x"),
    "convolution": case(lambda d, _, image, filters, row: d.cudnn.convolution(image, filters, row[:2]),
                        "image filters row"),
    "attention": case(_attention, "narrow", lambda d: d.put(np.array([3], "int32"))),
    "recurrent network": case(_recurrent, "steps weights", _reserve),
    "connectionist loss": case(_loss, "sounds", lambda d: d.put(np.ones(1, "int32"))),
}  # fmt: skip
#: The fake waits inside.
STEPWISE = {"recurrent network"}
#: Its call reads the answer.
NEVER = {"cudnn.rnn_reserve"}
