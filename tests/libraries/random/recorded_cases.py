"""Messages of random numbers, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import SEED, Case, case

CASES: dict[str, Case] = {
    "normal": case(
        lambda d, _, row, seed, offset: d.random.normal(8, "float32", 0.5, row, seed=seed, offset=offset), "row", **SEED
    ),
    "generator of cuRAND": case(
        lambda d, _, offset: d.random.uniform(8, engine="curand_sobol32", seed=0, offset=offset), "", offset=(0, 7)
    ),
    "permutation": case(lambda d, _, seed, offset: d.random.permutation(8, seed=seed, offset=offset), "", **SEED),
    "discrete": case(
        lambda d, _, row, seed, offset: d.random.discrete(row, 8, seed=seed, offset=offset), "row", **SEED
    ),
}  # fmt: skip
#: Kernels that are compiled for a GPU, and cuRAND.
NOT_ON_FAKE = {"normal", "generator of cuRAND", "permutation", "discrete"}
#: The state of the generator changes on the host.
STEPWISE = {"generator of cuRAND"}
