"""Clusters in this process: nodes are Systems, and messages are pickled as between machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from atomr_native.ray import Cluster
from atomr_native.ray.in_process import InProcess

OPTIONS = {"standby": "off", "timeout": 30.0}


@pytest.fixture
def clusters() -> Iterator[Callable[..., tuple[Cluster, InProcess]]]:
    """Make clusters that end with the test."""
    with ExitStack() as stack:

        def make(nodes: int = 2, *, faults: dict[str, Any] | None = None, **options: Any) -> tuple[Cluster, InProcess]:
            carrier = InProcess(**(faults or {}))
            options["options"] = {**OPTIONS, **options.get("options", {})}
            return stack.enter_context(Cluster(nodes=nodes, carrier=carrier, **options)), carrier

        yield make


@pytest.fixture
def cluster(clusters: Callable[..., tuple[Cluster, InProcess]]) -> Cluster:
    return clusters()[0]
