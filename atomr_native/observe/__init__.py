"""Observation of a System: metrics, a live view, traces, spans.  See docs/observability.md.

These modules are loaded, and data recorded, only on request.
"""

from __future__ import annotations

from .._support.log_events import FIELDS
from .._support.options import named_members
from .prometheus import MetricsServer, SystemCollector, serve_metrics
from .publisher import Publisher, publish
from .ranges import ranges
from .snapshot import Snapshot, snapshot
from .spans import spans
from .tracing import Trace, trace

__all__ = [
    "FIELDS",
    "MetricsServer",
    "Publisher",
    "Snapshot",
    "SystemCollector",
    "Trace",
    "publish",
    "ranges",
    "serve_metrics",
    "snapshot",
    "spans",
    "trace",
]

named_members(globals(), __all__)
