from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class SparseProduct(NativeRun):
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...
