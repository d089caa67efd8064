from typing import Any, Final, TypeVar, final

import numpy as np

from .sender import Core, Layout, PlanRef, Ref

_RefT = TypeVar("_RefT", bound=Ref)

COPY: Final[int]
FRESH: Final[int]
ZERO: Final[int]
TOUCH: Final[int]

def copy_helpers() -> int: ...
def set_copy_helpers(n: int) -> None: ...
def send_bytes(
    plan: PlanRef,
    source: Ref,
    source_at: int,
    target: Ref,
    target_at: int,
    nbytes: int,
    *,
    want_reply: bool,
    may_wait: bool = True,
) -> Any: ...

@final
class HostCopy:
    """A copy in host memory that has begun."""

    def __init__(self, kind: int, target: int, source: int, nbytes: int, owners: object) -> None: ...
    def done(self) -> bool: ...
    def finish(self) -> None: ...

class SmallCopies:
    """Put and get of small contiguous arrays."""

    def __init__(
        self,
        core: Core,
        ref_type: type[_RefT],
        array_type: type[np.ndarray[Any, Any]],
        empty: Any,
        settle: Any,
        limit: int,
    ) -> None: ...
    def learn(self, layout: Layout, to_device: PlanRef, to_host: PlanRef) -> None: ...
    def put(self, array: object, dtype: object, out: object, pool: int) -> Any: ...
    def get(self, ref: object, out: object, timeout: float | None) -> Any: ...
