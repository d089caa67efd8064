"""Attributes of collective messages in plan specifications."""

from typing import Annotated

from msgspec import Meta, Struct

from ...plans.spec import Attributes, DtypeName, Extent
from ...protocol.typed import one_of

__all__ = ["OPERATIONS", "CollectiveAttributes", "Step"]

#: Reductions.  ``avg`` of integers divides the sum, and truncates.
OPERATIONS = ("sum", "prod", "min", "max", "avg")

_Place = Annotated[int, Meta(ge=-1)]


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One collective of a message, as one rank sees it.

    Attributes
    ----------
    kind : str
        ``"all_reduce"`` and so on; ``"connect"``: GPUs connect, and nothing moves; ``"open_window"`` and
        ``"close_window"``: NCCL learns of the memory of symmetric arrays, and forgets it; ``"copy"``: from the rank
        `root` to `target`, which may be of different kinds; ``"peer_copy"``: the same between GPUs, where `x` of the
        target is the memory of the root's.
    dtype : str
        Element type.
    count : int
        Elements that a rank contributes; of ``reduce_scatter`` and ``scatter``, that a rank receives.
    op : str
        The reduction; empty for the others.
    root, target : int
        The ranks that lend their names: of ``send``, from and to.
    counts : tuple of tuple of int
        Of ``all_to_all``: elements from each rank to each rank.
    x, out, factor : int
        Places of the operands; -1: this rank has none.
    number : int
        Place of the factor among the message's scalars; -1: it has none.
    """

    kind: str
    dtype: DtypeName
    count: Extent
    op: Annotated[str, one_of("", *OPERATIONS)] = ""
    root: Extent = 0
    target: Extent = 0
    counts: tuple[tuple[Extent, ...], ...] = ()
    x: _Place = -1
    out: _Place = -1
    factor: _Place = -1
    number: _Place = -1


class CollectiveAttributes(Attributes, frozen=True):
    """Of each collective message.

    Attributes
    ----------
    communicator : int
        Its number in the System.
    rank, size : int
    steps : tuple of Step
        The collectives of the message, in order.
    """

    communicator: Extent
    rank: Extent
    size: Extent
    steps: tuple[Step, ...]
