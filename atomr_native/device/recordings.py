"""Recording on a device: methods that make plans of several messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from .._lib.guard import shielded
from ..errors import InvalidRequest
from ..plans.actor import PlanActor

if TYPE_CHECKING:
    from ..recording.graph import GraphFunction, Recording
    from . import Device
    from .state import DeviceState

__all__ = ["RecordingMethods"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

_LANE = "program"  # the mailbox in which programs run


class RecordingMethods:
    """The recording methods of `Device`."""

    _state: DeviceState
    _actors: dict[str, Any]

    def _programs(self) -> int:
        """Return the mailbox in which programs run, opened at first use."""
        found = self._actors.get(_LANE) or self._make_programs()
        lane: int = found.lane
        return lane

    @shielded
    def _make_programs(self) -> PlanActor:
        with self._state.lock:
            found: PlanActor | None = self._actors.get(_LANE)
            if found is None:
                found = self._actors[_LANE] = PlanActor(cast("Device", self), _LANE)
            return found

    def record(self) -> Recording:
        """Return a recording: ``with device.record() as g:`` lists the messages of this thread to this device.

        See `Recording`; `Device.graph` records a function.
        """
        from ..recording.graph import Recording  # which devices do without until a program records

        return Recording(cast("Device", self), self._state, self._programs)

    @property
    def recording(self) -> Recording:
        """The recording of the running code, for control flow in functions that `graph` has made recordable.

        Raises
        ------
        InvalidRequest
            If no messages to this device are recorded here.

        Examples
        --------
        >>> @device.graph
        ... def halve(x, more):
        ...     with device.recording.while_(more, limit=100):
        ...         device.copy(x / 2, out=x)
        ...         device.copy(x > 1, out=more)
        >>> x, more = device.full((), 100.0), device.ones((), dtype="bool")
        >>> halve.plan(x, more).tell(x, more)
        >>> float(x)
        0.78125
        """
        from ..recording.recorder import Recorder

        return Recorder.current(self._state.core)

    @overload
    def graph(self, function: Callable[Parameters, Returned], /) -> GraphFunction[Parameters, Returned]: ...

    @overload
    def graph(
        self, /, *, static: Iterable[str] = ()
    ) -> Callable[[Callable[Parameters, Returned]], GraphFunction[Parameters, Returned]]: ...

    def graph(self, function: Any = None, /, *, static: Iterable[str] = ()) -> Any:
        """Make a function of messages recordable, as a decorator: ``@device.graph``.

        Parameters
        ----------
        function : callable
            It sends messages to this device, and neither waits nor reads.
        static : iterable of str, optional
            Parameters whose numbers and arrays are fixed when the function is recorded.

        Returns
        -------
        GraphFunction
            ``f(...)`` sends its messages one by one, ``f.plan(...)`` returns a plan that is one message.

        Raises
        ------
        InvalidRequest

        Examples
        --------
        >>> @device.graph
        ... def step(x, out, *, rate):
        ...     device.copy(x + out, out=out)
        ...     device.elementwise.run("out = out * rate + 1", out=out, rate=rate)
        >>> a, b = device.ones(2), device.zeros(2)
        >>> plan = step.plan(a, b, rate=1.0)
        >>> plan.tell(a, out=b, rate=0.5)
        >>> b.numpy()
        array([1.5, 1.5], dtype=float32)
        """
        from ..recording.graph import GraphFunction

        if function is None:
            return lambda found: GraphFunction(cast("Device", self), found, static)
        if not callable(function):
            raise InvalidRequest(f"function is {function!r:.200}; allowed: a callable")
        return GraphFunction(cast("Device", self), function, static)
