"""What every library actor has: a mailbox, a cache of plans, and one of immediate calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ._lib.sender import Calls, Recipe
from ._messages import Form, Message, recipe_of
from ._process_bound import ProcessBound
from ._signature import Signature, signature_of
from .errors import InvalidRequest
from .gpu_ref import GpuRef
from .plan import Plan
from .plan_spec import PlanSpec

if TYPE_CHECKING:
    from .device import Device
    from .reply import Reply

__all__ = ["LibraryActor"]

#: Plans remembered by an actor; what was not used for long goes first, and stays valid for who holds it.
_PLANS = 1024
#: Structures of immediate calls remembered by an actor; several may share a plan.
_CALLS = 4096


class LibraryActor(ProcessBound):
    """One mailbox of a device, whose messages run in order.

    A library's methods send by ``self._calls.send(self, form, values)``, its requests by `_request`: both check a
    request and make its plan where its structure is new (`_message`), else only what its structure does not say.

    Parameters
    ----------
    device : Device
        Where it lives.
    name : str
        Its name in errors, statistics and logs.
    """

    #: Its requests, and how each is taken apart.
    _forms: ClassVar[Mapping[type, Form]] = {}

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.lane = device._open_lane(name)
        self._calls = Calls(_CALLS)
        self._plans: OrderedDict[tuple[PlanSpec, Signature], Plan] = OrderedDict()
        self._plans_lock = threading.Lock()

    def _plan(
        self, spec: PlanSpec, signature: Signature | None = None, *, any_layout: bool | frozenset[str] = False
    ) -> Plan:
        """Return the plan of a specification; building goes on in the worker."""
        key = (spec, signature or signature_of(spec, tuple(f"_{i}" for i in range(len(spec.scalars))), (0,) * 64))
        with self._plans_lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                return found
            made = Plan.make(self.device, self.lane, spec, key[1], any_layout=any_layout)
            if len(self._plans) >= _PLANS:
                self._forget()
            self._plans[key] = made
            return made

    def _forget(self) -> None:
        """Forget the plan whose last message is the oldest; before these, in their order, the ones without any."""
        key = min(self._plans, key=lambda key: self._plans[key].last_ticket)
        self._drop(self._plans.pop(key))

    def _drop(self, plan: Plan) -> None:
        """Forget the calls of a plan; the caller holds the lock of plans."""
        self._calls.drop(plan)

    def _message(self, request: Any) -> Message:
        """Check a request of this actor, and return what it comes to."""
        raise InvalidRequest(f"{type(self).__name__} takes no requests, but {request!r} was given")

    def _recipe(self, form: Form, values: tuple[Any, ...], key: tuple[Any, ...] | None, request: Any) -> Recipe:
        """Check a call whose structure is new, and remember how it becomes a message, unless `key` is None."""
        made = recipe_of(self._message(form.make(values) if request is None else request), form, values)
        if key is not None:
            with self._plans_lock:
                self._calls.keep(key, made)
        return made

    def _request(self, request: Any, reply: bool) -> Any:
        """Send a request; return its result, or its reply."""
        form = self._forms.get(type(request))
        if form is not None:
            return self._calls.send(self, form, form.take(request), reply, request)
        for kind, form in self._forms.items():
            if isinstance(request, kind):  # whose own rules are not known
                values = form.take(request)
                return self._recipe(form, values, None, request).run(values, reply)
        raise self._refused(request)

    def _refused(self, request: object) -> InvalidRequest:
        allowed = ", ".join(kind.__name__ for kind in self._forms)
        return InvalidRequest(f"{type(request).__name__} is no request of {type(self).__name__}; allowed: {allowed}")

    def _send(
        self, plan: Plan, refs: tuple[GpuRef, ...], scalars: tuple[float | int, ...], reply: bool, value: Any = None
    ) -> Reply | None:
        """Send with operands and scalars in message order."""
        answer: Reply | None = plan.send(refs, scalars, reply, value)
        return answer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.device.name}>"
