"""Operation graphs in plan specifications: tensors, and the nodes between them."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from ...plans.spec import Attributes, DtypeName, Extent
from ...protocol.typed import one_of

__all__ = ["OPERATIONS", "POINTWISE", "GraphAttributes", "NodeSpec", "TensorSpec"]

#: Ports of the nodes of each operation: those that are read, and those that are written.
OPERATIONS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "convolution_forward": (("x", "w"), ("y",)),
    "convolution_backward_data": (("dy", "w"), ("dx",)),
    "convolution_backward_filter": (("x", "dy"), ("dw",)),
    "pointwise": (("x", "b", "t", "dy"), ("y", "dx")),
    "matmul": (("a", "b", "m", "n", "k"), ("c",)),
    "reduction": (("x",), ("y",)),
    "resample_forward": (("x",), ("y", "index")),
    "resample_backward": (("dy", "index", "x", "y"), ("dx",)),
    "norm_forward": (
        ("x", "mean", "inv_variance", "scale", "bias", "epsilon", "momentum", "running_mean", "running_var"),
        ("y", "mean_out", "inv_variance_out", "running_mean_out", "running_var_out"),
    ),
    "norm_backward": (("dy", "x", "mean", "inv_variance", "scale"), ("dx", "dscale", "dbias")),
    "transpose": (("x",), ("y",)),
    "reshape": (("x",), ("y",)),
    "softmax_forward": (("x",), ("y",)),
    "softmax_backward": (("y", "dy"), ("dx",)),
    "lrn_forward": (("x",), ("y",)),
    "lrn_backward": (("x", "y", "dy"), ("dx",)),
    "pages": (("x", "table", "lengths"), ("y",)),
    "lengths": (("x",), ("y",)),
    "offsets": (("x",), ("y",)),
    "float8": (("x",), ("y", "first", "second")),
    "seeds": ((), ("seed", "offset")),
    "rng": (("seed", "offset"), ("y",)),
    "vacate": (("queries", "keys"), ("y",)),
    "sink_forward": (("sink",), ("y", "statistics")),
    "sink_backward": (("sink", "statistics", "sums"), ("y",)),
}

#: Modes of pointwise nodes, each with its number of inputs; the gradients read dy and x.
POINTWISE: Final[dict[str, int]] = {
    **dict.fromkeys(("add", "add_square", "div", "max", "min", "mul", "pow", "sub"), 2),
    **dict.fromkeys(("cmp_eq", "cmp_neq", "cmp_gt", "cmp_ge", "cmp_lt", "cmp_le", "logical_and", "logical_or"), 2),
    **dict.fromkeys(("abs", "ceil", "cos", "exp", "floor", "log", "neg", "rsqrt", "sin", "sqrt", "tan", "erf"), 1),
    **dict.fromkeys(("identity", "reciprocal", "logical_not", "gen_index"), 1),
    **dict.fromkeys(("relu_fwd", "tanh_fwd", "sigmoid_fwd", "elu_fwd", "gelu_fwd", "softplus_fwd"), 1),
    **dict.fromkeys(("swish_fwd", "gelu_approx_tanh_fwd"), 1),
    **dict.fromkeys(("relu_bwd", "tanh_bwd", "sigmoid_bwd", "elu_bwd", "gelu_bwd", "softplus_bwd"), 2),
    **dict.fromkeys(("swish_bwd", "gelu_approx_tanh_bwd"), 2),
    "binary_select": 3,
}


class TensorSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of a graph.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    strides : tuple of int
        In elements.
    operand : int
        The operand of the message in whose memory it is; -1 for an intermediate result and for a constant.
    value : str
        Of a constant, the number as `float.hex` writes it; else empty.
    ragged : int
        Of packed sequences, the tensor with the places at which each begins, in elements; else -1.
    """

    dtype: DtypeName
    shape: tuple[Extent, ...]
    strides: tuple[int, ...]
    operand: Annotated[int, Meta(ge=-1)] = -1
    value: str = ""
    ragged: Annotated[int, Meta(ge=-1)] = -1

    @property
    def is_virtual(self) -> bool:
        """Whether it is an intermediate result, which need not be in memory."""
        return self.operand < 0 and not self.value


class NodeSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """An operation of a graph.

    Attributes
    ----------
    op : str
    ports : tuple of (str, int)
        Its tensors, by their numbers.
    mode : str
        Which of the operation's functions: of `POINTWISE`, a reduction's operator, a norm, a way to pool.
    compute : str
        The dtype of its arithmetic.
    integers : tuple of (str, tuple of int)
        Paddings, strides and the like.
    reals : tuple of (str, float)
        Factors.
    """

    op: Annotated[str, one_of(*OPERATIONS)]
    ports: tuple[tuple[str, Annotated[int, Meta(ge=0)]], ...]
    mode: str = ""
    compute: DtypeName = "float32"
    integers: tuple[tuple[str, tuple[int, ...]], ...] = ()
    reals: tuple[tuple[str, float], ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the tensors that it reads."""
        return tuple(at for port, at in self.ports if port in OPERATIONS[self.op][0])

    @property
    def writes(self) -> tuple[int, ...]:
        """Numbers of the tensors that it writes."""
        return tuple(at for port, at in self.ports if port in OPERATIONS[self.op][1])


class GraphAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``cudnn.*``.

    Attributes
    ----------
    tensors : tuple of TensorSpec
    nodes : tuple of NodeSpec
        In an order in which each reads what is there.
    tf32 : bool
        Whether products of float32 may round their operands to TensorFloat-32.
    deterministic : bool
        Whether equal messages must give equal bits.
    traits : tuple of str
        Parts of attention, by which support rules know it.
    tune : str
        Whether engines are chosen by measurements: ``measure``, ``known``, or empty.
    """

    tensors: tuple[TensorSpec, ...]
    nodes: tuple[NodeSpec, ...]
    tf32: bool = False
    deterministic: bool = False
    traits: tuple[str, ...] = ()
    tune: Annotated[str, one_of("", "known", "measure")] = ""
