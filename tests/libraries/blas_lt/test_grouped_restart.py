"""Groups whose matrices are found by arrays of addresses, in the memory of a device whose worker dies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from crash import PATIENT, await_generation, kill

import atomr_native as an

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("way", ["batched", "grouped"])
def test_addresses_are_renewed_after_a_restart(
    cuda_engine: str, make_system: Callable[..., an.System], way: str
) -> None:
    device = make_system(**PATIENT).device("cuda:0")
    a = [device.put(np.full((8, 8), i + 1, np.float32), durable=True) for i in range(3)]
    out = [device.put(np.zeros((8, 8), np.float32), durable=True) for _ in range(3)]
    plan = device.blas_lt.grouped_plan(a, a, out=out, way=way)
    given = [ref for triple in zip(a, a, out, strict=True) for ref in triple]
    for generation in (1, 2):
        for ref in out:
            device.copy(device.put(np.zeros((8, 8), np.float32)), out=ref)
        plan.ask(*given).result(30)
        assert [float(ref.numpy()[0, 0]) for ref in out] == [8.0, 32.0, 72.0]
        if generation == 1:
            kill(device)
            await_generation(device, 2)
