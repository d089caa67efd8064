"""Which element types a matmul takes, and in what precision it computes: cuBLASLt's tables, as data.

`RULES` has one entry for each pair of input dtypes; everything else about types follows from it.  Both devices take the
same requests, so what a device lacks is that device's business (see ``docs/libraries/blas_lt.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...errors import InvalidRequest, Unsupported

__all__ = ["FLOAT8", "INPUTS", "RULES", "SATURATE", "TypeRule", "compute_modes", "rule_of"]

FLOAT8: Final = ("float8_e4m3fn", "float8_e5m2")
#: Largest finite magnitude of dtypes that D saturates at instead of overflowing.
SATURATE: Final[dict[str, float]] = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}

_FLOAT32_MODES: Final = ("float32", "float32_pedantic")
_ALL_FLOAT32_MODES: Final = ("float32", "tf32", "bfloat16", "float16", "float32_pedantic", "bfloat16x9")


@dataclass(frozen=True, slots=True)
class TypeRule:
    """What one pair of input dtypes allows.

    Attributes
    ----------
    accumulate : str
        Dtype of the sums of products.
    outputs : tuple of str
        Dtypes of D; the first is the default.
    modes : tuple of str
        Values of ``compute``; the first is the default.
    """

    accumulate: str
    outputs: tuple[str, ...]
    modes: tuple[str, ...]

    def scale(self, out: str) -> str:
        """Return the dtype in which alpha, beta and epilogue are applied."""
        return "float32" if self.accumulate == "int32" and out != "int32" else self.accumulate

    def c(self, out: str) -> tuple[str, ...]:
        """Return the allowed dtypes of C: D's, but 16 bits where D has 8."""
        return ("bfloat16", "float16") if out in FLOAT8 else (out,)

    def side(self, a: str, out: str) -> tuple[str, ...]:
        """Return the allowed dtypes of bias and bias gradient, the default first."""
        if out in FLOAT8:
            return ("bfloat16", "float16")
        if a in FLOAT8:
            return ("bfloat16",) if out == "float32" else (out,)
        if a == "int8" and out != "int32":
            return ("float32",)
        return (out,)

    def gelu_aux(self, a: str, out: str) -> str:
        """Return the dtype of what GELU stores for its backward pass."""
        if out in FLOAT8:
            return "bfloat16"
        return "float32" if a == "int8" else out


def _rules() -> dict[tuple[str, str], TypeRule]:
    rules = {
        ("float64", "float64"): TypeRule("float64", ("float64",), ("float64", "float64_pedantic")),
        ("float32", "float32"): TypeRule("float32", ("float32",), _ALL_FLOAT32_MODES),
        ("float16", "float16"): TypeRule("float32", ("float16", "float32"), (*_FLOAT32_MODES, "float16_accumulate")),
        ("bfloat16", "bfloat16"): TypeRule("float32", ("bfloat16", "float32"), _FLOAT32_MODES),
        ("int8", "int8"): TypeRule("int32", ("int32", "int8", "float32", "bfloat16", "float16"), ("int32",)),
        ("complex64", "complex64"): TypeRule("complex64", ("complex64",), ("complex64", "tf32", "complex64_pedantic")),
        ("complex128", "complex128"): TypeRule("complex128", ("complex128",), ("complex128", "complex128_pedantic")),
    }
    e4m3, e5m2 = FLOAT8
    wide = ("bfloat16", "float16", "float32")
    rules[e4m3, e4m3] = TypeRule("float32", (*wide, e4m3), ("float32",))
    rules[e4m3, e5m2] = rules[e5m2, e4m3] = TypeRule("float32", (*wide, e4m3, e5m2), ("float32",))
    return rules


RULES: Final[dict[tuple[str, str], TypeRule]] = _rules()
#: Input dtypes.
INPUTS: Final[tuple[str, ...]] = tuple(dict.fromkeys(a for a, _ in RULES))


def rule_of(a: str, b: str) -> TypeRule:
    """Return what a pair of input dtypes allows.

    Raises
    ------
    InvalidRequest
        For dtypes that no matmul takes, or not together.
    Unsupported
        For float8_e5m2 times itself, which neither cuBLASLt nor any tensor core path of it has.
    """
    for name, dtype in (("a", a), ("b", b)):
        if dtype not in INPUTS:
            raise InvalidRequest(f"{name} has dtype {dtype}; allowed: {', '.join(INPUTS)}")
    found = RULES.get((a, b))
    if found is not None:
        return found
    if a == b:
        raise Unsupported(
            f"a and b both have dtype {a}: cuBLASLt multiplies float8_e5m2 by float8_e4m3fn only; convert one of them "
            f"with device.copy(x, dtype='float8_e4m3fn')"
        )
    pairs = ", ".join(f"{x} by {y}" for x, y in RULES if x != y)
    raise InvalidRequest(
        f"a has dtype {a} and b has dtype {b}; they must be the same, one of {', '.join(INPUTS)}, or {pairs}"
    )


def compute_modes(rule: TypeRule, wanted: object, out: str) -> str:
    """Return the compute mode that was asked for, or the default.

    ``float32`` stands for full precision; ``tf32``, ``bfloat16`` and ``float16`` let float32 operands be rounded to
    that type on their way into the tensor cores; ``bfloat16x9`` splits them into three bfloat16 parts each;
    ``float16_accumulate`` may also sum in float16, as GPUs do; ``*_pedantic`` uses no such freedom, nor any other.

    Raises
    ------
    InvalidRequest
        If `wanted` is no mode of this rule.
    """
    if wanted is None:
        return rule.modes[0]
    allowed = rule.modes
    if out != "float16":
        allowed = tuple(mode for mode in allowed if mode != "float16_accumulate")
    if not isinstance(wanted, str) or wanted not in allowed:
        raise InvalidRequest(f"compute={wanted!r} with D of dtype {out}; allowed: {', '.join(allowed)}")
    return wanted
