"""Properties of kernels in machine code, read from the file: names, parameters, waits.

A cubin is an ELF file.  Kernels are the symbols whose `st_other` has STO_CUDA_ENTRY; their parameters are the
EIATTR_KPARAM_INFO entries of the section ``.nv.info.<kernel>`` (as ``cuobjdump --dump-elf`` prints them), and their
instructions, of 16 bytes each, the section ``.text.<kernel>``.

pyelftools 0.33 does not replace this reader: it drops the bit of `st_other` that marks a kernel, and takes 16 to 44
times as long (a file of 650 KB: 10 ms against 0.6 ms).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ..errors import LibraryError

__all__ = ["kernels", "why_no_overlap"]

_SYMTAB = 2
_ENTRY = 0x10  # bit of a symbol's st_other
_SIZED, _KPARAM_INFO = 4, 0x17  # format and attribute of an entry of .nv.info
# Instruction encodings, by nvdisasm on sm_90 to 121: the low bits of the first of two words, the predicate, and its
# value for "always".  ACQBULK is PTX's griddepcontrol.wait.
_WAIT, _OPCODE, _ALWAYS = 0x82E, 0xFFF, 0x7
_NBYTES = 16
#: An opcode without its form; opcodes below _VARYING only compute (or copy from shared memory to registers).
_OPERATION, _VARYING, _BRANCH = 0x1FF, 0x100, 0x147
#: Other opcodes that neither leave the kernel nor access device memory: conversions and similar, NOP, S2R; BAR; BSYNC,
#: BSSY, WARPSYNC, BPT (which traps), NANOSLEEP; LDC, LDL, LDS; STL, STS, SHFL; ATOMS; MATCH, LDCU; SYNCS, UTMACCTL
#: (which fetches a tensor map); R2UR, S2UR, REDUX; FENCE, barriers of clusters.
_HARMLESS = frozenset(
    (*range(0x100, 0x11B), 0x11D, 0x141, 0x145, 0x148, 0x15C, 0x15D, 0x182, 0x183, 0x184, 0x187, 0x188, 0x189, 0x18C,
     0x18D, 0x1A1, 0x1AC, 0x1B2, 0x1B9, 0x1C2, 0x1C3, 0x1C4, 0x1C6, 0x1C7)
)  # fmt: skip
_CONTROL = range(0x140, 0x160)

_T = TypeVar("_T")


class _Section(NamedTuple):
    name: str
    kind: int
    at: int
    nbytes: int
    link: int
    step: int


def kernels(cubin: bytes) -> dict[str, tuple[int, ...]]:
    """Return each kernel's name, and the sizes of its parameters in bytes.

    Raises
    ------
    LibraryError
        If it is not a cubin.
    """
    return _read(_kernels, cubin)


def why_no_overlap(cubin: bytes, name: str) -> str:
    """Return why a kernel must not overlap the previous launch; empty if it may.

    It may if every thread reaches ``griddepcontrol.wait`` without an earlier access to device memory.  If some threads
    exit without waiting, the kernel could finish before its predecessor, and its successor would wait only for it.

    Raises
    ------
    LibraryError
        If it is not a cubin.
    """
    return _read(lambda data: _why_no_overlap(data, name), cubin)


def _read(what: Callable[[bytes], _T], cubin: bytes) -> _T:
    try:
        return what(cubin)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise LibraryError("cubin", 0, "Malformed", "reading machine code", str(error)) from None


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:4] != b"\x7fELF":
        raise ValueError("it is not an ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * size) for i in range(count)]
    names = headers[names_at][4]
    return [
        _Section(_text(cubin, names + name), kind, at, nbytes, link, step)
        for name, kind, _, _, at, nbytes, link, _, _, step in headers
    ]


def _text(cubin: bytes, at: int) -> str:
    return cubin[at : cubin.index(b"\0", at)].decode()


def _kernels(cubin: bytes) -> dict[str, tuple[int, ...]]:
    entries: list[str] = []
    parameters: dict[str, tuple[int, ...]] = {}
    sections = _sections(cubin)
    for section in sections:
        if section.kind == _SYMTAB:
            for at in range(section.at, section.at + section.nbytes, section.step):
                symbol, _, other = struct.unpack_from("<IBB", cubin, at)
                if other & _ENTRY:
                    entries.append(_text(cubin, sections[section.link].at + symbol))
        elif section.name.startswith(".nv.info."):
            parameters[section.name.removeprefix(".nv.info.")] = _parameters(
                cubin, section.at, section.at + section.nbytes
            )
    return {name: parameters.get(name, ()) for name in entries}


def _why_no_overlap(cubin: bytes, name: str) -> str:
    words: list[int] = []
    for section in _sections(cubin):
        if section.name == f".text.{name}":
            words = [word for word, _ in struct.iter_unpack("<QQ", cubin[section.at : section.at + section.nbytes])]
    waits = next((at for at, word in enumerate(words) if word & _OPCODE == _WAIT), None)
    if waits is None:
        return "it never waits"
    everywhere = words[waits] >> 12 & 0xF == _ALWAYS
    for at, word in enumerate(words[:waits]):
        operation = word & _OPERATION
        if operation == _BRANCH:
            everywhere = everywhere and 0 <= at + 1 + _distance(word) <= waits
        elif operation >= _VARYING and operation not in _HARMLESS:
            return f"it may {'return or call a function' if operation in _CONTROL else 'touch memory'} before it waits"
    return "" if everywhere else "it waits in some of its threads only"


def _distance(branch: int) -> int:
    """Return the distance of a branch from the next instruction: bits 16 to 23, and above them 34 to 63."""
    high = branch >> 34
    return ((high - (1 << 30) if high >> 29 else high) << 8 | branch >> 16 & 0xFF) * 4 // _NBYTES


def _parameters(cubin: bytes, at: int, end: int) -> tuple[int, ...]:
    found = []
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == _SIZED and attribute == _KPARAM_INFO:
            _, ordinal, _, facts = struct.unpack_from("<IHHI", cubin, at + 4)
            found.append((ordinal, facts >> 18))
        at += 4 + (size if form == _SIZED else 0)
    return tuple(size for _, size in sorted(found))
