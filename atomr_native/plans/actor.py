"""Actors of a device: a mailbox with a cache of plans, and for libraries a cache of immediate calls."""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from .._lib.guard import Lock, shielded
from .._lib.sender import CallCache, CallTemplate
from .._support.process_bound import ProcessBound
from .._support.public import public
from ..arrays.gpu_ref import GpuRef
from ..arrays.operands import check_handle
from ..arrays.owner import owner_of
from ..errors import InvalidRequest
from .calls import CallForm, Forms, LoweredCall, new_operand, template_of
from .lowering import Lowered, Operand, Request, Target
from .plan import Plan
from .retry import RetriedReply, as_retries
from .signature import Signature, signature_of
from .spec import PlanSpec

if TYPE_CHECKING:
    from ..device import Device
    from .owner import PlanOwner
    from .reply import Reply

__all__ = ["Lane", "LibraryActor", "PlanActor"]

#: Plans that an actor remembers.  The least recently used is forgotten first; its holders may keep using it.
_PLANS = 1024
#: Structures of immediate calls that an actor remembers; several may share a plan.
_CALLS = 4096

Result = TypeVar("Result")


class PlanActor(ProcessBound):
    """One mailbox of a device, whose messages run in order, and the plans that run in it.

    Parameters
    ----------
    device : Device
    name : str
        Name in errors, statistics and logs.
    """

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.owner: PlanOwner = owner_of(device)
        self.lane = self.owner.open_lane(name)
        self._plans: OrderedDict[tuple[PlanSpec, Signature, str], Plan] = OrderedDict()
        self._plans_lock = Lock()

    def _plan(
        self, spec: PlanSpec, signature: Signature | None = None, *, any_layout: bool | frozenset[str] = False
    ) -> Plan:
        """Return the plan of a specification; the worker builds it asynchronously."""
        if signature is None:
            signature = signature_of(spec, tuple(f"_{i}" for i in range(len(spec.scalars))), (0,) * 64)
        key = (spec, signature, repr(signature.defaults))  # 0.0 equals -0.0, and NaN nothing
        found = self._plans.get(key)
        if found is None:
            return self._make_plan(key, any_layout)
        with contextlib.suppress(KeyError):  # another thread has evicted it just now
            self._plans.move_to_end(key)
        return found

    @shielded
    def _make_plan(self, key: tuple[PlanSpec, Signature, str], any_layout: bool | frozenset[str]) -> Plan:
        with self._plans_lock:
            found = self._plans.get(key)
            if found is not None:  # another thread was first
                return found
            made = Plan.make(self.owner, self.lane, *key[:2], any_layout=any_layout)
            if len(self._plans) >= _PLANS:
                self._forget()
            self._plans[key] = made
            return made

    def _forget(self) -> None:
        """Evict the plan with the oldest last message; plans without messages go first, in their order."""
        key = min(self._plans, key=lambda key: self._plans[key].last_ticket)
        self._drop(self._plans.pop(key))

    @shielded
    def _forget_plans(self, chosen: Callable[[PlanSpec], bool]) -> None:
        """Let go of the plans of chosen specifications; their holders may keep using them."""
        with self._plans_lock:
            for key in [key for key in self._plans if chosen(key[0])]:
                self._drop(self._plans.pop(key))

    def _drop(self, plan: Plan) -> None:
        """Drop other references to a plan; the caller holds the plans' lock."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.device.name}>"


@public
class Lane(PlanActor):
    """A mailbox and a stream without operations; made by `Device.lane`.

    Examples
    --------
    >>> lane = device.lane("mine")
    >>> lane.noop().ask().result(timeout=60)
    """

    def noop(self) -> Plan:
        """Return a plan that does nothing: to measure a device, or to wait until a mailbox has reached a point."""
        return self._plan(PlanSpec("noop", ()))


class LibraryActor(PlanActor):
    """The actor of a library: it sends requests that lower themselves.

    Its methods send their values by ``self._calls.send(self, form, values)``.  The first call of a structure makes the
    request, which checks it, lowers it and makes its plan; later calls check only properties outside the structure.
    """

    #: Request classes, each with its call form.
    _forms: ClassVar[Forms] = {}

    def __init__(self, device: Device, name: str) -> None:
        super().__init__(device, name)
        self._calls = CallCache(_CALLS)

    def tell(self, request: Request[Result]) -> Result:
        """Send a request and return its result at once: handles, which are their own futures.

        Does not wait for the device; the first request of a structure waits for its plan.

        Raises
        ------
        InvalidRequest, Unsupported
            Before anything is enqueued.
        OutOfMemory
            If an output cannot be allocated.
        MailboxFull
            If the mailbox stays full.
        """
        return cast("Result", self._request(request, False))

    def ask(self, request: Request[Any], *, retry: int = 0) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns; otherwise as `tell`.

        Parameters
        ----------
        request : Request
            What to do.
        retry : int
            How often it is sent again when a death of the worker catches it, as soon as the device is back; see
            `Plan.ask`.  Outputs that it allocates are allocated again.
        """
        reply = cast("Reply", self._request(request, True))
        if not retry:
            return reply
        send = functools.partial(self._request, request, True)
        return RetriedReply.follow(self.owner, reply, send, as_retries(retry))

    def _request(self, request: Any, reply: bool) -> Any:
        """Send a request; return its result, or its reply."""
        form = self._forms.get(type(request))
        if form is not None:
            return self._calls.send(self, form, form.pack(request), reply)
        for kind, form in self._forms.items():
            if isinstance(request, kind):  # a subclass may lower itself in another way
                values = form.pack(request)
                return template_of(self._call(request.lowering()), form, values).run(values, reply)
        raise self._refused(request)

    def _refused(self, request: object) -> InvalidRequest:
        allowed = ", ".join(kind.__name__ for kind in self._forms)
        return InvalidRequest(f"{type(self).__name__} does not accept {type(request).__name__}; allowed: {allowed}")

    def _template(self, form: CallForm, values: tuple[Any, ...], key: tuple[Any, ...] | None) -> CallTemplate:
        """Check a call with a new structure, and store its template, unless `key` is None."""
        lowered = self._lower(form.unpack(values))
        made = template_of(lowered, form, values)
        if key is not None and self._keeps(lowered.plan):
            with self._plans_lock:
                self._calls.keep(key, made)
        return made

    def _keeps(self, plan: Plan) -> bool:  # noqa: ARG002 - for actors whose plans others follow
        """Whether calls may be remembered with a plan."""
        return True

    def _lower(self, request: Any) -> LoweredCall:
        """Return a request as a message of a plan."""
        return self._call(request.lowered)

    def _call(self, lowered: Lowered) -> LoweredCall:
        _check_handles(lowered)
        spec = self._specification(lowered)
        plan = self._plan(spec, lowered.signature(spec, shared=True))
        arrays = {o.name: new_operand(o) if o.given is None else o.given for o in lowered.operands}
        numbers = tuple(scalar.name for scalar in lowered.scalars) if lowered.numbers is None else lowered.numbers
        return LoweredCall(plan, tuple(arrays.values()), lowered.collect(arrays), numbers, lowered.convert)

    def _plan_of(
        self,
        request: Request[Any],
        *,
        handles: bool = False,
        watcher: Callable[[int, int, str], object] | None = None,
    ) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts.

        Parameters
        ----------
        request : Request
        handles : bool
            Whether the arrays must be handles.
        watcher : callable, optional
            Called with the progress of the build, (done, total, what).
        """
        lowered = request.lowered
        if handles:
            _check_handles(lowered)
        spec = self._specification(lowered)
        if watcher is not None:
            self.owner.plans.watchers[spec] = watcher
        return self._plan(spec, lowered.signature(spec))

    def _specification(self, lowered: Lowered) -> PlanSpec:
        """Return the plan's specification; waits for the compiler if the plan has code."""
        return lowered.spec() if lowered.code is None else lowered.spec(self._target())

    def _target(self) -> Target:
        """Return what lowering may depend on."""
        owner = self.owner
        capability = None if owner.kind == "host" else owner.compute_capability()
        return Target(capability, owner.workspaces.limits.preferred)

    def _allocate(self, operand: Operand) -> GpuRef:
        """Allocate what a message would allocate for an operand."""
        new = new_operand(operand)
        whole: GpuRef = self.owner.core.empty(GpuRef, new.whole)
        return whole if new.view is None else whole.view_as(new.view, 0)

    def _drop(self, plan: Plan) -> None:
        """Drop the calls of a plan."""
        self._calls.drop(plan)


def _check_handles(lowered: Lowered) -> None:
    for operand in lowered.operands:
        check_handle(operand.name, operand.given)
    for name, array in lowered.unread:
        check_handle(name, array)
