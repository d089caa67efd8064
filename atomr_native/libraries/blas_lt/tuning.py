"""Results of tuning matmuls: their names, their check, and their first file format.  Parent and worker share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...plans.tuning import Entry, Tuned, TuningKey, spec_digest

__all__ = ["LIBRARY", "OLDER_FORMATS", "OPERATION", "TITLE", "is_algorithm", "is_sound"]

LIBRARY: Final = "cublaslt"
OPERATION: Final = "blas_lt.matmul"
#: The operation in messages and over a bar.
TITLE: Final = "a matmul"
_WORDS: Final = 8


def is_algorithm(choice: Sequence[int]) -> bool:
    """Whether words can be those of an ``cublasLtMatmulAlgo_t``."""
    return len(choice) == _WORDS and all(-(2**63) <= word < 2**64 for word in choice)


def is_sound(value: Any) -> bool:
    """Whether a value of the store is the result of tuning a matmul."""
    found = Tuned.from_json(value)
    return found is not None and is_algorithm(found.choice)


def _from_first_format(entry: dict[str, Any]) -> Entry | None:
    """Return an entry with the native description in full, and with the version of cuBLASLt for its library."""
    version, gpu, description = (entry.get(name) for name in ("library", "gpu", "description"))
    if type(version) is not int or type(gpu) is not dict or type(description) is not list:
        return None
    value = {name: entry.get(name) for name in ("workspace", "microseconds", "heuristic_microseconds", "config")}
    key = TuningKey(LIBRARY, version, gpu, OPERATION, spec_digest(description))
    return key, {**value, "choice": entry.get("algorithm")}


#: For `atomr_native.plans.tuning.read_file`.
OLDER_FORMATS: Final = {"atomr-native tuning 1": _from_first_format}
