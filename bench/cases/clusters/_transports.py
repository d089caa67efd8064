"""Pairs of Ray actors that pass arrays by one of its transports."""

from __future__ import annotations

from typing import Any

__all__ = ["LIMIT_SECONDS", "pair", "reserved"]


LIMIT_SECONDS = 30.0
PARTS = {"ATOMR": (0.3, 1), "NCCL": (0.3, 1), "CUDA IPC": (0.2, 0)}


def reserved(ray: Any) -> Any:
    """Return two GPUs, which all pairs share."""
    group = ray.util.placement_group([{"GPU": 1}] * 2)
    ray.get(group.ready(), timeout=LIMIT_SECONDS)
    return group


def pair(ray: Any, what: str, group: Any) -> list[Any]:
    """Return an actor on the first GPU that makes arrays, and another that uses them."""
    from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
        PlacementGroupSchedulingStrategy as On,
    )

    part, second = PARTS[what]
    kind = _ours(ray) if what == "ATOMR" else _theirs(ray, what.replace(" ", "_"))
    actor = ray.remote(num_gpus=part, num_cpus=0, enable_tensor_transport=True)(kind)
    made = [
        actor.options(scheduling_strategy=On(group, placement_group_bundle_index=bundle)).remote()
        for bundle in (0, second)
    ]
    ray.get([each.ready.remote() for each in made], timeout=LIMIT_SECONDS)
    if what == "NCCL":
        from ray.experimental.collective import create_collective_group  # type: ignore[import-not-found,unused-ignore]

        create_collective_group(made, backend="nccl")
    return made


def _ours(ray: Any) -> type:
    from atomr_native.ray import use_device  # type: ignore[import-untyped,unused-ignore]

    class Ours:
        """With a System."""

        def __init__(self) -> None:
            import atomr_native as an  # type: ignore[import-untyped,unused-ignore]

            self.device = an.System(standby="off").device("cuda:0")
            self.kept: dict[int, Any] = {}
            use_device(self.device)

        def ready(self) -> None:
            """Answer when it is up."""

        @ray.method(tensor_transport="ATOMR")
        def make(self, nbytes: int) -> Any:
            """Return an array."""
            if nbytes not in self.kept:
                self.kept[nbytes] = self.device.full((nbytes,), 1, "uint8")
            return self.kept[nbytes]

        def use(self, array: Any) -> None:
            """Wait until it is there."""
            array.wait()

    return Ours


def _theirs(ray: Any, transport: str) -> type:
    import torch  # type: ignore[import-not-found,unused-ignore]

    del torch

    class Theirs:
        """With torch."""

        def __init__(self) -> None:
            self.kept: dict[int, Any] = {}

        def ready(self) -> None:
            """Answer when it is up."""

        @ray.method(tensor_transport=transport)
        def make(self, nbytes: int) -> Any:
            """Return an array."""
            import torch

            if nbytes not in self.kept:
                self.kept[nbytes] = torch.ones(nbytes, dtype=torch.uint8, device="cuda")
            return self.kept[nbytes]

        def use(self, array: Any) -> None:
            """Wait until it is there."""
            import torch

            assert array.numel()
            torch.cuda.synchronize()

    return Theirs
