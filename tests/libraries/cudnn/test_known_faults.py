"""What cuDNN is known to get wrong: refused, or computed in another way; the table is in docs/libraries/cudnn.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attention_reference import reference
from cudnn_reference import assert_close, random_images

import atomr_native as an

RNG = np.random.default_rng(31)
PAGE = Path(__file__).parents[3] / "docs" / "libraries" / "cudnn.md"


def test_attention_at_an_address_that_engines_do_not_take(device: an.Device) -> None:
    """cuDNN does not check addresses, and its results are wrong; the host device takes any."""
    values = random_images(RNG, (1, 2, 8, 16), "float16")
    moved = device.put(np.concatenate([np.zeros(4, "float16"), values.ravel()]))[4:].reshape(values.shape)
    q = device.put(values)
    if device.kind == "host":
        assert (device.cudnn.attention(q, moved, q).numpy() == device.cudnn.attention(q, q, q).numpy()).all()
        return
    with pytest.raises(an.Unsupported, match=r"aligned to 8 bytes only, .* multiples of 16") as caught:
        device.cudnn.attention(q, moved, q).numpy()
    assert caught.value.rule == "cudnn.alignment"
    assert np.isfinite(device.cudnn.attention(q, device.copy(moved), q).numpy()).all()


def test_each_length_has_a_plan_of_its_own(device: an.Device) -> None:
    """A kernel of attention that cuDNN keeps for other shapes gives wrong results, so none is kept."""
    for tokens in (16, 24, 8, 40):
        q, k, v, dy = (random_images(RNG, (1, 2, tokens, 16), "float16") for _ in range(4))
        y, _, *slopes = reference(*(a.astype(np.float64) for a in (q, k, v, dy)), {"mask": "causal"})
        given = [device.put(a) for a in (q, k, v)]
        found, statistics = device.cudnn.attention(*given, mask="causal", statistics=True)
        assert_close(found.numpy(), y, "float16")
        made = device.cudnn.attention_backward(*given, found, statistics, device.put(dy), mask="causal")
        for slope, wanted in zip(made, slopes, strict=True):
            assert_close(slope.numpy(), wanted, "float16", 2.0)


def test_numbers_of_replayed_messages_are_their_own(device: an.Device) -> None:
    """A number that cuDNN reads on the host is fixed where its call is captured."""
    q, k, v = (device.put(random_images(RNG, (1, 2, 8, 16), "float16")) for _ in range(3))
    x = device.put(random_images(RNG, (2, 8, 3, 3), "float32"))
    one, zero = device.ones(8, "float32"), device.zeros(8, "float32")
    made: dict[float, list[np.ndarray[Any, Any]]] = {0.1: [], 2.0: []}
    for _ in range(4):
        for factor, results in made.items():
            results.append(device.cudnn.attention(q, k, v, scale=factor).numpy())
            results.append(device.cudnn.norm("batch", x, one, zero, epsilon=factor)[0].numpy())
    for results in made.values():
        for i in (0, 1):
            assert all((result == results[i]).all() for result in results[i::2])
    assert all((a != b).any() for a, b in zip(*(results[:2] for results in made.values()), strict=True))
    wide = x.numpy().astype(np.float64)
    for factor, results in made.items():
        unit = (wide - wide.mean((0, 2, 3), keepdims=True)) / np.sqrt(wide.var((0, 2, 3), keepdims=True) + factor)
        assert_close(results[1], unit, "float32", 4.0)


def test_the_page_names_tests_that_exist() -> None:
    """Each known fault has a test, by file and name."""
    table = PAGE.read_text().partition("## Known faults of cuDNN")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+)\.py::(test_\w+)`", table)
    assert len(named) >= 12
    for file, name in named:
        assert f"def {name}(" in (Path(__file__).parent / f"{file}.py").read_text(), (file, name)
