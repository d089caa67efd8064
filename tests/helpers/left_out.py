"""What a run of the tests leaves out, and why, in a few lines at its end: a plugin of pytest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

__all__ = ["LeftOut"]

_LINES = 12  # at most
_KEY = "atomr_not_collected"


class LeftOut:
    """Counts tests that are not collected, and prints why these and others were not run.

    With pytest-xdist every process collects all tests, so that one of them says how many are left out.
    """

    def __init__(self) -> None:
        self.not_collected: Counter[str] = Counter()

    def drop(self, config: pytest.Config, items: list[pytest.Item], reasons: dict[pytest.Item, str]) -> None:
        """Take items out of a collection; `reasons` has those that go, with an empty reason for parameters."""
        if not reasons:
            return
        self.not_collected.update(filter(None, reasons.values()))
        config.hook.pytest_deselected(items=list(reasons))
        items[:] = [item for item in items if item not in reasons]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that started this one."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = dict(self.not_collected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take the numbers of the last process that ends; all have the same."""
        self.not_collected = Counter(getattr(node, "workeroutput", {}).get(_KEY, {})) or self.not_collected

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print a line for each reason, the most frequent first."""
        found = self.not_collected.copy()
        for report in terminalreporter.stats.get("skipped", ()):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            found[reason.removeprefix("Skipped: ").splitlines()[0]] += 1
        shown = dict(found.most_common(_LINES))
        if others := found.total() - sum(shown.values()):
            shown["other reasons; -rs shows them"] = others
        for reason, count in shown.items():
            terminalreporter.write_line(f"{count:6} not run: {reason}")
