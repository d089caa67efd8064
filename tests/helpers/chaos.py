"""Threads that send thousands of messages of all kinds, and account for every one, while workers die.

It goes on until there was enough of everything, and for five minutes with ``ATOMR_NATIVE_CHAOS=long`` (``make chaos``);
``ATOMR_CHAOS_SECONDS=n`` and ``ATOMR_CHAOS_SEED=n`` say it exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from crash import await_generation, kill, operation, overwrite

import atomr_native as an
from atomr_native.libraries.elementwise.actor import ElementwiseActor

LONG = os.environ.get("ATOMR_NATIVE_CHAOS") == "long"
SECONDS = float(os.environ.get("ATOMR_CHAOS_SECONDS", "300" if LONG else "0"))
SEED = int(os.environ.get("ATOMR_CHAOS_SEED", str(time.time_ns()) if LONG else "1"))
#: What is enough: deaths of workers, messages, and runs of each sender.
DEATHS, MESSAGES, RUNS = 8, 300, 4
FAULTS = (an.DeviceFault, an.GpuRefStale, an.DependencyFailed)


class Sender:
    """A thread with its own durable memory, which it accounts for message by message."""

    def __init__(self, device: an.Device, number: int, stop: threading.Event) -> None:
        self.device = device
        self.rng = random.Random(f"{SEED} {number}")
        self.stop = stop
        self.actor = ElementwiseActor(device, f"chaos{number}")
        self.lane = device.lane(f"plain{number}")
        self.sent: list[Any] = []
        self.answers: Counter[int] = Counter()
        self.callbacks = 0
        self.told = 0
        self.runs = 0
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self.run, name=f"sender {number}")

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.rng.choice([self.count, self.count, self.train, self.volatile, self.talk, self.wait_async])()
                self.runs += 1
        except BaseException as error:
            self.failure = error
            self.stop.set()

    def ask(self, plan: an.Plan, *operands: an.GpuRef) -> Any:
        reply = plan.ask(*operands)
        number = len(self.sent)
        self.sent.append(reply)
        self.callbacks += 1
        reply.add_done_callback(lambda _: self.answers.update([number]))
        return reply

    @staticmethod
    def read(ref: an.GpuRef) -> np.ndarray[Any, Any]:
        """Read until no death comes in between."""
        while True:
            with contextlib.suppress(an.DeviceFault):
                return ref.numpy()

    def count(self) -> None:
        """Each message adds one: as many as succeeded did so, exactly once, unless one was interrupted."""
        counter = self.device.put(np.zeros(3), durable=True)
        plan = self.actor.plan("c + 1", out=counter, c=counter)
        try:
            replies = [self.ask(plan, counter) for _ in range(self.rng.randrange(1, 300))]
        except FAULTS:
            return  # `put` was interrupted
        good = [reply.wait(120) and reply.exception() is None for reply in replies]
        try:
            found = self.read(counter)
        except an.GpuRefStale as error:
            assert error.reason == "torn", error  # noqa: PT017 - one of several outcomes
            assert not all(good)
            return
        assert found.tolist() == [float(sum(good))] * 3

    def train(self) -> None:
        """A group of two arrays that change together is always as some commit left it."""
        try:
            a, b = (self.device.put(np.zeros(20_000), durable=True) for _ in "ab")
            group = self.device.durable_group({"a": a, "b": b}, checksum=self.rng.random() < 0.5)
            group.commit(0).result(120)
        except FAULTS:
            return
        acknowledged = 0
        for step in range(1, self.rng.randrange(2, 80)):
            try:
                overwrite(self.lane, a, float(step))
                overwrite(self.actor, b, float(-step))
                reply = group.commit(step)  # refused if the group went back in the middle of this
            except FAULTS:
                return
            if self.rng.random() < 0.2:
                try:
                    reply.result(120)
                except FAULTS:
                    break
                acknowledged = step
        generation = self.device.generation
        while self.device.generation == generation:
            kill(self.device)  # in the middle of a restart there is nobody to be killed
            time.sleep(0.005)
        await_generation(self.device, generation + 1)
        try:
            group.restore()
            left, right = self.read(a), self.read(b)
        except FAULTS:
            return  # killed once more, meanwhile
        tag = group.tag
        assert tag >= acknowledged
        assert (left == tag).all()
        assert (right == -tag).all()

    def volatile(self) -> None:
        try:
            x = self.device.put(np.full((40, 40), 2.0))
            y = self.device.blas_lt.matmul(x, x)
            for _ in range(self.rng.randrange(20)):
                y = self.actor.run("a * 0.5 + b", a=y, b=x)
            assert np.isfinite(y.numpy()).all()
        except FAULTS:
            pass

    def talk(self) -> None:
        """Messages that nobody waits for, on a new actor's mailbox now and then."""
        plan = operation(self.lane, seconds=0.0001)
        for _ in range(self.rng.randrange(100)):
            plan.tell()
            self.told += 1

    def wait_async(self) -> None:
        noop = self.lane.noop()

        async def several() -> None:
            found = await asyncio.gather(*[self._one(noop) for _ in range(30)])
            assert set(found) <= {None, "fault"}

        asyncio.run(asyncio.wait_for(several(), 120))

    @staticmethod
    async def _one(plan: an.Plan) -> str | None:
        reply = await plan.send_async()
        try:
            await reply
        except FAULTS:
            return "fault"
        return None


def run_chaos(device: an.Device, harm: Callable[[random.Random], None]) -> list[Sender]:
    """Let three threads send until there was enough, and do harm to the device meanwhile; check that all came right."""
    stop, rng = threading.Event(), random.Random(SEED)
    senders = [Sender(device, number, stop) for number in range(3)]
    for sender in senders:
        sender.thread.start()
    end = time.monotonic() + SECONDS

    def enough() -> bool:
        messages = sum(len(sender.sent) + sender.told for sender in senders)
        runs = min(sender.runs for sender in senders)
        return device.generation > DEATHS and messages > MESSAGES and runs >= RUNS

    try:
        while not stop.is_set() and (time.monotonic() < end or not enough()):
            time.sleep(rng.choice([0.0, 0.01, 0.1, 0.5]) * rng.random())
            harm(rng)
            if rng.random() < 0.7:
                device.wait_ready(120)
    finally:
        stop.set()
        for sender in senders:
            sender.thread.join(180)
    for sender in senders:
        assert not sender.thread.is_alive(), f"{sender.thread.name} hangs"
        if sender.failure is not None:
            raise AssertionError(f"with seed {SEED}: {sender.failure!r}") from sender.failure
    device.wait_ready(120)
    for sender in senders:
        for reply in sender.sent:
            assert reply.wait(120)
            first, again = reply.exception(), reply.exception()
            assert type(first) is type(again)
        while sum(sender.answers.values()) < sender.callbacks:
            time.sleep(0.01)
        assert set(sender.answers.values()) <= {1}, "a message was answered twice"
        assert len(sender.answers) == len(sender.sent)
    assert device.lane("last").noop().ask().result(60) is None
    return senders
