"""Serve a model over HTTP, and lose its device's worker under load: every request is answered.

A perceptron learns scikit-learn's digits by messages, its weights go into a durable group, and an ASGI application
answers requests: a `Batcher` collects them, and a supervised actor sends each batch to the device.  When the worker
dies, the batcher gives that actor the batch again (``retry=``), and the device takes it as soon as it is back; an
answer is the same however often it was computed.

    pip install '.[examples]'
    python examples/serve.py                          # http://127.0.0.1:8000, until Ctrl-C or SIGTERM
    python examples/serve.py --load                   # a server of its own, loaded, its worker killed twice
    python examples/serve.py --load --url http://127.0.0.1:8000     # the same with a server that runs here already

    curl -d '{"pixels": [0, 0, 5, 13, 9, 1, ...]}' http://127.0.0.1:8000/classify      # 64 grey levels, 0 to 16

`serve_load.py` is the client and says what it checks, `serve_report.py` draws.
"""

import argparse
import asyncio
import importlib.util
import json
import logging
import math
import os
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import atomr_native as an
from atomr_native.demo.data import load_digits
from atomr_native.demo.training import Observer, Settings, Training
from atomr_native.patterns import Batcher

#: Errors of a batch, which its requests get, or after which it is sent again: the actor goes on.
ERRORS = (an.DeviceFault, an.GpuRefStale, an.DependencyFailed, an.AskTimeout)
PIXELS, MAX_BODY, KILLS = 64, 16 << 10, 3
PACKAGES = {"matplotlib": "matplotlib", "sklearn": "scikit-learn", "uvicorn": "uvicorn"}
log = logging.getLogger("serve")


# ---- the model, and the actor that uses it


class Model:
    """Trained weights in durable memory: committed once and never written again, so a restart leaves them as they are.

    Parameters
    ----------
    device : Device
        Where.
    parameters : dict of str to numpy.ndarray
        ``w1, b1, w2, b2, ...``
    mean, scale : numpy.ndarray
        What standardises a pixel.
    """

    def __init__(self, device, parameters, mean, scale):
        self.device, self.mean, self.scale = device, mean, scale
        self.layers = len(parameters) // 2
        self.weights = {name: device.put(value, durable=True) for name, value in parameters.items()}
        self.group = device.durable_group(self.weights)
        self.group.commit().result()

    def logits(self, pixels, timeout):
        """Send the forward pass of some images, (rows, 64), and wait for it."""
        rows = len(pixels)
        # Batches of any size share a few plans: those of powers of two.
        x = np.zeros((1 << (rows - 1).bit_length(), PIXELS), np.float32)
        x[:rows] = (pixels - self.mean) * self.scale
        x = self.device.put(x)
        for i in range(1, self.layers + 1):
            epilogue = "bias" if i == self.layers else "gelu_bias"
            x = self.device.blas_lt.matmul(x, self.weights[f"w{i}"], bias=self.weights[f"b{i}"], epilogue=epilogue)
        return self.device.get(x, timeout=timeout)[:rows]


@dataclass
class Request:
    """An image, until when (`time.monotonic`) somebody waits for its answer, and how often it went to the device."""

    pixels: np.ndarray
    deadline: float
    attempts: int = 0


class Classifier(an.Actor):
    """Answers batches of requests.  If the device is lost for good it fails with that, and its supervisor decides."""

    def __init__(self, model, max_batch):
        self.model, self.device, self.max_batch = model, model.device, max_batch

    def pre_start(self):
        """Watch the device, and have the plans made before somebody waits for them."""
        self.context.watch(self.device, escalate=True)
        for exponent in range((self.max_batch - 1).bit_length() + 1):
            self.model.logits(np.zeros((1 << exponent, PIXELS), np.float32), timeout=60.0)

    @an.handler
    def on_restart(self, message: an.DeviceRestarted):
        """Say that the device is back."""
        took = 1e3 * self.device.restart_timeline().get("total", math.nan)
        log.info("%s is back in generation %d after %.0f ms", self.device.name, message.generation, took)

    @an.handler
    def on_batch(self, requests: list):
        """Answer all of them, or fail with the reason: the batcher sends them again if a worker's death was it."""
        pixels = np.stack([request.pixels for request in requests])
        for request in requests:
            request.attempts += 1
        generation = self.device.generation
        try:
            logits = self.model.logits(pixels, left(max(request.deadline for request in requests)))
        except ERRORS as error:
            return self.context.fail(error)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        how = {"batch": len(requests), "generation": generation}
        return [
            {"digit": int(row.argmax()), "probabilities": row.tolist(), "attempts": request.attempts, **how}
            for request, row in zip(requests, odds, strict=True)
        ]


def left(deadline):
    """Return the seconds until a deadline; raises AskTimeout when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise an.AskTimeout("the deadline of all requests of the batch has passed")
    return seconds


# ---- HTTP


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status, error, reason):
        self.status, self.body = status, {"error": error, "reason": reason}


class Application:
    """The ASGI application: POST /classify, GET /healthz, /stats and /model; JSON in and out.

    Parameters
    ----------
    model : Model
        Whose weights /model shows.
    classifier, batcher : ActorRef
        Who answers; the batcher is asked.
    deadline : float
        Seconds after which a request is answered with 503 instead.
    """

    def __init__(self, model, classifier, batcher, deadline):
        self.model, self.classifier, self.batcher, self.deadline = model, classifier, batcher, deadline
        self.began = time.monotonic()
        self.statuses = Counter()  # of /classify
        self.received = self.retried = 0
        self.routes = {
            "/classify": ("POST", self.classify),
            "/healthz": ("GET", self.healthz),
            "/stats": ("GET", self.stats),
            "/model": ("GET", self.weights),
        }

    async def __call__(self, scope, receive, send):
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, headers = 200, []
        classify = scope["path"] == "/classify"
        self.received += classify
        try:
            method, handle = self.routes.get(scope["path"], (None, None))
            if method is None:
                raise Refused(404, "NotFound", f"no {scope['path']}; there are {', '.join(self.routes)}")
            if scope["method"] != method:
                headers.append((b"allow", method.encode()))
                raise Refused(405, "MethodNotAllowed", f"{scope['path']} takes {method}")
            body = await handle(await body_of(receive) if method == "POST" else None)
        except Refused as refused:
            status, body = refused.status, refused.body
        except an.AtomrError as error:  # the deadline, a full mailbox, a device that is lost, ...
            status, body = 503, {"error": type(error).__name__, "reason": str(error)}
            headers.append((b"retry-after", b"1"))
        except Exception as error:
            log.exception("%s failed", scope["path"])
            status, body = 500, {"error": type(error).__name__, "reason": "see the server's log"}
        content = json.dumps(body).encode()
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        if classify:
            self.statuses[status] += 1
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def classify(self, body):
        """Answer an image with its digit."""
        deadline = time.monotonic() + self.deadline
        pixels = image_of(body)
        answer = await self.batcher.ask_async(Request(pixels, deadline), timeout=left(deadline))
        self.retried += answer["attempts"] > 1
        return answer

    async def healthz(self, _):
        """Whether requests can be answered; while the device restarts they are, only later."""
        if self.classifier.stopped or self.batcher.stopped:
            raise Refused(503, "ActorStopped", "the classifier has stopped for good; the server's log says why")
        return {"status": "ok", "generation": self.model.device.generation}

    async def stats(self, _):
        """What was done so far."""
        device, done = self.model.device, self.classifier.stats()
        return {
            "seconds": time.monotonic() - self.began,
            "requests": {
                "received": self.received,
                "answered": {str(status): count for status, count in sorted(self.statuses.items())},
                "in_flight": self.received - self.statuses.total(),
                "retried": self.retried,
            },
            "device": {
                "name": device.name,
                "generation": device.generation,
                "restarts": device.restarts,
                "worker_pid": device.worker_pid,
            },
            "classifier": done,
            "batcher": self.batcher.stats(),
        }

    async def weights(self, _):
        """The weights as they are on the device now, and what standardises the pixels."""
        model, found = self.model, {}
        for name, ref in model.weights.items():
            found[name] = (await model.device.get_async(ref)).tolist()
        return {"weights": found, "mean": model.mean.tolist(), "scale": model.scale.tolist()}


async def body_of(receive):
    """Return the body of a request, of bounded size."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "Disconnected", "the client has gone")
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise Refused(413, "TooLarge", f"more than {MAX_BODY} bytes")
        if not message.get("more_body"):
            return body


def image_of(body):
    """Return the pixels of a request's body; anything else than an image is refused."""
    wanted = f'{{"pixels": [...]}} with {PIXELS} numbers from 0 to 16'
    try:
        pixels = np.asarray(json.loads(body)["pixels"], np.float32)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise Refused(400, "InvalidRequest", f"{type(error).__name__}: {error}; send {wanted}") from None
    if pixels.shape != (PIXELS,) or not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 16):
        raise Refused(400, "InvalidRequest", f"an array of shape {pixels.shape}; send {wanted}")
    return pixels


# ---- the server


class Stop(BaseException):
    """SIGINT or SIGTERM came."""


def stop(*_):
    raise Stop


class Progress(Observer):
    """Prints how training goes."""

    def epoch(self, _, loss, accuracy):
        if accuracy is not None:
            print(f"trained: loss {loss:.4f}, {100 * accuracy:.1f} % of test images classified correctly", flush=True)


def train(device, options):
    """Train by messages, and return what came out as a `Model`."""
    digits = load_digits(options.seed)
    settings = Settings(seed=options.seed, epochs=options.epochs, hidden=tuple(options.hidden))
    outcome = Training(device, digits, settings, test=False, observer=Progress()).run()
    return Model(device, outcome.parameters, digits.mean, digits.scale)


def serve(options):
    """Serve until SIGINT or SIGTERM, then drain; 0 if all of that was in time."""
    import uvicorn

    class Server(uvicorn.Server):
        deadline = math.inf

        def handle_exit(self, sig, frame):
            self.deadline = min(self.deadline, time.monotonic() + options.grace)
            super().handle_exit(sig, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        listener = socket.create_server((options.host, options.port), backlog=1024)
        # Inherited by its connections.  asyncio does this by itself only for sockets that were made with a protocol
        # number; without it, an answer in two pieces waits 40 ms for the client's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        print(f"cannot listen on {options.host}:{options.port}: {error}", file=sys.stderr)
        return 2
    system = an.System(max_restarts=KILLS)
    server = None
    try:
        model = train(system.device(options.device), options)
        classifier = system.spawn(
            Classifier, model, options.max_batch, name="classifier",
            supervision=an.OneForOne({an.DeviceLost: "stop", Exception: "restart"}, max_restarts=5, within=60),
        )  # fmt: skip
        classifier.started.result(120)
        batcher = system.spawn(
            Batcher, classifier, max_size=options.max_batch, max_age=1e-3 * options.max_age, name="batcher",
            retry=2 * KILLS, mailbox=an.Mailbox(options.queue, "reject"),
        )  # fmt: skip
        application = Application(model, classifier, batcher, options.deadline)
        server = Server(
            uvicorn.Config(
                application, lifespan="off", loop="asyncio", access_log=False, log_level="warning",
                timeout_graceful_shutdown=math.ceil(options.grace),
            )
        )  # fmt: skip
        host, port = listener.getsockname()[:2]
        print(f"serving on http://{host}:{port} (device {options.device}, process {os.getpid()})", flush=True)
        server.run(sockets=[listener])  # raises the signal again when it has drained
    except Stop:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # it is being done
        # One deadline: what draining the connections has left is for actors and devices.
        deadline = time.monotonic() + options.grace if server is None else server.deadline
        system.close(max(0.5, min(deadline - time.monotonic(), options.grace)))
        listener.close()
    late = server is not None and time.monotonic() > server.deadline
    print("stopped" if not late else f"stopped, not within {options.grace:g} s", flush=True)
    return 1 if late else 0


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", default="host", help="host or cuda:N (%(default)s)")
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=int, default=8000, help="0: any that is free (%(default)s)")
    add("--max-batch", type=int, default=32, metavar="N", help="images in one batch, at most (%(default)s)")
    add("--max-age", type=float, default=2.0, metavar="MS",
        help="milliseconds that the first of a batch waits (%(default)g)")  # fmt: skip
    add("--queue", type=int, default=1024, metavar="N",
        help="requests that may wait; what comes beyond is answered with 503 (%(default)s)")  # fmt: skip
    add("--deadline", type=float, default=10.0, metavar="S",
        help="seconds after which a request is answered with 503 (%(default)g)")  # fmt: skip
    add("--grace", type=float, default=10.0, metavar="S", help="seconds for everything at the end (%(default)g)")
    add("--epochs", type=int, default=12, metavar="N", help="of the training (%(default)s)")
    add("--hidden", type=int, nargs="+", default=[128, 64], metavar="N", help="widths of the hidden layers (128 64)")
    add("--seed", type=int, default=0, metavar="N", help="of the training (%(default)s)")
    load = parser.add_argument_group("the client")
    add = load.add_argument
    add("--load", action="store_true", help="send requests, kill the worker meanwhile, and report")
    add("--url", help="of a server on this machine; by default --load starts one, with the options above")
    add("--requests", type=int, default=20_000, metavar="N", help="how many are sent (%(default)s)")
    add("--clients", type=int, default=32, metavar="N", help="of which each has one request under way (%(default)s)")
    add("--kills", type=int, default=2, metavar="N", help=f"how often the worker is killed, 0 to {KILLS} (%(default)s)")
    add("--output", type=Path, default=Path("serve-output"), metavar="DIR",
        help="where report.json and latency.png go (%(default)s)")  # fmt: skip
    add("--self-test", action="store_true", help="--load, short")
    options = parser.parse_args(argv)
    if options.self_test:
        options.load, options.requests, options.clients = True, 300, 8
        options.epochs, options.hidden, options.deadline, options.grace = 2, [32], 60.0, 60.0
    for name in ("max_batch", "queue", "deadline", "grace", "epochs", "requests", "clients"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}; it must be greater than 0")
    if not 0 <= options.kills <= KILLS:
        parser.error(f"--kills {options.kills}; allowed: 0 to {KILLS}, as often as a device restarts within a minute")
    if options.max_age < 0 or min(options.hidden) < 1:
        parser.error("--max-age must not be negative, and --hidden at least 1")
    return options


def main(argv=None):
    """Serve or load: 0 if all went well, 1 if not, 2 if it cannot be done here."""
    options = parse(argv)
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"needs {', '.join(missing)}: pip install '.[examples]' in a clone of atomr_native", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    if not options.load:
        try:
            return serve(options)
        except an.AtomrError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 2 if isinstance(error, an.InvalidRequest | an.Unsupported) else 1
    try:
        return asyncio.run(load(options))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted", file=sys.stderr)
        return 130


async def load(options):
    """Load a server, by default one that is started for it."""
    import serve_load

    if options.url:
        return await serve_load.run(options.url, options)
    forwarded = ["device", "max_batch", "max_age", "queue", "deadline", "grace", "epochs", "seed"]
    command = [sys.executable, str(Path(__file__).resolve()), "--port", "0"]
    for name in forwarded:
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    command += ["--hidden", *map(str, options.hidden)]
    return await serve_load.run_with_server(command, options)


if __name__ == "__main__":
    sys.exit(main())
