"""The Prometheus exporter: names, labels and values, and how it ends."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

import atomr_native as an

client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402


class Echo(an.Actor):
    def receive(self, message):
        if message == "fail":
            raise ValueError(message)
        return message


def samples(text):
    return {
        (s.name, *sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def get(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def test_what_is_served(make_system):
    system = make_system(memory_limit=1 << 28)
    device = system.device("host")
    device.put([1.0] * 1000).wait(10)
    echo = system.spawn(Echo, name="echo", mailbox=an.Mailbox(None))
    echo.ask(1).result(10)
    with pytest.raises(ValueError, match="fail"):
        echo.ask("fail").result(10)
    assert echo.ask(2).result(10) == 2  # after its restart
    other = system.spawn(Echo, name="other")
    other.stop()
    assert other.join(10)
    other.tell("too late")
    stats = system.stats()
    with an.observe.serve_metrics(system, 0) as server:
        found = samples(get(server))
    host, path = ("device", "host"), ("actor", "/echo")
    assert found["atomr_native_device_state", host, ("state", "open")] == 1
    assert found["atomr_native_device_state", host, ("state", "lost")] == 0
    assert found["atomr_native_device_restarts_total", host] == 0
    assert found["atomr_native_device_memory_limit_bytes", host] == 1 << 28
    assert found["atomr_native_device_memory_in_use_bytes", host] == stats["devices"]["host"]["memory"]["in_use"]
    assert found["atomr_native_device_memory_device_total_bytes", host] > 0
    assert ("atomr_native_pool_in_use_bytes", host, ("pool", "volatile")) in found
    assert found["atomr_native_lane_messages_completed_total", host, ("lane", "memory")] >= 1
    assert found["atomr_native_lane_queued_messages", host, ("lane", "memory")] == 0
    assert found["atomr_native_lane_busy_seconds_total", host, ("lane", "memory")] < 10
    assert found["atomr_native_actor_messages_processed_total", path] == 3
    assert found["atomr_native_actor_messages_failed_total", path] == 1
    assert found["atomr_native_actor_restarts_total", path] == 1
    assert found["atomr_native_actor_state", path, ("state", "running")] == 1
    assert ("atomr_native_actor_mailbox_capacity_messages", path) not in found  # it has no bound
    assert found["atomr_native_dead_letters_total",] == 1
    info = next(key for key in found if key[0] == "atomr_native_device_info")
    assert dict(info[1:])["hardware"]


def test_every_name_is_documented_and_conventional(make_system):
    from pathlib import Path

    text = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text(encoding="utf-8")
    system = make_system()
    system.device("host")
    for family in an.observe.SystemCollector(system).collect():
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        assert f"`{name}`" in text
        assert family.documentation.endswith(".")
        if "memory" in name or "pool" in name:
            assert name.endswith("_bytes")


def test_the_server_ends_with_the_system(make_system):
    system = make_system()
    server = an.observe.serve_metrics(system, 0)
    assert "atomr_native_dead_letters_total" in get(server)
    with pytest.raises(an.Unsupported, match=f"port {server.port} of 127.0.0.1"):
        an.observe.serve_metrics(system, server.port)
    system.close()
    with pytest.raises(urllib.error.URLError):
        get(server)
    with pytest.raises(an.ActorStopped):
        an.observe.serve_metrics(system, 0)
    server.close()


def test_a_collector_keeps_no_system_and_tells_nothing_of_a_closed_one(make_system):
    import gc
    import weakref

    system = an.System()
    registry = client.CollectorRegistry()
    registry.register(an.observe.SystemCollector(system))
    assert list(registry.collect())
    gone = weakref.ref(system)
    del system
    gc.collect()
    assert gone() is None
    assert not list(registry.collect())


@pytest.mark.parametrize("port", [-1, 65536, "80", 1.5, True, None])
def test_bad_ports(make_system, port):
    with pytest.raises(an.InvalidRequest, match="from 0 to 65535"):
        an.observe.serve_metrics(make_system(), port)
