from collections.abc import Callable
from typing import Any

NativeFunction: type

class ToldFunction:
    def __init__(
        self,
        function: Callable[..., Any],
        explain: Callable[[Any, tuple[object, ...], tuple[str, ...]], object],
        quick: Callable[..., Any],
        limit: int,
        /,
    ) -> None: ...
    @property
    def __wrapped__(self) -> Callable[..., Any]: ...
    def __call__(self, *args: Any, **options: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
