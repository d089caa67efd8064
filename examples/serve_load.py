"""The client of `serve.py`: many requests at once, the worker killed meanwhile, and a report.

It needs nothing of atomr_native: it speaks HTTP, kills by the process number that /stats says, and compares each answer
with a forward pass in NumPy (float64).  The report fails, and with it the exit status, when

- a request got no answer, or one that is neither right nor a 503 that says why;
- the server counted other requests than were sent;
- the worker was not killed as often as asked, or the device did not restart as often;
- the weights afterwards are not those of before, bit for bit;
- the server, asked by SIGTERM, did not end by itself with status 0, or left a process or its socket behind.
"""

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from serve_report import PHASES, draw, show, summary

TOLERANCE = 1e-3  # of probabilities; float32 against float64
ENDING = 10.0  # seconds for what is just ending


class Failed(Exception):
    """The load cannot be run."""


class Reference:
    """The model in NumPy, from what /model says.

    Parameters
    ----------
    served : dict
        ``weights`` (``w1``, ``b1``, ...), ``mean``, ``scale``.
    """

    def __init__(self, served):
        self.weights = {name: np.array(value) for name, value in served["weights"].items()}
        self.mean, self.scale = np.array(served["mean"]), np.array(served["scale"])

    def probabilities(self, images):
        """Return those of each image, (images, 10)."""
        x, last = (images - self.mean) * self.scale, len(self.weights) // 2
        for i in range(1, last + 1):
            x = x @ self.weights[f"w{i}"] + self.weights[f"b{i}"]
            if i < last:
                x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        odds = np.exp(x - x.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


class Connection:
    """A connection to an HTTP server that is kept open; for one request at a time.

    Parameters
    ----------
    url : str
        ``http://host:port``
    patience : float
        Seconds that a request may take.
    """

    def __init__(self, url, patience):
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.path not in ("", "/"):
            raise Failed(f"url {url!r}; it must be like http://127.0.0.1:8000")
        self.address, self.name = (parts.hostname, parts.port or 80), parts.netloc
        self.patience = patience
        self.writer = None

    async def ask(self, path, body=None):
        """Send a request, a POST if there is a body; return status and what the JSON says.

        Raises
        ------
        OSError, EOFError, TimeoutError, ValueError
            If there is no whole answer; the next request takes a new connection.
        """
        content = b"" if body is None else body.encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: {self.name}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        try:
            async with asyncio.timeout(self.patience):
                if self.writer is None:
                    self.reader, self.writer = await asyncio.open_connection(*self.address)
                self.writer.write(head.encode() + content)
                first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
                answer = json.loads(await self.reader.readexactly(int(headers["content-length"])))
        except BaseException:
            self.close()
            raise
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(first.split()[1]), answer

    def close(self):
        """End the connection."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


@dataclass
class Record:
    """One request: times in seconds since the load began, and what came back."""

    number: int
    image: int
    sent: float
    answered: float = np.nan
    status: int = 0  # 0: no answer
    problem: str = ""  # why it is no right answer
    generation: int = 0
    attempts: int = 0
    batch: int = 0  # requests that were computed together
    digit: int = -1

    @property
    def milliseconds(self):
        """How long the answer took."""
        return 1e3 * (self.answered - self.sent)


@dataclass
class Kill:
    """One death of the worker; its outage ends with the first answer that was computed after the restart."""

    pid: int
    generation: int  # of the device, until then
    at: float
    over: float = np.inf
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Load:
    """A load, and what it has come to.

    Attributes
    ----------
    requests, clients, kills : int
        How many requests to send at least, how many at a time, and how often to kill.  Kills are spread over the
        requests, and another share of the requests follows the last.
    patience : float
        Seconds to wait for an answer.
    """

    url: str
    requests: int
    clients: int
    kills: int
    patience: float
    records: list[Record] = field(default_factory=list)
    deaths: list[Kill] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stats: dict | None = None

    async def run(self):
        """Send everything, and judge it."""
        from sklearn.datasets import load_digits

        self.images, self.labels = load_digits(return_X_y=True)
        self.bodies = [json.dumps({"pixels": image.tolist()}) for image in self.images]
        self.answered, self.goal, self.reached = 0, np.inf, asyncio.Event()
        self.target = self.requests
        before, model = await self.get("/stats"), await self.get("/model")
        self.expected = Reference(model).probabilities(self.images)
        self.began = time.perf_counter()
        numbers = itertools.count()
        async with asyncio.TaskGroup() as tasks:
            killer = tasks.create_task(self.killer())
            for _ in range(self.clients):
                tasks.create_task(self.client(numbers, killer))
        after = await self.get("/stats")
        self.judge(before, after, model == await self.get("/model"))
        self.stats = after

    async def get(self, path):
        """Return what a path says, asking again where the answer is 503: the device may be restarting."""
        connection = Connection(self.url, self.patience)
        try:
            async with asyncio.timeout(self.patience):
                while True:
                    status, answer = await connection.ask(path)
                    if status == 200:
                        return answer
                    if status != 503:
                        raise Failed(f"{self.url}{path}: status {status}: {answer}")
                    await asyncio.sleep(0.02)
        finally:
            connection.close()

    def now(self):
        """Return the seconds since the load began."""
        return time.perf_counter() - self.began

    async def client(self, numbers, killer):
        """Send one request after the other, each on the same connection."""
        connection = Connection(self.url, self.patience)
        try:
            while (number := next(numbers)) < self.target or not killer.done():
                record = Record(number, number % len(self.images), self.now())
                self.records.append(record)
                try:
                    status, answer = await connection.ask("/classify", self.bodies[record.image])
                    record.answered, record.status = self.now(), status
                    self.check(record, answer)
                except (OSError, EOFError, ValueError, TypeError, LookupError) as error:
                    record.problem = f"{type(error).__name__}: {error}"
                    await asyncio.sleep(0.01)  # a server that is gone is not to be flooded
                self.answered += 1
                if self.answered >= self.goal:
                    self.reached.set()
        finally:
            connection.close()

    def check(self, record, answer):
        """Compare an answer with the reference."""
        if record.status == 503:
            record.problem = "" if answer["error"] and answer["reason"] else "a 503 without a reason"
            return
        if record.status != 200:
            record.problem = f"status {record.status}: {answer}"
            return
        record.generation, record.attempts, record.batch = answer["generation"], answer["attempts"], answer["batch"]
        record.digit = answer["digit"]
        found, expected = np.array(answer["probabilities"]), self.expected[record.image]
        for death in self.deaths:
            if record.generation > death.generation:
                death.over = min(death.over, record.answered)
                death.ended.set()
        if found.shape != expected.shape or not np.abs(found - expected).max() <= TOLERANCE:
            record.problem = f"image {record.image}: probabilities {found}, NumPy's are {expected}"
        elif record.digit != found.argmax():
            record.problem = f"image {record.image}: digit {record.digit}, but {found.argmax()} is more probable"

    async def killer(self):
        """Kill the worker in the middle, again and again; and see to it that there is an end to each outage."""
        share = self.requests // (self.kills + 1)
        for _ in range(self.kills):
            self.goal = self.answered + share
            self.reached.clear()
            await self.reached.wait()
            async with asyncio.timeout(self.patience):
                while (device := (await self.get("/stats"))["device"])["worker_pid"] is None:
                    await asyncio.sleep(0.005)
                death = Kill(device["worker_pid"], device["generation"], self.now())
                self.deaths.append(death)
                os.kill(death.pid, signal.SIGKILL)
                await death.ended.wait()
        self.target = max(self.target, len(self.records) + share)

    def judge(self, before, after, same_weights):
        """Note everything that is not as promised."""
        sent, problems = len(self.records), self.problems
        if missing := sum(not record.status for record in self.records):
            problems.append(f"{missing} of {sent} requests were not answered")
        wrong = [record.problem for record in self.records if record.problem]
        problems += wrong[:5] + [f"... {len(wrong) - 5} more"] * (len(wrong) > 5)
        counted = {
            name: total(after["requests"]) - total(before["requests"])
            for name, total in (
                ("received", lambda found: found["received"]),
                ("answered", lambda found: sum(found["answered"].values())),
            )
        }
        problems += [f"{sent} sent, but the server has {name} {n}" for name, n in counted.items() if n != sent]
        restarts = after["device"]["restarts"] - before["device"]["restarts"]
        if not self.kills == len(self.deaths) == restarts:
            problems.append(f"{self.kills} kills wanted, {len(self.deaths)} done, {restarts} restarts of the device")
        if not same_weights:
            problems.append("the weights are not those of before")

    def phase(self, record):
        """Whether it was answered before the first kill, met an outage, or came after one."""
        if any(record.sent < death.over and record.answered > death.at for death in self.deaths):
            return "during"
        return "after" if self.deaths and record.answered > self.deaths[0].at else "before"

    def report(self):
        """Return everything, for JSON."""
        answered = [record for record in self.records if record.status]
        good = [record for record in answered if record.status == 200 and not record.problem]
        latency = {
            name: summary([record.milliseconds for record in answered if self.phase(record) == name]) for name in PHASES
        }
        duration = max((record.answered for record in answered), default=0.0)
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "requests": {
                "sent": len(self.records),
                "answered": len(answered),
                "correct": len(good),
                "refused_with_a_reason": sum(record.status == 503 and not record.problem for record in answered),
                "wrong": sum(bool(record.problem) for record in answered),
                "missing": len(self.records) - len(answered),
                "retried_in_the_server": sum(record.attempts > 1 for record in good),
                "read_right": sum(record.digit == int(self.labels[record.image]) for record in good),
            },
            "clients": self.clients,
            "mean_batch": len(good) / sum(1 / record.batch for record in good) if good else 0.0,
            "seconds": duration,
            "requests_per_second": len(answered) / duration if duration else 0.0,
            "latency_ms": {**latency, "all": summary([record.milliseconds for record in answered])},
            "kills": [
                {"pid": death.pid, "at": death.at, "outage_ms": 1e3 * (death.over - death.at)} for death in self.deaths
            ],
            "server": self.stats,
        }


# ---- running it


async def run(url, options, finish=None):
    """Load a server, save and print the report; the exit status.

    Parameters
    ----------
    url : str
        Of the server.
    options : argparse.Namespace
        Of `serve.py`.
    finish : callable, optional
        Awaited after the load; returns problems of the end.
    """
    load = Load(url, options.requests, options.clients, options.kills, options.deadline + 10)
    try:
        await load.run()
    except* (Failed, OSError, EOFError, ValueError) as group:
        load.problems.append(f"the load was not finished: {group.exceptions[0]!r}")
    if finish is not None:
        load.problems += await finish()
    if load.stats is None:
        print(*load.problems, sep="\n")
        return 1
    report = load.report()
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    draw(options.output / "latency.png", load, report)
    show(report)
    print(f"saved: {options.output / 'report.json'}, {options.output / 'latency.png'}")
    return 0 if report["ok"] else 1


async def run_with_server(command, options):
    """Start a server, load it, ask it to end by SIGTERM; the exit status."""
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    # Ended from outside, this process does not leave the server behind.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    try:
        url = None
        async for line in server.stdout:
            print(f"server: {line.decode().rstrip()}", flush=True)
            if found := re.search(rb"http://[\w.:\[\]]+", line):
                url = found[0].decode()
                break
        if url is None:
            print(f"the server did not start: status {await server.wait()}")
            return server.returncode or 1
        return await run(url, options, lambda: end(server, url, options.grace))
    finally:
        if server.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()


async def end(server, url, grace):
    """Ask a server to end; returns what was not as it should be."""
    family = [server.pid, *descendants(server.pid)]
    server.terminate()
    try:
        async with asyncio.timeout(grace + ENDING):
            async for line in server.stdout:
                print(f"server: {line.decode().rstrip()}", flush=True)
            await server.wait()
    except TimeoutError:
        server.kill()
        await server.wait()
        return [f"the server did not end within {grace + ENDING:g} s after SIGTERM"]
    problems = [f"the server ended with status {server.returncode}"] if server.returncode else []
    deadline = time.monotonic() + ENDING
    while (left := [pid for pid in family if alive(pid)]) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    problems += [f"process {pid} of the server is left" for pid in left]
    with contextlib.suppress(OSError, EOFError):
        await Connection(url, ENDING).ask("/healthz")
        problems.append(f"{url} still answers")
    return problems


def descendants(pid):
    """Return the processes that a process has started, and those that these have."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def alive(pid):
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
