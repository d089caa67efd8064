"""A durable group in a piece of memory, and the plans of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from codegen_engines import Engine

from atomr_native.libraries.memory.attributes import GroupAttributes
from atomr_native.libraries.memory.cuda import groups
from atomr_native.libraries.memory.recovery import recover
from atomr_native.plans.spec import READ, OperandSpec, PlanSpec


class Memory:
    """Device memory for recovery, as bytes."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.zeros(nbytes, np.uint8)

    def read(self, place: tuple[int, int], nbytes: int) -> bytes:
        assert place[0] == 7
        return self.bytes[place[1] : place[1] + nbytes].tobytes()

    def write(self, place: tuple[int, int], data: bytes) -> None:
        self.bytes[place[1] : place[1] + len(data)] = np.frombuffer(data, np.uint8)

    def copy(self, source: tuple[int, int], target: tuple[int, int], nbytes: int) -> None:
        self.bytes[target[1] : target[1] + nbytes] = self.bytes[source[1] : source[1] + nbytes]

    def checksum(self, total: int, place: tuple[int, int], nbytes: int, offset: int) -> int:
        return groups.signed(total + groups.checksum(self.read(place, nbytes), offset))


SIZES = (5, 1024, 4097, 16, 0, 23)


class Group:
    """A group in a piece of memory."""

    def __init__(self, engine: Engine, checked: bool) -> None:
        self.engine, self.checked = engine, checked
        self.offsets = [sum(-(-n // 256) * 256 for n in SIZES[:i]) for i in range(len(SIZES))]
        total = self.offsets[-1] + 256
        self.memory = Memory(2 * total + 512)
        aligned = -self.memory.bytes.ctypes.data % 256
        self.memory.bytes = self.memory.bytes[aligned : aligned + 2 * total + 256]
        self.shadow, self.header = total, 2 * total
        self.described = {
            "number": 1, "header": [7, self.header], "shadow": [7, total, total], "dirty": True, "checksum": checked,
            "members": [[7, o, n, o] for o, n in zip(self.offsets, SIZES, strict=True)],
        }  # fmt: skip
        data = self.memory.bytes
        self.members = [data[o : o + n] for o, n in zip(self.offsets, SIZES, strict=True)]
        self.words = data[self.header : self.header + 64].view(np.int64)
        self.operands = (*self.members, data[total : 2 * total], self.words)

    def spec(self, op: str) -> PlanSpec:
        names = [f"member_{i}" for i in range(len(SIZES))] + ["shadow", "header"]
        operands = tuple(
            OperandSpec(n, a.dtype.name, a.shape, a.strides, READ) for n, a in zip(names, self.operands, strict=True)
        )
        scalars = ("int64", "int64") if op == "group.commit" else ()
        attributes = GroupAttributes(tuple(self.offsets), self.checked, 1)
        return PlanSpec(op, operands, scalars, attributes)

    def run(self, op: str, *scalars: int) -> None:
        self.engine.run(self.spec(op), self.operands, scalars)

    def fill(self, seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        for member in self.members:
            member[...] = rng.integers(0, 256, member.size)
        return self.state()

    def state(self) -> bytes:
        return b"".join(member.tobytes() for member in self.members)

    def recover(self) -> dict[str, Any]:
        (found,) = recover(self.memory, [self.described])
        json.dumps(found)
        assert not found.pop("strayed")  # all writes here are as if they had been sent
        return dict(found)
