"""A catalogue of all public calls: those of `interrupts.Calls`, messages of each library, recordings, communicators."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from interrupts import Calls
from recorded_cases import of_libraries, values

import atomr_native as an

__all__ = ["EveryCall"]


class _Worker(an.Actor):
    @an.handler
    def number(self, message: int) -> int:
        return message


class EveryCall(Calls):
    """Public calls on two devices, a communicator of both, and recordings.

    Parameters
    ----------
    system : System
    folder : Path
        For saved groups.
    """

    def __init__(self, system: an.System, folder: Path) -> None:
        super().__init__(system)
        self._folder = folder
        self._files = itertools.count()
        self._other = system.device("host:1")
        self._comm = system.communicator(["host", "host:1"])
        self._ranks = [device.ones(16) for device in self._comm.devices]
        self._into = [device.zeros(16) for device in self._comm.devices]
        self._windows = self._comm.symmetric(16, "float32")
        self._both = self._comm.durable_group([{"w": device.zeros(8, durable=True)} for device in self._comm.devices])
        self._bound = [self.device.ones(64), self.device.full(64, 2.0)]
        self._result = self.device.zeros(64)
        with self.device.record() as g:
            self._recorded(g.operand("x", self._bound[0]), g.scalar("rate", 2.0))
        self._program = g.plan
        self._product = self.device.zeros((16, 16))
        self._plan = self.device.blas_lt.plan(a=self.square, b=self.square, out=self._product).wait()
        self._messages: dict[str, Any] = {}
        for library, module in of_libraries().items():
            for name, one in module.CASES.items():
                if name in getattr(module, "MARKS", {}):
                    continue
                given = [self.device.put(values(array, i)) for i, array in enumerate(one.arrays.split())]
                numbers = {number: several[0] for number, several in one.numbers}
                call = functools.partial(one.call, self.device, one.prepare(self.device), *given, **numbers)
                self._messages[f"{library}, {name}"] = call
        self.makes |= self._messages

    def _recorded(self, x: an.GpuRef, rate: Any) -> None:
        self.device.elementwise.run("out = x * rate + w", x=x, rate=rate, w=self._bound[1], out=self._result)

    # ---- memory

    def creation(self) -> object:
        d = self.device
        return d.arange(5), d.eye(3), d.linspace(0.0, 1.0, 5), d.ones(3), d.full(3, 2.0), d.empty(3)

    def between_devices(self) -> object:
        return self.device.copy(self._other.put(np.ones(8, np.float32))).wait()

    def handles(self) -> object:
        x = self.device.put(np.arange(12.0).reshape(3, 4))
        x.fill(2.0).clear_error()
        found = x.reshape(4, 3).transpose().astype("float32").view("int32").done(), x[0, 0].item()
        x.to_device(self._other)
        with x.lend():
            pass
        y = x.sum() + x.mean() + x.prod() + x.std() + x.var() + x.min() + x.max()
        z = x.all(), x.any(), x.argmax(), x.argmin(), x.clip(0.0, 1.0), x.take(self.device.put(np.array([0, 2])), 0)
        x.free()
        return found, y.wait(), z

    def put_async(self) -> object:
        return self._run(self.device.put_async(np.ones(8)))

    def opened(self) -> object:
        with self.device.zeros(8).share() as shared:
            return self._other.open_shared(shared.name)

    def restore(self) -> object:
        return self.group.restore().result(timeout=60)

    def save_and_load(self) -> object:
        path = self._folder / f"{next(self._files) % 4}.group"
        self.group.save(path)
        return self.group.load(path)

    def watch(self) -> object:
        def learned(*_: object) -> None:
            pass

        self.device.on_generation(learned)
        self.device.on_end(learned)
        return self.device.forget(learned)

    def state(self) -> object:
        return self.device.stats(), self.system.devices(), self.system.place([self.x])

    # ---- plans and recordings

    def plans(self) -> object:
        self._plan.tell(self.square, self.square, out=self._product)
        self._plan.pardon()
        made = self.device.elementwise.plan(f"a * {next(self._fresh) % 100} + 1", a=self.x)
        return made.wait().ask(self.x, out=self.device.empty(1024)).result(timeout=60)

    def offer(self) -> object:
        reply = self._plan.offer(self.square, self.square, out=self._product)
        return reply if reply is None else reply.result(timeout=60)

    def record(self) -> object:
        number = next(self._fresh) % 50
        with self.device.record() as g:
            self.device.elementwise.run(f"a + {number}", a=g.operand("a", self._bound[0]), out=self._result)
        return g.plan.ask(self._bound[1]).result(timeout=60)

    def function(self) -> object:
        @self.device.graph
        def twice(x: an.GpuRef) -> an.GpuRef:
            return x * 2

        return twice(self._bound[0]).wait()

    def replay(self) -> object:
        self._program.wait().pardon()
        self._program.offer(self._bound[0], rate=2.0)
        return self._program.ask(self._bound[0], rate=3.0).result(timeout=60)

    def replay_async(self) -> object:
        async def send() -> Any:
            return await self._program.send_async(self._bound[0], rate=3.0)

        return self._run(send())

    def bind(self) -> object:
        new = self.device.full(64, 2.0)
        self._program.bind(self._bound[1], new)
        self._bound[1] = new
        return self._program.dot()

    # ---- communicators

    def collectives(self) -> object:
        c, x = self._comm, self._ranks
        c.barrier()
        c.all_reduce(x, op="max", out=x)
        c.reduce(x, 0)
        c.broadcast(x[0])
        c.reduce_scatter(x)
        c.all_gather(x)
        c.all_to_all(x)
        c.scatter(x[0])
        return c.gather(x, 1).wait()

    def send_between_ranks(self) -> object:
        self._comm.send(self._ranks[0], 1, self._into[1])
        with self._comm.group():
            self._comm.send(self._ranks[1], 0, self._into[0])
        return [ref.wait() for ref in self._into]

    def asked_collective(self) -> object:
        request = an.CollectiveRequest("all_reduce", self._ranks, out=self._into)
        self._comm.tell(request)
        return self._comm.ask(request).result(timeout=60)

    def planned_collective(self) -> object:
        plan = self._comm.plan(an.CollectiveRequest("all_reduce", self._ranks, out=self._into))
        return plan.ask(self._ranks, out=self._into).result(timeout=60)

    def symmetric(self) -> object:
        return self._comm.symmetric(next(self._fresh) % 32 + 1, "float32")

    def windows(self) -> object:
        return [ref.wait() for ref in self._comm.all_reduce(self._windows, op="max", out=self._windows)]

    def ranks_recorded(self) -> object:
        with self._comm.record() as g:
            self._comm.all_reduce(self._ranks, op="max", out=self._into)
        return g.plan.ask().result(timeout=60)

    def ranks_commit(self) -> object:
        self._both.commit()
        return self._both.restore()

    def subgroups(self) -> object:
        self._comm.connect()
        self._comm.stats()
        made = *self._comm.split([0, 0]).values(), self._comm.sub([1]), self._comm.without(1)
        made[0].on_generation(self.called.append)
        made[0].durable_group([{"w": device.zeros(8, durable=True)} for device in made[0].devices])
        return [each.close() for each in (*made, self.system.communicator(["host"]))]

    # ---- actors

    def mapped(self) -> object:
        return list(self._pipeline.map(range(3)))

    def submit_async(self) -> object:
        async def submit() -> Any:
            return await (await self._pipeline.submit_async(5))

        return self._run(submit())

    def pool(self) -> object:
        pool = self.system.pool(_Worker, size=2)
        answer = pool.ask(3).result(timeout=60)
        pool.stop()
        return answer

    def actor(self) -> object:
        ref = self.system.spawn(_Worker)
        ref.tell(1)
        ref.try_tell(2)
        found = ref.ask(3).result(timeout=60), ref.stats()
        ref.kill()
        return found, ref.join(60)
