"""What a cluster shows of its nodes: metrics with a label, and a view for `top`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable

import pytest
from cluster_actors import Log

import atomr_native as an
from atomr_native.ray import Cluster


def top(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "atomr_native", "top", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_metrics_have_the_names_of_nodes(clusters: Callable[..., tuple[Cluster, object]]) -> None:
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    cluster, carrier = clusters(supervision=an.OneForOne(max_restarts=0))
    assert client is not None

    def samples() -> dict[tuple[object, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {
            (s.name, *sorted(s.labels.items())): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
        }

    cluster.device("node1/host").put([1.0]).numpy()
    ref = cluster.spawn(Log, node=0, name="log")
    assert ref.ask("x").result(30) == 1
    with cluster.serve_metrics(0) as server:
        found = samples()
        one = ("node", "node1")
        assert found["atomr_native_device_state", ("device", "host"), one, ("state", "open")] == 1
        assert found["atomr_native_lane_messages_completed_total", ("device", "host"), ("lane", "memory"), one] >= 1
        assert found["atomr_native_actor_messages_processed_total", ("actor", "/log"), ("node", "node0")] == 1
        assert found["atomr_native_dead_letters_total", one] == 0
        assert {found["atomr_native_node_up", ("node", f"node{n}")] for n in (0, 1)} == {1}
        carrier.kill("node1")  # type: ignore[attr-defined]
        while samples()["atomr_native_node_up", one]:
            pass
        assert not [key for key in samples() if one in key and key[0] != "atomr_native_node_up"]
    with pytest.raises(an.InvalidRequest, match="port=-1"):
        cluster.serve_metrics(-1)
    again = cluster.serve_metrics(0)
    cluster.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{again.port}/metrics", timeout=30)
    with pytest.raises(an.ActorStopped):
        cluster.serve_metrics(0)


def test_top_shows_the_nodes(cluster: Cluster) -> None:
    cluster.device("node1/host").put([1.0]).numpy()
    assert cluster.spawn(Log, node=0, name="log").ask("x").result(30) == 1
    published = cluster.publish()
    [found] = [one for one in json.loads(top("--json").stdout)["systems"] if one["system"] == cluster.name]
    assert set(found["stats"]["devices"]) == {"node1/host"}
    assert found["stats"]["actors"]["/node0/log"]["processed"] == 1
    shown = top("--once", "--interval", "0.05").stdout
    assert "node1/host" in shown
    assert "/node0/log" in shown
    cluster.close()
    assert published.closed
    assert not published.path.exists()
    with pytest.raises(an.ActorStopped):
        cluster.publish()
