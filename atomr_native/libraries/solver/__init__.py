"""Dense linear algebra, factorisations and solves: ``device.solver``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="solver",
    summary="Dense linear algebra: factorisations, solves, inverses and determinants.",
    actor="actor:Solver",
    operations=(
        Operation(
            "solver.*",
            Aliasing.DISJOINT,
            "host:build_solver",
            "cuda.build:build_solver",
            attributes="attributes:SolverAttributes",
        ),
    ),
    exports={"LUFactors": "request", "SignLogDet": "request", "Solver": "actor", "SolverRequest": "request"},
    native=(NativeLibrary("cusolver", "cuSOLVER", {"cu12": "nvidia-cusolver-cu12", "cu13": "nvidia-cusolver"}),),
)
