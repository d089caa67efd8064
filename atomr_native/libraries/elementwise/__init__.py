"""Expressions over arrays, reductions and softmax cross entropy: ``device.elementwise``."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="elementwise",
    summary="Expressions over arrays, and reductions.",
    actor="actor:ElementwiseActor",
    operations=(
        Operation(
            "elementwise.program",
            Aliasing.SAME_VIEW,
            "host.program:build_elementwise",
            "cuda.program:build_elementwise",
            attributes="attributes:ProgramAttributes",
        ),
        Operation(
            "elementwise.reduce",
            Aliasing.DISJOINT,
            "host.reductions:build_reduce",
            "cuda.reductions:build_reduce",
            attributes="attributes:ReduceAttributes",
        ),
        Operation(
            "elementwise.take",
            Aliasing.DISJOINT,
            "host.gathers:build_take",
            "cuda.gathers:build_take",
            attributes="attributes:TakeAttributes",
        ),
        Operation(
            "elementwise.sequence", Aliasing.DISJOINT, "host.gathers:build_sequence", "cuda.gathers:build_sequence"
        ),
        Operation(
            "elementwise.sort",
            Aliasing.DISJOINT,
            "host.ordering:build_sort",
            "cuda.ordering:build_sort",
            attributes="attributes:SortAttributes",
        ),
        Operation(
            "elementwise.scan",
            Aliasing.DISJOINT,
            "host.ordering:build_scan",
            "cuda.scans:build_scan",
            attributes="attributes:ScanAttributes",
        ),
        Operation(
            "elementwise.search",
            Aliasing.DISJOINT,
            "host.ordering:build_search",
            "cuda.ordering:build_search",
            attributes="attributes:SearchAttributes",
        ),
        Operation(
            "elementwise.softmax_cross_entropy",
            Aliasing.DISJOINT,
            "host.reductions:build_softmax_cross_entropy",
            "cuda.softmax:build_softmax_cross_entropy",
            attributes="attributes:LossAttributes",
        ),
    ),
    exports={
        "ElementwiseActor": "actor",
        "ElementwiseRequest": "request",
        "ReduceRequest": "request",
        "SoftmaxCrossEntropyRequest": "request",
        "SoftmaxCrossEntropyResult": "request",
    },
    opens="with the device",
)
