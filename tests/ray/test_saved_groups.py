"""State that outlives its node: commits of durable groups in files and in the memory of other nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_actors import Trains

import atomr_native as an
from atomr_native.ray import Cluster, RemoteRef
from atomr_native.ray.in_process import InProcess

Make = Callable[..., tuple[Cluster, InProcess]]
FAULTS = {"lost": 0.2, "late": 0.2, "repeated": 0.2}


@pytest.mark.parametrize("where", ["file", "node"])
def test_the_state_of_a_lost_node(clusters: Make, tmp_path: Path, where: str) -> None:
    cluster, carrier = clusters(faults=FAULTS)
    trainer = cluster.spawn(Trains, node=1)
    for _ in range(3):
        trainer.ask("step").result(60)
    place: Any = tmp_path / "state" if where == "file" else cluster.device("node0/host")
    saved = trainer.ask(("save", place)).result(60)
    if where == "node":
        assert isinstance(saved.data, RemoteRef)
        assert saved.data.node == "node0"
    assert trainer.ask("step").result(60) == (4, [4.0] * 4)
    carrier.kill("node1")
    while True:
        try:
            assert trainer.ask("state").result(60) == (0, [0.0] * 4)  # the memory of the node is lost
            break
        except an.NodeLost:
            continue
    assert trainer.ask(("load", saved)).result(60) == (3, [3.0] * 4)
    assert trainer.ask("step").result(60) == (4, [4.0] * 4)


def test_a_copy_on_a_node_that_is_lost_too_is_stale(clusters: Make) -> None:
    cluster, carrier = clusters()
    trainer = cluster.spawn(Trains, node=1)
    saved = trainer.ask(("save", cluster.device("node0/host"))).result(30)
    carrier.kill("node0")
    with pytest.raises(an.GpuRefStale) as error:
        trainer.ask(("load", saved)).result(30)
    assert error.value.reason == "node lost"
    assert trainer.ask("state").result(30) == (0, [0.0] * 4)
