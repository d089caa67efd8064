"""Sparse matrices: products, triangular solves, conversions: ``device.sparse``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="sparse",
    summary="Sparse matrices: products, triangular solves, conversions.",
    actor="actor:Sparse",
    operations=(
        *(
            Operation(
                f"sparse.{routine}",
                Aliasing.DISJOINT,
                "host:build_product",
                "cuda.products:build_product",
                attributes="attributes:ProductAttributes",
            )
            for routine in ("spmv", "spmm", "sddmm")
        ),
        *(
            Operation(
                f"sparse.{routine}",
                Aliasing.DISJOINT,
                "host:build_combine",
                "cuda.combine:build_combine",
                attributes="attributes:CombineAttributes",
            )
            for routine in ("product", "sum")
        ),
        *(
            Operation(
                f"sparse.{routine}",
                Aliasing.DISJOINT,
                "host_factors:build_factors",
                "cuda.factors:build_factors",
                attributes="attributes:FactorAttributes",
            )
            for routine in ("ilu0", "ic0")
        ),
        *(
            Operation(
                f"sparse.{routine}",
                Aliasing.DISJOINT,
                f"host_gmres:build_{routine}",
                f"cuda.gmres:build_{routine}",
                attributes="attributes:BasisAttributes",
            )
            for routine in ("basis", "solution")
        ),
        Operation(
            "sparse.semiring",
            Aliasing.DISJOINT,
            "host:build_semiring",
            "cuda.rows:build_semiring",
            attributes="attributes:SemiringAttributes",
        ),
        Operation(
            "sparse.semiring_compiled",
            Aliasing.DISJOINT,
            "host_compiled:build_compiled",
            "cuda.compiled:build_compiled",
            attributes="attributes:CompiledAttributes",
        ),
        Operation(
            "sparse.direct",
            Aliasing.DISJOINT,
            "direct.host:build_direct",
            "cuda.direct:build_direct",
            attributes="attributes:DirectAttributes",
        ),
        Operation(
            "sparse.prune_24",
            Aliasing.DISJOINT,
            "structured.host:build_prune",
            "cuda.pruning:build_prune",
            attributes="attributes:PruneAttributes",
        ),
        Operation(
            "sparse.broken_24",
            Aliasing.DISJOINT,
            "structured.host:build_broken",
            "cuda.pruning:build_broken",
            attributes="attributes:PruneAttributes",
        ),
        Operation(
            "sparse.compress_24",
            Aliasing.DISJOINT,
            "structured.host:build_compress",
            "cuda.structured:build_compress",
        ),
        Operation(
            "sparse.linear_24",
            Aliasing.DISJOINT,
            "structured.host:build_linear",
            "cuda.structured:build_linear",
            attributes="attributes:StructuredAttributes",
        ),
        Operation(
            "sparse.solve",
            Aliasing.DISJOINT,
            "host:build_solve",
            "cuda.triangular:build_solve",
            attributes="attributes:SolveAttributes",
        ),
    ),
    exports={
        "DirectSolver": "direct.solver",
        "IterativeResult": "iterative",
        "IterativeSolver": "iterative",
        "PatternFacts": "conversions",
        "SparseFactorRequest": "factors",
        "SparseMatrix": "matrix",
        "SparsePattern": "combine",
        "SparseProductRequest": "request",
        "SparseSemiringRequest": "semiring",
        "SparseSolveRequest": "triangular",
        "Sparse": "actor",
        "StructuredCompressRequest": "structured.request",
        "StructuredMatrix": "structured.matrix",
        "StructuredProductRequest": "structured.request",
        "StructuredPruneRequest": "structured.request",
        "StructuredRoute": "structured.routes",
    },
    native=(
        NativeLibrary("cusparse", "cuSPARSE", {"cu12": "nvidia-cusparse-cu12", "cu13": "nvidia-cusparse"}),
        NativeLibrary("cusparseLt", "cuSPARSELt", {"cu12": "nvidia-cusparselt-cu12", "cu13": "nvidia-cusparselt-cu13"}),
    ),
)
