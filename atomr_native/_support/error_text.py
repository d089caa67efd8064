"""The text of exceptions of users, whose own methods may fail."""

from __future__ import annotations

__all__ = ["error_text"]


def error_text(error: BaseException) -> str:
    """Return the type and the text of an exception, also of an exception that has no text."""
    try:
        text = str(error)
    except Exception:  # as in a traceback
        text = "<exception str() failed>"
    return f"{type(error).__name__}: {text}"
