from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class Draw(NativeRun):
    captures: bool
    def __init__(self, backend: CudaBackend, description: NativeStruct) -> None: ...

class HostGenerator:
    def __init__(self, description: NativeStruct) -> None: ...
    def draw(
        self, description: NativeStruct, address: int, parameters: tuple[float, ...], seed: int, offset: int
    ) -> None: ...
