"""Quantisation to float8 and back: ``device.float8``."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="float8",
    summary="Quantisation to float8 and back.",
    actor="actor:Float8",
    operations=(
        Operation(
            "float8.quantize",
            Aliasing.DISJOINT,
            "host:build_quantize",
            "cuda:build_quantize",
            attributes="attributes:QuantizeAttributes",
        ),
        Operation(
            "float8.dequantize",
            Aliasing.DISJOINT,
            "host:build_dequantize",
            "cuda:build_dequantize",
            attributes="attributes:DequantizeAttributes",
        ),
    ),
    exports={
        "DelayedScaling": "request",
        "DequantizeRequest": "request",
        "Float8": "actor",
        "QuantizeRequest": "request",
        "QuantizeResult": "request",
    },
)
