"""How the last kernel of a message finishes its values: factors, C, and what was there before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...._support.traced import Tree, tree_lines
from ....builders.cuda.codegen import convert, value_type
from ..tail import RESULT, before_relu, bias_of
from .arrays import Array
from .elements import constant, factored, loaded, multiplied, scaled

__all__ = ["NOTHING", "Finish"]


@dataclass(frozen=True, slots=True)
class Finish:
    """What happens to a value before it is stored.

    Attributes
    ----------
    scalars : tuple of str
        Kinds of the message's scalars: alpha and beta, and their imaginary parts.
    alpha, beta : Array or None
        Factors in device memory.
    c : Array or None
        The tensor that beta scales.
    updated : bool
        Whether that is the output itself.
    added : bool
        Whether the value is added to the output, as it is.
    zero : bool
        Whether alpha is 0.
    tail : Tree
        A function of the value, applied last; without it empty.
    others : tuple of (str, Array)
        Its further inputs.
    """

    scalars: tuple[str, ...] = ()
    alpha: Array | None = None
    beta: Array | None = None
    c: Array | None = None
    updated: bool = False
    added: bool = False
    zero: bool = False
    tail: Tree = ()
    others: tuple[tuple[str, Array], ...] = ()

    @property
    def is_native(self) -> bool:
        """Whether a product of cuBLASLt has it: its scalars, and C."""
        return not (self.alpha or self.beta or self.added or self.zero or self.tail)

    @property
    def bias(self) -> str:
        """The name of the tail's operand, if the tail adds it, and a product of cuBLASLt has the rest; else ""."""
        return bias_of(self.tail) if self.tail and replace(self, tail=(), others=()).is_native else ""

    @property
    def rounded(self) -> Finish | None:
        """What a product of cuBLASLt has of it, if a ReLU of the stored result is the rest; else None."""
        inner = before_relu(self.tail) if self.tail else None
        if inner is None:
            return None
        before = replace(self, tail=inner, others=self.others if inner else ())
        return before if before.is_native or before.bias else None

    @property
    def finals(self) -> tuple[Array, ...]:
        """Arrays that it reads, in order."""
        own = tuple(array for array in (self.c, self.alpha, self.beta) if array is not None)
        return own + tuple(array for _, array in self.others)

    def statements(self, first: int, out: Array, dtype: str) -> tuple[str, ...]:
        """Return the C statements on `v`; finals are numbered from `first` on, and the output after them."""
        numbers = {id(array): first + i for i, array in enumerate(self.finals)}
        at = first + len(numbers)
        lines: list[str] = []
        if self.added:
            bits = f"(x{at} != 0)" if out.dtype == "bool" else f"x{at}"
            return (f"v = {multiplied(dtype, convert(out.dtype, dtype, bits), 'v', 'add')};",)

        def factor(array: Array | None, number: int) -> str:
            if array is None:
                return factored(dtype, number, number + 2)
            lines.append(loaded(numbers[id(array)], array.dtype, dtype, "f"))
            return f"f{numbers[id(array)]}"

        if self.zero:
            lines.append(f"v = {constant(dtype, 0)};")
        elif self.scalars or self.alpha is not None:
            alpha = factor(self.alpha, 0)
            lines += [f"const {value_type(dtype)} alpha = {alpha};", f"v = {scaled(dtype, 'v', 'alpha')};"]
        if self.c is not None or self.updated:
            c_at, c_dtype = (at, out.dtype) if self.c is None else (numbers[id(self.c)], self.c.dtype)
            beta = factor(self.beta, 1)
            lines.append(loaded(c_at, c_dtype, dtype, "c"))
            lines.append(f"const {value_type(dtype)} beta = {beta};")
            lines.append(f"v = {multiplied(dtype, 'v', scaled(dtype, f'c{c_at}', 'beta'), 'add')};")
        if self.tail:
            inputs = {RESULT: "v"}
            for name, array in self.others:
                lines.append(loaded(numbers[id(array)], array.dtype, dtype, "t"))
                inputs[name] = f"t{numbers[id(array)]}"
            lines += tree_lines(self.tail, dtype, value_type(dtype), inputs)
            lines.append(f"v = n{len(self.tail) - 1};")
        return tuple(lines)


#: Values are stored as they are.
NOTHING = Finish()
