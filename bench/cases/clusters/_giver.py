"""A process with a GPU that gives arrays to others: the body of a program."""

from __future__ import annotations

import pickle
import sys

__all__ = ["main"]


def main(device: str, *sizes: str) -> None:
    """Print the way to arrays of some sizes, whose keys are their sizes; serve them until the input ends."""
    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.ray.moving.server import Server  # type: ignore[import-untyped,unused-ignore]

    with an.System(standby="off") as system:
        arrays = {size: system.device(device).full((int(size),), 1, "uint8") for size in sizes}
        server = Server(arrays.__getitem__, "127.0.0.1")
        print("way", pickle.dumps(server.way).hex(), flush=True)
        sys.stdin.read()
        server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
