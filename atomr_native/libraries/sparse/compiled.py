"""Python functions of products that Numba compiles: for the host device, and as a kernel for GPUs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..._support.traced import Untraceable, trace, tree_function
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec, ShippedCode
from ...protocol.binaries import Binary
from .attributes import CompiledAttributes

if TYPE_CHECKING:
    from ...compile.shipped import Part
    from ...plans.lowering import Target

__all__ = ["CompiledCode", "as_python", "compiled_part"]


def as_python(name: str, function: Callable[..., Any], inputs: tuple[str, ...]) -> FunctionType:
    """Return a function for Numba: that of its tree if it has one, else itself.

    Raises
    ------
    InvalidRequest
        If it is no Python function of as many positional parameters as there are inputs.
    """
    try:
        made: FunctionType = tree_function(name, trace(name, function, inputs))
    except Untraceable:
        python = getattr(function, "py_func", function)
        if not isinstance(python, FunctionType):
            raise InvalidRequest(
                f"{name} is a {type(function).__name__}; allowed: a Python function of {', '.join(inputs)}, and what "
                f"numba.njit or cuda.jit(device=True) made of one"
            ) from None
        parameters = list(inspect.signature(python).parameters.values())
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if len(positional) != len(inputs) or len(parameters) != len(inputs):
            raise InvalidRequest(
                f"{name} {python.__name__} has the parameters {', '.join(map(str, parameters)) or 'none'}; allowed: "
                f"{len(inputs)} positional ones, {', '.join(inputs)}"
            ) from None
        return python
    return made


def compiled_part(spec: PlanSpec[CompiledAttributes], functions: dict[str, bytes]) -> tuple[str, tuple[Any, ...]]:
    """Return name and options of the kernel of a plan; see ``kernels/semiring.py``."""
    values, indices, _, x, out = spec.operands
    dtypes = (values.dtype, x.dtype, out.dtype)
    options = (
        *functions.items(),
        ("dtypes", dtypes),
        ("index", indices.dtype),
        ("compute", spec.attributes.compute),
    )
    return "products", options


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """The functions of a request in a plan."""

    functions: tuple[tuple[str, FunctionType], ...]

    def attributes(self, spec: PlanSpec[CompiledAttributes], target: Target) -> CompiledAttributes:
        """Return the attributes with the functions: pickled for the host device, else compiled.

        Waits for the compiler.

        Raises
        ------
        Unsupported, LibraryError
            As `atomr_native.compile.shipped.machine_code`.
        """
        from ...compile import linker, shipped

        functions = {name: linker.pickled(function) for name, function in self.functions}
        if target.capability is None:
            return replace(spec.attributes, functions=tuple((name, Binary(f)) for name, f in functions.items()))
        part: Part = shipped.Part(*compiled_part(spec, functions))
        code = shipped.machine_code("sparse.semiring", (part,), target.capability)
        return replace(spec.attributes, shipped=ShippedCode(code.entries, code.code))
