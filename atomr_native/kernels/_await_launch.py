"""How a kernel that may begin before the launch before it has ended waits for it: its first statement."""

from __future__ import annotations

from typing import Any

from .._numba import intrinsic, types
from .._numba import llvm as ir
from .._numba_compile import capability
from .._numba_copies import twin

__all__ = ["await_launch"]


@twin(lambda: None)
@intrinsic  # type: ignore[untyped-decorator]
def await_launch(_: Any) -> Any:
    """Wait until the launch before this one has ended, if this one began before; memory is as that left it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if capability() >= (9, 0):
            builder.asm(ir.FunctionType(ir.VoidType(), []), "griddepcontrol.wait;", "~{memory}", [], True)
        return context.get_dummy_value()

    return types.void(), codegen
