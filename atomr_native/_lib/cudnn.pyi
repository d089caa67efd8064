from ..libraries.cudnn.cuda.descriptors import GraphDescription
from ..libraries.cudnn.cuda.recurrent import RecurrentCall
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]
CALLS: dict[str, int]

def load(path: str = "") -> int: ...
def plan_for(
    profile: str, description: GraphDescription, saved: bytes = b"", engine: int = -1
) -> tuple[int, int, bytes]: ...

class GraphPlan(NativeRun):
    engine: int
    def __init__(
        self, backend: CudaBackend, description: GraphDescription, saved: bytes = b"", engine: int = -1
    ) -> None: ...
    def save(self) -> bytes: ...

class CallPlan(NativeRun):
    def __init__(
        self,
        backend: CudaBackend,
        kind: str,
        dtype: int,
        shape: tuple[int, int, int],
        log: bool = False,
        size: int = 1,
        scale: float = 1,
        power: float = 1,
        k: float = 1,
    ) -> None: ...

class RecurrentPlan(NativeRun):
    reserve: int
    def __init__(self, backend: CudaBackend, call: RecurrentCall) -> None: ...
