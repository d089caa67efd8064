"""What machine code says of its kernels: names and parameters, read from the file itself.

A cubin is an ELF file.  Kernels are the symbols whose `st_other` has STO_CUDA_ENTRY; their parameters are the
EIATTR_KPARAM_INFO entries of the section ``.nv.info.<kernel>`` (as ``cuobjdump --dump-elf`` prints them).
"""

from __future__ import annotations

import struct

from .errors import LibraryError

__all__ = ["kernels"]

_SYMTAB = 2
_ENTRY = 0x10  # of a symbol's st_other
_SIZED, _KPARAM_INFO = 4, 0x17  # format, and attribute, of an entry of .nv.info


def kernels(cubin: bytes) -> dict[str, tuple[int, ...]]:
    """Return each kernel's name, and the sizes of its parameters in bytes.

    Raises
    ------
    LibraryError
        If it is no cubin.
    """
    try:
        return _kernels(cubin)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise LibraryError("cubin", 0, "Malformed", "reading machine code", str(error)) from None


def _kernels(cubin: bytes) -> dict[str, tuple[int, ...]]:
    if cubin[:4] != b"\x7fELF":
        raise ValueError("it is no ELF file")
    (sections,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, sections + i * size) for i in range(count)]

    def text(table: int, offset: int) -> str:
        start = headers[table][4] + offset
        return cubin[start : cubin.index(b"\0", start)].decode()

    entries: list[str] = []
    parameters: dict[str, tuple[int, ...]] = {}
    for name, kind, _, _, offset, nbytes, link, _, _, step in headers:
        if kind == _SYMTAB:
            for at in range(offset, offset + nbytes, step):
                symbol, _, other = struct.unpack_from("<IBB", cubin, at)
                if other & _ENTRY:
                    entries.append(text(link, symbol))
            continue
        section = text(names_at, name)
        if section.startswith(".nv.info."):
            parameters[section.removeprefix(".nv.info.")] = _parameters(cubin, offset, offset + nbytes)
    return {name: parameters.get(name, ()) for name in entries}


def _parameters(cubin: bytes, at: int, end: int) -> tuple[int, ...]:
    found = []
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == _SIZED and attribute == _KPARAM_INFO:
            _, ordinal, _, facts = struct.unpack_from("<IHHI", cubin, at + 4)
            found.append((ordinal, facts >> 18))
        at += 4 + (size if form == _SIZED else 0)
    return tuple(size for _, size in sorted(found))
