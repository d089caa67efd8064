"""Typed errors as JSON, from a worker to the parent.

Only the classes of `atomr_native.errors` cross, with the attributes listed here, each checked for its type.  Every
other exception becomes a `LibraryError` of the library ``"worker"``.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final

from .. import errors
from ..errors import AtomrError, LibraryError, Suspect

__all__ = ["decode_error", "encode_error"]

_MAX_TEXT = 64 << 10
_MAX_SUSPECTS = 4096
_MAX_CAUSES = 8
_MAX_RULE = 200
_MAX_LIFTED = 16
_MAX_AXES = 64

_OF_MATRIX: Final[dict[str, tuple[type, ...]]] = {
    "lib": (str,), "status": (int,), "name": (str,), "operation": (str,), "index": (list,), "info": (int,),
    "count": (int,),
}  # fmt: skip
#: Attributes of each class besides its message, and their JSON types.
_STATE: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "AtomrError": {},
    "InvalidRequest": {},
    "InvalidAxis": {},
    "UnknownOption": {"option": (str,), "nearest": (str, NoneType), "allowed": (list,)},
    "Unsupported": {"rule": (str,), "lifted_by": (list,)},
    "NestedCall": {},
    "NoArrayOperator": {"rule": (str,), "lifted_by": (list,)},
    "NoCudaArrayInterface": {"rule": (str,), "lifted_by": (list,)},
    "PlanQuarantined": {"rule": (str,), "lifted_by": (list,)},
    "GpuRefStale": {"reason": (str,)},
    "OutOfMemory": dict.fromkeys(("requested", "free", "largest", "limit"), (int, NoneType)),
    "LibraryError": {"lib": (str,), "status": (int,), "name": (str,), "operation": (str,)},
    "FactorizationError": _OF_MATRIX,
    "SingularMatrix": _OF_MATRIX,
    "NotPositiveDefinite": _OF_MATRIX,
    "NotConverged": _OF_MATRIX,
    "LoopLimitReached": {
        "lib": (str,),
        "status": (int,),
        "name": (str,),
        "operation": (str,),
        "step": (int,),
        "limit": (int,),
    },
    "DeviceFault": {"suspects": (list,), "restarted": (bool,), "code": (int,), "name": (str,)},
    "DeviceLost": {},
    "MailboxFull": {"actor": (str,), "capacity": (int,)},
    "AskTimeout": {},
    "DependencyFailed": {"cause": (dict,)},
    "ActorStopped": {},
    "UnhandledMessage": {},
    "NoReply": {},
    "NodeLost": {"node": (str,), "may_have_run": (bool,)},
}


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return the JSON form of an error: its class and its checked attributes.

    A class of `atomr_native.errors` keeps its type (a derived class becomes its base); every other exception is sent by
    name, and arrives as a `LibraryError`.
    """
    kind = next((cls.__name__ for cls in type(error).__mro__ if _is_ours(cls)), None)
    message = str(error)[:_MAX_TEXT]
    if kind is None:
        return {"type": type(error).__name__, "args": {"message": message}}
    args: dict[str, Any] = {"message": message}
    for name, expected in _STATE[kind].items():
        value = getattr(error, name)
        if name == "cause":
            value = encode_error(value)
        elif name == "suspects":
            value = [{"actor": s.actor, "ticket": s.ticket, "operation": s.operation} for s in value]
        else:
            value = None if value is None and NoneType in expected else expected[0](value)
        args[name] = value
    return {"type": kind, "args": args}


def _is_ours(cls: type) -> bool:
    return cls.__name__ in _STATE and getattr(errors, cls.__name__, None) is cls


def decode_error(data: object, operation: str) -> AtomrError:
    """Rebuild an error from a worker's description.

    Parameters
    ----------
    data
        The untrusted JSON value.
    operation
        The requested operation, for the text of an error of another class.

    Returns
    -------
    AtomrError
        Never raises: a malformed description gives a `LibraryError` that says so.
    """
    return _decode(data, operation, _MAX_CAUSES)


def _decode(data: object, operation: str, depth: int) -> AtomrError:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str) or not isinstance(data.get("args"), dict):
        return LibraryError("worker", 0, "malformed error", operation, repr(data)[:200])
    kind: str = data["type"][:200]
    args: dict[str, Any] = data["args"]
    message = args.get("message")
    message = message[:_MAX_TEXT] if isinstance(message, str) else ""
    expected = _STATE.get(kind)
    if expected is None:
        return LibraryError("worker", 0, kind, operation, message)
    state: dict[str, Any] = {"message": message}
    for name, classes in expected.items():
        value: Any = args.get(name)
        if type(value) not in classes:
            return LibraryError("worker", 0, f"malformed {kind}", operation, message)
        if name == "cause":
            if depth == 0:
                return LibraryError("worker", 0, f"malformed {kind}", operation, message)
            value = _decode(value, operation, depth - 1)
        elif name == "suspects":
            value = tuple(_suspect(item) for item in value[:_MAX_SUSPECTS])
        elif name in ("lifted_by", "allowed"):
            value = tuple(str(item)[:_MAX_RULE] for item in value[:_MAX_LIFTED])
        elif name == "rule":
            value = value[:_MAX_RULE]
        elif name == "index":
            value = tuple(item if type(item) is int else 0 for item in value[:_MAX_AXES])
        state[name] = value
    # Constructors differ between classes; an error consists of args and attributes.
    error_class: type[AtomrError] = getattr(errors, kind)
    base: Any = error_class.__base__  # the class of its memory layout; MemoryError.__new__ refuses OutOfMemory
    error: AtomrError = base.__new__(error_class)
    error.args = (message,)
    error.__dict__.update(state)
    return error


def _suspect(item: object) -> Suspect:
    fields: dict[str, Any] = item if isinstance(item, dict) else {}
    ticket = fields.get("ticket")
    return Suspect(
        str(fields.get("actor", "?"))[:200],
        ticket if type(ticket) is int else 0,
        str(fields.get("operation", "?"))[:200],
    )
