"""Messages of blends, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import Case, case

CASES: dict[str, Case] = {
    "mix": case(lambda d, _, x, y, weight: d.blend.mix(x, y, weight), "row other", weight=(0.25, 0.5)),
}
