from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...
def cuda_version() -> int: ...

class TensorOperation(NativeRun):
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...
