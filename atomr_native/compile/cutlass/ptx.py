"""One thread of scalar PTX, run by the CPU.

The functions that build parameters of CUTLASS's kernels are host functions in C++.  NVRTC compiles them for the device,
and here they run without a device: their PTX consists of integer arithmetic, branches, loads and stores.  An
instruction is a function, the indices of its results and those of its sources in the file of registers, which also
holds constants.  Registers hold bit patterns.
"""

from __future__ import annotations

import functools
import operator
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...errors import Unsupported

__all__ = ["Function"]

_LETTERS: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}
_COMPARE: Final = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_LOGIC: Final = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_MOST_STEPS: Final = 1_000_000


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _pattern(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _half(value: float) -> int:
    """Return the bits of a number as float16."""
    try:
        return int.from_bytes(struct.pack("<e", value), "little")
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


def _quotient(a: int, b: int) -> int:
    """Return a quotient that is rounded to zero."""
    return -(-a // b) if (a < 0) != (b < 0) and a % b else a // b


def _permuted(low: int, high: int, selectors: int) -> int:
    """Return ``prmt.b32``: four bytes of eight; a selector's highest bit repeats a byte's sign."""
    eight = high << 32 | low
    made = 0
    for i in range(4):
        selector = selectors >> 4 * i & 15
        byte = eight >> 8 * (selector & 7) & 255
        if selector & 8:
            byte = 255 if byte & 128 else 0
        made |= byte << 8 * i
    return made


def _inserted(source: int, target: int, at: int, length: int, mask: int) -> int:
    field = ((1 << length) - 1) << at
    return (target & ~field | source << at & field) & mask


def _reciprocal(bits: int) -> int:
    value = _float(bits)
    return _pattern(1 / value) if value else 0x7F800000


class Function:
    """A function of PTX: ``.entry name(.param .b8 given[n], .param .u64 out)``.

    Parameters
    ----------
    text : str
        PTX with the function.
    name : str

    Raises
    ------
    Unsupported
        If it has an instruction that is not known here, such as a trap or a call.
    """

    def __init__(self, text: str, name: str) -> None:
        found = re.search(rf"\.entry {re.escape(name)}\((.*?)\)\s*(?:\.\w+[^{{]*)?\{{(.*?)\n\}}", text, re.DOTALL)
        if found is None:
            raise Unsupported(f"the code has no function {name!r}")
        self._parameters = re.findall(r"(\w+)(?:\[\d+\])?(?:,|\s*$)", found[1])
        local = re.search(r"\.local \.align \d+ \.b8\s+(\w+)\[(\d+)\]", found[2])
        self._depot, self._local = (local[1], int(local[2])) if local else ("", 0)
        self._places: dict[str, int] = {}
        self._file: list[int] = []
        self._code: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = []
        self._jumps: dict[int, tuple[str, int, bool]] = {}
        labels: dict[str, int] = {}
        for line in found[2].split("\n"):
            line = line.partition("//")[0].strip()
            if line.endswith(":"):
                labels[line[:-1]] = len(self._code)
            elif line.endswith(";") and not line.startswith("."):
                self._add(line[:-1])
            elif line and not line.startswith((".", "{", "}")):
                raise Unsupported(f"PTX of {name} has {line!r}, which is not known")
        self._targets = {at: (labels[label], place, wanted) for at, (label, place, wanted) in self._jumps.items()}

    def __call__(self, given: bytes, size: int) -> bytes:
        """Run the function; return the memory of `size` bytes to which its second parameter points."""
        memory = {"param": given, "local": bytearray(self._local + 16), "global": bytearray(size)}
        registers = self._file.copy()
        at, steps, code, targets = 0, 0, self._code, self._targets
        while at < len(code):
            steps += 1
            if steps > _MOST_STEPS:
                raise Unsupported("a builder of parameters does not end")
            target = targets.get(at)
            if target is not None:
                to, place, wanted = target
                at = to if place < 0 or bool(registers[place]) is wanted else at + 1
                continue
            function, results, sources = code[at]
            at += 1
            made = function(memory, *[registers[i] for i in sources])
            if len(results) == 1:
                registers[results[0]] = made
            else:
                for place, value in zip(results, made or (), strict=True):
                    registers[place] = value
            if function is _return:
                break
        return bytes(memory["global"])

    def _place(self, text: str) -> int:
        """Return the index of a register or a constant in the file."""
        text = text.strip()
        place = self._places.get(text)
        if place is None:
            place = self._places[text] = len(self._file)
            self._file.append(0 if text.startswith("%") or text in ("_", "cc") else self._constant(text))
        return place

    def _constant(self, text: str) -> int:
        if text == self._depot:
            return 0
        if text in self._parameters:
            return 0
        if text[:2] in ("0f", "0d"):
            return int(text[2:], 16)
        try:
            return int(text.rstrip("U"), 0) & 0xFFFFFFFFFFFFFFFF
        except ValueError:
            raise Unsupported(f"PTX refers to {text!r}, which is not known") from None

    def _add(self, line: str) -> None:
        guarded = re.match(r"@(!?)(%\w+)\s+(.*)", line)
        if guarded:
            line = guarded[3]
        name, _, rest = line.partition(" ")
        parts = name.split(".")
        if parts[0] == "bra":
            place = self._place(guarded[2]) if guarded else -1
            self._jumps[len(self._code)] = rest.strip(), place, not (guarded and guarded[1])
            self._code.append((_return, (), ()))
            return
        if guarded:
            raise Unsupported(f"PTX has {line!r} under a condition, which is not known")
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
        try:
            function, results, sources = self._decoded(parts, operands)
        except (KeyError, IndexError, ValueError):
            raise Unsupported(f"PTX has {line!r}, which is not known") from None
        self._code.append((function, tuple(map(self._place, results)), tuple(map(self._place, sources))))

    def _decoded(self, parts: list[str], operands: list[str]) -> tuple[Callable[..., Any], list[str], list[str]]:
        """Return an instruction's function, and the names of its results and sources."""
        name, kind = parts[0], parts[-1]
        if name == "ret":
            return _return, [], []
        if name in ("ld", "st"):
            return self._access(parts, operands)
        listed = [list(_members(one)) for one in operands]
        if name == "mov" and (len(listed[0]) > 1 or len(listed[1]) > 1):
            return _moves(int(kind[1:]), len(listed[0]), len(listed[1])), listed[0], listed[1]
        if "cc" in parts or name in ("addc", "subc", "madc"):
            function, carries = _with_carry(parts)
            return function, [operands[0], *(["cc"] if carries else [])], [*operands[1:], "cc"]
        return _plain(tuple(parts)), operands[:1], operands[1:]

    def _access(self, parts: list[str], operands: list[str]) -> tuple[Callable[..., Any], list[str], list[str]]:
        stores = parts[0] == "st"
        address, value = operands if stores else operands[::-1]
        found = re.fullmatch(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\d+))?\s*\]", address)
        if found is None:
            raise ValueError(address)
        base, offset = found[1], int(found[2] or 0)
        space = next(part for part in parts if part in ("param", "local", "global"))
        members = list(_members(value))
        bits = int(parts[-1][1:])
        layout = struct.Struct(f"<{len(members)}{_LETTERS[bits]}")
        mask = (1 << bits) - 1
        if stores:

            def store(memory: dict[str, Any], start: int, *values: int) -> None:
                layout.pack_into(memory[space], start + offset, *(one & mask for one in values))

            return store, [], [base, *members]
        if space == "param" and not base.startswith("%"):
            if base != self._parameters[0]:  # the address of the result
                return _zero, members, []

            def argument(memory: dict[str, Any]) -> Any:
                values = layout.unpack_from(memory["param"], offset)
                return values[0] if len(values) == 1 else values

            return argument, members, []

        def load(memory: dict[str, Any], start: int) -> Any:
            values = layout.unpack_from(memory[space], start + offset)
            return values[0] if len(values) == 1 else values

        return load, members, [base]


def _return(memory: object, *_: int) -> None:
    """End the function."""


def _zero(*_: object) -> int:
    return 0


def _members(operand: str) -> Iterator[str]:
    if operand.startswith("{"):
        yield from (one.strip() for one in operand[1:-1].split(","))
    else:
        yield operand


def _moves(bits: int, results: int, sources: int) -> Callable[..., Any]:
    """Return a move between a register and a vector of its parts."""
    width = bits // max(results, sources)
    mask = (1 << width) - 1
    if results > 1:
        return lambda _, whole: tuple(whole >> width * i & mask for i in range(results))
    return lambda _, *values: sum((value & mask) << width * i for i, value in enumerate(values))


def _with_carry(parts: list[str]) -> tuple[Callable[..., Any], bool]:
    """Return the function of an addition, subtraction or multiplication with a carry, and whether it sets it.

    After a subtraction the carry is set if nothing was borrowed.
    """
    name, bits = parts[0], int(parts[-1][1:])
    mask = (1 << bits) - 1
    sets, reads = "cc" in parts, name.endswith("c")
    high = "hi" in parts

    def add(a: int, b: int, carry: int) -> tuple[int, int]:
        total = (a & mask) + (b & mask) + (carry if reads else 0)
        return total & mask, total >> bits

    def subtract(a: int, b: int, carry: int) -> tuple[int, int]:
        total = (a & mask) - (b & mask) - (1 - carry if reads else 0)
        return total & mask, int(total >= 0)

    def multiply(a: int, b: int, c: int, carry: int) -> tuple[int, int]:
        product = (a & mask) * (b & mask)
        return add(product >> bits if high else product & mask, c, carry)

    if name.startswith("mad") and parts[-1][0] != "u":
        raise ValueError(name)
    function: Any = {"add": add, "sub": subtract, "mad": multiply}[name[:3]]
    if sets:
        return lambda _, *given: function(*given), True
    return lambda _, *given: function(*given)[0], False


@functools.cache
def _plain(parts: tuple[str, ...]) -> Callable[..., Any]:
    """Return the function of an instruction without memory and carries."""
    name, kind = parts[0], parts[-1]
    if kind == "pred":
        return _predicate(parts)
    bits = int(kind[1:])
    mask = (1 << bits) - 1
    read: Callable[[int], int] = (lambda v: _signed(v & mask, bits)) if kind[0] == "s" else (lambda v: v & mask)
    if name == "cvt":
        return _converted(parts)
    if kind[0] == "f" and name not in ("mov", "selp"):
        return _floating(parts)
    if name == "setp":
        compare = _COMPARE[parts[1]]
        return lambda _, a, b: int(compare(read(a), read(b)))
    if name in ("mul", "mad"):
        return _product(parts, read, bits)
    if name == "prmt":
        return lambda _, a, b, c: _permuted(a & mask, b & mask, c)
    if name == "shf":
        if parts[1:3] != ("l", "wrap"):
            raise ValueError(parts)
        return lambda _, a, b, c: ((b & mask) << 32 | a & mask) >> (32 - (c & 31)) & mask
    if name == "bfi":
        return lambda _, a, b, c, d: _inserted(a, b, c & 255, d & 255, mask)
    if name == "bfe":
        return lambda _, a, b, c: _signed_field(read(a), b & 255, c & 255, kind[0] == "s", bits) & mask
    functions: dict[str, Callable[..., int]] = {
        "mov": lambda _, a: a & mask,
        "cvta": lambda _, a: a & mask,
        "add": lambda _, a, b: a + b & mask,
        "sub": lambda _, a, b: a - b & mask,
        "div": lambda _, a, b: _quotient(read(a), read(b)) & mask,
        "rem": lambda _, a, b: read(a) - _quotient(read(a), read(b)) * read(b) & mask,
        "and": lambda _, a, b: a & b & mask,
        "or": lambda _, a, b: (a | b) & mask,
        "xor": lambda _, a, b: (a ^ b) & mask,
        "not": lambda _, a: ~a & mask,
        "neg": lambda _, a: -a & mask,
        "abs": lambda _, a: abs(read(a)) & mask,
        "shl": lambda _, a, b: a << min(b & 0xFFFFFFFF, bits) & mask,
        "shr": lambda _, a, b: read(a) >> min(b & 0xFFFFFFFF, bits) & mask,
        "min": lambda _, a, b: min(read(a), read(b)) & mask,
        "max": lambda _, a, b: max(read(a), read(b)) & mask,
        "selp": lambda _, a, b, c: (a if c else b) & mask,
        "clz": lambda _, a: bits - (a & mask).bit_length(),
        "popc": lambda _, a: (a & mask).bit_count(),
    }
    return functions[name]


def _signed_field(value: int, at: int, length: int, signed: bool, bits: int) -> int:
    """Return ``bfe``: a field of a register, with its sign if the type has one."""
    if not length:
        return 0
    field = value >> min(at, bits) & ((1 << length) - 1)
    return _signed(field, length) if signed and at + length <= bits else field


def _predicate(parts: tuple[str, ...]) -> Callable[..., int]:
    if parts[0] == "mov":
        return lambda _, a: int(bool(a))
    if parts[0] == "not":
        return lambda _, a: int(not a)
    function = _LOGIC[parts[0]]
    return lambda _, a, b: int(function(bool(a), bool(b)))


def _product(parts: tuple[str, ...], read: Callable[[int], int], bits: int) -> Callable[..., int]:
    form = parts[1]
    mask = (1 << (2 * bits if form == "wide" else bits)) - 1
    shift = bits if form == "hi" else 0
    if form not in ("lo", "hi", "wide"):
        raise ValueError(form)
    if parts[0] == "mul":
        return lambda _, a, b: read(a) * read(b) >> shift & mask
    return lambda _, a, b, c: (read(a) * read(b) >> shift) + c & mask


def _floating(parts: tuple[str, ...]) -> Callable[..., int]:
    """Return the function of a float32 instruction."""
    name = parts[0]
    if parts[-1] != "f32":
        raise ValueError(parts)
    if name == "rcp":
        return lambda _, a: _reciprocal(a)
    if name == "setp":
        compare = _COMPARE[parts[1]]
        return lambda _, a, b: int(compare(_float(a), _float(b)))
    functions: dict[str, Callable[..., float]] = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
        "fma": lambda a, b, c: a * b + c, "neg": operator.neg, "min": min, "max": max,
    }  # fmt: skip
    function = functions[name]
    # In float64, and rounded: the same as in float32, but for sums in a fused operation's last place.
    return lambda _, *given: _pattern(function(*map(_float, given)))


def _converted(parts: tuple[str, ...]) -> Callable[..., int]:
    """Return the function of a conversion between integers, or between integers and floats."""
    to, kind = parts[-2], parts[-1]
    if "f" not in (to[0], kind[0]):
        bits, mask = int(kind[1:]), (1 << int(to[1:])) - 1
        if kind[0] == "s":
            return lambda _, a: _signed(a & (1 << bits) - 1, bits) & mask
        return lambda _, a: a & (1 << bits) - 1 & mask
    if to == "f32" and kind[0] in "su" and parts[1] == "rn":
        bits = int(kind[1:])
        if kind[0] == "s":
            return lambda _, a: _pattern(_signed(a & (1 << bits) - 1, bits))
        return lambda _, a: _pattern(a & (1 << bits) - 1)
    if to == "f16" and kind in ("s32", "u32", "f32") and parts[1] == "rn":
        read: Callable[[int], float] = _float if kind == "f32" else lambda a: _signed(a, 32) if kind == "s32" else a
        return lambda _, a: _half(read(a & 0xFFFFFFFF))
    if kind == "f32" and to[0] in "su" and parts[1] == "rzi":
        bits = int(to[1:])
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
        return lambda _, a: min(max(int(_float(a)), low), high) & (1 << bits) - 1
    raise ValueError(parts)
