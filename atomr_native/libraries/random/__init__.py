"""Random numbers, the same on every device: ``device.random``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="random",
    summary="Random numbers, the same on every device.",
    actor="actor:Random",
    operations=(
        Operation(
            "random.fill",
            Aliasing.DISJOINT,
            "host:build_fill",
            "cuda:build_fill",
            attributes="attributes:FillAttributes",
        ),
        Operation(
            "random.draw",
            Aliasing.DISJOINT,
            "host_draws:build_draw",
            "cuda_draws:build_draw",
            attributes="attributes:DrawAttributes",
        ),
        Operation(
            "random.choose",
            Aliasing.DISJOINT,
            "host:build_choose",
            "cuda:build_choose",
            attributes="attributes:ChooseAttributes",
        ),
        Operation(
            "random.permute",
            Aliasing.DISJOINT,
            "host:build_permute",
            "cuda:build_permute",
            attributes="attributes:PermuteAttributes",
        ),
    ),
    exports={
        "ChoiceRequest": "choices",
        "CurandEngine": "engines",
        "Generator": "generator",
        "PermutationRequest": "permutations",
        "Random": "actor",
        "RandomRange": "generator",
        "RandomRequest": "request",
        "ShuffleRequest": "permutations",
    },
    native=(NativeLibrary("curand", "cuRAND", {"cu12": "nvidia-curand-cu12", "cu13": "nvidia-curand"}),),
)
