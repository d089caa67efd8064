from typing import Any

from .cuda import CudaBackend, NativeRun

CONSTANTS: dict[str, int]

def load(path: str = "") -> int: ...

class Matmul(NativeRun):
    def __init__(self, backend: CudaBackend, description: Any) -> None: ...
    def candidates(self, limit: int, most: int) -> list[tuple[tuple[int, ...], int, dict[str, int]]]: ...
    def time(
        self, algo: tuple[int, ...], addresses: list[int], sets: int, launches: int, workspace: int, nbytes: int
    ) -> float: ...
