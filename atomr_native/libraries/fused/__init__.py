"""Activations, norms, optimizer steps, dropout and rotary embeddings: ``device.fused``."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="fused",
    summary="Activations, norms, optimizer steps and more, each in one pass over memory.",
    actor="actor:Fused",
    operations=(
        Operation(
            "fused.activate",
            Aliasing.SAME_VIEW,
            "host.activations:build_activate",
            "cuda.activations:build_activate",
            attributes="attributes:ActivationAttributes",
        ),
        Operation(
            "fused.activate_backward",
            Aliasing.SAME_VIEW,
            "host.activations:build_activate_backward",
            "cuda.activations:build_activate_backward",
            attributes="attributes:ActivationAttributes",
        ),
        Operation(
            "fused.adamw",
            Aliasing.SAME_VIEW,
            "host.optimizers:build_adamw",
            "cuda.optimizers:build_adamw",
            attributes="attributes:ShippedAttributes",
        ),
        Operation(
            "fused.dropout",
            Aliasing.SAME_VIEW,
            "host.positions:build_dropout",
            "cuda.activations:build_dropout",
            attributes="attributes:ShippedAttributes",
        ),
        Operation(
            "fused.norm",
            Aliasing.SAME_VIEW,
            "host.norms:build_norm",
            "cuda.norms:build_norm",
            attributes="attributes:NormAttributes",
        ),
        Operation(
            "fused.norm_backward",
            Aliasing.DISJOINT,
            "host.norms:build_norm_backward",
            "cuda.norms:build_norm_backward",
            attributes="attributes:NormAttributes",
        ),
        Operation(
            "fused.rope",
            Aliasing.SAME_VIEW,
            "host.positions:build_rope",
            "cuda.activations:build_rope",
            attributes="attributes:RopeAttributes",
        ),
        Operation(
            "fused.sgd",
            Aliasing.SAME_VIEW,
            "host.optimizers:build_sgd",
            "cuda.optimizers:build_sgd",
            attributes="attributes:SgdAttributes",
        ),
    ),
    exports={
        "ActivationGradientRequest": "request",
        "ActivationRequest": "request",
        "AdamWRequest": "optimizers",
        "DropoutRequest": "positions",
        "Fused": "actor",
        "GatedGradient": "request",
        "NormGradient": "norms",
        "NormGradientRequest": "norms",
        "NormRequest": "norms",
        "NormResult": "norms",
        "RopeRequest": "positions",
        "SgdRequest": "optimizers",
    },
)
