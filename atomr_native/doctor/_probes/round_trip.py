"""Start a System, put an array on a device, read it back; its arguments are device, isolation and a folder.

The folder is the package's place, if it is not installed.  The probe writes one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Literal


def main() -> None:
    """Run the round trip and write its outcome."""
    device = sys.argv[1]
    isolation: Literal["process", "thread"] = "thread" if sys.argv[2] == "thread" else "process"
    sys.path.append(sys.argv[3])
    try:
        import numpy as np

        import atomr_native as an
    except ImportError as error:
        sys.stdout.write("\n" + json.dumps({"status": "failed", "detail": f"the package cannot be imported: {error}"}))
        return
    start = time.perf_counter()
    sent = np.arange(1000, dtype=np.float32).reshape(10, 100)
    try:
        with an.System(isolation=isolation) as system:
            received = system.device(device).put(sent).numpy()
    except (an.AtomrError, OSError) as error:
        answer = {"status": "failed", "detail": f"{type(error).__name__}: {error}"}
    else:
        seconds = time.perf_counter() - start
        if np.array_equal(received, sent):
            answer = {"status": "ok", "detail": f"started, array sent and read back, closed in {seconds:.2f} s"}
        else:
            answer = {"status": "failed", "detail": "the array that came back differs"}
    sys.stdout.write("\n" + json.dumps(answer))
