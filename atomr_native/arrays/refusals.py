"""Errors of operators and of functions of NumPy on handles: they say what to write instead."""

from __future__ import annotations

from ..errors import NoArrayOperator

__all__ = ["refused_function", "refused_operand"]


def refused_operand(what: str, value: object) -> NoArrayOperator:
    """Return the error for an operand that is neither a handle nor a number."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return NoArrayOperator(
        f"{what} of a GpuRef and {'an' if name[0] in 'aeiou' else 'a'} {name}: allowed are a GpuRef of the same device "
        f"and a number; nothing is copied to the device or to the host unasked. On the device: device.put(b) first; on "
        f"the host: a.numpy()"
    )


def refused_function(name: str, on_device: str = "") -> NoArrayOperator:
    """Return the error for a function of NumPy, or a use of it, that the device does not have."""
    more = f"on the device: {on_device}; " if on_device else ""
    return NoArrayOperator(
        f"{name} of a GpuRef: the device does not have it, or not with these arguments, and nothing is copied to the "
        f"host unasked; {more}on the host: {name}(a.numpy(), ...)"
    )
