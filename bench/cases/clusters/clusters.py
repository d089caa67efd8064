"""Actors and arrays on the nodes of a cluster, beside Ray's own actors and object store."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup, Unavailable
from bench.harness.common import burst, repeat, timed

__all__ = ["BARS", "CASES"]

MIB = 1 << 20
SIZES = {"1 MiB": MIB, "64 MiB": 64 * MIB, "1 GiB": 1024 * MIB}
LIMIT_SECONDS = 60.0


@contextmanager
def _machine() -> Iterator[Any]:
    """Ray on this machine, in a cluster of one."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Unavailable("ray is not installed") from error
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _cluster(ray: Any) -> Iterator[Any]:
    """Two nodes in it; `ray` must have begun."""
    from atomr_native import OneForOne  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.ray import Cluster  # type: ignore[import-untyped,unused-ignore]

    assert ray.is_initialized()
    forever = OneForOne(max_restarts=None, backoff=0.01, max_backoff=0.01)
    with Cluster(nodes=2, supervision=forever, options={"standby": "off"}) as made:
        yield made


def _ray(setup: Setup) -> Any:
    return setup.shared("ray", _machine)


def _nodes(setup: Setup) -> Any:
    ray = _ray(setup)
    return setup.shared("cluster", lambda: _cluster(ray))


def _bare(ray: Any) -> Any:
    from bench.cases.clusters._actors import Bare

    return ray.remote(max_restarts=-1)(Bare).remote()


def messages(setup: Setup) -> None:
    """Messages to an actor of another process on this machine.

    *ask*: one after the other, 200 a sample. *tell*: 100, for the caller. *asked inside its node*: an actor asks its
    child there 1000 times; "without Ray" is the same actor in a System of a fresh process. Ray: an actor of Ray's with
    a method that does nothing.
    """
    few, hundred, many = setup.count(200), setup.count(100), setup.count(1000)
    with setup.attempt("Ray ask", kind="peer"):
        ray, actor = _ray(setup), _bare(_ray(setup))
        setup.add("Ray ask", timed(repeat(lambda: ray.get(actor.noop.remote())), few))
    with setup.attempt("Ray tell", kind="peer"):
        ray, told = _ray(setup), _bare(_ray(setup))
        setup.add("Ray tell", burst(repeat(told.noop.remote), lambda: ray.get(told.noop.remote()), hundred))
    with setup.attempt("atomr ask"):
        from bench.cases.clusters._actors import Idle

        ref = _nodes(setup).spawn(Idle, node=0)
        setup.add("atomr ask", timed(repeat(lambda: ref.ask("ask").result()), few))
    with setup.attempt("atomr tell"):
        from bench.cases.clusters._actors import Idle

        one = _nodes(setup).spawn(Idle, node=1)
        setup.add("atomr tell", burst(repeat(partial(one.tell, "tell")), lambda: one.ask("ask").result(), hundred))
    with setup.attempt("atomr asked inside its node"):
        from bench.cases.clusters._actors import Asker

        asker = _nodes(setup).spawn(Asker, node=0)
        setup.add("atomr asked inside its node", lambda: float(asker.ask(many).result(LIMIT_SECONDS)))
    with setup.attempt("atomr asked without Ray"):
        setup.need()
        ask = setup.enter(_plain_process())
        setup.add("atomr asked without Ray", lambda: ask(many))
    setup.ratio("atomr ask", "Ray ask")
    setup.ratio("atomr tell", "Ray tell")
    setup.ratio("atomr asked inside its node", "atomr asked without Ray")


@contextmanager
def _plain_process() -> Iterator[Callable[[int], float]]:
    """The actor that asks its child, in a process of its own."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    from bench.cases.clusters._plain import serve

    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()

    def ask(count: int) -> float:
        ours.send(count)
        if not ours.poll(LIMIT_SECONDS):
            raise TimeoutError("no answer of the actor without Ray")
        return float(ours.recv())

    try:
        ask(1)
        yield ask
    finally:
        ours.close()
        process.join(10.0)


def arrays(setup: Setup) -> None:
    """Arrays from a node's host device to another's on this machine; microseconds of each, seen by the receiver.

    Ray: `ray.put` in the program, and `ray.get` and a copy in an actor; the `put` counts. A sample of 1 MiB is the mean
    of 20 copies. A quick run has 64 KiB each.
    """
    full = setup.count(1000) == 1000
    for name, size in SIZES.items():
        nbytes = size if full else 65536
        with setup.attempt(f"Ray, {name}", kind="peer"):
            setup.add(f"Ray, {name}", _ray_copies(_ray(setup), nbytes))
        with setup.attempt(f"atomr, {name}"):
            setup.add(f"atomr, {name}", _copies(_nodes(setup), nbytes))
        setup.ratio(f"atomr, {name}", f"Ray, {name}")


def _ray_copies(ray: Any, nbytes: int) -> Callable[[], float]:
    import numpy as np

    actor, array = _bare(ray), np.ones(nbytes, np.uint8)
    ray.get(actor.noop.remote())

    def once() -> float:
        start = time.perf_counter_ns()
        reference = ray.put(array)
        spent = (time.perf_counter_ns() - start) / 1e3
        return spent + float(ray.get(actor.get.remote([reference])))

    count = _count(nbytes)
    return lambda: sum(once() for _ in range(count)) / count


def _count(nbytes: int) -> int:
    """Return the number of copies of a sample."""
    return max(1, min(20, 32 * MIB // nbytes))


def _copies(cluster: Any, nbytes: int) -> Callable[[], float]:
    from bench.cases.clusters._actors import Keeper

    source = cluster.device("node1/host").full((nbytes,), 1, "uint8")
    receiver = cluster.spawn(Keeper, node=0)
    work = source, _count(nbytes)
    return lambda: float(receiver.ask(work).result(LIMIT_SECONDS))


def deaths(setup: Setup) -> None:
    """Milliseconds from the end of an actor's process, by SIGKILL, until the actor answers again.

    Ray: an actor of Ray's with ``max_restarts=-1``, whose new process imports this module.
    """
    with setup.attempt("Ray", kind="peer"):
        ray = _ray(setup)
        actor = _bare(ray)
        setup.add("Ray", _until(lambda: actor.noop.remote("die"), lambda: ray.get(actor.noop.remote())))
    with setup.attempt("atomr"):
        from bench.cases.clusters._actors import Idle

        ref = _nodes(setup).spawn(Idle, node=0)
        setup.add("atomr", _until(lambda: ref.tell("die"), lambda: ref.ask("ask").result(LIMIT_SECONDS)))


def _until(kill: Callable[[], object], ask: Callable[[], object]) -> Callable[[], float]:
    def sample() -> float:
        ask()
        start = time.perf_counter()
        kill()
        time.sleep(0.02)
        while True:
            try:
                ask()
                return (time.perf_counter() - start) * 1e3
            except Exception:
                if time.perf_counter() - start > LIMIT_SECONDS:
                    raise
                time.sleep(0.001)

    return sample


BARS = (
    Bar("ask of a remote actor", "cluster_messages", "atomr ask", 1.10, "x", under="Ray ask"),
    Bar("tell to a remote actor", "cluster_messages", "atomr tell", 20.0, "us"),
    Bar("ask inside a node", "cluster_messages", "atomr asked inside its node", 1.02, "x",
        under="atomr asked without Ray"),
    *(
        Bar("arrays from node to node", "cluster_arrays", f"atomr, {name}", 0.5, "x", under=f"Ray, {name}", part=name)
        for name in SIZES
    ),
    Bar("death of a node, beyond Ray's own restart", "cluster_deaths", "atomr", 500.0, "ms", beyond="Ray"),
)  # fmt: skip
CASES = (
    Case("cluster_messages", "Messages to actors of a cluster", messages, devices=("host",), rounds=21),
    Case("cluster_arrays", "Arrays between nodes of a cluster", arrays, devices=("host",), rounds=9),
    Case("cluster_deaths", "Death of a node", deaths, unit="ms", devices=("host",), rounds=9),
)
