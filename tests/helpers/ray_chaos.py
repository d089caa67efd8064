"""Kills at random on Ray: device workers, processes of nodes, raylets, and programs that have made a cluster."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from processes import assert_dead

import atomr_native as an
from atomr_native.ray import Cluster

__all__ = ["Process", "answered", "check_chaos"]

#: How often each kind comes, of 50.
WEIGHTS = {"worker": 23, "process": 21, "raylet": 3, "driver": 3}
_ASKS = 40


class Process(an.Actor):
    """Says where it runs; ends its process."""

    def receive(self, message: Any) -> Any:
        match message:
            case "pid":
                return os.getpid()
            case "machine":
                return ray.get_runtime_context().get_node_id()
            case "visible":
                return os.environ.get("CUDA_VISIBLE_DEVICES")
            case "worker":
                return self.context.system.device("host").worker_pid
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "join":
                with Cluster.join() as own:
                    return own.spawn(Process, node=0).ask("x").result(60)
            case "make":
                Cluster()
            case ("double", number):
                return int(self.context.system.device("host").put([number, number]).sum().numpy())
        return message


def answered(ref: an.ActorRef, message: Any) -> Any:
    while True:
        try:
            return ref.ask(message).result(60)
        except (an.NodeLost, an.DeviceFault, an.GpuRefStale):
            time.sleep(0.05)


def check_chaos(cluster: Cluster, machines: Any, count: int) -> None:
    """Kill `count` times: each ask has one answer, nothing stays behind, and what is restarted serves."""
    draw = random.Random(count)
    kinds = draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    if count >= len(WEIGHTS):
        kinds[: len(WEIGHTS)] = draw.sample(list(WEIGHTS), len(WEIGHTS))
    forever = an.OneForOne(max_restarts=None, backoff=0.01, max_backoff=0.1)
    refs = [cluster.spawn(Process, node=node, supervision=forever) for node in range(3)]
    for kind in kinds:
        if kind == "driver":
            _driver(machines.address, draw)
        else:
            _node(refs, machines, kind, draw)
        assert [answered(ref, "alive") for ref in refs] == ["alive"] * 3
        assert [answered(ref, ("double", 4)) for ref in refs] == [8] * 3


def _node(refs: list[an.ActorRef], machines: Any, kind: str, draw: random.Random) -> None:
    choice = list(range(3))
    heads = machines.head_node.node_id
    if kind == "raylet":  # not that of this program
        choice = [each for each in choice if answered(refs[each], "machine") != heads]
    victim = refs[draw.choice(choice)]
    pid, worker, machine = (answered(victim, each) for each in ("pid", "worker", "machine"))
    asks = [("double", n) if draw.random() < 0.3 else n for n in range(2 * _ASKS)]
    answers = [draw.choice(refs).ask(each) for each in asks[:_ASKS]]
    if kind == "raylet":
        _end_raylet(machines, machine)
    else:
        os.kill(pid if kind == "process" else worker, signal.SIGKILL)
    answers += [draw.choice(refs).ask(each) for each in asks[_ASKS:]]
    resolved = [0] * len(answers)
    for at, answer in enumerate(answers):
        answer.add_done_callback(_counted(resolved, at))
    for message, answer in zip(asks, answers, strict=True):
        error = answer.exception() if answer.wait(90) else TimeoutError()
        if error is None:
            assert answer.result(0) == (message if isinstance(message, int) else 2 * message[1])
        elif isinstance(message, tuple):
            assert isinstance(error, an.NodeLost | an.DeviceFault | an.GpuRefStale | an.DependencyFailed), error
        else:
            assert isinstance(error, an.NodeLost), error
    assert resolved == [1] * len(answers), "answers that came twice, or not"
    assert_dead(*[worker] if kind == "worker" else [pid, worker])


def _counted(resolved: list[int], at: int) -> Callable[[Any], None]:
    def count(_: Any) -> None:
        resolved[at] += 1

    return count


def _end_raylet(machines: Any, machine: str) -> None:
    (node,) = [each for each in machines.worker_nodes if each.node_id == machine]
    pid = node.all_processes["raylet"][0].process.pid
    os.kill(pid, signal.SIGKILL)
    machines.add_node(num_cpus=2, object_store_memory=150 << 20, wait=False)  # another machine takes its place
    machines.worker_nodes.remove(node)
    with contextlib.suppress(Exception):
        node.kill_all_processes(check_alive=False, allow_graceful=False)


def _driver(address: str, draw: random.Random) -> None:
    """Kill a program whose cluster is at work."""
    program = subprocess.Popen(
        [sys.executable, str(Path(__file__)), address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, "the program has not made its cluster"
    time.sleep(0.2 * draw.random())
    program.kill()
    program.wait()
    assert_dead(*map(int, line.split()))


def _be_driver(address: str) -> None:
    ray.init(address=address, log_to_driver=False, configure_logging=False)
    cluster = Cluster(nodes=2, cpus=0.1, options={"standby": "off"})
    refs = [cluster.spawn(Process, node=node) for node in range(2)]
    pids = [ref.ask(each).result(60) for ref in refs for each in ("pid", "worker")]
    print(*pids, flush=True)  # noqa: T201
    while True:
        for ref in refs:
            ref.ask("x").result(60)


if __name__ == "__main__":
    from ray_chaos import _be_driver as _run  # so that nodes import the actor's class by its name

    _run(sys.argv[1])
