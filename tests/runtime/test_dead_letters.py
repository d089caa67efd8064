"""The store of dead letters, and its subscribers."""

from __future__ import annotations

import pytest

from atomr_native.errors import ActorStopped, InvalidRequest
from atomr_native.runtime.dead_letters import DeadLetter, DeadLetters

pytestmark = [pytest.mark.plain, pytest.mark.alike]


def letter(text: str, message: object = None) -> DeadLetter:
    return DeadLetter("", "/a", 0, ActorStopped("it has stopped"), text, message=message)


def test_a_subscriber_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    letters, seen = DeadLetters(), []

    def fail(_: DeadLetter) -> None:
        raise RuntimeError("of the subscriber")

    letters.subscribe(fail)
    letters.subscribe(seen.append)
    assert [letters.add(letter("x")), letters.add(letter("y"))] == [1, 2]
    assert [each.text for each in seen] == ["x", "y"]
    assert caplog.text.count("a subscriber of dead letters failed") == 2


def test_only_subscribers_get_messages() -> None:
    letters, seen, message = DeadLetters(), [], ["kept alive by whoever keeps it"]
    letters.subscribe(seen.append)
    letters.add(letter("x", message))
    assert seen[0].message is message
    assert [(each.text, each.message) for each in letters] == [("x", None)]


def test_a_subscription_ends() -> None:
    letters, first, second = DeadLetters(), [], []
    end = letters.subscribe(first.append)
    letters.subscribe(second.append)
    letters.add(letter("x"))
    end()
    letters.add(letter("y"))
    assert ([each.text for each in first], [each.text for each in second]) == (["x"], ["x", "y"])
    with pytest.raises(InvalidRequest, match="subscriber 3 is not callable"):
        letters.subscribe(3)  # type: ignore[arg-type]
