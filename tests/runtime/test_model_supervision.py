"""The supervision tree against a model that a reader can check, under messages, failures, stops and time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


class Resumed(Exception):
    pass


class Restarted(Exception):
    pass


class Stopped(Exception):
    pass


class Escalated(Exception):
    pass


ERRORS = (Resumed, Restarted, Stopped, Escalated)
DECIDE = {Resumed: "resume", Restarted: "restart", Stopped: "stop", Escalated: "escalate"}
OPTIONS = (
    {"max_restarts": 2, "within": 10.0, "backoff": 1.0, "max_backoff": 2.0, "jitter": 0.0},
    {"max_restarts": None, "within": 5.0, "backoff": 0.0, "jitter": 0.0},
    {"max_restarts": 0, "within": 10.0, "jitter": 0.0},
)


class Node(an.Actor):
    def __init__(self) -> None:
        self.count = 0

    def receive(self, message: Any) -> None:
        if isinstance(message, Exception):
            raise message
        if isinstance(message, tuple):
            kind, name = message
            self.context.spawn(kind, name=name)
        else:
            self.count += 1


KINDS: list[type[Node]] = [
    type(f"{strategy.__name__}{i}", (Node,), {"supervision": strategy(DECIDE, **options)})  # type: ignore[arg-type]
    for strategy in (an.OneForOne, an.AllForOne) for i, options in enumerate(OPTIONS)
]  # fmt: skip


@dataclass(eq=False)
class Model:
    """What an actor should be."""

    name: str
    kind: int
    parent: Model | None
    options: dict[str, Any]
    together: bool
    path: str = ""
    count: int = 0
    restarts: int = 0
    due: float | None = None  # waits until then
    draining: bool = False
    stopped: bool = False
    children: list[Model] = field(default_factory=list)
    queue: deque[Any] = field(default_factory=deque)
    history: list[float] = field(default_factory=list)


class Supervision(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000), kinds=st.lists(st.integers(0, 5), min_size=2, max_size=2))
    def start(self, seed: int, kinds: list[int]) -> None:
        self.sim = Deterministic(seed)
        self.probe = Probe(self.sim.system, name="probe")
        self.nodes: list[Model] = []
        self.refs: dict[Model, an.ActorRef] = {}
        self.names = 0
        self.dead = 0
        self.ended: list[Model] = []
        for kind in kinds:
            self.spawn_at_the_top(kind)
            for below in range(3):
                self.spawn_below(len(self.nodes) - 1 - below // 2, (kind + below) % 6)

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            self.sim.__exit__(None, None, None)

    # ---- the model

    def stop(self, node: Model) -> None:
        if node.stopped:
            return
        for child in list(node.children):
            self.stop(child)
        node.stopped = True
        node.due = None
        self.dead += len(node.queue)
        node.queue.clear()
        if node.parent is not None:
            node.parent.children.remove(node)
        self.ended.append(node)

    def restart(self, node: Model, pause: float) -> None:
        if node.due is not None:
            return  # it waits for a restart already
        for child in list(node.children):
            self.stop(child)
        node.count = 0
        if pause > 0:
            node.due = self.sim.clock.now() + pause
        else:
            node.restarts += 1
        if node.draining and not node.queue:
            self.stop(node)

    def fail(self, node: Model, error: type[Exception]) -> str:
        """Have a node fail; returns whether it is resumed after all."""
        lenient = error is Escalated and node.parent is None and node.kind % 2
        directive = "resume" if lenient else DECIDE[error]
        if directive == "resume":
            return "resumed"
        if directive == "escalate":
            if node.parent is None:
                self.stop(node)
                return "gone"
            return self.fail(node.parent, error)
        group = list(node.parent.children) if node.together and node.parent is not None else [node]
        if directive == "restart":
            now, options = self.sim.clock.now(), node.options
            node.history = [when for when in node.history if now - when < options["within"]] + [now]
            again = len(node.history)
            if options["max_restarts"] is None or again <= options["max_restarts"]:
                pause = min(options.get("backoff", 0.05) * 2 ** (again - 2), options.get("max_backoff", 5.0))
                for each in group:
                    self.restart(each, pause if again > 1 else 0.0)
                return "restarted"
        for each in group:
            self.stop(each)
        return "gone"

    def take(self, node: Model, message: Any) -> None:
        if isinstance(message, tuple):
            self.add(node, *message)
        else:
            node.count += 1

    def add(self, parent: Model | None, kind: int, name: str) -> Model:
        supervisor = kind if parent is None else parent.kind
        node = Model(name, kind, parent, OPTIONS[supervisor % 3], supervisor >= 3 and parent is not None)
        node.path = f"{'' if parent is None else parent.path}/{name}"
        self.nodes.append(node)
        if parent is not None:
            parent.children.append(node)
        return node

    def send(self, node: Model, message: Any) -> None:
        if node.stopped or node.draining:
            self.dead += 1
        elif node.due is not None:
            node.queue.append(message)
        else:
            self.take(node, message)

    # ---- what happens

    def settle(self) -> None:
        self.sim.run()
        for node in self.nodes:
            if node not in self.refs and (ref := self.sim.system.find(node.path)) is not None:
                self.refs[node] = ref
                self.probe.watch(ref)
        self.sim.run()

    def pick(self, index: int) -> Model:
        """Choose a node: now and then one that has stopped."""
        alive = [node for node in self.nodes if not node.stopped]
        nodes = alive if alive and index % 8 else self.nodes
        return nodes[index % len(nodes)]

    @rule(kind=st.integers(0, 5))
    def spawn_at_the_top(self, kind: int) -> None:
        if sum(node.parent is None and not node.stopped for node in self.nodes) >= 3:
            return
        self.names += 1
        node = self.add(None, kind, f"n{self.names}")
        options: Any = OPTIONS[kind % 3]
        strategy = an.OneForOne({**DECIDE, **({Escalated: "resume"} if kind % 2 else {})}, **options)
        self.refs[node] = self.sim.system.spawn(KINDS[kind], name=node.name, supervision=strategy)
        self.probe.watch(self.refs[node])
        self.settle()

    @precondition(lambda self: self.nodes)
    @rule(index=st.integers(0, 1000), kind=st.integers(0, 5))
    def spawn_below(self, index: int, kind: int) -> None:
        node = self.pick(index)
        if len(node.children) + sum(isinstance(m, tuple) for m in node.queue) >= 3:
            return
        self.names += 1
        name = f"n{self.names}"
        self.send(node, (kind, name))
        self.refs[node].tell((KINDS[kind], name))
        self.settle()

    @precondition(lambda self: self.nodes)
    @rule(index=st.integers(0, 1000), number=st.integers(1, 3))
    def count(self, index: int, number: int) -> None:
        node = self.pick(index)
        for _ in range(number):
            self.send(node, 1)
            self.refs[node].tell(1)
        self.settle()

    @precondition(lambda self: self.nodes)
    @rule(index=st.integers(0, 1000), error=st.sampled_from(ERRORS))
    def fails(self, index: int, error: type[Exception]) -> None:
        self.raise_at(self.pick(index), error)

    @precondition(lambda self: self.nodes)
    @rule(index=st.integers(0, 1000), times=st.integers(1, 4))
    def fails_again_and_again(self, index: int, times: int) -> None:
        node = self.pick(index)
        for _ in range(times):
            self.raise_at(node, Restarted)

    def raise_at(self, node: Model, error: type[Exception]) -> None:
        if node.stopped or node.draining:
            self.dead += 1
        elif node.due is not None:
            return
        else:
            self.fail(node, error)
        self.refs[node].tell(error())
        self.settle()

    @precondition(lambda self: self.nodes)
    @rule(index=st.integers(0, 1000))
    def kill(self, index: int) -> None:
        node = self.pick(index)
        self.stop(node)
        self.refs[node].kill()
        self.settle()

    @precondition(lambda self: self.nodes)
    @rule(index=st.integers(0, 1000))
    def stop_gracefully(self, index: int) -> None:
        node = self.pick(index)
        if node.children or any(isinstance(message, tuple) for message in node.queue):
            return
        if not node.stopped:
            node.draining = True
            if not node.queue:
                self.stop(node)
        self.refs[node].stop()
        self.settle()

    @precondition(lambda self: any(node.due is not None or node.history for node in self.nodes))
    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.sim.clock.now() + seconds
        while True:
            due = min((node.due for node in self.nodes if node.due is not None), default=end + 1)
            if due > end:
                break
            for node in [node for node in self.nodes if node.due == due]:
                node.due = None
                node.restarts += 1
                while node.queue:
                    self.take(node, node.queue.popleft())
                if node.draining:
                    self.stop(node)
            self.sim.clock.advance(due - self.sim.clock.now())
            self.settle()
        self.sim.clock.advance(max(0.0, end - self.sim.clock.now()))
        self.settle()

    # ---- what must be true

    @invariant()
    def the_actors_are_as_the_model_says(self) -> None:
        system = self.sim.system
        for node in self.nodes:
            ref = self.refs[node]
            stats = ref.stats()
            state = "stopped" if node.stopped else "waiting" if node.due is not None else "running"
            assert (node.path, stats["state"]) == (node.path, state)
            assert (node.path, stats["restarts"]) == (node.path, node.restarts)
            assert stats["mailbox"] == len(node.queue)
            assert (system.find(node.path) == ref) is not node.stopped
            assert ref.cell.thread is None
            if state == "running":
                assert ref.cell.instance.count == node.count  # type: ignore[attr-defined]
                assert {child.name for child in ref.cell.family.cells()} == {child.name for child in node.children}
        alive = {node.path for node in self.nodes if not node.stopped}
        assert set(system.stats()["actors"]) == alive | {"/probe"}

    @invariant()
    def each_death_is_told_once(self) -> None:
        told = []
        while self.probe._messages:
            told.append(self.probe.expect(an.Terminated).ref)
        assert sorted(ref.path for ref in told) == sorted(node.path for node in self.ended)
        self.ended.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.sim.system.dead_letters.total == self.dead


TestSupervision = Supervision.TestCase
TestSupervision.settings = settings(max_examples=150, stateful_step_count=40)
