"""Fields of log records, by stable names, for logging that machines read.

Every record of an event has all of `FIELDS`, so that a format may name them; what does not apply is None.
"""

from __future__ import annotations

from typing import Any

__all__ = ["EVENTS", "FIELDS", "log_fields"]

FIELDS = ("event", "actor", "device", "cause", "generation", "restarts")

EVENTS = (
    "actor_started", "actor_failed", "actor_restarted", "actor_stopped", "dead_letter",
    "device_started", "device_failed", "device_restarted", "device_lost",
)  # fmt: skip


def log_fields(
    event: str,
    *,
    actor: str | None = None,
    device: str | None = None,
    cause: BaseException | str | None = None,
    generation: int | None = None,
    restarts: int | None = None,
) -> dict[str, Any]:
    """Return the ``extra=`` of a log record.

    Parameters
    ----------
    event : str
        One of `EVENTS`.
    actor, device : str, optional
        The path of an actor, or the name of one of a device; the name of a device.
    cause : BaseException or str, optional
        Kept as text: a record that is kept must not keep frames.
    generation, restarts : int, optional
        Of a device; how often it, or the actor, has restarted so far.
    """
    text = f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else cause
    return {
        "event": event, "actor": actor, "device": device, "cause": text, "generation": generation,
        "restarts": restarts,
    }  # fmt: skip
