"""Matmuls as problems of the tuner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from ....builders.cuda.tuner import Backend, Candidate, Progress, Tuner
from ....dtypes import DTYPES
from ....plans.spec import signed_word
from ....plans.tuning import TuningStore, spec_digest
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..tuning import LIBRARY, OPERATION, TITLE, is_algorithm
from .native import MatmulDescription
from .tables import TYPES

__all__ = ["MatmulTuner", "operand_bytes"]

#: Workspaces to ask the heuristic with, bytes: split-K and stream-K algorithms want some.
_WORKSPACES: Final = (0, 1 << 20, 4 << 20, PREFERRED_WORKSPACE)
_EACH: Final = 16
_TILE: Final = 4 << 20


class Measured(Protocol):
    """A native matmul that can be measured."""

    def candidates(self, limit: int, most: int) -> list[tuple[tuple[int, ...], int, dict[str, int]]]:
        """Return algorithms with their workspaces and what they are."""

    def time(
        self, algo: tuple[int, ...], addresses: list[int], sets: int, launches: int, workspace: int, nbytes: int
    ) -> float:
        """Return microseconds of a launch."""


def operand_bytes(d: MatmulDescription) -> list[int]:
    """Return the bytes that each operand of a description reaches over."""
    sizes = dict(TYPES.values())
    nbytes = [16] * d.n_operands

    def span(columns: int, ld: int, rows: int, step: int) -> int:
        return (d.batch - 1) * step + (columns - 1) * ld + rows

    rows_a, columns_a = (d.k, d.m) if d.trans_a else (d.m, d.k)
    rows_b, columns_b = (d.n, d.k) if d.trans_b else (d.k, d.n)
    if d.order_a:
        rows_a, columns_a = columns_a, rows_a
    if d.order_b:
        rows_b, columns_b = columns_b, rows_b
    nbytes[d.a] = span(columns_a, d.ld_a, rows_a, d.step_a) * sizes[d.type_a]
    nbytes[d.b] = span(columns_b, d.ld_b, rows_b, d.step_b) * sizes[d.type_b]
    nbytes[d.d] = span(d.n, d.ld_d, d.m, d.step_d) * sizes[d.type_d]
    if d.c >= 0:
        nbytes[d.c] = max(nbytes[d.c], span(d.n, d.ld_c, d.m, d.step_c) * sizes[d.type_c])
    side = sizes[d.type_bias if d.type_bias >= 0 else d.type_d]
    for vector in (d.bias, d.bias_grad):
        if vector >= 0:
            nbytes[vector] = ((d.batch - 1) * d.step_bias + max(d.m, d.n)) * side
    if d.aux >= 0:
        bits = 8 * sizes[d.type_aux if d.type_aux >= 0 else d.type_d] if not d.epilogue & (2 | 8) else 1
        nbytes[d.aux] = -(-((d.batch - 1) * d.step_aux + d.n * d.ld_aux) * bits // 8)
    blocks = -(-d.k // 128) + 4
    for scale, outer in ((d.a_scale, d.m), (d.b_scale, d.n)):
        if scale >= 0:
            nbytes[scale] = 4 * (outer + 128) * blocks
    return nbytes


class _Matmul:
    """A matmul that is tuned, or, without a native plan, whose result is looked up."""

    operation = OPERATION
    title = TITLE

    def __init__(self, description: MatmulDescription, native: Measured | None = None) -> None:
        self._description = description
        self._native = native

    @property
    def digest(self) -> str:
        """Digest of everything that decides the time of an algorithm."""
        return spec_digest(replace(self._description, zero=0, has_algo=0, algo=(0,) * 8).numbers())

    def accepts(self, choice: tuple[int, ...]) -> bool:
        """Whether a choice is an algorithm of cuBLASLt."""
        return is_algorithm(choice)

    def candidates(self) -> list[Candidate]:
        """Return the algorithms that the heuristic names for several workspaces, those for the plan's own first."""
        if self._native is None:
            return []
        most = self._description.workspace_bytes
        found: dict[tuple[int, ...], Candidate] = {}
        for limit in (most, *_WORKSPACES):
            for algo, workspace, config in self._native.candidates(min(limit, most), _EACH):
                found.setdefault(algo, Candidate(algo, workspace, config))
        return list(found.values())

    def operand_bytes(self) -> list[int]:
        """Return the bytes that each operand reaches over."""
        return operand_bytes(self._description)

    def tiles(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return numbers of ordinary size for matrices, since the GPU's clock depends on them; ones for vectors."""
        rng = np.random.default_rng(0)
        d = self._description
        names = {number: name for name, (number, _) in TYPES.items()}
        kinds = {d.a: d.type_a, d.b: d.type_b, d.c: d.type_c, d.d: d.type_d}
        tiles: dict[int, np.ndarray[Any, Any]] = {}
        for number in set(kinds.values()):
            dtype = DTYPES[names[number]]
            count = _TILE // dtype.itemsize
            wide = rng.integers(-8, 8, count) if dtype.kind == "i" else rng.standard_normal(count)
            tiles[number] = wide.astype(dtype).view(np.uint8)
        ones = np.ones(_TILE // 4, np.float32).view(np.uint8)  # scales, factors, bias
        return [tiles[kinds[operand]] if operand in kinds else ones for operand in range(d.n_operands)]

    def time(self, candidate: Candidate, addresses: list[int], sets: int, launches: int, workspace: int) -> float:
        """Return microseconds of a launch."""
        if self._native is None:
            return float("inf")
        return self._native.time(candidate.choice, addresses, sets, launches, workspace, candidate.workspace)


class MatmulTuner:
    """Chooses algorithms of cuBLASLt by measuring them, or from what is known.

    Parameters
    ----------
    backend
        The device's memory.
    version : int
        ``cublasLtGetVersion()``.
    facts : dict
        What the device is.
    store : TuningStore, optional
        Where results are kept.
    """

    def __init__(self, backend: Backend, version: int, facts: dict[str, Any], store: TuningStore | None = None) -> None:
        self._tuner = Tuner(backend, LIBRARY, version, facts, store)

    def tuned(
        self, description: MatmulDescription, native: Measured, *, measure: bool, progress: Progress | None = None
    ) -> tuple[MatmulDescription, str]:
        """Return the description with the best algorithm that is known, and a line about it; "" if there is none.

        Measures if asked to, and nothing is known yet; that takes up to some seconds.
        """
        problem = _Matmul(description, native)
        found = self._tuner.best(problem, progress) if measure else self._tuner.known(problem)
        if found is None:
            return description, ""
        return replace(description, has_algo=1, algo=tuple(map(signed_word, found.choice))), str(found)

    def microseconds(self, description: MatmulDescription) -> float | None:
        """Return the microseconds of a matmul with its best algorithm, or None if they are not known."""
        found = self._tuner.known(_Matmul(description))
        return None if found is None else found.microseconds
