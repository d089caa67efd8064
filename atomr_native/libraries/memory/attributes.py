"""Attributes of copies and of durable groups in plan specifications."""

from ...plans.spec import Attributes, Extent

__all__ = ["CopyAttributes", "GroupAttributes"]


class CopyAttributes(Attributes, frozen=True):
    """Of ``memory.copy``.

    Attributes
    ----------
    raw : bool
        Whether it is a copy of consecutive bytes, whose number is the message's scalar.
    staged : bool
        Whether it is from memory of the host, or to it.
    """

    raw: bool
    staged: bool = False


class GroupAttributes(Attributes, frozen=True):
    """Of ``group.commit`` and ``group.restore``.

    Attributes
    ----------
    offsets : tuple of int
        Bytes from the beginning of the shadow to each member's copy.
    checksum : bool
        Whether commits have one.
    number : int
        The group's.
    """

    offsets: tuple[Extent, ...]
    checksum: bool
    number: int
