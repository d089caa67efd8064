"""Tensors: contractions, einsum, reductions, permutations and elementwise operations by modes: ``device.tensor``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

_OPERATIONS = {"einsum": "EinsumAttributes", "reduce": "ReduceAttributes", "elementwise": "ElementwiseAttributes"}

LIBRARY = Library(
    name="tensor",
    summary="Tensors by their modes: einsum, contractions, reductions and permutations.",
    actor="actor:Tensor",
    # Where the result shares memory with an operand, the message is of the operation that makes it in scratch memory.
    operations=(
        *(
            Operation(
                f"tensor.{name}{over}",
                Aliasing.UNCHECKED if over else Aliasing.DISJOINT,
                f"host:build_{name}",
                f"cuda.build:build_{name}",
                attributes=f"attributes:{attributes}",
            )
            for name, attributes in _OPERATIONS.items()
            for over in ("", "_over")
        ),
        Operation(
            "tensor.blocks",
            Aliasing.DISJOINT,
            "host_blocks:build_blocks",
            "cuda.blocks:build_blocks",
            attributes="attributes:BlockAttributes",
        ),
    ),
    exports={
        "BlockContractionRequest": "block_request",
        "BlockTensor": "blocks",
        "EinsumPath": "explain",
        "EinsumRequest": "request",
        "EinsumStep": "explain",
        "Tensor": "actor",
        "TensorElementwiseRequest": "elementwise",
        "TensorReduceRequest": "reduction",
    },
    native=(NativeLibrary("cutensor", "cuTENSOR", {"cu12": "cutensor-cu12", "cu13": "cutensor-cu13"}),),
)
