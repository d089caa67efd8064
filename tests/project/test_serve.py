"""The example of a batching inference server: under load while its worker dies, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import example_programs
import numpy as np
import pytest
from actions import eventually
from matmul_reference import gelu

import atomr_native as an

needs_server = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("uvicorn", "sklearn", "matplotlib")),
    reason="needs the extra [examples]: uvicorn, scikit-learn, matplotlib",
)


@pytest.fixture(scope="module")
def serve() -> ModuleType:
    return example_programs.load("serve")


def parameters(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        "w1": rng.standard_normal((64, 16), dtype=np.float32) / 8, "b1": rng.standard_normal(16, dtype=np.float32),
        "w2": rng.standard_normal((16, 10), dtype=np.float32) / 4, "b2": rng.standard_normal(10, dtype=np.float32),
    }  # fmt: skip


def reference(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    p = parameters()
    hidden = gelu((pixels - 8) / 8 @ p["w1"] + p["b1"])
    odds = np.exp(hidden @ p["w2"] + p["b2"])
    return odds / odds.sum(axis=1, keepdims=True)


def model_on(serve: ModuleType, device: an.Device) -> Any:
    return serve.Model(device, parameters(), np.full(64, 8, np.float32), np.full(64, 1 / 8, np.float32))


def images(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).uniform(0, 16, (count, 64)).astype(np.float32)


# ---- all of it


@needs_server
def test_every_request_is_answered_while_the_worker_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example_programs.EXAMPLES / "serve.py"), "--self-test", "--output", str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert len(said) == 2, said  # a line for each killed worker
    assert all("worker killed by signal 9 (SIGKILL)" in line for line in said)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    requests = report["requests"]
    assert requests["sent"] == requests["answered"] == requests["correct"] >= 300
    assert requests["wrong"] == requests["missing"] == requests["refused_with_a_reason"] == 0
    assert len(report["kills"]) == report["server"]["device"]["restarts"] == 2
    latency = report["latency_ms"]
    assert sum(latency[phase]["count"] for phase in ("before", "during", "after")) == latency["all"]["count"]
    for row in latency.values():
        assert 0 < row["p50"] <= row["p90"] <= row["p99"] <= row["max"]
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


# ---- the actor


def test_a_batch_is_sent_again_after_each_death_of_the_worker(serve: ModuleType, worker_process: Any) -> None:
    with an.System() as system:
        device = system.device("host")
        model = model_on(serve, device)
        classifier = system.spawn(serve.Classifier, model, 4)
        classifier.started.result(60)
        undisturbed, calls = model.logits, []

        def logits(pixels: np.ndarray[Any, Any], timeout: float) -> Any:
            calls.append(len(pixels))
            if len(calls) <= 2:  # what is sent now is gone by the time it is read
                lost = device.put(pixels)
                lost.wait(60)
                generation = device.generation
                pid = device.worker_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                eventually(lambda: device.generation > generation, 60)
                return device.get(lost)
            return undisturbed(pixels, timeout)

        model.logits = logits
        pixels = images(3)
        deadline = time.monotonic() + 120
        answers = classifier.ask([serve.Request(image, deadline) for image in pixels], retry=4).result(120)
        assert calls == [3, 3, 3]
        assert [answer["attempts"] for answer in answers] == [3, 3, 3]
        assert {answer["generation"] for answer in answers} == {3}
        found = np.array([answer["probabilities"] for answer in answers])
        np.testing.assert_allclose(found, reference(pixels), atol=1e-5)
        assert [answer["digit"] for answer in answers] == reference(pixels).argmax(axis=1).tolist()
        assert classifier.stats()["restarts"] == 0


def test_a_deadline_or_a_number_ends_the_attempts_and_not_the_actor(serve: ModuleType, system: an.System) -> None:
    model = model_on(serve, system.device("host"))
    classifier = system.spawn(serve.Classifier, model, 4)
    classifier.started.result(60)
    late = [serve.Request(image, time.monotonic() - 1) for image in images(2)]
    with pytest.raises(an.AskTimeout, match="deadline"):
        classifier.ask(late).result(60)

    def stale(*_: object) -> None:
        raise an.GpuRefStale("gone for good", "device restarted")

    model.logits = stale
    requests = [serve.Request(image, time.monotonic() + 60) for image in images(2)]
    with pytest.raises(an.GpuRefStale):
        classifier.ask(requests, retry=3).result(60)
    assert [request.attempts for request in requests] == [4, 4]
    assert classifier.stats()["restarts"] == 0
    assert not classifier.stopped


def test_a_lost_device_stops_the_classifier_and_is_the_reason(serve: ModuleType, worker_process: Any) -> None:
    with an.System(max_restarts=0) as system:
        device = system.device("host")
        model = model_on(serve, device)
        classifier = system.spawn(
            serve.Classifier, model, 4, supervision=an.OneForOne({an.DeviceLost: "stop", Exception: "restart"})
        )
        classifier.started.result(60)
        application = serve.Application(model, classifier, classifier, 5.0)
        assert request(application, "GET", "/healthz") == (200, {"status": "ok", "generation": 1})
        assert device.worker_pid is not None
        os.kill(device.worker_pid, signal.SIGKILL)
        assert classifier.join(60)
        status, answer = request(application, "POST", "/classify", {"pixels": [0] * 64})
        assert (status, answer["error"]) == (503, "ActorStopped")
        assert answer["reason"]
        assert request(application, "GET", "/healthz")[0] == 503
        assert request(application, "GET", "/stats")[1]["requests"]["answered"] == {"503": 1}


# ---- HTTP


def request(application: Any, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """What the application answers, without a server between."""
    sent: list[dict[str, Any]] = []
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    pieces = [content[:10], content[10:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application({"type": "http", "method": method, "path": path}, receive, send))
    start, end = sent
    assert int(dict(start["headers"])[b"content-length"]) == len(end["body"])
    return start["status"], json.loads(end["body"])


@pytest.fixture
def application(serve: ModuleType, system: an.System) -> Iterator[Any]:
    model = model_on(serve, system.device("host"))
    classifier = system.spawn(serve.Classifier, model, 4)
    batcher = system.spawn(serve.Batcher, classifier, max_size=4, max_age=0.0)
    return serve.Application(model, classifier, batcher, 60.0)


def test_answers_and_statistics(application: Any) -> None:
    pixels = images(1)
    status, answer = request(application, "POST", "/classify", {"pixels": pixels[0].tolist()})
    assert status == 200
    np.testing.assert_allclose([answer["probabilities"]], reference(pixels), atol=1e-5)
    assert request(application, "GET", "/healthz") == (200, {"status": "ok", "generation": 1})
    stats = request(application, "GET", "/stats")[1]
    assert stats["requests"] == {"received": 1, "answered": {"200": 1}, "in_flight": 0, "retried": 0}
    served = request(application, "GET", "/model")[1]
    for name, value in parameters().items():
        np.testing.assert_array_equal(np.array(served["weights"][name], np.float32), value)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"7", b"{}", b'{"pixels": null}', b'{"pixels": [1, 2]}', b'{"pixels": "x"}',
        b'{"pixels": [[1]]}', b"[" * 15_000, b'{"pixels": [[1], [1, 2]]}',
        json.dumps({"pixels": [0.0] * 63 + [16.5]}).encode(), json.dumps({"pixels": [-1] + [0] * 63}).encode(),
        json.dumps({"pixels": [float("nan")] * 64}).encode(), json.dumps({"pixels": [10**400] * 64}).encode()[:16_000],
        json.dumps({"pixels": [10**400] + [0] * 63}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused(application: Any, body: bytes) -> None:
    status, answer = request(application, "POST", "/classify", body)
    assert (status, answer["error"]) == (400, "InvalidRequest")
    assert "64 numbers from 0 to 16" in answer["reason"]


def test_other_requests_are_refused(application: Any) -> None:
    assert request(application, "GET", "/nothing")[0] == 404
    assert request(application, "GET", "/classify")[0] == 405
    assert request(application, "POST", "/stats")[0] == 405
    assert request(application, "POST", "/classify", b"x" * 20_000)[0] == 413


# ---- the end


@needs_server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_what_it_has(number: int) -> None:
    load = example_programs.load("serve_load")
    command = [
        sys.executable, str(example_programs.EXAMPLES / "serve.py"), "--port", "0", "--epochs", "1", "--hidden", "16",
        "--max-age", "2000", "--grace", "60", "--deadline", "60",
    ]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.:]+", line)))
        family = [server.pid, *load.descendants(server.pid)]
        assert len(family) > 1

        async def ask() -> tuple[int, Any]:
            waiting = load.Connection(url, 60)
            answer = asyncio.create_task(waiting.ask("/classify", json.dumps({"pixels": [0] * 64})))
            control = load.Connection(url, 60)
            while (await control.ask("/stats"))[1]["requests"]["in_flight"] == 0:
                await asyncio.sleep(0.01)
            server.send_signal(number)  # the batch waits for more, for two seconds
            result: tuple[int, Any] = await answer
            waiting.close()
            control.close()
            return result

        status, answer = asyncio.run(ask())
        assert (status, len(answer["probabilities"])) == (200, 10)
        assert server.wait(90) == 0
        assert server.stdout.read() == "stopped\n"
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    eventually(lambda: not any(load.alive(pid) for pid in family), 10)


def record(load: Any, number: int, sent: float, answered: float, status: int = 200, problem: str = "") -> Any:
    return load.Record(number, 0, sent, answered, status, problem, digit=0)


def judged(change: Callable[[Any, dict[str, Any]], None]) -> list[str]:
    """The problems of a load of two requests and a kill, with a change."""
    client = example_programs.load("serve_load")
    load = client.Load("http://127.0.0.1:1", 2, 1, 1, 1.0)
    load.records = [record(client, 0, 0.0, 1.0), record(client, 1, 1.0, 3.0)]
    load.deaths = [client.Kill(1, 1, 2.0, 3.0)]
    before = {"requests": {"received": 5, "answered": {"200": 5}}, "device": {"restarts": 0}}
    after = {
        "requests": {"received": 7, "answered": {"200": 6, "503": 1}}, "device": {"restarts": 1}, "same": True,
    }  # fmt: skip
    change(load, after)
    load.judge(before, after, after["same"])
    assert [load.phase(each) for each in load.records[:2]] == ["before", "during"]
    problems: list[str] = load.problems
    return problems


def test_the_report_notices_what_is_missing_or_wrong() -> None:
    assert judged(lambda load, after: None) == []
    assert judged(lambda load, after: after.update(same=False)) == ["the weights are not those of before"]
    assert "not answered" in judged(lambda load, after: setattr(load.records[0], "status", 0))[0]
    assert judged(lambda load, after: setattr(load.records[1], "problem", "digit 3")) == ["digit 3"]
    assert "restarts" in judged(lambda load, after: after["device"].update(restarts=2))[0]
    assert "received" in judged(lambda load, after: after["requests"].update(received=8))[0]
    assert "answered 3" in judged(lambda load, after: after["requests"]["answered"].update({"503": 2}))[0]
