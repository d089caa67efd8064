"""Actors for tests of clusters; also imported by the processes of nodes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import atomr_native as an


class Log(an.Actor):
    """Keeps the messages in their order; answers with their number, or does as they say."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.seen: list[Any] = []

    def receive(self, message: Any) -> Any:
        match message:
            case "seen":
                return self.seen
            case "arguments":
                return self.arguments
            case "node":
                return self.context.self_ref
            case "sender":
                return self.context.sender
            case "fail":
                raise an.OutOfMemory("too much", requested=7)
            case ("spawn", name):
                return self.context.spawn(Log, name=name)
            case ("tell", ref, text):
                return ref.tell(text)
            case ("forward", ref, text):
                return self.context.forward(ref, text)
        self.seen.append(message)
        return len(self.seen)


class Gate(an.Actor):
    """Handles its first message when it is opened; only in one process."""

    opened = threading.Event()
    entered = threading.Event()

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def receive(self, message: Any) -> Any:
        type(self).entered.set()
        assert type(self).opened.wait(30)
        self.seen.append(message)
        return list(self.seen)


class Watcher(an.Actor):
    """Watches the actor of its constructor's argument."""

    def __init__(self, ref: an.ActorRef) -> None:
        self.context.watch(ref)
        self.found: list[an.Terminated] = []
        self.waiting: list[an.ReplyTo] = []

    def receive(self, message: Any) -> Any:
        if isinstance(message, an.Terminated):
            self.found.append(message)
            for each in self.waiting:
                each.reply(message)
            return None
        if self.found:
            return self.found[-1]
        self.waiting.append(self.context.reply_later())
        return None


class Arrays(an.Actor):
    """Works on the arrays that it gets, wherever they are, and in a plain System too."""

    def __init__(self) -> None:
        self.kept: Any = None

    def receive(self, message: Any) -> Any:
        device = self.context.system.device("host")
        match message:
            case ("kind", array):
                return type(array).__name__
            case ("double", array):
                return array.to_device(device) * 2
            case ("keep", array):
                self.kept = array
            case "drop":
                self.kept = None
            case "kept":
                return self.kept
        return None


class DeviceWatcher(an.Actor):
    """Watches a device, and answers with what it was told."""

    def __init__(self, device: Any) -> None:
        self.context.watch(device)
        self.found: list[Any] = []
        self.waiting: list[tuple[int, an.ReplyTo]] = []

    def receive(self, message: Any) -> Any:
        if isinstance(message, an.DeviceRestarted | an.DeviceEnded):
            self.found.append(message)
            for count, each in self.waiting:
                if len(self.found) >= count:
                    each.reply(list(self.found))
            self.waiting = [each for each in self.waiting if len(self.found) < each[0]]
        elif isinstance(message, int) and len(self.found) < message:
            self.waiting.append((message, self.context.reply_later()))
        elif message == "device":
            return type(self.context.system.device("host")).__name__
        else:
            return self.found
        return None


class OnDevice(an.Actor):
    """Works on the device of its constructor's argument."""

    def __init__(self, prefix: str = "", *, device: Any = None) -> None:
        self.prefix, self.device = prefix, device
        self.seen: list[Any] = []

    def receive(self, message: Any) -> Any:
        if message == "where":
            return type(self.device).__name__, self.context.self_ref.path
        if message == "seen":
            return self.seen
        if isinstance(message, tuple) and message[0] == "pool":
            return [answer.result(30) for answer in [message[1].ask(each) for each in message[2]]]
        self.seen.append(message)
        return f"{self.prefix}{message}"


class Batches(an.Actor):
    """Answers each item of a list."""

    def receive(self, message: list[int]) -> list[int]:
        return [2 * each for each in message]


class Trains(an.Actor):
    """Adds to a durable array, commits, and saves its group where it is told to."""

    def __init__(self) -> None:
        self.device = self.context.system.device("host")
        self.group = self.device.durable_group({"w": self.device.zeros((4,), durable=True)})
        self.group.commit(0).result(30)

    def receive(self, message: Any) -> Any:
        match message:
            case "step":
                self.group.members["w"][...] = self.group.members["w"] + 1
                self.group.commit(self.group.tag + 1).result(30)
            case ("save", where):
                return self.group.save(where)
            case ("load", saved):
                self.group.load(saved)
        return self.group.tag, self.group.members["w"].numpy().tolist()


def seeded_array(seed: int) -> np.ndarray[Any, Any]:
    """Return 1 MiB of numbers."""
    return np.random.default_rng(seed).standard_normal(1 << 18).astype("float32")


class Collective(an.Actor):
    """A rank of a communicator; runs the calls that it is told to."""

    def __init__(self, device: str, comm: Any) -> None:
        self.device, self.comm = self.context.system.device(device), comm

    def receive(self, message: Any) -> Any:
        reply = self.context.reply_later()
        try:
            reply.reply(self.run(*message))
        except an.AtomrError as error:
            reply.fail(error)

    def run(self, name: str, array: Any, options: dict[str, Any]) -> Any:
        if name == "alive":
            return name
        if name == "notes":
            return self.comm.notes
        if name == "poisoned":
            from actions import poison

            ref = self.device.put(array)
            poison(self.device.lane("mine"), ref)
            return self.comm.all_reduce(ref)
        if name == "seeded":
            return self.comm.all_reduce(self.device.put(seeded_array(array))).numpy()[:: 1 << 9]
        if name == "stale":
            freed = self.device.put(array)
            freed.free()
            return self.comm.all_reduce(freed)
        given = () if array is None else (self.device.put(array),)
        if options.pop("in_place", False):
            options["out"] = given[0]
        found = getattr(self.comm, name)(*given, **options)
        if "out" in options:
            assert found is given[0]
        return found if found is None else found.numpy()
