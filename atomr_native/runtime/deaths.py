"""The death of a worker: its description, and the errors that report it."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import DeviceFault, DeviceLost, Suspect

__all__ = ["Death", "fault_of", "loss_of_thread", "post_mortem"]

_FOREIGN = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # no operation ends its own worker by these
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,62}")


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker.

    Attributes
    ----------
    how : str
        Description.
    code, name : int, str
        As in `DeviceFault`.
    foreign : bool
        It was ended from outside: no running operation is to blame.
    of_device : bool
        The device has faulted, so the worker could not use it any more.
    """

    how: str
    code: int = 0
    name: str = ""
    foreign: bool = False
    of_device: bool = False


def post_mortem(how: str, status: int | None, cause: object, ended: str | None) -> Death:
    """Combine the known facts.

    Parameters
    ----------
    how
        The result of reaping the worker.
    status
        Its exit status, negative for a signal; None for a thread.
    cause
        The worker's record of a device fault; untrusted.
    ended
        The watchdog's reason for ending it, if any.
    """
    if ended is not None:
        return Death(f"{how}, by the watchdog: {ended}", -(status or 0), "watchdog", foreign=True)
    if isinstance(cause, dict) and _NAME.fullmatch(cause["name"]):
        text = cause["text"].encode("ascii", "backslashreplace").decode()
        return Death(f"{cause['name']} ({cause['code']}): {text}", cause["code"], cause["name"], of_device=True)
    if status is None:
        return Death(how)
    if status >= 0:
        return Death(how, status, "exit")
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "signal"
    return Death(how, -status, name, foreign=-status in _FOREIGN)


def fault_of(
    device: str, death: Death, suspects: Sequence[Suspect], verdict: str, tail: str, *, restarting: bool
) -> DeviceFault:
    """Return the error of the messages that were running.

    Parameters
    ----------
    device
        Its name.
    suspects
        They.
    verdict
        The consequence for their plans; may be empty.
    tail
        The last output of the worker.
    restarting
        Whether the device comes back.
    """
    after = "the device restarts; send again" if restarting else "the device does not come back"
    text = f"the worker of {device} died: {death.how}; {_running(suspects)}; {after}"
    if verdict and restarting:
        text += f"; {verdict}"
    if tail:
        text += f"\nlast output of the worker:\n{tail}"
    return DeviceFault(text, tuple(suspects), restarting, death.code, death.name)


def loss_of_thread(device: str, death: Death, fault: DeviceFault, *, hangs: bool) -> DeviceLost:
    """Return the error of all messages of a device in thread placement, whose worker may still run."""
    text = f"the worker thread of {device} {'hangs' if hangs else 'ended'} ({death.how}); {_running(fault.suspects)}; "
    if hangs:
        text += "it may still write memory of this program; "
    if death.of_device:
        text += "the device cannot be used in this process any more, by any library, until the program is restarted; "
    text += "thread placement cannot restart: use System(isolation='process') for recovery from faults"
    return DeviceLost(text, fault)


def _running(suspects: Sequence[Suspect]) -> str:
    named = [f"{s.operation} (message {s.ticket} of {s.actor!r})" for s in suspects[:4]]
    more = f" and {len(suspects) - 4} more" if len(suspects) > 4 else ""
    return f"it was running: {', '.join(named) or 'none'}{more}"
