from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class StructuredProduct(NativeRun):
    configurations: int
    def __init__(self, backend: CudaBackend, call: NativeStruct) -> None: ...
    def time(self, addresses: list[int], sets: int, launches: int, workspace: int) -> float: ...
