"""How the products of a group are computed: in one call of a library where it has one, else one after the other.

In this order, the first that can be, unless the specification names one:

1. ``batched``: all alike, by one call of cuBLASLt that reads the addresses of the matrices from arrays (its batch mode
   for arrays of pointers, which has no epilogue but the default);
2. ``grouped``: of any shapes, by ``cublasGemmGroupedBatchedEx`` (from cuBLAS 12.5), unless they are large;
3. ``each``: one after the other, see `atomr_native.worker.cuda.matmul_program`.

The arrays of addresses lie in the workspace, and a kernel of the same message writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from ..._grouped_spec import member_specs
from ...errors import LibraryError, Unsupported
from .addresses import address_bytes, address_kernel
from .lt_tables import CONSTANTS
from .matmul import MatmulDescription, matmul_description
from .matmul_program import WORKSPACE, Prepare, matmul_program
from .sequence import SequenceProgram, Source, Step
from .target import Target
from .workspace_layout import Layout

__all__ = ["GroupDescription", "grouped_program"]

#: What ``cublasGemmGroupedBatchedEx`` computes: by compute type, the types of A, B and C, which are the same.
_GROUPED: Final[dict[int, tuple[int, ...]]] = {
    CONSTANTS["CUBLAS_COMPUTE_32F"]: tuple(CONSTANTS[f"CUDA_R_{kind}"] for kind in ("32F", "16F", "16BF")),
    CONSTANTS["CUBLAS_COMPUTE_32F_PEDANTIC"]: (CONSTANTS["CUDA_R_32F"],),
    CONSTANTS["CUBLAS_COMPUTE_32F_FAST_TF32"]: (CONSTANTS["CUDA_R_32F"],),
    CONSTANTS["CUBLAS_COMPUTE_64F"]: (CONSTANTS["CUDA_R_64F"],),
    CONSTANTS["CUBLAS_COMPUTE_64F_PEDANTIC"]: (CONSTANTS["CUDA_R_64F"],),
}
_FIRST_GROUPED: Final = 120500
#: Scratch memory that NVIDIA recommends for a cuBLAS handle on Hopper, bytes.
_SCRATCH: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Products for ``atomr_grouped`` of ``cublas_grouped.h``.

    Attributes
    ----------
    groups : tuple of tuple of int
        (trans_a, trans_b, m, n, k, ld_a, ld_b, ld_c, how many members), column-major, in elements.
    type, compute : int
        cudaDataType and cublasComputeType_t.
    members : int
    scalars : int
        Scalars of a message; alpha and beta come first.
    workspace : int
        Bytes of scratch memory.
    """

    groups: tuple[tuple[int, ...], ...]
    type: int
    compute: int
    members: int
    scalars: int
    workspace: int

    def words(self) -> tuple[int, ...]:
        """Return the members of ``atomr_grouped_spec``."""
        return self.type, self.compute, self.members, len(self.groups), 0, 1, 3 * self.members + 2, self.scalars

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all groups, kind after kind."""
        return tuple(number for kind in zip(*self.groups, strict=True) for number in kind)


#: Operations of a member, on average, from which on single matmuls are faster than cuBLAS's grouped kernels: on an H200
#: 16 unlike products of 1024 (2 GFLOP each) took 137 us together and 176 us apart, of 2048 (17 GFLOP) 860 and 423 us.
_LARGE: Final = 4_000_000_000

#: Makes the native plan of a group, or raises `Unsupported`.
Group = Callable[[GroupDescription], Any]


@dataclass(frozen=True, slots=True)
class _Group:
    """One attempt at a group."""

    members: list[tuple[dict[str, Any], list[int]]]
    scalars: tuple[Source, ...]
    aligned: bool
    target: Target
    version: int
    layout: Layout

    def check(self) -> None:
        """Refuse what no library computes many of at once."""
        one = self.members[0][0]
        if len(self.members) < 2:
            raise Unsupported("there is one member")
        if one["epilogue"] != "default":
            raise Unsupported(f"epilogue {one['epilogue']!r}: the libraries' kernels for many members have none")
        if not self.aligned:
            raise Unsupported("a member starts at an address that is no multiple of 16 bytes")

    def describe(self, one: dict[str, Any]) -> MatmulDescription:
        """Return one product in cuBLASLt's terms."""
        description = matmul_description(
            one, version=self.version, arch=self.target.arch, workspace_bytes=self.layout.left()
        )
        if description.batch != 1:
            raise Unsupported("a member is empty, or a batch of its own")
        return description

    def sources(self, descriptions: list[MatmulDescription], roles: tuple[str, ...]) -> list[Source]:
        """Return where the message has the members' matrices, role after role."""
        return [
            ("operand", places[getattr(d, role)])
            for role in roles
            for d, (_, places) in zip(descriptions, self.members, strict=True)
        ]

    def addresses(self, sources: list[Source], runs: list[list[int]]) -> tuple[Step, Source]:
        """Return the step that writes the addresses of `sources` by runs, and where it does."""
        arrays = self.layout.take(len(runs) * address_bytes(len(self.members)))
        return Step(address_kernel(runs, len(sources), self.target), (*sources, arrays)), arrays

    def batched(self, prepare: Prepare) -> SequenceProgram:
        """Return one call of cuBLASLt."""
        self.check()
        count, one = len(self.members), self.members[0][0]
        for i, (other, _) in enumerate(self.members):
            if other != one:
                raise Unsupported(f"member {i} is not like member 0")
        self.layout.take(4 * address_bytes(count))  # so that what is left is known
        description = self.describe(one)
        self.layout.parts.clear()
        apart = description.c not in (-1, description.d)
        roles = ("a", "b", "c", "d") if apart else ("a", "b", "d")
        sources = self.sources([description] * count, roles)
        first = {role: place * count for place, role in enumerate(roles)}
        runs = [list(range(first.get(role, first["d"]), first.get(role, first["d"]) + count)) for role in "abcd"]
        write, arrays = self.addresses(sources, runs)
        native = prepare(
            replace(
                description,
                batch=count,
                a=first["a"],
                b=first["b"],
                c=-1 if description.c < 0 else first.get("c", first["d"]),
                d=first["d"],
                pointers=len(sources),
                n_operands=len(sources) + 1,
            )
        )
        steps = [write, Step(native, (*sources, arrays), self.scalars)]
        note = f"{count} products in one call of cuBLASLt, which reads their addresses from arrays"
        return self.layout.place(steps, native.workspace, (note,))

    def grouped(self, group: Group, *, wanted: bool) -> SequenceProgram:
        """Return one call of cuBLAS; for large members only if it is `wanted`."""
        self.check()
        if 0 < self.version < _FIRST_GROUPED:
            raise Unsupported(f"cublasGemmGroupedBatchedEx needs cuBLAS 12.5 (120500); this is {self.version}")
        count = len(self.members)
        descriptions = [self.describe(one) for one, _ in self.members]
        operations = sum(2 * d.m * d.n * d.k for d in descriptions) / count
        if operations > _LARGE and not wanted:
            raise Unsupported(f"products of {operations / 1e9:.0f} GFLOP, as these are on average, are faster so")
        groups: list[tuple[int, ...]] = []
        for i, d in enumerate(descriptions):
            if len({d.type_a, d.type_b, d.type_c, d.type_d}) > 1 or d.type_d not in _GROUPED.get(d.compute, ()):
                raise Unsupported(
                    f"member {i}: cublasGemmGroupedBatchedEx takes float64, float32, float16 and bfloat16, the same "
                    f"for A, B and D, and no other compute than the dtype's own, its pedantic one and tf32"
                )
            if (d.type_d, d.compute) != (descriptions[0].type_d, descriptions[0].compute):
                raise Unsupported(f"member {i} has another dtype than member 0")
            if d.c not in (-1, d.d):
                raise Unsupported(f"member {i} has a c apart from out, which cublasGemmGroupedBatchedEx has not")
            numbers = (d.trans_a, d.trans_b, d.m, d.n, d.k, d.ld_a, d.ld_b, d.ld_d)
            if groups and groups[-1][:-1] == numbers:
                groups[-1] = (*numbers, groups[-1][-1] + 1)
            else:
                groups.append((*numbers, 1))
        sources = self.sources(descriptions, ("a", "b", "d"))
        write, arrays = self.addresses(sources, [list(range(r * count, (r + 1) * count)) for r in range(3)])
        nbytes = min(self.layout.left(), _SCRATCH) // 256 * 256
        description = GroupDescription(
            tuple(groups), descriptions[0].type_d, descriptions[0].compute, count, len(self.scalars), nbytes
        )
        scratch = self.layout.take(nbytes)
        steps = [write, Step(group(description), (*sources, arrays, scratch), self.scalars)]
        note = f"{count} products of {len(groups)} shapes in one call of cublasGemmGroupedBatchedEx"
        return self.layout.place(steps, 0, (note,))


def grouped_program(
    spec: dict[str, Any],
    target: Target,
    *,
    version: int,
    prepare: Prepare,
    group: Group,
    workspace_bytes: int = WORKSPACE,
    zero: int = 0,
) -> SequenceProgram:
    """Return how to compute ``blas_lt.grouped``.

    Parameters and errors are those of `matmul_program`; an error names the member.  `group` makes the native plan of
    ``cublasGemmGroupedBatchedEx``.
    """
    members = member_specs(spec)
    scalars: tuple[Source, ...] = tuple(("scalar", j) for j in range(len(spec["scalars"])))
    wanted, reasons = spec["way"], []
    for name in ("batched", "grouped"):
        if wanted not in ("auto", name):
            continue
        one = _Group(members, scalars, bool(spec["aligned"]), target, version, Layout(workspace_bytes))
        try:
            return one.batched(prepare) if name == "batched" else one.grouped(group, wanted=wanted == name)
        except (Unsupported, LibraryError) as error:
            if wanted == name:
                raise
            reasons.append(f"{name}: {error}")
    steps: list[Step] = []
    notes = [f"{len(members)} products one after the other{'; not ' if reasons else ''}{'; not '.join(reasons)}"]
    workspace = 0
    for i, (member, places) in enumerate(members):
        try:
            made = matmul_program(
                member, target, version=version, prepare=prepare, workspace_bytes=workspace_bytes, zero=zero
            )
        except Unsupported as error:
            raise Unsupported(f"member {i}: {error.message}") from None
        for step in made.steps:
            operands: tuple[Source, ...] = tuple(
                ("operand", places[v]) if kind == "operand" else (kind, v) for kind, v in step.operands
            )
            steps.append(Step(step.run, operands, step.scalars))
        notes += [f"member {i}: {note}" for note in made.notes]
        workspace = max(workspace, made.workspace)
    return SequenceProgram(tuple(steps), workspace, tuple(notes))
