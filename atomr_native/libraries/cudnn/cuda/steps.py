"""How a graph for which cuDNN has no plan is cut: a plan for each of its operations, a kernel for pointwise runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ..attributes import GraphAttributes, NodeSpec, TensorSpec
from ..draft import packed
from ..support import NORM_CHANNELS, is_exact_product
from .product import matrix_of

__all__ = ["Part", "alone", "are_alike", "attention_parts", "densified", "is_taken", "parts_of", "roots_of"]

#: Operations that kernels compute, around the plan of attention.
AROUND: Final = ("lengths", "offsets", "seeds", "float8", "vacate", "sink_forward", "sink_backward")


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that are one step of a message.

    Attributes
    ----------
    nodes : tuple of NodeSpec
    bound : tuple of int
        The tensors that it has in memory: operands, and intermediate results that other parts need.
    """

    nodes: tuple[NodeSpec, ...]
    bound: tuple[int, ...]

    @property
    def is_pointwise(self) -> bool:
        """Whether all of it is pointwise."""
        return all(node.op == "pointwise" for node in self.nodes)

    @property
    def is_around(self) -> bool:
        """Whether it stands before or behind the plan of attention."""
        return self.nodes[0].op in AROUND


def is_taken(graph: GraphAttributes, node: NodeSpec, at: int) -> bool:
    """Whether an operation takes a tensor as it lies in memory: dense, in an order of `_orders`."""
    tensor = graph.tensors[at]
    if is_exact_product(graph, node):
        return tensor.dtype == "float32" and matrix_of(tensor) is not None
    if node.op in ("pointwise", "transpose", "matmul", "reduction", "reshape"):
        return True
    orders = _orders(node)
    if (
        node.op.startswith("norm")
        and node.mode == "batch"
        and graph.tensors[dict(node.ports)["x"]].shape[1] % NORM_CHANNELS
    ):
        orders = (True,)
    if node.op == "convolution_forward" and graph.tensors[dict(node.ports)["x"]].dtype.startswith("float8"):
        orders = (True,)  # cuDNN has no other engines
    return any(_is_dense(tensor, channels_last=last) for last in orders)


def are_alike(graph: GraphAttributes) -> bool:
    """Whether cuDNN's fusion of a product with pointwise operations takes all arrays as they lie in memory.

    All of a convolution are dense in one order.  The factors of a matmul lie anyhow, all else is dense.  On an H200 an
    output with steps between its elements was written wrongly.
    """
    if len(graph.nodes) == 1 or not any(node.op == "pointwise" for node in graph.nodes):
        return True
    factors = {at for node in graph.nodes if node.op == "matmul" for at in node.reads}
    arrays = [tensor for at, tensor in enumerate(graph.tensors) if tensor.operand >= 0 and at not in factors]
    orders = (False,) if factors else (True, False)
    return any(all(_is_dense(tensor, channels_last=last) for tensor in arrays) for last in orders)


def _is_dense(tensor: TensorSpec, *, channels_last: bool) -> bool:
    dense = packed(tensor.shape, channels_last=channels_last)
    return all(n == 1 or s == d for n, s, d in zip(tensor.shape, tensor.strides, dense, strict=True))


def _orders(node: NodeSpec) -> tuple[bool, ...]:
    """Return the memory orders of images that an operation takes: whether the channels are innermost.

    Engines for pooling with channels first write no places of maxima, and some have no gradients.  Gradients of
    instance norms with channels innermost were wrong on an H200.
    """
    if node.op.startswith("resample"):
        return (True,)
    if node.op == "matmul":
        return (False,)
    return (False,) if node.op.startswith("norm") and node.mode == "instance" else (True, False)


def densified(graph: GraphAttributes) -> GraphAttributes:
    """Return the graph with copies, so that each operation takes its tensors."""
    tensors, nodes = list(graph.tensors), []
    copies: dict[int, int] = {}

    def copy_of(at: int, last: bool, exact: bool) -> int:
        if at not in copies:
            given = tensors[at]
            dtype = "float32" if exact else given.dtype
            tensors.append(TensorSpec(dtype, given.shape, packed(given.shape, channels_last=last)))
            copies[at] = len(tensors) - 1
        return copies[at]

    def move(source: int, target: int) -> NodeSpec:
        compute = "float64" if tensors[source].dtype == "float64" else "float32"
        return NodeSpec("pointwise", (("x", source), ("y", target)), "identity", compute)

    for node in graph.nodes:
        exact = is_exact_product(graph, node)
        own = (_orders(node)[0], exact)
        awkward = {at for _, at in node.ports if (exact or tensors[at].operand >= 0) and not is_taken(graph, node, at)}
        reads_result = dict(node.reals).get("beta", 0.0) != 0
        nodes += [move(at, copy_of(at, *own)) for at in sorted(awkward) if at in node.reads or reads_result]
        ports = tuple((port, copy_of(at, *own) if at in awkward else at) for port, at in node.ports)
        nodes.append(replace(node, ports=ports))
        nodes += [move(copy_of(at, *own), at) for at in sorted(awkward) if at in node.writes]
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def parts_of(graph: GraphAttributes) -> list[Part]:
    """Return the graph's nodes in steps: pointwise nodes that follow each other, of one shape, are one.

    Reshapes are no steps: their results are in the memory of what they reshape, see `roots_of`.
    """
    runs: list[list[NodeSpec]] = []
    for node in graph.nodes:
        shape = graph.tensors[node.writes[0]].shape
        if runs and node.op == "pointwise" == runs[-1][-1].op and node.mode != "gen_index":
            before = graph.tensors[runs[-1][-1].writes[0]].shape
            if before == shape:
                runs[-1].append(node)
                continue
        runs.append([node])
    return [Part(tuple(run), _bound(graph, runs, place)) for place, run in enumerate(runs) if run[0].op != "reshape"]


def roots_of(graph: GraphAttributes) -> dict[int, int]:
    """Return the tensors in whose memory reshaped ones are, by the numbers of these."""
    roots: dict[int, int] = {}
    for node in graph.nodes:
        if node.op == "reshape":
            (x,), (y,) = node.reads, node.writes
            roots[y] = roots.get(x, x)
    return roots


def attention_parts(graph: GraphAttributes) -> list[Part]:
    """Return the nodes of attention in steps: the kernels before the plan of cuDNN, the plan, the kernels behind it."""
    first = [node for node in graph.nodes if node.op in ("lengths", "offsets", "seeds", "float8")]
    last = [node for node in graph.nodes if node.op in AROUND and node not in first]
    plan = [node for node in graph.nodes if node.op not in AROUND]
    runs = [run for run in (first, plan, last) if run]
    return [Part(tuple(run), _bound(graph, runs, place)) for place, run in enumerate(runs)]


def _touched(graph: GraphAttributes, nodes: Sequence[NodeSpec]) -> list[int]:
    """Return the tensors of nodes in their order, then those of the places at which packed sequences begin."""
    found = dict.fromkeys(at for node in nodes for _, at in node.ports)
    return list(found | dict.fromkeys(graph.tensors[at].ragged for at in found if graph.tensors[at].ragged >= 0))


def _bound(graph: GraphAttributes, runs: Sequence[Sequence[NodeSpec]], place: int) -> tuple[int, ...]:
    elsewhere = {at for i, run in enumerate(runs) if i != place for at in _touched(graph, run)}
    own = _touched(graph, runs[place])
    if len(runs[place]) == 1 and runs[place][0].op not in ("pointwise", *AROUND):
        elsewhere.update(own)  # an operation of cuDNN writes all its results to memory, wanted or not
    return tuple(
        at for at in own if not graph.tensors[at].value and (graph.tensors[at].operand >= 0 or at in elsewhere)
    )


def alone(graph: GraphAttributes, part: Part) -> GraphAttributes:
    """Return the graph of one part, whose operands are its bound tensors, in their order."""
    numbers = sorted(_touched(graph, part.nodes))

    def own(at: int) -> TensorSpec:
        tensor = graph.tensors[at]
        ragged = numbers.index(tensor.ragged) if tensor.ragged >= 0 else -1
        return replace(tensor, operand=part.bound.index(at) if at in part.bound else -1, ragged=ragged)

    tensors = tuple(own(at) for at in numbers)
    nodes = tuple(
        replace(node, ports=tuple((port, numbers.index(at)) for port, at in node.ports)) for node in part.nodes
    )
    return replace(graph, tensors=tensors, nodes=nodes)
