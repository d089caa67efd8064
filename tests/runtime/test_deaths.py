"""What is known of a worker's death, and whether its work is to blame."""

from __future__ import annotations

import signal

import pytest

from atomr_native.runtime.deaths import post_mortem

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_kill_from_outside_blames_no_work(number: signal.Signals) -> None:
    death = post_mortem("it was killed", -number, None, None)
    assert (death.foreign, death.of_device, death.code, death.name) == (True, False, number, number.name)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE])
def test_a_crash_blames_the_work(number: signal.Signals) -> None:
    death = post_mortem("it crashed", -number, None, None)
    assert (death.foreign, death.of_device, death.code, death.name) == (False, False, number, number.name)


def test_other_ends() -> None:
    assert post_mortem("it ended", 3, None, None).name == "exit"
    assert post_mortem("its thread ended", None, None, None).foreign is False
    assert post_mortem("it was killed", -200, None, None).name == "signal"
    ended = post_mortem("it was killed", -signal.SIGKILL, None, "a message ran too long")
    assert (ended.foreign, ended.name) == (True, "watchdog")  # the watchdog accuses by itself
    fault = post_mortem("it crashed", -signal.SIGABRT, {"name": "Xid_31", "code": 719, "text": "a \u2028 line"}, None)
    assert (fault.foreign, fault.of_device, fault.code, fault.name) == (False, True, 719, "Xid_31")
    assert "\u2028" not in fault.how
    wild = post_mortem("it crashed", -signal.SIGABRT, {"name": "no name", "code": 719, "text": ""}, None)
    assert (wild.of_device, wild.name) == (False, "SIGABRT")
