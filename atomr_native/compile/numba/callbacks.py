"""Functions in Numba as callbacks of cuFFT: LTO-IR with the types of its C++ interface, which the linker inlines.

Numba's own C interface passes complex numbers in another way than C++, and a linker that finds two types for one
function keeps the call.  Here a second function in the same module has C++'s types: a struct by value, whose result is
aligned to its size.  It reads the addresses and numbers of the message from the block of memory that cuFFT passes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

from ...errors import Unsupported
from . import api
from .api import compiler, llvm
from .compiler import OPTIONS, compiling_for, failure, link_part, renewed

__all__ = ["callback"]

_STRUCTS: Final = {"float32": "struct.float2", "float64": "struct.double2"}


def callback(
    function: FunctionType,
    types: Sequence[str],
    words: Sequence[int],
    parts: int,
    stores: bool,
    symbol: str,
    capability: tuple[int, int],
) -> bytes:
    """Compile a function of one element to LTO-IR that cuFFT links.  Waits for the compiler; needs no GPU.

    Parameters
    ----------
    function : FunctionType
        Of the parameters `types`.
    types : sequence of str
        Pointers and numbers, then an int64, the element's place, then one or two reals or pointers to them.
    words : sequence of int
        Where the block of parameters has each pointer and number.
    parts : int
        2 for complex elements.
    stores : bool
    symbol : str
        The function's name in C++.
    capability : tuple of int

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    Unsupported
        If NVVM is not installed, or the function calls code that is linked separately.
    """
    name = f"{symbol}_element"
    known = [api.pointer_type(t[1:]) if t[0] == "*" else api.scalar_type(t) for t in types]
    real = types[-1].lstrip("*")
    try:
        with compiling_for(capability), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library, _ = compiler._compile_pyfunc_with_fixup(
                renewed(function), tuple(known), device=True, abi="c", abi_info={"abi_name": name}, cc=capability,
                lto=True, **OPTIONS,
            )  # fmt: skip
            found = [(m, f) for m in library.modules for f in m.functions if f.name == name]
            _wrap(*found[0], words, real, parts, stores, symbol)
            linked = tuple(map(link_part, library._linking_files))
            code = bytes(library.get_ltoir(cc=capability))
    except Exception as error:
        raise failure(error, function) from None
    if linked:
        names = ", ".join(part.name for part in linked)
        raise Unsupported(f"a function with code that is linked to it ({names}) cannot be linked into cuFFT's kernels")
    return code


def _wrap(module: Any, body: Any, words: Sequence[int], real: str, parts: int, stores: bool, symbol: str) -> None:
    """Add the function that cuFFT calls: (data, place, [element,] block, shared memory)."""
    byte, word = llvm.IntType(8).as_pointer(), llvm.IntType(64)
    number = llvm.FloatType() if real == "float32" else llvm.DoubleType()
    size = (4 if real == "float32" else 8) * parts
    element = number
    if parts == 2:
        element = module.context.get_identified_type(_STRUCTS[real])
        if element.is_opaque:
            element.set_body(number, number)
    given = [byte, word, *([element] if stores else []), byte, byte]
    value = {(1, "float32"): "f", (1, "float64"): "d", (2, "float32"): "6float2", (2, "float64"): "7double2"}
    mangled = f"_Z{len(symbol)}{symbol}Pvy{value[parts, real] if stores else ''}S_S_"  # as C++ that cuFFT compiles
    made = llvm.Function(module, llvm.FunctionType(llvm.VoidType() if stores else element, given), mangled)
    builder = llvm.IRBuilder(made.append_basic_block())
    place, block = made.args[1], made.args[-2]
    # Without an address space: from a pointer of device memory the linker does not learn that those in it are, too, and
    # accesses that might be of shared memory wait for cuFFT's exchanges there.
    address = builder.bitcast(block, word.as_pointer())

    def argument(at: int, kind: Any) -> Any:
        found = builder.load(builder.gep(address, [llvm.Constant(word, at)]), align=8)
        found.set_metadata("invariant.load", module.add_metadata([]))
        if isinstance(kind, llvm.PointerType):
            return builder.inttoptr(found, kind)
        return builder.bitcast(found, kind) if kind != word else found

    wanted = body.ftype.args
    arguments = [argument(at, kind) for at, kind in zip(words, wanted, strict=False)]
    if stores:
        value = made.args[2]
        ends = [builder.extract_value(value, i) for i in range(2)] if parts == 2 else [value]
        builder.call(body, [*arguments, place, *ends])
        builder.ret_void()
        aligned = 3 << 16 | size  # of the third parameter
    else:
        slots = [builder.alloca(number) for _ in range(parts)]
        builder.call(body, [*arguments, place, *slots])
        loaded = [builder.load(slot) for slot in slots]
        result = loaded[0]
        if parts == 2:
            result = builder.insert_value(llvm.Constant(element, llvm.Undefined), loaded[0], 0)
            result = builder.insert_value(result, loaded[1], 1)
        builder.ret(result)
        aligned = size  # of the result
    if parts == 2:
        note = [made, llvm.MetaDataString(module, "align"), llvm.Constant(llvm.IntType(32), aligned)]
        module.add_named_metadata("nvvm.annotations").add(module.add_metadata(note))
