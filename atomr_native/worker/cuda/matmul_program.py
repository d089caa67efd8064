"""How a matmul is computed: in one call of cuBLASLt where it has it, else in steps, with a note that says so.

In this order, the first that the library takes:

1. the whole matmul in one call, or, where that is slower, a kernel after it for what is a gradient's
   (`matmul_routes`);
2. without its sums over K (``bgrada``, ``bgradb``), which a kernel of ours makes;
3. the bare product into the workspace, in the type of its sums, and everything else in a kernel of ours;
4. with ``copies=True`` the same three after copying A and B into the workspace, dense along K, padded.

The results are those of the one call: factors and epilogue in the same type, D rounded once.  Only the bias gradients
of a kernel after the one call are sums of D as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from ..._matmul_types import FLOAT8
from ..._operands import contiguous_strides
from ...dtypes import as_dtype
from ...errors import Unsupported
from .lt_description import MatmulDescription
from .matmul import matmul_description
from .matmul_kernels import Place, amax_kernel, epilogue_kernel, pack_kernel
from .matmul_routes import AFTER, after_note, faster_after, pass_microseconds
from .reductions import build_reduce
from .sequence import SequenceProgram, Source, Step
from .sums import build_drelu, build_sum
from .target import Built, KernelProgram, Target
from .workspace_layout import Layout

__all__ = ["WORKSPACE", "Measured", "NativeMatmul", "Prepare", "matmul_program", "workspace_as_operand"]

#: The most workspace that a matmul may use by default, bytes; NVIDIA recommends so much for Hopper.
WORKSPACE: Final = 32 << 20
#: To what extents of 8-bit matrices are padded.
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
    """One attempt: the specification, where each operand is, and what has been done so far."""

    def __init__(
        self, spec: dict[str, Any], target: Target, version: int, prepare: Prepare, zero: int, limit: int
    ) -> None:
        self.spec = self.given = spec
        self.target, self.version, self.prepare, self.zero = target, version, prepare, zero
        self.operands: dict[str, dict[str, Any]] = {o["name"]: o for o in spec["operands"]}
        self.sources: dict[str, Source] = {o["name"]: ("operand", i) for i, o in enumerate(spec["operands"])}
        self.scalars: tuple[Source, ...] = tuple(("scalar", j) for j in range(len(spec["scalars"])))
        self.layout = Layout(limit)
        self.before: list[Step] = []
        #: Of the last matmul.
        self.description: MatmulDescription | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.operands["out"]["shape"])

    @property
    def k(self) -> int:
        return int(self.operands["a"]["shape"][-2 if self.spec["trans_a"] else -1])

    def matmul(self, spec: dict[str, Any], sources: dict[str, Source], scalars: tuple[Source, ...]) -> tuple[Step, int]:
        """Return the step of a call of the library, and its workspace."""
        description = matmul_description(
            spec, version=self.version, arch=self.target.arch, workspace_bytes=self.layout.left(), zero=self.zero
        )
        self.description = description
        native = self.prepare(description)
        places = tuple(sources[o["name"]] for o in spec["operands"])
        return Step(native, places, scalars), native.workspace

    # ---- the ways

    def fused(self) -> SequenceProgram:
        """Return the whole in one call."""
        spec = {**self.spec, "operands": list(self.operands.values())}
        step, need = self.matmul(spec, self.sources, self.scalars)
        return self.layout.place([*self.before, step], need, ())

    def after(self, why: str) -> SequenceProgram:
        """Return one call, and kernels for what of the epilogue is a gradient's."""
        epilogue = self.spec["epilogue"]
        steps = self.sums_over_k() if epilogue.startswith("bgrad") else self.gradients_of_d()
        gone = ("aux", "bias_grad") if epilogue.startswith("drelu") else ("bias_grad",)
        operands = [o for o in self.operands.values() if o["name"] not in gone]
        spec = {**self.spec, "epilogue": AFTER[epilogue], "operands": operands}
        step, need = self.matmul(spec, self.sources, self.scalars)
        return self.layout.place([*self.before, step, *steps], need, (after_note(epilogue, why),))

    def apart(self, why: str) -> SequenceProgram:
        """Return the bare product, and a kernel for the rest."""
        steps, need = list(self.before), 0
        spec, shape = self.spec, self.shape
        kind = "float32" if spec["scale"] == "float16" else spec["scale"]
        products = "float16" if spec["scale"] == "float16" else spec["compute"]
        places: dict[str, Place] = {}
        sources: dict[str, Source] = {}
        if 0 not in shape and self.k:
            source, place, step, need = self.product(products)
            sources["x"], places["x"] = source, place
            steps.append(step)
        scaled = tuple(spec["scaling"])
        for name in ("c", "bias", "aux", "a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta", "out"):
            if name in ("a_scale", "b_scale") and scaled["ab".index(name[0])] not in ("tensor", "outer"):
                continue
            given = self.operands.get("out" if name == "c" and spec["added"] == "out" else name)
            if given is not None:
                places[name] = self.place(name, given)
                sources[name] = self.sources[given["name"]]
        summed = spec["epilogue"].endswith("_bgrad")
        count = math.prod(shape)
        if (summed or "amax" in self.operands) and count:
            sources["kept"] = self.layout.take(count * as_dtype(kind).itemsize)
            places["kept"] = Place(kind, contiguous_strides(shape, 1))
        after: list[Step] = []
        if count:
            epilogue = epilogue_kernel(spec["epilogue"], kind, shape, places, len(self.scalars), self.target)
            after.append(Step(epilogue, tuple(sources[name] for name in places), self.scalars))
        if summed:
            after += self.sum_rows(kind, sources.get("kept", ("workspace", -1)))
        if "amax" in self.operands:
            parts = self.layout.take(4096)
            kept = sources.get("kept", parts)
            after.append(Step(amax_kernel(kind, count, self.target), (kept, parts, self.sources["amax"])))
        if spec["epilogue"] in ("bgrada", "bgradb"):
            after += self.sums_over_k()
        note = f"everything but the product is computed by a kernel after the matmul, since {why}"
        if "x" not in places:
            note = f"everything is computed by a kernel, since {why}"
        return self.layout.place([*steps, *after], need, (note,))

    # ---- pieces

    def product(self, products: str) -> tuple[Source, Place, Step, int]:
        """Return where the bare product is, how it lies, the step that makes it, and that step's workspace."""
        spec = self.spec
        a, b = self.operands["a"], self.operands["b"]
        m = a["shape"][-1 if spec["trans_a"] else -2]
        n = b["shape"][-2 if spec["trans_b"] else -1]
        shape = (*self.shape[:-2], m, n)
        size = as_dtype(products).itemsize
        out = {"name": "out", "dtype": products, "shape": list(shape), "strides": list(contiguous_strides(shape, size))}
        operands, scaling = [a, b], ["none", "none"]
        for i, name in enumerate(("a_scale", "b_scale")):
            if spec["scaling"][i] in ("vec128", "blk128"):
                operands.append(self.operands[name])
                scaling[i] = spec["scaling"][i]
        bare = {
            **spec,
            "epilogue": "default",
            "added": "none",
            "scale": products,
            "scaling": scaling,
            "operands": [*operands, out],
            "scalars": ["float64"] * (4 if products.startswith("complex") else 2),
        }
        source = self.layout.take(math.prod(shape) * size)
        factors: tuple[Source, ...] = tuple(("constant", word) for word in (_ONE, 0, 0, 0)[: len(bare["scalars"])])
        step, need = self.matmul(bare, {**self.sources, "out": source}, factors)
        return source, Place(products, contiguous_strides(shape, 1)), step, need

    def place(self, name: str, given: dict[str, Any]) -> Place:
        """Return how an operand lies along D's axes."""
        shape, size = list(given["shape"]), as_dtype(given["dtype"]).itemsize
        strides = [0 if extent == 1 else step // size for extent, step in zip(shape, given["strides"], strict=True)]
        axes = len(self.shape)
        if name == "bias":
            strides = [*strides[:-1], 0, strides[-1]]
        elif name in ("c_scale", "d_scale", "alpha", "beta") or len(shape) < 2:
            strides = [0, 0]
        return Place(given["dtype"], tuple([0] * (axes - len(strides)) + strides))

    def gradients_of_d(self) -> list[Step]:
        """Return the step that masks D, sums it over its rows, or does both."""
        out, into, names = self.operands["out"], self.operands.get("bias_grad"), ["out", "aux", "bias_grad"]
        if self.spec["epilogue"].startswith("drelu"):
            built = build_drelu(out, self.operands["aux"], into, self.target)
        else:
            names.remove("aux")
            axes = [len(out["shape"]) - 2]
            sums = {"operands": [out, into], "axes": axes, "reduction": "sum", "accumulate": "float32"}
            built = build_sum(sums, self.target)
        if built is None:
            raise Unsupported("D does not lie so that kernels read it by 16 bytes")
        return self.launched(built, [self.sources[name] for name in names if name in self.operands])

    def sum_rows(self, kind: str, kept: Source) -> list[Step]:
        """Return the step that sums D over its rows."""
        *lead, m, n = self.shape
        given = self.operands["bias_grad"]
        x = {"dtype": kind, "shape": [*lead, m, n], "strides": _byte_strides((*lead, m, n), as_dtype(kind).itemsize)}
        return self.reduce(x, given, len(lead), kind, kept, self.sources["bias_grad"])

    def sums_over_k(self) -> list[Step]:
        """Return the step that sums op(A) or op(B) over K."""
        which = "a" if self.spec["epilogue"] == "bgrada" else "b"
        given, out = self.spec_operand(which), self.operands["bias_grad"]
        shape, strides = list(given["shape"]), list(given["strides"])
        batch = self.shape[:-2]
        lead = [0] * (len(batch) - len(shape) + 2)
        strides = (
            lead
            + [0 if extent == 1 else step for extent, step in zip(shape[:-2], strides[:-2], strict=True)]
            + strides[-2:]
        )
        shape = [*batch, *shape[-2:]]
        axis = len(batch) + (1 if which == "a" else 0)
        if self.given[f"trans_{which}"]:
            axis = 2 * len(batch) + 1 - axis
        dtype = given["dtype"]
        sums = {"int8": "int64", "float64": "float64", "complex128": "float64"}.get(dtype, "float32")
        x = {"dtype": dtype, "shape": shape, "strides": strides}
        source = self.source_of(which)
        if dtype.startswith("complex"):  # the parts are sums of their own
            x, out = _parts(x), _parts(out)
        return self.reduce(x, out, axis, sums, source, self.sources["bias_grad"])

    def spec_operand(self, name: str) -> dict[str, Any]:
        """Return an operand as the message has it, before any copy."""
        found: dict[str, Any] = next(o for o in self.given["operands"] if o["name"] == name)
        return found

    def source_of(self, name: str) -> Source:
        """Return where the message has an operand."""
        return ("operand", next(i for i, o in enumerate(self.given["operands"]) if o["name"] == name))

    def reduce(
        self, x: dict[str, Any], out: dict[str, Any], axis: int, sums: str, source: Source, into: Source
    ) -> list[Step]:
        """Return the step of a sum along one axis."""
        spec = {"operands": [x, out], "axes": [axis], "reduction": "sum", "accumulate": sums}
        return self.launched(build_reduce(spec, self.target), [source if source[1] >= 0 else into, into])

    def launched(self, built: Built, places: list[Source]) -> list[Step]:
        """Return the step of kernels that come after the matmul."""
        run = built.run
        if not isinstance(run, KernelProgram):  # nothing to write
            return []
        if run.workspace:
            places = [*places, self.layout.take(run.workspace, later=True)]
        return [Step(workspace_as_operand(run, len(places) - 1), tuple(places))]

    def pack(self) -> tuple[str, ...]:
        """Copy A and B into the workspace, dense along K, and let what follows read those; returns notes."""
        notes = []
        pad = _PAD if as_dtype(self.operands["a"]["dtype"]).itemsize == 1 else 1
        for name in ("a", "b"):
            given = self.operands[name]
            shape, size = list(given["shape"]), as_dtype(given["dtype"]).itemsize
            strides = [0 if extent == 1 else step // size for extent, step in zip(shape, given["strides"], strict=True)]
            if (name == "a") == bool(self.spec[f"trans_{name}"]):  # to (outer, K)
                shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
            rows, columns = (-(-extent // pad) * pad for extent in shape[-2:])
            whole = (*shape[:-2], rows, columns)
            if 0 in whole:
                continue
            into = self.layout.take(math.prod(whole) * size)
            conjugated = bool(self.spec[f"conj_{name}"])
            kernel = pack_kernel(given["dtype"], shape, strides, (rows, columns), conjugated, self.target)
            self.before.append(Step(kernel, (self.sources[name], into)))
            self.sources[name] = into
            self.operands[name] = {
                "name": name, "dtype": given["dtype"], "shape": list(whole), "strides": _byte_strides(whole, size),
            }  # fmt: skip
            notes.append(f"{name} is copied into the workspace as {list(whole)}, dense along K")
        self.spec = {**self.spec, "trans_a": False, "trans_b": True, "conj_a": False, "conj_b": False}
        return tuple(notes)


_ONE: Final = 0x3FF0000000000000


def _byte_strides(shape: tuple[int, ...], size: int) -> list[int]:
    return list(contiguous_strides(shape, size))


def _parts(given: dict[str, Any]) -> dict[str, Any]:
    """Return a complex array as one of its parts, which are a last axis."""
    size = as_dtype(given["dtype"]).itemsize // 2
    return {
        "dtype": "float32" if size == 4 else "float64",
        "shape": [*given["shape"], 2],
        "strides": [*given["strides"], size],
    }


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
    spec: dict[str, Any],
    target: Target,
    *,
    version: int,
    prepare: Prepare,
    workspace_bytes: int = WORKSPACE,
    zero: int = 0,
    measured: Measured = lambda _: None,
) -> SequenceProgram:
    """Return how to compute a plan specification of ``blas_lt.matmul``.

    Parameters
    ----------
    spec
        Its JSON form.
    target, version
        The device, and ``cublasLtGetVersion()``.
    prepare
        Makes a native plan, or raises `Unsupported` with the library's reason.
    workspace_bytes
        The most workspace that the plan may use.
    zero
        Address of 16 zero bytes of device memory.
    measured
        What is known of the time of native plans.

    Raises
    ------
    Unsupported
        If no way works: with the reason of the first and of the last.
    """

    def fresh() -> _Program:
        return _Program(spec, target, version, prepare, zero, workspace_bytes)

    try:
        return _fastest(fresh, measured)
    except Unsupported as error:
        why = error.message
    found, reasons = _other_ways(fresh, why, ())
    if found is None and spec.get("copies"):

        def packed() -> _Program:
            program = fresh()
            program.pack()
            return program

        notes = fresh().pack()
        same = _same_extents(packed(), fresh())
        if same:
            try:
                made = packed().fused()
                return SequenceProgram(made.steps, made.workspace, (*notes, f"since {why}"))
            except Unsupported as error:
                reasons.append(error.message)
        found, more = _other_ways(packed, why, notes, sums=same)
        reasons += more
    if found is not None:
        return found
    others = [reason for reason in dict.fromkeys(reasons) if reason != why]
    raise Unsupported(f"{why}{'; in steps: ' + others[-1] if others else ''}{_hint(spec)}")


def _fastest(make: Callable[[], _Program], measured: Measured) -> SequenceProgram:
    """Return one call, or one call and kernels after it for what is a gradient's: what is known to be faster."""
    whole, parts = make(), make()
    spec = parts.spec
    if spec["epilogue"] not in AFTER:
        return whole.fused()
    predicted = faster_after(spec, parts.target.arch)
    why = "the library's own epilogue is slower on this architecture"
    if not spec.get("tune"):
        return (_after(parts, why) if predicted else None) or whole.fused()
    fused, after = whole.fused(), _after(parts, why)
    alone, together = (None if p.description is None else measured(p.description) for p in (parts, whole))
    if after is None or alone is None or together is None:
        return after if after is not None and predicted else fused
    kernels = pass_microseconds(spec)
    why = (
        f"the call takes {together:.1f} us with all of it, {alone:.1f} us without that, and the kernels about "
        f"{kernels:.1f} us"
    )
    return replace(after, notes=(after_note(spec["epilogue"], why),)) if alone + kernels < together else fused


def _after(program: _Program, why: str) -> SequenceProgram | None:
    try:
        return program.after(why)
    except Unsupported:  # whatever the reason, the call with all of it is the next to be tried
        return None


def _same_extents(packed: _Program, plain: _Program) -> bool:
    """Whether padding has left M and N, so that the library may write D itself."""
    m, n = packed.operands["a"]["shape"][-2], packed.operands["b"]["shape"][-2]
    return (m, n) == plain.shape[-2:]


def _other_ways(
    make: Callable[[], _Program], why: str, notes: tuple[str, ...], *, sums: bool = True
) -> tuple[SequenceProgram | None, list[str]]:
    """Try what is not one call; returns the program, or the reasons against it."""
    reasons: list[str] = []
    first = make()
    ways: list[Callable[[], SequenceProgram]] = []
    if sums and first.spec["epilogue"] in ("bgrada", "bgradb"):
        ways.append(lambda: make().after(why))
    ways.append(lambda: make().apart(why))
    for way in ways:
        try:
            made = way()
            return SequenceProgram(made.steps, made.workspace, (*notes, *made.notes)), reasons
        except Unsupported as error:
            reasons.append(error.message)
    return None, reasons


def _hint(spec: dict[str, Any]) -> str:
    """Return what may lift a refusal of the library, by dtype."""
    dtype = spec["operands"][0]["dtype"]
    if spec.get("copies"):
        return ""
    if dtype in FLOAT8:
        return (
            "; float8 wants K, and the rows of A, B and D, in multiples of 16 bytes, A as (M, K) and B as (N, K) with "
            "trans_b=True: lay them out so, or pass copies=True"
        )
    if dtype == "int8":
        return (
            "; int8 wants K and the rows of A and B in multiples of 4 (better 16) bytes, A as (M, K) and B as (N, K) "
            "with trans_b=True: lay them out so, or pass copies=True"
        )
    return "; or pass copies=True to have A and B copied into the workspace"
