"""Messages that several devices run together: what communicators send."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

_KINDS = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "send",
    "barrier",
    "group",
    "copy",
    "window",
)

LIBRARY = Library(
    name="collective",
    summary="Messages that several devices run together.",
    actor="",
    operations=tuple(
        Operation(
            f"collective.{kind}",
            Aliasing.UNCHECKED,  # the communicator has seen to it: a rank's part of a larger array may be in place
            host="host:build_collective",
            cuda="cuda.build:build_collective",
            essential=True,  # while it waits for other ranks, another message may end the worker
            attributes="attributes:CollectiveAttributes",
        )
        for kind in _KINDS
    ),
    native=(NativeLibrary("nccl", "NCCL", {"cu12": "nvidia-nccl-cu12", "cu13": "nvidia-nccl-cu13"}),),
)
