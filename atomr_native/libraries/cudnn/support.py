"""Support rules as data: dtypes of operations, and versions of cuDNN from which a combination is offered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from .attributes import GraphAttributes, NodeSpec

__all__ = [
    "ATTENTION_DTYPES",
    "ATTENTION_VERSION",
    "CONVOLUTION_DTYPES",
    "FLOAT8_DTYPES",
    "FLOAT8_GRADIENT_HEADS",
    "FLOAT8_MASKS",
    "FLOAT8_MULTIPLE",
    "GRADIENT_DTYPES",
    "HEAD_DIM",
    "NORM_CHANNELS",
    "NORM_DTYPES",
    "POOLING_DTYPES",
    "RECURRENT_DTYPES",
    "RESPONSE_DTYPES",
    "RESPONSE_LIMITS",
    "RESPONSE_SIZE",
    "RULES",
    "ConvolutionDtypes",
    "Rule",
    "is_exact_product",
    "is_fusion",
    "is_trusted",
]


_MOST_ELEMENTS: Final = 2**31 - 1


class ConvolutionDtypes(NamedTuple):
    """Dtypes that go with the dtype of a convolution's input.

    Attributes
    ----------
    compute : str
        Of its sums.
    outputs : tuple of str
        Of its result, the default first.
    vector : str
        Of its bias.
    """

    compute: str
    outputs: tuple[str, ...]
    vector: str


CONVOLUTION_DTYPES: Final[dict[str, ConvolutionDtypes]] = {
    "float16": ConvolutionDtypes("float32", ("float16",), "float16"),
    "bfloat16": ConvolutionDtypes("float32", ("bfloat16",), "bfloat16"),
    "float32": ConvolutionDtypes("float32", ("float32",), "float32"),
    "float64": ConvolutionDtypes("float64", ("float64",), "float64"),
    "int8": ConvolutionDtypes("int32", ("int8", "float32"), "float32"),
    "float8_e4m3fn": ConvolutionDtypes("float32", ("bfloat16", "float16", "float32"), "float32"),
    "float8_e5m2": ConvolutionDtypes("float32", ("bfloat16", "float16", "float32"), "float32"),
}

#: Dtypes of gradients, each with the dtype of its sums.
GRADIENT_DTYPES: Final = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}

#: Dtypes of pooling, for which cuDNN has engines.
POOLING_DTYPES: Final = ("float16", "bfloat16", "float32")

#: Dtypes of norms, for which cuDNN has engines.
NORM_DTYPES: Final = ("float16", "bfloat16", "float32")
#: Channels of which cuDNN's batch norms have multiples; the project's kernels compute the others.
NORM_CHANNELS: Final = 8

#: Dtypes of local response norms, and the limits of their options: the most channels, and the least numbers.
RESPONSE_DTYPES: Final = ("float16", "float32", "float64")
RESPONSE_SIZE: Final = 16
RESPONSE_LIMITS: Final = {"alpha": 0.0, "beta": 0.01, "k": 1e-5}

#: Dtypes of recurrent networks.
RECURRENT_DTYPES: Final = ("float16", "bfloat16", "float32", "float64")

#: Dtypes of attention, for which cuDNN has engines.
ATTENTION_DTYPES: Final = ("float16", "bfloat16")
#: Dtypes and masks of attention over float8, and of what heads have multiples.
FLOAT8_DTYPES: Final = ("float8_e4m3fn", "float8_e5m2")
FLOAT8_MASKS: Final = ("none", "causal")
FLOAT8_MULTIPLE: Final = 16
#: Elements of heads in gradients of attention over float8, for which cuDNN has engines on Hopper.
FLOAT8_GRADIENT_HEADS: Final = 128
#: Elements of the largest heads of attention on Hopper.
HEAD_DIM: Final = 256
#: Oldest cuDNN for attention: older ones have kernels that are known to be wrong, 9.15 for gradients of some lengths.
ATTENTION_VERSION: Final = 91600


class Rule(NamedTuple):
    """A rule of cuDNN's engines that it answers by a number only.

    Attributes
    ----------
    name : str
        Of the rule, as users see it after ``cudnn.``.
    refuses : callable
        From a graph and one of its nodes to the offending value, or None.
    text : str
        What is wrong with ``{value}``, and what is allowed.
    lifted_by : tuple of str
        As of `Unsupported`.
    """

    name: str
    refuses: Callable[[GraphAttributes, NodeSpec], object]
    text: str
    lifted_by: tuple[str, ...]


def _attention(*traits: str) -> Callable[[GraphAttributes, NodeSpec], str | None]:
    """Return a rule against attention that has all these traits; its value are the numbers of queries and keys."""

    def refuses(graph: GraphAttributes, node: NodeSpec) -> str | None:
        if node.mode != "exp" or not {*traits} <= {*graph.traits}:
            return None
        *_, queries, keys = graph.tensors[node.writes[0]].shape
        return f"{queries} queries and {keys} keys"

    return refuses


def _elements(graph: GraphAttributes, node: NodeSpec) -> int | None:
    if not node.op.startswith(("softmax", "lrn")):
        return None
    elements = math.prod(graph.tensors[node.writes[0]].shape)
    return elements if elements > _MOST_ELEMENTS else None


#: Rules of GPUs, tried in this order before cuDNN is asked.
RULES: Final = (
    Rule(
        "elements",
        _elements,
        f"{{value}} elements; cuDNN counts them in 32 bits: {_MOST_ELEMENTS} at most",
        ("shape", "device"),
    ),
    Rule(
        "attention_window",
        _attention("window", "more_queries"),
        "a window over {value}; cuDNN's engines are right for at most as many queries as keys",
        ("shape", "device"),
    ),
    Rule(
        "attention_bottom_right",
        _attention("bottom_right", "bias"),
        "mask='causal_bottom_right' with a bias, over {value}; cuDNN has bias with the other masks",
        ("shape", "device"),
    ),
    Rule(
        "attention_bottom_right",
        _attention("bottom_right", "slopes"),
        "mask='causal_bottom_right' with slopes, over {value}; cuDNN has slopes with mask='causal'",
        ("shape", "device"),
    ),
    Rule(
        "attention_bottom_right",
        _attention("bottom_right", "dropout"),
        "mask='causal_bottom_right' with dropout, over {value}; cuDNN has dropout with the other masks",
        ("shape", "device"),
    ),
    Rule(
        "attention_packed_bias",
        _attention("backward", "ragged", "bias"),
        "the gradient by a bias of packed sequences, over {value}; allowed: sequences with lengths",
        ("layout", "device"),
    ),
    Rule(
        "attention_one_token",
        _attention("backward", "one_query", "one_key"),
        "gradients over {value}; cuDNN has them for more queries or keys than one",
        ("shape", "device"),
    ),
    Rule(
        "attention_float8_heads",
        _attention("backward", "float8", "other_heads"),
        f"gradients over float8 of {{value}}; cuDNN has them on Hopper for heads of {FLOAT8_GRADIENT_HEADS} elements, "
        f"of q and of v",
        ("shape", "device"),
    ),
    Rule(
        "attention_float8_lengths",
        _attention("float8", "padding"),
        "lengths or offsets over float8, with {value} at most; cuDNN's engines for Hopper stop with illegal "
        "instructions for packed sequences, and have not been compared for padded ones",
        ("device", "library"),
    ),
    Rule(
        "attention_float8_groups",
        _attention("backward", "float8", "shared_keys"),
        "gradients over float8 of {value}, with heads that share keys; cuDNN's are inaccurate on Hopper",
        ("shape", "device"),
    ),
)


def is_trusted(graph: GraphAttributes) -> bool:
    """Whether cuDNN's fusion of a convolution with what follows is one whose results were compared on an H200.

    After a convolution these are any sums, factors and ReLU; and a bias with any activation.  Others are cut.
    """
    if not any(node.op == "convolution_forward" for node in graph.nodes):
        return True
    modes = [node.mode for node in graph.nodes if node.op == "pointwise"]
    return {*modes} <= {"add", "mul", "relu_fwd", "identity"} or (len(modes) <= 2 and modes[:-1] == ["add"])


def is_exact_product(graph: GraphAttributes, node: NodeSpec) -> bool:
    """Whether a node of a user's graph is a matmul of float32, whose factors cuDNN rounds to TF32 on an H200.

    Its engines do so without a numerical note that tells it, so cuBLASLt computes these.
    """
    return node.op == "matmul" and not graph.tf32 and any(graph.tensors[at].dtype == "float32" for at in node.reads)


def is_fusion(graph: GraphAttributes) -> bool:
    """Whether a user's graph has the form that cuDNN documents for one plan: a product, and pointwise operations."""
    products = sum(node.op in ("matmul", "convolution_forward") for node in graph.nodes)
    others = {node.op for node in graph.nodes} - {"matmul", "convolution_forward", "pointwise"}
    return products == 1 and not others
