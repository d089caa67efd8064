"""Recording on a device: methods that make plans of several messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from .._lib.guard import shielded
from ..errors import InvalidRequest
from ..plans.actor import PlanActor

if TYPE_CHECKING:
    from ..recording.graph import GraphFunction, Recording
    from ..recording.plan import RecordedPlan
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

    def record(self, *, share: RecordedPlan | None = None) -> Recording:
        """Return a recording: ``with device.record() as g:`` lists the messages of this thread to this device.

        See `Recording`; `Device.graph` records a function.  Enqueues nothing.

        Parameters
        ----------
        share : RecordedPlan, optional
            A plan of this device.  The temporaries of both plans lie in one block, which is as large as the larger of
            the two needs; later plans may share it with either.  Recorded plans never run at the same time, so their
            results stay the same.

        Raises
        ------
        InvalidRequest
            If `share` is no recorded plan of this device.

        Examples
        --------
        >>> x, y = device.ones(1000), device.zeros(1000)
        >>> with device.record() as first:
        ...     _ = device.copy(x * 2 + 1, out=y)
        >>> with device.record(share=first.plan) as second:
        ...     _ = device.copy(y * y - 1, out=x)
        >>> first.plan.nbytes == second.plan.nbytes
        True
        """
        from ..recording.graph import Recording, shared_with  # which devices do without until a program records

        device = cast("Device", self)
        return Recording(device, self._state, self._programs, shared_with(device, share))

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
        self, /, *, static: Iterable[str] = (), share: bool | RecordedPlan | None = None
    ) -> Callable[[Callable[Parameters, Returned]], GraphFunction[Parameters, Returned]]: ...

    def graph(
        self, function: Any = None, /, *, static: Iterable[str] = (), share: bool | RecordedPlan | None = None
    ) -> Any:
        """Make a function of messages recordable, as a decorator: ``@device.graph``.

        Parameters
        ----------
        function : callable
            It sends messages to this device, and neither waits nor reads.
        static : iterable of str, optional
            Parameters whose numbers and arrays are fixed when the function is recorded.
        share : bool or RecordedPlan, optional
            Where the temporaries of the function's plans lie.  By default each plan has a block of its own.  True: all
            plans of this function, for arrays of several shapes for example, share one block.  A plan: they share the
            block of that plan, as in `record`.

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
        from ..recording.graph import GraphFunction, shared_with

        device = cast("Device", self)
        if function is not None and not callable(function):
            raise InvalidRequest(f"function is {function!r:.200}; allowed: a callable")
        block = share if isinstance(share, bool) else shared_with(device, share)
        if function is None:
            return lambda found: GraphFunction(device, found, static, block)
        return GraphFunction(device, function, static, block)
