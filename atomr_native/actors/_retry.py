"""Messages to actors that are sent again when a death of a device's worker has caught them (``retry=``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .._lib.actor_cell import BEYOND, BOUNDED, PUT, Envelope
from .._support.timeouts import seconds_of
from ..plans.retry import caught_by_restart
from .answer import Answer, bare

if TYPE_CHECKING:
    from .cell import Cell
    from .ref import ActorRef

__all__ = ["Deliver", "deadline_after", "deliver_to", "pass_on", "send_until"]

#: Puts an envelope into a mailbox, within its capacity (``BOUNDED``) or not (``BEYOND``).
Deliver: TypeAlias = Callable[[Envelope, int], object]


def deadline_after(timeout: object) -> float:
    """Return the deadline of an answer, in `time.monotonic`, from a user's timeout."""
    seconds = seconds_of(timeout)
    return float("inf") if seconds is None else time.monotonic() + seconds


def deliver_to(cell: Cell, envelope: Envelope, bound: int) -> bool:
    """Put an envelope into the mailbox of a cell."""
    if envelope.answer is not None:
        envelope.answer.cell = cell
    result = cell.enqueue(envelope, bound)
    if result == PUT:
        return True
    return cell.refused(envelope, result) if bound == BOUNDED else cell.give_up(envelope, cell.refusal(result))


def send_until(
    deliver: Deliver,
    message: object,
    sender: ActorRef | None,
    retries: int,
    make: Callable[[], Answer],
    done: Callable[[Answer], object],
    bound: int = BOUNDED,
) -> None:
    """Send a message; send it again, up to `retries` times, while a death of a worker is why it has failed.

    Parameters
    ----------
    deliver : callable
        Puts an envelope into the mailbox.
    make : callable
        Returns a new answer for each send.
    done : callable
        Called with the last answer, in the thread that resolves it.
    """
    step = make()

    def arrived(answer: Answer) -> None:
        if retries and caught_by_restart(answer.exception()):
            # It had its place in the mailbox, and this thread must not wait for another.
            send_until(deliver, message, sender, retries - 1, make, done, BEYOND)
        else:
            done(answer)

    step.add_done_callback(arrived)
    try:
        deliver(Envelope(message, sender, step), bound)
    except BaseException as error:  # for example, an error of a pool's key function
        step.fail(bare(error))
        if not isinstance(error, Exception):
            raise


def pass_on(answer: Answer) -> Callable[[Answer], object]:
    """Return a callback that resolves an answer as another one is."""

    def resolve(found: Answer) -> None:
        error = found.exception()
        if error is None:
            answer.resolve(found.result(0))
        else:
            answer.fail(bare(error))

    return resolve
