"""From a plan specification of ``cudnn.*`` to a plan of cuDNN, or to several in one message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from ...._lib import cudnn
from ...._lib.cudnn import CALLS, CONSTANTS, CallPlan
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import as_dtype
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import GraphAttributes
from ..support import ATTENTION_VERSION, RULES, is_exact_product, is_fusion, is_trusted
from .attention import around_kernels
from .descriptors import GraphDescription, data_type, describe_graph
from .group_norm import group_norm_kernels, has_kernels
from .kernels import pointwise_kernel
from .product import FACTORS, product_run
from .reduce import reduction_kernel
from .saved_plans import saved_plan
from .steps import Part, alone, are_alike, attention_parts, densified, is_taken, parts_of, roots_of
from .tuning import GraphTuner

__all__ = ["build_graph"]

#: Libraries that cuDNN opens by their sonames; they are found once they are loaded.
_NEEDED: Final = ("cublasLt", "cublas", "nvrtc")
#: Makes the native plan of a description.
Maker = Callable[[GraphDescription], Any]


def build_graph(spec: PlanSpec[GraphAttributes], context: CudaContext) -> Built:
    """Build ``cudnn.*``: the whole graph as one plan, or else in steps.

    Raises
    ------
    Unsupported
        Without cuDNN; for a graph for whose nodes it has no engine; for more workspace than the limit.
    OutOfMemory
        If the device has no memory for a plan.
    """
    graph = spec.attributes
    if all(math.prod(graph.tensors[at].shape) == 0 for node in graph.nodes for at in node.writes):
        return Built("noop")
    for key in _NEEDED:
        library_file(key)
    version = cudnn.load(library_file("cudnn"))
    _check(spec.op, graph)
    if _is_attention(spec.op) and version < ATTENTION_VERSION:
        raise Unsupported(
            f"{spec.op} with cuDNN {version}; allowed: {ATTENTION_VERSION} and later, as older ones are wrong for some "
            f"lengths: pip install -U nvidia-cudnn-cu13",
            rule="cudnn.attention_version",
            lifted_by=("library",),
        )
    backend = context.backend

    tuner = GraphTuner(context, version, measure=graph.tune == "measure")

    def make(description: GraphDescription) -> Any:
        # Other processes may measure another engine to be the fastest, whose bits differ.
        found = tuner.tuned(description) if graph.tune and not graph.deterministic else None
        if found is not None:
            made = saved_plan(backend, found[0], version)
            if made.engine == found[1]:  # the heuristics list it where they did when it was measured
                return made
        return saved_plan(backend, description, version)

    return replace(_built(spec, graph, context, make), tuning="; ".join(tuner.lines))


def _built(spec: PlanSpec[Any], graph: GraphAttributes, context: CudaContext, make: Maker) -> Built:
    if _is_attention(spec.op):
        # Attention is not cut: its results in steps have not been compared.
        parts = attention_parts(graph)
        if len(parts) == 1:
            return _whole(spec, graph, context, make)
        around = "kernels find the ends of sequences, write seeds and scales, and clear what is not seen"
        return _stepwise(spec, graph, parts, context, make, around)
    reason = _why_cut(spec.op, graph)
    if not reason:
        try:
            return _whole(spec, graph, context, make)
        except Unsupported as error:
            # With more workspace the one plan may be possible; cut, a graph of one operation is the same.
            if len(graph.nodes) == 1 or "workspace_limit" in error.lifted_by:
                raise
            reason = error.message
    try:
        whole = densified(graph)
        return _stepwise(spec, whole, parts_of(whole), context, make, reason)
    except Unsupported as error:
        message = f"{spec.op}: {error.message}; not in one plan, since {reason}"
        raise Unsupported(message, rule=error.rule, lifted_by=error.lifted_by) from None


def _why_cut(op: str, graph: GraphAttributes) -> str:
    """Return why a graph is not given to cuDNN as a whole, or nothing."""
    if all(node.op == "pointwise" for node in graph.nodes):
        return "kernels compute pointwise operations"
    if any(has_kernels(graph, node) for node in graph.nodes):
        return "kernels compute norms that cuDNN does not have"
    stepwise = next((node.op for node in graph.nodes if node.op in (*CALLS, "reshape")), None)
    if stepwise is not None:
        return f"graphs of cuDNN have no {stepwise.replace('_', ' ')}"
    if op == "cudnn.graph" and not is_fusion(graph):
        return "one plan of cuDNN is one product and pointwise operations"
    if any(is_exact_product(graph, node) for node in graph.nodes):
        return "cuDNN rounds the factors of float32 products to TF32"
    if not is_trusted(graph):
        return "results of this fusion have not been compared"
    if not are_alike(graph) or not all(is_taken(graph, node, at) for node in graph.nodes for _, at in node.ports):
        return "cuDNN does not take the operands as they lie in memory"
    return ""


def _is_attention(op: str) -> bool:
    return op.startswith("cudnn.attention")


def _check(op: str, graph: GraphAttributes) -> None:
    for rule in RULES:
        for node in graph.nodes:
            value = rule.refuses(graph, node)
            if value is not None:
                message = f"{op}: {rule.text.format(value=value)}"
                raise Unsupported(message, rule=f"cudnn.{rule.name}", lifted_by=rule.lifted_by)


def _whole(spec: PlanSpec[Any], graph: GraphAttributes, context: CudaContext, make: Maker) -> Built:
    made = make(describe_graph(graph, len(spec.operands), context.workspace_limit))
    if made.workspace > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, made.workspace, context.workspace_limit)
    return Built(made, made.workspace)


def _stepwise(
    spec: PlanSpec[Any], whole: GraphAttributes, parts: Sequence[Part], context: CudaContext, make: Maker, reason: str
) -> Built:
    roots = roots_of(whole)
    places: dict[int, int] = {}
    taken = 0
    for at, tensor in enumerate(whole.tensors):
        if tensor.is_virtual and at not in roots and any(at in part.bound for part in parts):
            places[at] = taken
            taken += padded(math.prod(tensor.shape) * as_dtype(tensor.dtype).itemsize)
    # A plan of cuDNN works at the beginning of the lane's workspace, so intermediate results come after that.
    runs, most = [], 0
    for part in parts:
        run = _part(whole, part, context, make, max(context.workspace_limit - taken, 0))
        most = max(most, padded(run.workspace))
        runs.append(run)
    total = most + taken
    if total > context.workspace_limit:
        raise beyond_limit(spec.op, f"{spec.op} in steps", total, context.workspace_limit)

    def source(at: int) -> Source:
        tensor = whole.tensors[at]
        return ("operand", tensor.operand) if tensor.operand >= 0 else ("workspace", most + places[roots.get(at, at)])

    steps = tuple(
        Step(run, tuple(source(at) for at in part.bound), _scalars(whole, part))
        for run, part in zip(runs, parts, strict=True)
    )
    notes = (f"{len(steps)} steps: {reason}",)
    return Built(SequenceProgram(steps, total, notes), total, notes)


def _scalars(graph: GraphAttributes, part: Part) -> tuple[Source, ...]:
    """Return where the scalars of a step come from."""
    if is_exact_product(graph, part.nodes[0]):
        return FACTORS
    drawn = any(node.op == "seeds" for node in part.nodes)
    return (("scalar", 0), ("scalar", 1)) if drawn else ()


def _part(graph: GraphAttributes, part: Part, context: CudaContext, make: Maker, room: int) -> Any:
    """Return the run of one step."""
    node = part.nodes[0]
    if part.is_pointwise:
        return pointwise_kernel(graph, part.nodes, part.bound, context.target)
    if part.is_around:
        return around_kernels(graph, part, context.target)
    if has_kernels(graph, node):
        return group_norm_kernels(graph, part, context.target)
    if node.op in CALLS:
        first = graph.tensors[part.bound[0]]
        outer, channels, *inner = first.shape
        shape = (outer, channels, math.prod(inner))
        options = (size for _, (size,) in node.integers), (value for _, value in node.reals)
        dtype = CONSTANTS[data_type(first.dtype)]
        return CallPlan(context.backend, node.op, dtype, shape, node.mode == "log", *options[0], *options[1])
    if len(part.nodes) == 1 and is_exact_product(graph, node):
        return product_run(alone(graph, part), context.backend, room)
    if node.op == "reduction" and (kernel := reduction_kernel(graph, node, context.target)) is not None:
        return kernel
    return make(describe_graph(alone(graph, part), len(part.bound), room))
