"""Actors whose messages tests observe."""

from __future__ import annotations

import asyncio

import atomr_native as an


class Echo(an.Actor):
    def receive(self, message):
        if isinstance(message, Exception):
            raise message
        return message


class Relay(an.Actor):
    def __init__(self, target):
        self.target = target

    def receive(self, message):
        return self.target.ask(message).result(10)


class Gate(an.Actor):
    """Answers once it is opened, each message as a coroutine of its own."""

    reentrant = 4

    def pre_start(self):
        self.gate = asyncio.Event()

    async def receive(self, message):
        if message == "open":
            self.gate.set()
        else:
            await self.gate.wait()
        return message
