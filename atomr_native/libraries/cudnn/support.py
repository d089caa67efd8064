"""Support rules as data: dtypes of operations, and versions of cuDNN from which a combination is offered."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CONVOLUTION_DTYPES", "GRADIENT_DTYPES", "ConvolutionDtypes"]


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
}

#: Dtypes of gradients, each with the dtype of its sums.
GRADIENT_DTYPES: Final = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
