from ..builders.cuda.native import NativeStruct
from ..libraries.solver.cuda.native import SolverVerdict
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class Solver(NativeRun):
    scratch_bytes: int
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...

class Decomposition(NativeRun):
    scratch_bytes: int
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...

class Refinement(NativeRun):
    scratch_bytes: int
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...

class Verdict(NativeRun):
    late_failures: int
    def __init__(self, backend: CudaBackend, verdict: SolverVerdict) -> None: ...
