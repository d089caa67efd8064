from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class DirectSolver:
    def __init__(self, backend: CudaBackend, pattern: NativeStruct) -> None: ...

class DirectPhase(NativeRun):
    def __init__(self, backend: CudaBackend, solver: DirectSolver, phase: NativeStruct) -> None: ...
