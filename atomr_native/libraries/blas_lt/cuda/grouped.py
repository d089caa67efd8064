"""How the products of a group are computed: in one call of a library where it has one, else one after the other.

In this order, the first that can be, unless the specification names one:

1. ``batched``: all alike, by one call of cuBLASLt that reads the addresses of the matrices from arrays (its batch mode
   for arrays of pointers, which has no epilogue but the default);
2. ``grouped``: of any shapes, by ``cublasGemmGroupedBatchedEx`` (from cuBLAS 12.5), unless they are large;
3. ``each``: one after the other, see `atomr_native.libraries.blas_lt.cuda.program`.

The arrays of addresses lie in the workspace, and a kernel of the same message writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from ...._lib.cublaslt import CONSTANTS
from ....builders.cuda.addresses import address_bytes, address_kernel
from ....builders.cuda.native import NativeStruct
from ....builders.cuda.routes import NoRoute, Refusals, Route, first_supported
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.target import Target
from ....builders.cuda.workspace import Layout
from ....errors import LibraryError, Unsupported
from ....plans.spec import PlanSpec
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import GroupedAttributes, MatmulAttributes
from ..grouped import member_specs
from .description import MatmulDescription, matmul_description
from .program import Prepare, matmul_program

__all__ = ["GroupDescription", "MemberGroup", "grouped_program"]

#: What ``cublasGemmGroupedBatchedEx`` computes: by compute type, the types of A, B and C, which are the same.
_GROUPED: Final[dict[int, tuple[int, ...]]] = {
    CONSTANTS["CUBLAS_COMPUTE_32F"]: tuple(CONSTANTS[f"CUDA_R_{kind}"] for kind in ("32F", "16F", "16BF")),
    CONSTANTS["CUBLAS_COMPUTE_32F_PEDANTIC"]: (CONSTANTS["CUDA_R_32F"],),
    CONSTANTS["CUBLAS_COMPUTE_32F_FAST_TF32"]: (CONSTANTS["CUDA_R_32F"],),
    CONSTANTS["CUBLAS_COMPUTE_64F"]: (CONSTANTS["CUDA_R_64F"],),
    CONSTANTS["CUBLAS_COMPUTE_64F_PEDANTIC"]: (CONSTANTS["CUDA_R_64F"],),
}
_FIRST_GROUPED: Final = 120500


@dataclass(frozen=True, slots=True)
class MemberGroup(NativeStruct):
    """Products that follow each other and are alike, column-major, in elements: ``atomr_group`` of ``grouped.h``."""

    trans_a: int
    trans_b: int
    m: int
    n: int
    k: int
    ld_a: int
    ld_b: int
    ld_c: int
    members: int = 1


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Products for ``atomr_grouped_spec`` of ``cython/libraries/cublas/grouped.h``.

    Attributes
    ----------
    groups : tuple of MemberGroup
    type, compute : int
        cudaDataType and cublasComputeType_t.
    members : int
    scalars : int
        Scalars of a message; alpha and beta come first.
    workspace : int
        Bytes of scratch memory.
    """

    groups: tuple[MemberGroup, ...]
    type: int
    compute: int
    members: int
    scalars: int
    workspace: int

    def fields(self) -> dict[str, int]:
        """Return the members of ``atomr_grouped_spec``, by name."""
        return {
            "type": self.type, "compute": self.compute, "n_members": self.members, "n_groups": len(self.groups),
            "alpha": 0, "beta": 1, "n_operands": 3 * self.members + 2, "n_scalars": self.scalars,
            "workspace_bytes": self.workspace,
        }  # fmt: skip


#: Operations of a member, on average, from which on single matmuls are faster than cuBLAS's grouped kernels: on an H200
#: 16 unlike products of 1024 (2 GFLOP each) took 137 us together and 176 us apart, of 2048 (17 GFLOP) 860 and 423 us.
_LARGE: Final = 4_000_000_000

#: Makes the native plan of a group, or raises `Unsupported`.
Group = Callable[[GroupDescription], Any]


@dataclass(frozen=True, slots=True)
class _Group:
    """One attempt at a group."""

    members: list[tuple[PlanSpec[MatmulAttributes], list[int]]]
    scalars: tuple[Source, ...]
    aligned: bool
    target: Target
    version: int
    layout: Layout

    def check(self) -> None:
        """Refuse what no library computes many of at once."""
        epilogue = self.members[0][0].attributes.epilogue
        if len(self.members) < 2:
            raise Unsupported("there is one member")
        if epilogue != "default":
            raise Unsupported(f"epilogue {epilogue!r}: the libraries' kernels for many members have none")
        if not self.aligned:
            raise Unsupported("a member starts at an address that is no multiple of 16 bytes")

    def describe(self, one: PlanSpec[MatmulAttributes], reserved: int = 0) -> MatmulDescription:
        """Return one product in cuBLASLt's terms; `reserved` bytes of workspace are for other steps."""
        description = matmul_description(
            one, version=self.version, arch=self.target.arch, workspace_bytes=self.layout.left(reserved)
        )
        if description.batch != 1:
            raise Unsupported("a member is empty, or a batch of its own")
        return description

    def sources(self, descriptions: list[MatmulDescription], roles: tuple[str, ...]) -> list[Source]:
        """Return where the message has the members' matrices, role after role."""
        return [
            ("operand", indices[getattr(d, role)])
            for role in roles
            for d, (_, indices) in zip(descriptions, self.members, strict=True)
        ]

    def addresses(self, sources: list[Source], runs: list[list[int]]) -> tuple[Step, Source]:
        """Return the step that writes the addresses of `sources` by runs, and the place of the arrays."""
        arrays = self.layout.take(len(runs) * address_bytes(len(self.members)))
        return Step(address_kernel(runs, len(sources), self.target), (*sources, arrays)), arrays

    def batched(self, prepare: Prepare) -> SequenceProgram:
        """Return one call of cuBLASLt."""
        self.check()
        count, one = len(self.members), self.members[0][0]
        for i, (other, _) in enumerate(self.members):
            if other != one:
                raise Unsupported(f"member {i} is not like member 0")
        description = self.describe(one, 4 * address_bytes(count))
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
                members=count,
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
        groups: list[MemberGroup] = []
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
            one = MemberGroup(d.trans_a, d.trans_b, d.m, d.n, d.k, d.ld_a, d.ld_b, d.ld_d)
            if groups and replace(groups[-1], members=1) == one:
                groups[-1] = replace(groups[-1], members=groups[-1].members + 1)
            else:
                groups.append(one)
        sources = self.sources(descriptions, ("a", "b", "d"))
        write, arrays = self.addresses(sources, [list(range(r * count, (r + 1) * count)) for r in range(3)])
        nbytes = min(self.layout.left(), PREFERRED_WORKSPACE) // 256 * 256
        description = GroupDescription(
            tuple(groups), descriptions[0].type_d, descriptions[0].compute, count, len(self.scalars), nbytes
        )
        scratch = self.layout.take(nbytes)
        steps = [write, Step(group(description), (*sources, arrays, scratch), self.scalars)]
        note = f"{count} products of {len(groups)} shapes in one call of cublasGemmGroupedBatchedEx"
        return self.layout.place(steps, 0, (note,))


def grouped_program(
    spec: PlanSpec[GroupedAttributes],
    target: Target,
    *,
    version: int,
    prepare: Prepare,
    group: Group,
    workspace_bytes: int = PREFERRED_WORKSPACE,
    zero: int = 0,
) -> SequenceProgram:
    """Return how to compute ``blas_lt.grouped``.

    Parameters and errors are those of `matmul_program`; an error names the member.  `group` makes the native plan of
    ``cublasGemmGroupedBatchedEx``.
    """
    members = member_specs(spec)
    scalars: tuple[Source, ...] = tuple(("scalar", j) for j in range(len(spec.scalars)))
    wanted = spec.attributes.way

    def fresh() -> _Group:
        return _Group(members, scalars, spec.attributes.aligned, target, version, Layout(workspace_bytes, spec.op))

    def one_by_one(refused: Refusals) -> SequenceProgram:
        made = [
            _member(i, member, target, version=version, prepare=prepare, workspace_bytes=workspace_bytes, zero=zero)
            for i, (member, _) in enumerate(members)
        ]
        notes = [
            "; not ".join(
                (f"{len(members)} products one after the other", *(f"{r.route}: {r.message}" for r in refused))
            )
        ]
        steps: list[Step] = []
        for i, (program, (_, indices)) in enumerate(zip(made, members, strict=True)):
            steps += [
                Step(
                    step.run,
                    tuple(("operand", indices[v]) if kind == "operand" else (kind, v) for kind, v in step.operands),
                    step.scalars,
                )
                for step in program.steps
            ]
            notes += [f"member {i}: {note}" for note in program.notes]
        return SequenceProgram(tuple(steps), max((program.workspace for program in made), default=0), tuple(notes))

    if wanted == "batched":
        return fresh().batched(prepare)
    if wanted == "grouped":
        return fresh().grouped(group, wanted=True)
    if wanted == "each":
        return one_by_one(())
    try:
        return first_supported(
            (
                Route("batched", lambda _: fresh().batched(prepare)),
                Route("grouped", lambda _: fresh().grouped(group, wanted=False)),
            ),
            errors=(Unsupported, LibraryError),
        )
    except NoRoute as error:
        return one_by_one(error.refusals)


def _member(i: int, member: PlanSpec[MatmulAttributes], target: Target, **options: Any) -> SequenceProgram:
    """Return the program of one member; an error names it."""
    try:
        return matmul_program(member, target, **options)
    except Unsupported as error:
        raise Unsupported(f"member {i}: {error.message}", rule=error.rule, lifted_by=error.lifted_by) from None
