"""Dense linear algebra, factorisations and solves: ``device.solver``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

_DECOMPOSITIONS = ("qr", "qr_factor", "qr_multiply", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals")

LIBRARY = Library(
    name="solver",
    summary="Dense linear algebra: solves, least squares, singular values, eigenvalues.",
    actor="actor:Solver",
    operations=(
        *(
            Operation(
                f"solver.{routine}",
                Aliasing.DISJOINT,
                "decomposition_host:build_decomposition",
                "cuda.decomposition:build_decomposition",
                attributes="attributes:DecompositionAttributes",
            )
            for routine in _DECOMPOSITIONS
        ),
        Operation(
            "solver.eigh_range",
            Aliasing.DISJOINT,
            "eigen_range_host:build_eigen_range",
            "cuda.eigen_range:build_eigen_range",
            attributes="attributes:EigenRangeAttributes",
        ),
        Operation(
            "solver.solve_refined",
            Aliasing.DISJOINT,
            "refinement_host:build_refinement",
            "cuda.refinement:build_refinement",
            attributes="attributes:RefinementAttributes",
        ),
        Operation(
            "solver.*",
            Aliasing.DISJOINT,
            "host:build_solver",
            "cuda.build:build_solver",
            attributes="attributes:SolverAttributes",
        ),
    ),
    exports={
        "DecompositionRequest": "decomposition",
        "EigResult": "decomposition",
        "EigenRangeRequest": "eigen_range_request",
        "EighRangeResult": "eigen_range_request",
        "EighResult": "decomposition",
        "LstsqResult": "least_squares",
        "LDLFactors": "request",
        "LUFactors": "request",
        "PolarResult": "functions",
        "QRFactors": "decomposition",
        "QRResult": "decomposition",
        "RefinedResult": "refinement",
        "RefinementRequest": "refinement_request",
        "SVDResult": "decomposition",
        "SignLogDet": "request",
        "Solver": "actor",
        "SolverRequest": "request",
        "TwoSidedEigResult": "decomposition",
    },
    native=(NativeLibrary("cusolver", "cuSOLVER", {"cu12": "nvidia-cusolver-cu12", "cu13": "nvidia-cusolver"}),),
)
