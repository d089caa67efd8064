"""Import Ray and say its version; writes one JSON object.  Starts nothing."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Write ``{"version": text}``; if Ray is not installed, with null, and how to install it."""
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        found = {"version": None, "install": "pip install '.[ray]'"}
    else:
        found = {"version": ray.__version__}
    sys.stdout.write(json.dumps(found) + "\n")
