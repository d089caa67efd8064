"""How a matmul is computed: in one call of cuBLASLt where it has it, else in steps, with a note that says so.

In this order, the first that the library takes:

1. the whole matmul in one call, or, where that is slower, a kernel after it for what is a gradient's
   (`gradient_epilogues`);
2. without its sums over K (``bgrada``, ``bgradb``), which a kernel of ours makes;
3. the bare product into the workspace, in the type of its sums, and everything else in a kernel of ours;
4. unless ``copies=False``, the same three after copying A and B into the workspace, dense along K, padded.

In each of them a call of the library reads the addresses of a batch's matrices from arrays, if they do not step evenly.
The results are those of the one call: factors and epilogue in the same type, D rounded once.  Only the bias gradients
of a kernel after the one call are sums of D as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final, Protocol

from msgspec import structs

from ....arrays.operands import contiguous_strides
from ....builders.context import Built
from ....builders.cuda.reductions import build_reduce
from ....builders.cuda.routes import NoRoute, Refusal, Route, first_supported
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.sums import Reduction, build_drelu, build_sum
from ....builders.cuda.target import KernelProgram, Target
from ....builders.cuda.workspace import Layout
from ....dtypes import as_dtype
from ....errors import Unsupported
from ....plans.spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import MatmulAttributes
from ..types import FLOAT8
from .description import UnevenBatch, matmul_description
from .gradient_epilogues import AFTER, after_note, apart_microseconds, faster_after, pass_microseconds
from .kernels import Place, amax_kernel, epilogue_kernel, pack_kernel
from .native import MatmulDescription
from .uneven import ADDRESSED, by_addresses

__all__ = ["Measured", "NativeMatmul", "Prepare", "matmul_program", "workspace_as_operand"]

#: Multiple to which extents of 8-bit matrices are padded.
_PAD: Final = 16


class NativeMatmul(Protocol):
    """A prepared matmul."""

    @property
    def workspace(self) -> int:
        """Bytes of workspace that its runs need."""


#: Makes the native plan, or raises `Unsupported`.
Prepare = Callable[[MatmulDescription], NativeMatmul]
#: Returns the microseconds that a native plan has been measured to take, or None.
Measured = Callable[[MatmulDescription], float | None]


class _Program:
    """One route in progress: the specification, the place of each operand, and the steps so far."""

    def __init__(
        self, spec: PlanSpec[MatmulAttributes], target: Target, version: int, prepare: Prepare, zero: int, limit: int
    ) -> None:
        self.given = spec
        #: Attributes of the computation that is left; the present place of each operand.
        self.how = spec.attributes
        self.target, self.version, self.prepare, self.zero = target, version, prepare, zero
        self.operands: dict[str, OperandSpec] = {o.name: o for o in spec.operands}
        self.sources: dict[str, Source] = {o.name: ("operand", i) for i, o in enumerate(spec.operands)}
        self.scalars: tuple[Source, ...] = tuple(("scalar", j) for j in range(len(spec.scalars)))
        self.layout = Layout(limit, spec.op, "split the matmul along M or N")
        self.before: list[Step] = []
        self.notes: tuple[str, ...] = ()
        #: Description of the last matmul, if it can be measured alone.
        self.description: MatmulDescription | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.operands["out"].shape

    @property
    def k(self) -> int:
        return self.operands["a"].shape[-2 if self.how.trans_a else -1]

    def spec(self, operands: Iterable[OperandSpec], **changes: Any) -> PlanSpec[MatmulAttributes]:
        """Return the specification of the computation that is left, with `operands` and changed attributes."""
        return PlanSpec(self.given.op, tuple(operands), self.given.scalars, structs.replace(self.how, **changes))

    def matmul(
        self, spec: PlanSpec[MatmulAttributes], sources: dict[str, Source], scalars: tuple[Source, ...]
    ) -> tuple[Step, int]:
        """Return the step of a call of the library, and its workspace."""
        places = tuple(sources[o.name] for o in spec.operands)
        try:
            description = matmul_description(
                spec, version=self.version, arch=self.target.arch, workspace_bytes=self.layout.left(), zero=self.zero
            )
            self.description = description
        except UnevenBatch as error:
            self.description = None
            found = by_addresses(
                spec, sources, self.layout, self.target, version=self.version, zero=self.zero, refusal=error
            )
            description, places = found.description, (*places, found.arrays)
            self.before.append(found.write)
            self.notes += (found.note,)
        native = self.prepare(description)
        return Step(native, places, scalars), native.workspace

    # ---- routes

    def fused(self) -> SequenceProgram:
        """Return the whole matmul in one call."""
        step, need = self.matmul(self.spec(self.operands.values()), self.sources, self.scalars)
        return self.layout.place([*self.before, step], need, self.notes)

    def after(self, why: str) -> SequenceProgram:
        """Return one call, and kernels for the gradient's part of the epilogue."""
        epilogue = self.how.epilogue
        steps = self.sums_over_k() if epilogue.startswith("bgrad") else self.gradients_of_d()
        gone = ("aux", "bias_grad") if epilogue.startswith("drelu") else ("bias_grad",)
        operands = [o for o in self.operands.values() if o.name not in gone]
        step, need = self.matmul(self.spec(operands, epilogue=AFTER[epilogue]), self.sources, self.scalars)
        return self.layout.place([*self.before, step, *steps], need, (*self.notes, after_note(epilogue, why)))

    def apart(self, why: str) -> SequenceProgram:
        """Return the bare product, and a kernel for everything else."""
        steps: list[Step] = []
        need = 0
        how, shape = self.how, self.shape
        kind = "float32" if how.scale == "float16" else how.scale
        products = "float16" if how.scale == "float16" else how.compute
        places: dict[str, Place] = {}
        sources: dict[str, Source] = {}
        if 0 not in shape and self.k:
            source, place, step, need = self.product(products)
            sources["x"], places["x"] = source, place
            steps.append(step)
        for name in ("c", "bias", "aux", "a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta", "out"):
            if name in ("a_scale", "b_scale") and how.scaling["ab".index(name[0])] not in ("tensor", "outer"):
                continue
            given = self.operands.get("out" if name == "c" and how.added == "out" else name)
            if given is not None:
                places[name] = self.place(name, given)
                sources[name] = self.sources[given.name]
        summed = how.epilogue.endswith("_bgrad")
        count = math.prod(shape)
        if (summed or "amax" in self.operands) and count:
            sources["kept"] = self.layout.take(count * as_dtype(kind).itemsize)
            places["kept"] = Place(kind, contiguous_strides(shape, 1))
        after: list[Step] = []
        if count:
            epilogue = epilogue_kernel(how.epilogue, kind, shape, places, len(self.scalars), self.target)
            after.append(Step(epilogue, tuple(sources[name] for name in places), self.scalars))
        if summed:
            after += self.sum_rows(kind, sources.get("kept", ("workspace", -1)))
        if "amax" in self.operands:
            parts = self.layout.take(4096)
            kept = sources.get("kept", parts)
            after.append(Step(amax_kernel(kind, count, self.target), (kept, parts, self.sources["amax"])))
        if how.epilogue in ("bgrada", "bgradb"):
            after += self.sums_over_k()
        note = f"{_APART} since {why}"
        if "x" not in places:
            note = f"everything is computed by a kernel, since {why}"
        return self.layout.place([*self.before, *steps, *after], need, (*self.notes, note))

    # ---- pieces

    def product(self, products: str) -> tuple[Source, Place, Step, int]:
        """Return the place and layout of the bare product, the step that computes it, and that step's workspace."""
        how, a, b = self.how, self.operands["a"], self.operands["b"]
        m = a.shape[-1 if how.trans_a else -2]
        n = b.shape[-2 if how.trans_b else -1]
        batch, size = self.shape[:-2], as_dtype(products).itemsize
        each = -(-m * n * size // ADDRESSED) * ADDRESSED // size  # so that any batch can be read by addresses
        steps = (*(each * step for step in contiguous_strides(batch, 1)), n, 1)
        out = OperandSpec("out", products, (*batch, m, n), tuple(step * size for step in steps), WRITE | OVERWRITE)
        operands, scaling = [a, b], ["none", "none"]
        for i, name in enumerate(("a_scale", "b_scale")):
            if how.scaling[i] in ("vec128", "blk128"):
                operands.append(self.operands[name])
                scaling[i] = how.scaling[i]
        bare = self.spec(
            [*operands, out], epilogue="default", added="none", scale=products, scaling=(scaling[0], scaling[1])
        )
        bare = structs.replace(bare, scalars=("float64",) * (4 if products.startswith("complex") else 2))
        source = self.layout.take(math.prod(batch) * each * size)
        factors: tuple[Source, ...] = tuple(("constant", word) for word in (_ONE, 0, 0, 0)[: len(bare.scalars)])
        step, need = self.matmul(bare, {**self.sources, "out": source}, factors)
        return source, Place(products, steps), step, need

    def place(self, name: str, given: OperandSpec) -> Place:
        """Return the layout of an operand along D's axes."""
        size = as_dtype(given.dtype).itemsize
        strides = [0 if n == 1 else step // size for n, step in zip(given.shape, given.strides, strict=True)]
        axes = len(self.shape)
        if name == "bias":
            strides = [*strides[:-1], 0, strides[-1]]
        elif name in ("c_scale", "d_scale", "alpha", "beta") or len(given.shape) < 2:
            strides = [0, 0]
        return Place(given.dtype, tuple([0] * (axes - len(strides)) + strides))

    def gradients_of_d(self) -> list[Step]:
        """Return the step that masks D, sums it over its rows, or both."""
        out, into, names = self.operands["out"], self.operands.get("bias_grad"), ["out", "aux", "bias_grad"]
        if self.how.epilogue.startswith("drelu"):
            built = build_drelu(out, self.operands["aux"], into, self.target)
        else:
            names.remove("aux")
            sums = self.operands["bias_grad"]
            built = build_sum(Reduction(out, sums, "sum", (len(out.shape) - 2,), "float32"), self.target)
        if built is None:
            raise Unsupported(
                "D does not lie so that kernels read it by 16 bytes",
                rule="blas_lt.output_alignment",
                lifted_by=("layout",),
            )
        return self.launched(built, [self.sources[name] for name in names if name in self.operands])

    def sum_rows(self, kind: str, kept: Source) -> list[Step]:
        """Return the step that sums D over its rows."""
        *lead, m, n = self.shape
        given = self.operands["bias_grad"]
        strides = contiguous_strides((*lead, m, n), as_dtype(kind).itemsize)
        x = OperandSpec("kept", kind, (*lead, m, n), strides, READ)
        return self.reduce(x, given, len(lead), kind, kept, self.sources["bias_grad"])

    def sums_over_k(self) -> list[Step]:
        """Return the step that sums op(A) or op(B) over K."""
        which = "a" if self.how.epilogue == "bgrada" else "b"
        given, out = self.spec_operand(which), self.operands["bias_grad"]
        batch, own = self.shape[:-2], given.shape[:-2]
        lead = (0,) * (len(batch) - len(own))
        steps = (0 if extent == 1 else step for extent, step in zip(own, given.strides, strict=False))
        shape, strides = (*batch, *given.shape[-2:]), (*lead, *steps, *given.strides[-2:])
        axis = len(batch) + (1 if which == "a" else 0)
        if self.given.attributes.trans_a if which == "a" else self.given.attributes.trans_b:
            axis = 2 * len(batch) + 1 - axis
        sums = {"int8": "int64", "float64": "float64", "complex128": "float64"}.get(given.dtype, "float32")
        x = structs.replace(given, shape=shape, strides=strides)
        source = self.source_of(which)
        if given.dtype.startswith("complex"):  # the parts are sums of their own
            x, out = _parts(x), _parts(out)
        return self.reduce(x, out, axis, sums, source, self.sources["bias_grad"])

    def spec_operand(self, name: str) -> OperandSpec:
        """Return an operand as the message has it, before any copy."""
        return next(o for o in self.given.operands if o.name == name)

    def source_of(self, name: str) -> Source:
        """Return where the message has an operand."""
        return ("operand", next(i for i, o in enumerate(self.given.operands) if o.name == name))

    def reduce(
        self, x: OperandSpec, out: OperandSpec, axis: int, sums: str, source: Source, into: Source
    ) -> list[Step]:
        """Return the step of a sum along one axis."""
        reduction = Reduction(x, out, "sum", (axis,), sums)
        return self.launched(build_reduce(reduction, self.target), [source if source[1] >= 0 else into, into])

    def launched(self, built: Built, places: list[Source]) -> list[Step]:
        """Return the step of kernels after the matmul."""
        run = built.run
        if not isinstance(run, KernelProgram):  # nothing to write
            return []
        if run.workspace:
            places = [*places, self.layout.take(run.workspace, later=True)]
        return [Step(workspace_as_operand(run, len(places) - 1), tuple(places))]

    def pack(self) -> tuple[str, ...]:
        """Copy A and B into the workspace, dense along K, for the steps that follow; return notes."""
        notes, batch = [], self.shape[:-2]
        pad = _PAD if as_dtype(self.operands["a"].dtype).itemsize == 1 else 1
        blocks = bool({"vec128", "blk128"} & set(self.how.scaling))
        for name in ("a", "b"):
            given = self.operands[name]
            shape, size = list(given.shape), as_dtype(given.dtype).itemsize
            strides = [0 if extent == 1 else step // size for extent, step in zip(shape, given.strides, strict=True)]
            transposed, conjugated = (
                (self.how.trans_a, self.how.conj_a) if name == "a" else (self.how.trans_b, self.how.conj_b)
            )
            lead = tuple(shape[:-2])
            if math.prod(lead) > 1 and lead != batch:  # copies of a batch step evenly
                strides[:-2] = [0] * (len(batch) - len(lead)) + strides[:-2]
                shape[:-2] = batch
            if (name == "a") == transposed:  # to (outer, K)
                shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
            # Scales of blocks have no leading dimension: the rows that they belong to stay as many as they are.
            pads = (1 if blocks else pad, pad)
            rows, columns = (-(-extent // pad) * pad for extent, pad in zip(shape[-2:], pads, strict=True))
            whole = (*shape[:-2], rows, columns)
            if 0 in whole:
                continue
            into = self.layout.take(math.prod(whole) * size)
            kernel = pack_kernel(given.dtype, shape, strides, (rows, columns), conjugated, self.target)
            self.before.append(Step(kernel, (self.sources[name], into)))
            self.sources[name] = into
            self.operands[name] = structs.replace(given, shape=whole, strides=contiguous_strides(whole, size))
            notes.append(f"{name} is copied into the workspace as {list(whole)}, dense along K")
        self.how = structs.replace(self.how, trans_a=False, trans_b=True, conj_a=False, conj_b=False)
        return tuple(notes)


_ONE: Final = 0x3FF0000000000000
_SLOWER: Final = "the library's own epilogue is slower on this architecture"
_APART: Final = "everything but the product is computed by a kernel after the matmul,"


def _parts(given: OperandSpec) -> OperandSpec:
    """Return a complex array as one of its parts, which are a last axis."""
    size = as_dtype(given.dtype).itemsize // 2
    dtype = "float32" if size == 4 else "float64"
    return structs.replace(given, dtype=dtype, shape=(*given.shape, 2), strides=(*given.strides, size))


def workspace_as_operand(program: KernelProgram, number: int = 2) -> KernelProgram:
    """Return a program that takes its workspace as the operand of that number."""
    launches = tuple(
        replace(
            launch,
            arguments=tuple(
                ("operand", number) if kind == "workspace" else (kind, value) for kind, value in launch.arguments
            ),
        )
        for launch in program.launches
    )
    return replace(program, launches=launches, workspace=0)


def matmul_program(
    spec: PlanSpec[MatmulAttributes],
    target: Target,
    *,
    version: int,
    prepare: Prepare,
    workspace_bytes: int = PREFERRED_WORKSPACE,
    zero: int = 0,
    measured: Measured = lambda _: None,
) -> SequenceProgram:
    """Return how to compute a plan specification of ``blas_lt.matmul``.

    Parameters
    ----------
    spec
        The specification.
    target, version
        The device, and ``cublasLtGetVersion()``.
    prepare
        Makes a native plan, or raises `Unsupported` with the library's reason.
    workspace_bytes
        The most workspace that the plan may use.
    zero
        Address of 16 zero bytes of device memory.
    measured
        Measured times of native plans.

    Raises
    ------
    Unsupported
        If every route is refused; with the messages of the first and the last refusal, and the rule of the last.
    """

    def fresh() -> _Program:
        return _Program(spec, target, version, prepare, zero, workspace_bytes)

    try:
        return first_supported(_routes(fresh, measured))
    except NoRoute as error:
        refused = error.refusals
    first = refused[0]
    last = next((refusal for refusal in reversed(refused) if not refusal.rule or refusal.rule != first.rule), first)
    said = first.message if last is first else f"{first.message}; in steps: {last.message}"
    raise _refusal(spec, said, last)


def _routes(fresh: Callable[[], _Program], measured: Measured) -> Iterator[Route[SequenceProgram]]:
    """Return the routes of the module's docstring in that order; copies are planned when their routes are reached."""
    yield Route("one call", lambda _: _fastest(fresh, measured))
    how = fresh().how
    sums = how.epilogue in ("bgrada", "bgradb")
    if sums:
        yield Route("one call, sums by a kernel", lambda refused: fresh().after(refused[0].message))
    yield Route("in steps", lambda refused: fresh().apart(refused[0].message))
    if not how.copies:
        return

    notes = fresh().pack()

    def packed() -> _Program:
        program = fresh()
        program.pack()
        return program

    def noted(program: SequenceProgram, *more: str) -> SequenceProgram:
        return replace(program, notes=(*notes, *more, *program.notes))

    if _same_extents(packed(), fresh()):
        yield Route("one call of copies", lambda refused: noted(packed().fused(), f"since {refused[0].message}"))
        if sums:
            yield Route(
                "one call of copies, sums by a kernel", lambda refused: noted(packed().after(refused[0].message))
            )
    yield Route("in steps, of copies", lambda refused: noted(packed().apart(refused[0].message)))


def _fastest(make: Callable[[], _Program], measured: Measured) -> SequenceProgram:
    """Return one call, or one call and kernels for the gradient's part: the route that is known to be faster."""
    whole = make()
    spec = whole.given
    if spec.attributes.tune:
        return _measured(make, measured)
    if spec.attributes.epilogue not in AFTER or not faster_after(spec, whole.target.arch):
        return whole.fused()
    return _or_none(lambda: make().after(_SLOWER)) or whole.fused()


def _measured(make: Callable[[], _Program], measured: Measured) -> SequenceProgram:
    """Return the route of the least time, measured for calls of the library, and predicted for kernels after them.

    Without both, what is predicted to be the faster one.
    """
    whole, parts, bare = make(), make(), make()
    spec = whole.given
    fused, epilogue, rest = whole.fused(), spec.attributes.epilogue, apart_microseconds(spec)
    after = _or_none(lambda: parts.after(_SLOWER)) if epilogue in AFTER else None
    if after is None and rest is None:
        return fused
    together, alone = _microseconds(whole, measured), _microseconds(parts, measured)
    if together is None or (after is not None and alone is None):
        return after if after is not None and faster_after(spec, whole.target.arch) else fused
    routes = [(together, fused)]
    if after is not None and alone is not None:
        kernels = pass_microseconds(spec)
        note = after_note(epilogue, _times(together, alone, kernels))
        routes.append((alone + kernels, replace(after, notes=(note,))))
    apart = None if rest is None else _or_none(lambda: bare.apart(""))
    product = _microseconds(bare, measured)
    if rest is not None and apart is not None and product is not None:
        note = f"{_APART} since {_times(together, product, rest, ', in float32')}"
        routes.append((product + rest, replace(apart, notes=(note,))))
    return min(routes, key=itemgetter(0))[1]


def _microseconds(program: _Program, measured: Measured) -> float | None:
    return None if program.description is None else measured(program.description)


def _times(together: float, alone: float, kernels: float, how: str = "") -> str:
    return (
        f"the call takes {together:.1f} us with all of it, {alone:.1f} us without that{how}, and the kernels about "
        f"{kernels:.1f} us"
    )


def _or_none(make: Callable[[], SequenceProgram]) -> SequenceProgram | None:
    try:
        return make()
    except Unsupported:  # whatever the reason, there is another route
        return None


def _same_extents(packed: _Program, plain: _Program) -> bool:
    """Whether padding has left M and N, so that the library may write D itself."""
    m, n = packed.operands["a"].shape[-2], packed.operands["b"].shape[-2]
    return (m, n) == plain.shape[-2:]


def _refusal(spec: PlanSpec[MatmulAttributes], said: str, last: Refusal) -> Unsupported:
    """Return the error of a matmul without a route, with the advice that lifts the last refusal."""
    lifted_by = tuple(name for name in last.lifted_by if name != "copies")
    if spec.attributes.copies or (last.lifted_by and "copies" not in last.lifted_by):
        return Unsupported(said, rule=last.rule, lifted_by=lifted_by)
    return Unsupported(f"{said}{_advice(spec, last)}", rule=last.rule, lifted_by=(*lifted_by, "copies"))


def _advice(spec: PlanSpec[MatmulAttributes], last: Refusal) -> str:
    """Return the advice to have A and B copied; for a refusal by the library, with the layouts that it documents."""
    dtype = "" if last.lifted_by else spec.operands[0].dtype
    if dtype in FLOAT8:
        return (
            "; float8 wants K, and the rows of A, B and D, in multiples of 16 bytes, A as (M, K) and B as (N, K) with "
            "trans_b=True: lay them out so, or leave copies=True"
        )
    if dtype == "int8":
        return (
            "; int8 wants K and the rows of A and B in multiples of 4 (better 16) bytes, A as (M, K) and B as (N, K) "
            "with trans_b=True: lay them out so, or leave copies=True"
        )
    return "; or leave copies=True, so that A and B are copied into the workspace"
