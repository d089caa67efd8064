"""Words shared by the blocks of a launch, by which the last block gets the results of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..api import inlined, intrinsic, types
from ..api import llvm as ir
from ..copies import twin

__all__ = ["arrived", "launch_words", "raise_to", "taken"]

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_GLOBAL: Final = 1  # LLVM's number of global memory
_WORDS: Final = 4

_simulated_launch_words = np.zeros(_WORDS, np.int32)


@twin(lambda: _simulated_launch_words)
@intrinsic  # type: ignore[untyped-decorator]
def launch_words(_: Any) -> Any:
    """Return a pointer to words, int32, that blocks of a launch share; they are 0 when it begins.

    A kernel calls it once, and leaves zeros for the next launch.  They are a variable of the machine code, which each
    plan loads separately.  No two launches use them at once, since a plan's messages run one after the other, and
    values left by an unfinished launch disappear with its worker.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.ArrayType(_I32, _WORDS)
        name = builder.module.get_unique_name("launch_words")
        variable = ir.GlobalVariable(builder.module, kind, name, addrspace=_GLOBAL)
        variable.linkage, variable.initializer = "internal", ir.Constant(kind, None)
        first = builder.gep(variable, [ir.Constant(_I32, 0), ir.Constant(_I32, 0)])
        return builder.addrspacecast(first, _I32.as_pointer())

    return types.CPointer(types.int32)(), codegen


def _atomic(python: Callable[..., Any], text: str, result: bool, operand: bool) -> Any:
    """Return an intrinsic ``(words, place[, value])`` of one atomic instruction on a word in global memory."""
    constraints = ",".join((["=r"] if result else []) + ["l"] + (["r"] if operand else []) + ["~{memory}"])
    kinds = [_I64, _I32] if operand else [_I64]
    function = ir.FunctionType(_I32 if result else ir.VoidType(), kinds)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.ptrtoint(builder.gep(args[0], [args[1]]), _I64)
        made = builder.asm(function, text, constraints, [place, *args[2:]], True)
        return made if result else context.get_dummy_value()

    returned = types.int32 if result else types.void

    def alone(_: Any, words: Any, place: Any) -> Any:
        return returned(words, types.int64), codegen

    def with_value(_: Any, words: Any, place: Any, value: Any) -> Any:
        return returned(words, types.int64, types.int32), codegen

    return twin(python)(intrinsic(with_value if operand else alone))


def _raise_to(words: Any, place: int, value: Any) -> None:
    words[place] = max(words[place], value)


def _taken(words: Any, place: int) -> int:
    found, words[place] = int(words[place]), 0
    return found


def _counted(words: Any, place: int, most: Any) -> int:
    found = int(words[place])
    words[place] = 0 if found >= most else found + 1
    return found


#: Atomic maximum of a word and an int32; exchange of a word with 0.
raise_to = _atomic(_raise_to, "red.relaxed.gpu.global.max.s32 [$0], $1;", False, True)
taken = _atomic(_taken, "atom.relaxed.gpu.global.exch.b32 $0, [$1], 0;", True, False)
_count = _atomic(_counted, "atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;", True, True)


@inlined
def arrived(words: Any, place: Any, others: Any) -> Any:
    """Count an arrival in a word; return whether `others` have arrived before.  The last one leaves 0 in it.

    The last one sees all writes that a thread made before its arrival, and its block made before a barrier; and earlier
    reads of these threads do not see later writes of the last one.
    """
    return _count(words, place, others) == others
