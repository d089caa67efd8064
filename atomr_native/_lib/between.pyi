from .cuda import CudaBackend, NativeRun
from .seats import Seat

def reaches(backend: CudaBackend, uuid: bytes) -> bool | None: ...

class Between(NativeRun):
    """A rank's part of a copy between two devices."""

    def __init__(
        self, backend: CudaBackend, seat: Seat, source: int, target: int, nbytes: int, direct: bool
    ) -> None: ...
