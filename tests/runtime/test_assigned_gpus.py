"""Systems to which only some of the machine's GPUs are assigned, as on a node of a cluster."""

from __future__ import annotations

import pytest

import atomr_native as an
from atomr_native.runtime import system_state
from atomr_native.system import state_of


@pytest.mark.parametrize(
    ("visible", "own", "workers"),
    [("2", 1, "2,0,1,3"), ("3,1", 2, "3,1,0,2"), ("", 0, ""), ("GPU-5f", 1, "GPU-5f"), ("1, 0,2,3", 4, "1,0,2,3")],
)
def test_workers_see_all_gpus_and_devices_are_the_assigned_ones(
    monkeypatch: pytest.MonkeyPatch, visible: str, own: int, workers: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(system_state, "machine_gpus", lambda: 4)
    with an.System(standby="off") as system:
        state = state_of(system)
        state.see_all_gpus(own)
        assert state.environment["CUDA_VISIBLE_DEVICES"] == workers
        with pytest.raises(an.Unsupported, match=f"{own} GPUs are assigned to this process") as error:
            system.device(f"cuda:{own}")
        assert error.value.rule == "cuda.assigned"
        assert system.device("host").put([1.0]).numpy().tolist() == [1.0]
