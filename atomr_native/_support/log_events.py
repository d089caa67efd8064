"""Fields of log records with stable names, for machine-readable logs.

Every event record has all of `FIELDS`, so a format may name them; fields that do not apply are None.
"""

from __future__ import annotations

from typing import Any

from .error_text import error_text

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
        The path of a Python actor, or the name of a device's actor; the name of a device.
    cause : BaseException or str, optional
        Stored as text: a stored record must not keep frames.
    generation, restarts : int, optional
        The device's generation; the number of restarts of the device or actor.
    """
    text = error_text(cause) if isinstance(cause, BaseException) else cause
    return {
        "event": event, "actor": actor, "device": device, "cause": text, "generation": generation,
        "restarts": restarts,
    }  # fmt: skip
