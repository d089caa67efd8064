"""The workspace of a sequence: a library's call has the first bytes, and the parts of other steps lie apart."""

from __future__ import annotations

import pytest

from atomr_native.builders.cuda.sequence import Source, Step
from atomr_native.builders.cuda.workspace import Layout
from atomr_native.errors import Unsupported


def test_parts_do_not_overlap() -> None:
    layout = Layout(1 << 20, "fft.plan")
    first, second = layout.take(1000), layout.take(1)
    late, later = layout.take(300, later=True), layout.take(300, later=True)
    given: tuple[Source, ...] = (("operand", 0), first, second, late, later, ("constant", 7))
    made = layout.place([Step(None, given, (("scalar", 0),))], 700, ("a note",))
    # The call has 700 bytes, those for later lie there too and need 1024; 1024 and 256 follow.
    assert made.steps[0].operands == (
        ("operand", 0), ("workspace", 1024), ("workspace", 2048), ("workspace", 0), ("workspace", 512), ("constant", 7),
    )  # fmt: skip
    assert (made.workspace, made.steps[0].scalars, made.notes) == (2304, (("scalar", 0),), ("a note",))


def test_what_is_left() -> None:
    layout = Layout(4096, "fft.plan")
    assert layout.left() == 4096
    assert layout.left(1) == 4096 - 256
    layout.take(1000)
    layout.take(4096, later=True)  # where the call was
    assert layout.left() == 3072


def test_too_little() -> None:
    layout = Layout(4096, "fft.plan", "split the batch")
    layout.take(4097)
    text = (
        r"fft.plan in steps needs 4352 bytes of workspace, and the limit is 4096; raise System\(workspace_limit=\), or "
    )
    with pytest.raises(Unsupported, match=text + "split the batch") as caught:
        layout.left()
    assert (caught.value.rule, caught.value.lifted_by) == ("fft.workspace_limit", ("workspace_limit", "shape"))
    with pytest.raises(Unsupported, match="needs 4608 bytes"):
        layout.place([], 100, ())
