from ..libraries.cudnn.cuda.descriptors import GraphDescription
from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...
def plan_for(profile: str, description: GraphDescription) -> tuple[int, int]: ...

class GraphPlan(NativeRun):
    engine: int
    def __init__(self, backend: CudaBackend, description: GraphDescription) -> None: ...
