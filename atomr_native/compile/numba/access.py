"""The arrays that a kernel only reads, proven by its types; all others count as written.

The proof walks over Numba's typed representation.  Variables that may share memory form one set.  A set is written if
any statement stores into a member of it, or uses a member in a way that is not known to be a read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any, Final

from .api import CUDADispatcher, cuda, numba_ir, types
from .front_end import Typed, typed, typed_again

__all__ = ["read_only"]

#: Attributes of an array that do not access its elements.
_FACTS: Final = frozenset({"shape", "size", "ndim", "dtype", "strides", "itemsize", "nbytes"})
#: Functions that only read their arguments, and return numbers.
_READERS: Final = (len, cuda.ldca, cuda.ldcg, cuda.ldcs, cuda.ldcv, cuda.ldlu)
#: Types whose values refer to no array.
_VALUES: Final = (
    types.Number, types.Boolean, types.NoneType, types.SliceType, types.SliceLiteral, types.EllipsisType,
    types.StringLiteral, types.RangeType, types.RangeIteratorType, types.Module, types.Function, types.DType,
    types.NumberClass,
)  # fmt: skip
#: Expressions whose result may share memory with their operands, and that change none.
_VIEWS: Final = frozenset(
    {
        "build_tuple", "cast", "exhaust_iter", "getiter", "getitem", "iternext", "pair_first", "pair_second", "phi",
        "static_getitem", "typed_getitem",
    }
)  # fmt: skip


def read_only(function: FunctionType, arguments: Sequence[Any], capability: tuple[int, int]) -> frozenset[str]:
    """Return the parameters through which a kernel provably writes nothing, for arguments of these types.

    A tuple counts as one parameter.  The result is empty for a function that Numba refuses.
    """
    try:
        made = typed(function, arguments, capability)
    except Exception:  # of Numba, which has many; the compilation itself reports it
        return frozenset()
    return _Proof(made, frozenset()).read


def _refers(type_: Any) -> bool:
    """Whether values of a type may refer to an array."""
    if isinstance(type_, types.BaseTuple):
        return any(map(_refers, type_))
    if isinstance(type_, types.Pair):
        return _refers(type_.first_type) or _refers(type_.second_type)
    return not isinstance(type_, _VALUES)


class _Proof:
    """The proof for one function.

    Parameters
    ----------
    made : Typed
    callers : frozenset
        Device functions whose proofs are under way, with the types of their arguments.

    Attributes
    ----------
    read : frozenset of str
    """

    def __init__(self, made: Typed, callers: frozenset[Any]) -> None:
        self._made, self._callers = made, callers
        self._parents: dict[str, str] = {}
        self._written: set[str] = set()
        self._parameters: dict[str, str] = {}
        for block in made.code.blocks.values():
            for statement in block.body:
                self._statement(statement)
        written = {self._root(name) for name in self._written}
        self.read = frozenset(
            made.code.arg_names[index]
            for index in range(len(made.code.arg_names))
            if self._root(_parameter(index)) not in written
        )

    def _root(self, name: str) -> str:
        while name in self._parents:
            name = self._parents[name]
        return name

    def _share(self, one: str, other: str) -> None:
        one, other = self._root(one), self._root(other)
        if one != other:
            self._parents[one] = other

    def _type(self, variable: Any) -> Any:
        return self._made.types.get(variable.name)

    def _referring(self, node: Any) -> Iterator[str]:
        """Yield the variables in a statement or expression that may refer to arrays."""
        for variable in node.list_vars():
            if _refers(self._type(variable)):
                yield variable.name

    def _statement(self, statement: Any) -> None:
        match statement:
            case numba_ir.Assign():
                self._assign(statement.target, statement.value)
            case numba_ir.SetItem() | numba_ir.StaticSetItem():
                self._store(statement)
            case numba_ir.Del() | numba_ir.Jump() | numba_ir.Branch():
                pass
            case _:  # a returned view has an unknown use
                self._written.update(self._referring(statement))

    def _store(self, statement: Any) -> None:
        """Count the target as written; storing into an array copies the stored value."""
        if isinstance(self._type(statement.target), types.Buffer):
            value = {statement.value.name} if isinstance(statement.value, numba_ir.Var) else set()
            self._written.update(set(self._referring(statement)) - value)
            self._written.add(statement.target.name)
        else:
            self._written.update(self._referring(statement))

    def _assign(self, target: Any, value: Any) -> None:
        match value:
            case numba_ir.Arg():
                self._share(target.name, _parameter(value.index))
            case numba_ir.Var():
                if _refers(self._type(value)):
                    self._share(target.name, value.name)
            case numba_ir.Const() | numba_ir.Global() | numba_ir.FreeVar():
                pass
            case numba_ir.Expr(op="getattr"):
                self._attribute(target, value)
            case numba_ir.Expr(op="call"):
                self._call(target, value)
            case numba_ir.Expr() if value.op in _VIEWS:
                self._view(target, value)
            case _:
                self._unknown(target, value)

    def _view(self, target: Any, value: Any) -> None:
        if _refers(self._type(target)):
            for name in self._referring(value):
                self._share(target.name, name)

    def _unknown(self, target: Any, value: Any) -> None:
        self._view(target, value)
        self._written.update(self._referring(value))

    def _attribute(self, target: Any, value: Any) -> None:
        type_ = self._type(value.value)
        known = isinstance(type_, types.Record | types.BaseTuple) or (
            isinstance(type_, types.Array) and (value.attr in _FACTS or _refers(self._type(target)))
        )
        (self._view if known else self._unknown)(target, value)

    def _call(self, target: Any, value: Any) -> None:
        function = self._type(value.func)
        if isinstance(function, types.Function) and any(function.typing_key is reader for reader in _READERS):
            return
        dispatcher = getattr(function, "dispatcher", None)
        if not isinstance(dispatcher, CUDADispatcher) or value.kws or value.vararg:
            self._unknown(target, value)
            return
        arguments = self._made.calls[value].args
        referring = [variable for variable in value.args if _refers(self._type(variable))]
        read = self._read_by(dispatcher, arguments) if referring and len(arguments) == len(value.args) else frozenset()
        for index, variable in enumerate(value.args):
            if variable in referring and index not in read:
                self._written.add(variable.name)

    def _read_by(self, dispatcher: Any, arguments: Sequence[Any]) -> frozenset[int]:
        """Return the arguments, by number, that a device function only reads, and does not return."""
        call = id(dispatcher), tuple(arguments)
        if call in self._callers:
            return frozenset()
        made = typed_again(dispatcher, arguments, self._made.capability)
        read = _Proof(made, self._callers | {call}).read
        return frozenset(index for index, name in enumerate(made.code.arg_names) if name in read)


def _parameter(index: int) -> str:
    """Return the name of a parameter's memory, which no variable has."""
    return f"argument {index}"
