from collections.abc import Sequence

from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class Transform(NativeRun):
    parameters: int
    def __init__(
        self, backend: CudaBackend, description: NativeStruct, callbacks: Sequence[tuple[int, bytes, bytes]] = ()
    ) -> None: ...
