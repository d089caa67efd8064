"""Plans: operations prepared once and sent many times."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Container, Generator, Hashable
from typing import TYPE_CHECKING, Any

from .._lib.guard import shielded
from .._lib.sender import MAX_OPERANDS, MAX_SCALARS, QUICK_SENDS, PlanRef
from .._support.options import quickened
from .._support.process_bound import ProcessBound
from .._support.public import public
from ..arrays.layout import layout_from
from ..errors import InvalidRequest, PlanQuarantined
from .reply import Reply
from .retry import RetriedReply, as_retries
from .signature import Signature
from .spec import PlanSpec

if TYPE_CHECKING:
    from ..device import Device
    from .owner import PlanOwner
    from .table import PlanRecord

__all__ = ["Plan", "room_for"]


@public
class Plan(ProcessBound, PlanRef):
    """An operation with everything fixed except addresses and scalars; made by the actors' ``plan`` methods.

    The worker builds it asynchronously; ``await plan``, `wait` and the first send wait for the build.  Afterwards
    `tell` and `ask` cost a fraction of a microsecond.  A plan outlives restarts of its device.

    Each message is checked for handles of this device with the plan's layouts, and for outputs that overlap another
    operand.  Only elementwise operations may write an operand that they read, as the very same view; users' kernels are
    not checked.

    The numbers that a plan is made with are its defaults: ``plan.tell(x, out=y)`` sends them, and ``plan.tell(x, out=y,
    alpha=2.0)`` sends another for this message only.  A complex number is replaced as a whole, by a complex or a real
    number; its parts have names, too (``alpha_imag``).  Numbers are sent unchecked; the caller must respect the
    request's limits, and what depends on them in the plan, such as whether `beta` is 0.
    """

    record: PlanRecord
    signature: Signature

    if not TYPE_CHECKING:
        tell = quickened(PlanRef.tell, QUICK_SENDS["tell"])
        ask = quickened(PlanRef.ask, QUICK_SENDS["ask"])
        offer = quickened(PlanRef.offer, QUICK_SENDS["offer"])

    @classmethod
    def make(
        cls,
        owner: PlanOwner,
        lane: int,
        spec: PlanSpec,
        signature: Signature,
        *,
        any_layout: bool | Container[str] = False,
        key: Hashable = None,
    ) -> Plan:
        """Create a plan and request its build; `any_layout` names operands whose layouts are not checked.

        Plans with the same `key` share what the worker builds.  Does not wait.
        """
        return cls._make(owner, lane, spec, signature, any_layout, key)

    @classmethod
    @shielded  # a record whose plan is not there yet has nobody to retire it
    def _make(
        cls,
        owner: PlanOwner,
        lane: int,
        spec: PlanSpec,
        signature: Signature,
        any_layout: bool | Container[str],
        key: Hashable,
    ) -> Plan:
        free = (lambda _: any_layout) if isinstance(any_layout, bool) else any_layout.__contains__
        operands = tuple(
            (o.name, None if free(o.name) else layout_from(o.shape, o.strides, o.dtype), o.access)
            for o in spec.operands
        )
        if key is None and len(operands) > MAX_OPERANDS:
            raise InvalidRequest(
                f"{len(operands)} operands and {len(spec.scalars)} scalars; a message holds at most {MAX_OPERANDS} and "
                f"{MAX_SCALARS}"
            )
        scalars = tuple(zip(signature.scalars, spec.scalars, signature.defaults, strict=False))
        record = owner.plans.register(lane, spec, key)
        record.operands = tuple((o.name, o.dtype, o.shape) for o in spec.operands if not free(o.name))
        plan = cls(owner.core, lane, record.index, operands, scalars)
        plan.record = record
        owner.plans.add(record, plan)
        plan.signature = signature
        plan.complexes = {name: (real, imag) for name, real, imag in signature.complexes} or None
        plan.reply_type = Reply
        plan.apart = int(owner.operation(spec.op).aliasing)
        plan.modes = owner.plans.modes_of(spec)
        with contextlib.suppress(PlanQuarantined):  # its messages are refused, and it can be pardoned
            owner.plans.start_build(record)
        return plan

    @property
    def device(self) -> Device:
        """The device that the plan belongs to."""
        owner: PlanOwner = self.core.owner
        return owner.device

    @property
    def spec(self) -> PlanSpec:
        """The specification, the key of the plan cache."""
        return self.record.spec

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts that are not computed by one library call, with the reasons; waits for the build."""
        self.wait()
        return self.record.notes

    @property
    def tuning(self) -> str:
        """The result of tuning, if there is one; waits for the build."""
        self.wait()
        return self.record.tuning

    def prepare(self) -> None:
        """Wait until the worker has the plan; called by the first send, and by the first after a restart.

        Waits for a restarting device up to the System's timeout.
        """
        owner: PlanOwner = self.core.owner
        self.ready_epoch = owner.plans.ready(self.record, None, owner.timeout)

    def wait(self, timeout: float | None = None) -> Plan:
        """Wait until the plan is built; return the plan.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes first.
        Unsupported, LibraryError
            If it cannot be built.
        """
        owner: PlanOwner = self.core.owner
        self.ready_epoch = owner.plans.ready(self.record, timeout, timeout)
        return self

    def pardon(self) -> Plan:
        """Lift the plan's quarantine, and forget the deaths that it is suspected of; return the plan.

        For all plans of this specification on the device.  Waits until messages that were refused are resolved.
        """
        owner: PlanOwner = self.core.owner
        owner.plans.pardon(self.spec)
        return self

    def __await__(self) -> Generator[Any, None, Plan]:
        """Wait for the build without blocking the running event loop."""
        owner: PlanOwner = self.core.owner
        return owner.plans.wait_pool.call(self.wait).__await__()

    def _ask_again(self, operands: tuple[Any, ...], out: object, named: dict[str, Any], retry: object) -> Reply:
        """Send with ``retry=``: the rest of `ask`."""
        retries = as_retries(retry)
        send = functools.partial(self.ask, *operands, out=out, **named)
        return RetriedReply.follow(self.core.owner, send(), send, retries)

    async def send_async(self, *operands: Any, **named: Any) -> Reply:
        """Send like `ask`, but await the build, and room in a full mailbox, instead of blocking the event loop."""
        retry = as_retries(named.pop("retry")) if "retry" in named and "retry" not in self.signature.names else 0
        while True:
            if self.ready_epoch != self.core.epoch:
                await self
            reply: Reply | None = self.offer(*operands, **named)
            if reply is not None:
                return RetriedReply.follow(
                    self.core.owner, reply, functools.partial(self.ask, *operands, **named), retry
                )
            await room_for(self)

    def __del__(self) -> None:
        record = getattr(self, "record", None)
        if record is not None:
            self.core.owner.plans.retire(record, self.last_ticket)

    def __repr__(self) -> str:
        operands = ", ".join(f"{o.name}: {o.dtype}{list(o.shape)}" for o in self.spec.operands)
        return f"<Plan {self.spec.op}({operands})>"


async def room_for(plan: Plan) -> None:
    """Wait until there may be room in the mailbox of a plan, or a moment where there was some by now."""
    import asyncio  # at first use: most programs have no coroutines

    owner: PlanOwner = plan.core.owner
    ticket = plan.core.room_ticket(plan.lane, len(plan.names))
    if ticket:
        await owner.wakers.room(asyncio.get_running_loop(), plan.lane, ticket)
    else:  # another sender took it
        await asyncio.sleep(0.0005)
