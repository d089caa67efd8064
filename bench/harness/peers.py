"""The Python peers: the smallest actor that each of them can express, asked to do nothing.

Every function is a context manager that yields callables.  A library that is not installed raises `Unavailable`.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.harness.unavailable import Unavailable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = [
    "AskTell",
    "AsyncAsk",
    "event_loop",
    "executor_ask",
    "pipe_actor",
    "pykka_actor",
    "queue_actor",
    "ray_actor",
    "xoscar_actor",
]


@dataclass(frozen=True)
class AskTell:
    """`ask` waits for the answer; `tell` returns at once; both do nothing else."""

    ask: Callable[[], object]
    tell: Callable[[], object]


@dataclass(frozen=True)
class AsyncAsk:
    """`ask` and `tell` return awaitables that must be awaited on `loop`, which is not running."""

    loop: asyncio.AbstractEventLoop
    ask: Callable[[], Awaitable[object]]
    tell: Callable[[], Awaitable[object]]


def _need(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name} is not installed") from error


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A new event loop of the standard policy, closed at the end."""
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextmanager
def queue_actor() -> Iterator[AskTell]:
    """A thread with a `queue.SimpleQueue`; an answer is a `concurrent.futures.Future`."""
    inbox: queue.SimpleQueue[Future[None] | str | None] = queue.SimpleQueue()

    def serve() -> None:
        while (message := inbox.get()) is not None:
            if isinstance(message, Future):
                message.set_result(None)

    def ask() -> None:
        future: Future[None] = Future()
        inbox.put(future)
        future.result()

    thread = threading.Thread(target=serve, name="bench-queue-actor", daemon=True)
    thread.start()
    try:
        yield AskTell(ask, lambda: inbox.put("tell"))
    finally:
        inbox.put(None)
        thread.join()


def _serve_pipe(connection: Connection) -> None:
    while (message := connection.recv_bytes()) != b"stop":
        if message == b"ask":
            connection.send_bytes(b"done")


@contextmanager
def pipe_actor() -> Iterator[AskTell]:
    """A spawned process behind a `multiprocessing.Pipe`, with bytes and so without pickling.

    A pipe holds 64 KiB: a long burst of tells waits for the reader.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_pipe, args=(theirs,), daemon=True)
    process.start()
    theirs.close()

    def ask() -> None:
        ours.send_bytes(b"ask")
        ours.recv_bytes()

    try:
        ask()
        yield AskTell(ask, lambda: ours.send_bytes(b"tell"))
    finally:
        ours.send_bytes(b"stop")
        process.join()
        ours.close()


@contextmanager
def pykka_actor() -> Iterator[AskTell]:
    """A Pykka `ThreadingActor`."""
    pykka = _need("pykka")

    class Idle(pykka.ThreadingActor):  # type: ignore[misc,name-defined,unused-ignore]
        def on_receive(self, message: object) -> None:
            """Do nothing."""

    ref = Idle.start()
    try:
        yield AskTell(lambda: ref.ask("ask"), lambda: ref.tell("tell"))
    finally:
        ref.stop()


@contextmanager
def xoscar_actor(loop: asyncio.AbstractEventLoop) -> Iterator[AsyncAsk]:
    """A Xoscar actor in a pool of this same process, which is its fastest placement."""
    xoscar = _need("xoscar")

    class Idle(xoscar.Actor):  # type: ignore[misc,name-defined,unused-ignore]
        def noop(self) -> None:
            """Do nothing."""

    async def start() -> tuple[Any, Any]:
        pool = await xoscar.create_actor_pool("127.0.0.1:0", n_process=0)
        return pool, await xoscar.create_actor(Idle, address=pool.external_address, uid="bench-idle")

    pool, ref = loop.run_until_complete(start())
    try:
        yield AsyncAsk(loop, ref.noop, ref.noop.tell)
    finally:
        loop.run_until_complete(pool.stop())


@contextmanager
def executor_ask(loop: asyncio.AbstractEventLoop) -> Iterator[AsyncAsk]:
    """asyncio's own way to await another thread: ``loop.run_in_executor``."""

    def noop() -> None:
        """Do nothing."""

    async def tell() -> None:
        loop.run_in_executor(None, noop)

    yield AsyncAsk(loop, lambda: loop.run_in_executor(None, noop), tell)


@contextmanager
def ray_actor() -> Iterator[AskTell]:
    """A Ray actor on a local cluster of one; its daemons stay busy, so it has a case of its own."""
    ray = _need("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)

    class Idle:
        def noop(self) -> None:
            """Do nothing."""

    try:
        actor = ray.remote(Idle).remote()
        yield AskTell(lambda: ray.get(actor.noop.remote()), lambda: actor.noop.remote())
    finally:
        ray.shutdown()
