from ..builders.cuda.native import NativeStruct
from ..libraries.blas_lt.cuda.grouped import GroupDescription
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class Blas(NativeRun):
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...

class Grouped(NativeRun):
    def __init__(self, backend: CudaBackend, description: GroupDescription) -> None: ...
