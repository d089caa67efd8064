"""Engines of cuDNN chosen by measurements: kept on disk, right, and not for graphs that read places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, convolved, random_images

import atomr_native as an
from atomr_native.libraries.cudnn.cuda.descriptors import describe_graph
from atomr_native.libraries.cudnn.cuda.tuning import is_measurable

RNG = np.random.default_rng(21)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "tuning").rglob("*.json"))


def test_engines_are_measured_once_and_by_all_processes(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    x, w = random_images(RNG, (2, 8, 6, 6), "float16"), random_images(RNG, (8, 8, 3, 3), "float16")
    texts = []
    for tune in (True, "known"):
        device = make_system().device("cuda:0")
        rx, rw = device.put(x), device.put(w)
        plain = device.cudnn.plan(an.ConvolutionRequest(x=rx, w=rw, padding=1))
        assert plain.tuning == ""
        request = an.ConvolutionRequest(x=rx, w=rw, padding=1, tune=tune)
        texts.append(device.cudnn.plan(request).tuning)
        assert_close(device.cudnn.tell(request).numpy(), convolved(x, w, padding=1), "float16")
        assert_close(
            device.cudnn.convolution(rx, rw, padding=1, tune=tune).numpy(), convolved(x, w, padding=1), "float16"
        )
        fixed = an.ConvolutionRequest(x=rx, w=rw, padding=1, tune=True, deterministic=True)
        assert device.cudnn.plan(fixed).tuning == ""
    assert texts[0] == texts[1]
    assert texts[0].startswith("tuned: ")
    assert "place " in texts[0]
    assert len(entries(cache)) == 1
    (entry,) = entries(cache)
    entry.write_bytes(entry.read_bytes()[:-9])  # damaged
    device = make_system().device("cuda:0")
    known = an.ConvolutionRequest(x=device.put(x), w=device.put(w), padding=1, tune="known")
    assert device.cudnn.plan(known).tuning == ""


def test_gradients_attention_and_graphs_are_measured(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    device = make_system().device("cuda:0")
    images, filters = device.ones((1, 8, 4, 4), "float16"), device.ones((8, 8, 1, 1), "float16")
    q = device.put(random_images(RNG, (1, 2, 16, 16), "float16"))
    how: dict[str, Any] = {"mask": "causal", "tune": True}
    y, statistics = device.cudnn.attention(q, q, q, statistics=True, **how)
    plain = device.cudnn.attention(q, q, q, mask="causal")
    assert_close(y.numpy(), plain.numpy().astype(float), "float16")
    codes, one = device.ones((1, 2, 16, 16), "float8_e4m3fn"), device.ones(1, "float32")
    scales = dict.fromkeys((f"{name}_scale" for name in ("q", "k", "v", "weights", "out")), one)
    requests = [
        an.Float8AttentionRequest(q=codes, k=codes, v=codes, tune=True, **scales),
        an.ConvolutionDataGradientRequest(dy=images, w=filters, size=(4, 4), tune=True),
        an.ConvolutionFilterGradientRequest(x=images, dy=images, size=(1, 1), tune=True),
        an.AttentionRequest(q=q, k=q, v=q, statistics=True, **how),
        an.AttentionGradientRequest(q=q, k=q, v=q, y=y, statistics=statistics, dy=y, **how),
        an.GraphRequest(function=lambda a, b: (a @ b).apply("relu"), operands=(q.reshape(2, 16, 16),) * 2, tune=True),
    ]
    for request in requests:
        assert device.cudnn.plan(request).tuning.startswith("tuned: "), request
    assert (device.cudnn.tell(requests[0])[0].numpy().astype(float) == 1).all()
    assert (device.cudnn.tell(requests[1]).numpy() == 8).all()
    ends = device.put(np.array([3], "int32"))
    lengths = an.AttentionRequest(q=q, k=q, v=q, q_lengths=ends, kv_lengths=ends, **how)
    assert device.cudnn.plan(lengths).tuning == ""
    assert (device.cudnn.tell(lengths).numpy()[0, :, 3:] == 0).all()


def test_what_says_where_others_are_is_not_made_up() -> None:
    q = np.zeros((1, 2, 4, 16), "float16")
    spec = an.AttentionRequest(q=q, k=q, v=q).lowered.spec()
    description = describe_graph(spec.attributes, len(spec.operands), 0)
    assert is_measurable(description)
    assert description.reaches[0] == (q.nbytes, "float16")
    assert not is_measurable(replace(description, reaches=((8, "int64"),)))


def test_tune_is_checked() -> None:
    x, w = np.zeros((1, 8, 4, 4), "float16"), np.zeros((8, 8, 1, 1), "float16")
    for value in ("no", 1, None):
        with pytest.raises(an.InvalidRequest, match=f"tune={value!r}; allowed: False, True, 'known'"):
            an.ConvolutionRequest(x=x, w=w, tune=value)  # type: ignore[arg-type]
