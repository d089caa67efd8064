from collections.abc import Sequence
from typing import Final

from ..builders.cuda.native import NativeStruct
from .cuda import CudaBackend, NativeRun
from .seats import Seat

CONSTANTS: dict[str, int]
FLOAT8_VERSION: Final[int]
WINDOWS_VERSION: Final[int]
ENGINES_VERSION: Final[int]

def load(path: str = "") -> int: ...
def version_text(version: int) -> str: ...
def element(dtype: int, number: float) -> bytes: ...

class NcclConnection:
    def __init__(self, backend: CudaBackend, seat: Seat) -> None: ...
    def end(self) -> None: ...

class NcclMessage(NativeRun):
    def __init__(
        self,
        backend: CudaBackend,
        connection: NcclConnection,
        calls: Sequence[NativeStruct],
        n_operands: int,
        n_scalars: int,
        connects: bool,
    ) -> None: ...
