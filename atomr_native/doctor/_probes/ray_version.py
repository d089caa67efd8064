"""Import Ray and say its version; writes one JSON object.  Starts nothing."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Write ``{"version": text}``, with null if Ray is not installed."""
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        version = None
    else:
        version = ray.__version__
    sys.stdout.write(json.dumps({"version": version}) + "\n")
