from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class Transform(NativeRun):
    def __init__(self, backend: CudaBackend, description: NativeStruct) -> None: ...
