"""What machine code says of its kernels, read from the file itself: names, parameters, whether they wait.

A cubin is an ELF file.  Kernels are the symbols whose `st_other` has STO_CUDA_ENTRY; their parameters are the
EIATTR_KPARAM_INFO entries of the section ``.nv.info.<kernel>`` (as ``cuobjdump --dump-elf`` prints them), and their
instructions, of 16 bytes each, the section ``.text.<kernel>``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from .errors import LibraryError

__all__ = ["awaits_launch", "kernels"]

_SYMTAB = 2
_ENTRY = 0x10  # of a symbol's st_other
_SIZED, _KPARAM_INFO = 4, 0x17  # format, and attribute, of an entry of .nv.info
#: PTX's griddepcontrol.wait: the low bits of the first of an instruction's two words (nvdisasm: ACQBULK, sm_90 to 120).
_WAIT, _OPCODE = 0x82E, 0xFFF

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
        If it is no cubin.
    """
    return _read(_kernels, cubin)


def awaits_launch(cubin: bytes, name: str) -> bool:
    """Whether a kernel, or a function of the same file, waits for the launch before it (``griddepcontrol.wait``).

    Raises
    ------
    LibraryError
        If it is no cubin.
    """
    found = _read(_waiting, cubin)
    functions = found - kernels(cubin).keys()
    return name in found or bool(functions)


def _read(what: Callable[[bytes], _T], cubin: bytes) -> _T:
    try:
        return what(cubin)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise LibraryError("cubin", 0, "Malformed", "reading machine code", str(error)) from None


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:4] != b"\x7fELF":
        raise ValueError("it is no ELF file")
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


def _waiting(cubin: bytes) -> set[str]:
    """Return the names of the sections of code that wait for the launch before."""
    return {
        section.name.removeprefix(".text.")
        for section in _sections(cubin)
        if section.name.startswith(".text.")
        and any(
            word & _OPCODE == _WAIT
            for word, _ in struct.iter_unpack("<QQ", cubin[section.at : section.at + section.nbytes])
        )
    }


def _parameters(cubin: bytes, at: int, end: int) -> tuple[int, ...]:
    found = []
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == _SIZED and attribute == _KPARAM_INFO:
            _, ordinal, _, facts = struct.unpack_from("<IHHI", cubin, at + 4)
            found.append((ordinal, facts >> 18))
        at += 4 + (size if form == _SIZED else 0)
    return tuple(size for _, size in sorted(found))
