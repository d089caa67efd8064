"""Spans and ranges of messages, and the libraries that they need."""

from __future__ import annotations

import asyncio
import contextlib

import actions
import pytest
from observed_actors import Echo, Gate, Relay

import atomr_native as an

# ---- spans


@pytest.fixture
def exporter():
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    made = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    made.tracer = provider.get_tracer("test")
    yield made
    provider.shutdown()


def test_a_span_for_each_ask_with_those_of_its_handler_below(make_system, exporter):
    system = make_system()
    echo = system.spawn(Echo, name="echo")
    relay = system.spawn(Relay, echo, name="relay")
    with an.observe.spans(system, exporter.tracer):
        relay.ask("x").result(10)
        echo.tell("told: no span")
        with pytest.raises(ValueError, match="bad"):
            echo.ask(ValueError("bad")).result(10)
    relay.ask("y").result(10)
    inner, outer, failed = exporter.get_finished_spans()
    assert [span.name for span in (inner, outer, failed)] == ["ask /echo", "ask /relay", "ask /echo"]
    assert inner.parent.span_id == outer.context.span_id
    assert outer.parent is None
    assert inner.attributes["atomr_native.sender"] == "/relay"
    assert outer.attributes["atomr_native.message"] == "str"
    assert failed.status.status_code.name == "ERROR"
    assert "bad" in failed.status.description
    assert outer.status.status_code.name == "UNSET"


def test_spans_of_coroutines_do_not_mix(make_system, exporter):
    system = make_system()
    echo = system.spawn(Echo, name="echo")

    class Front(an.Actor):
        reentrant = 2

        async def receive(self, message):
            await asyncio.sleep(0.01)
            return await echo.ask(message)

    front = system.spawn(Front, name="front")
    with an.observe.spans(system, exporter.tracer):
        an.gather(front.ask(1), front.ask(2), timeout=10)
    spans = exporter.get_finished_spans()
    parents = [span.parent.span_id for span in spans if span.name == "ask /echo"]
    assert sorted(parents) == sorted(span.context.span_id for span in spans if span.name == "ask /front")


def test_spans_of_devices(make_system, exporter):
    system = make_system()
    plan = system.device("host").lane("mine").noop()
    with an.observe.spans(system, exporter.tracer):
        reply = plan.ask()
        reply.result(10)
        plan.tell()
        actions.eventually(lambda: len(exporter.get_finished_spans()) == 1)
    (span,) = exporter.get_finished_spans()
    assert span.name == "ask host/mine"
    assert span.attributes["atomr_native.ticket"] == reply.ticket


def test_a_tracer_that_is_none_is_refused(make_system):
    pytest.importorskip("opentelemetry", reason="opentelemetry-api is not installed")
    with pytest.raises(an.InvalidRequest, match="it must be a Tracer"), an.observe.spans(make_system(), "tracer"):
        pass


# ---- ranges


def test_ranges_begin_and_end(make_system, monkeypatch):
    nvtx = pytest.importorskip("nvtx", reason="nvtx is not installed")
    opened, closed = {}, []

    def start(message, domain):
        assert domain == "atomr_native"
        opened[len(opened)] = message
        return len(opened) - 1

    monkeypatch.setattr(nvtx, "start_range", start)
    monkeypatch.setattr(nvtx, "end_range", closed.append)
    system = make_system()
    plan = system.device("host").lane("mine").noop()
    gate, echo = system.spawn(Gate, name="gate"), system.spawn(Echo, name="echo")
    with an.observe.ranges(system):
        an.gather(gate.ask(1), gate.ask("open"), echo.ask(2), timeout=10)
        plan.ask().result(10)
        actions.eventually(lambda: len(closed) == 4)
    assert sorted(opened.values()) == ["/echo int", "/gate int", "/gate str", "host/mine noop"]
    assert sorted(closed) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["spans", "ranges", "serve_metrics"])
def test_a_missing_library_is_named_with_what_installs_it(make_system, monkeypatch, name):
    import sys

    for module in ("opentelemetry.trace", "nvtx", "prometheus_client.core"):
        monkeypatch.setitem(sys.modules, module, None)
    arguments = (make_system(), 0) if name == "serve_metrics" else (make_system(),)
    match = r"pip install \S+, or pip install '\.\[observe\]'"
    with contextlib.ExitStack() as stack, pytest.raises(an.Unsupported, match=match):
        stack.enter_context(getattr(an.observe, name)(*arguments))
