"""Supervision over nodes against a model that a reader can check.

Actors fail and stop, and nodes end, while calls between the nodes are lost, late and repeated.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from actions import eventually
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import atomr_native as an
from atomr_native.ray import Cluster
from atomr_native.ray.in_process import InProcess

NODES = 3


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
LIMITS = (2, None, 0)


class Node(an.Actor):
    """Counts its messages, fails as it is told, and has children."""

    def __init__(self) -> None:
        self.count = 0

    def receive(self, message: Any) -> Any:
        if isinstance(message, Exception):
            raise message
        if isinstance(message, tuple):
            return self.context.spawn(*message[:1], name=message[1])
        if message == "count":
            return self.count
        self.count += 1
        return self.count


def strategy(kind: int) -> an.Supervision:
    made: Any = an.OneForOne if kind < 3 else an.AllForOne
    return made(DECIDE, max_restarts=LIMITS[kind % 3], within=1e6, backoff=0.0, jitter=0.0)


class Kind0(Node):
    supervision = strategy(0)


class Kind1(Node):
    supervision = strategy(1)


class Kind2(Node):
    supervision = strategy(2)


class Kind3(Node):
    supervision = strategy(3)


class Kind4(Node):
    supervision = strategy(4)


KINDS: tuple[type[Node], ...] = (Kind0, Kind1, Kind2, Kind3, Kind4)


class Deaths(an.Actor):
    """Watches actors of all nodes."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def receive(self, message: Any) -> Any:
        if isinstance(message, an.Terminated):
            self.told.append(message.ref.path.rpartition("/")[2])
        elif isinstance(message, an.ActorRef):
            self.context.watch(message)
        return list(self.told)


@dataclass(eq=False)
class Model:
    """What an actor should be."""

    path: str
    place: int
    kind: int  # of its children's supervision
    limit: int | None
    together: bool
    parent: Model | None
    count: int = 0
    failures: int = 0
    stopped: bool = False
    children: list[Model] = field(default_factory=list)


class Clusters(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.carrier = InProcess(lost=0.1, late=0.1, repeated=0.15, seed=seed)
        forever = an.OneForOne(max_restarts=None, backoff=0.001, max_backoff=0.002)
        self.cluster = Cluster(
            nodes=NODES, carrier=self.carrier, supervision=forever, options={"standby": "off", "timeout": 30.0}
        )
        self.models: list[Model] = []
        self.refs: dict[Model, an.ActorRef] = {}
        self.numbers = itertools.count()
        self.deaths = self.cluster.spawn(Deaths, node=0)
        self.ended: list[str] = []
        for place in range(NODES):
            self.spawn_at_the_top(place, place)
            self.spawn_below(place, 4)
            self.spawn_below(place, 3)

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.close(1.0)

    # ---- the model

    def stop(self, model: Model) -> None:
        if not model.stopped:
            for child in list(model.children):
                self.stop(child)
            model.stopped = True
            if model.parent is not None:
                model.parent.children.remove(model)
            self.ended.append(model.path.rpartition("/")[2])

    def restart(self, model: Model) -> None:
        for child in list(model.children):
            self.stop(child)
        model.count = 0

    def fail(self, model: Model, error: type[Exception]) -> None:
        directive = DECIDE[error]
        if directive == "resume":
            return
        if directive == "escalate":
            self.stop(model) if model.parent is None else self.fail(model.parent, error)
            return
        group = list(model.parent.children) if model.together and model.parent is not None else [model]
        model.failures += directive == "restart"
        restarts = directive == "restart" and (model.limit is None or model.failures <= model.limit)
        for each in group:
            self.restart(each) if restarts else self.stop(each)

    # ---- what happens

    def add(self, path: str, place: int, kind: int, supervisor: int, parent: Model | None, ref: an.ActorRef) -> None:
        model = Model(path, place, kind, LIMITS[supervisor % 3], supervisor >= 3 and parent is not None, parent)
        self.models.append(model)
        self.refs[model] = ref
        if parent is not None:
            parent.children.append(model)
        self.deaths.ask(ref).result(30)

    @precondition(lambda self: sum(each.parent is None and not each.stopped for each in self.models) < 5)
    @rule(place=st.integers(0, NODES - 1), kind=st.integers(0, 4))
    def spawn_at_the_top(self, place: int, kind: int) -> None:
        name = f"n{next(self.numbers)}"
        ref = self.cluster.spawn(KINDS[kind], node=place, name=name, supervision=strategy(kind))
        self.add(f"/node{place}/{name}", place, kind, kind, None, ref)

    def pick(self, index: int) -> Model:
        """Choose an actor: now and then one that has stopped."""
        alive = [model for model in self.models if not model.stopped]
        models = alive if alive and index % 8 else self.models
        return models[index % len(models)]

    @precondition(lambda self: any(not each.stopped for each in self.models))
    @rule(index=st.integers(0, 1000), kind=st.integers(0, 4))
    def spawn_below(self, index: int, kind: int) -> None:
        alive = [model for model in self.models if not model.stopped]
        model = alive[index % len(alive)]
        name = f"n{next(self.numbers)}"
        ref = self.refs[model].ask((KINDS[kind], name)).result(30)
        self.add(f"{model.path}/{name}", model.place, kind, model.kind, model, ref)

    @rule(index=st.integers(0, 1000), number=st.integers(1, 5))
    def count(self, index: int, number: int) -> None:
        model = self.pick(index)
        for _ in range(number):
            self.refs[model].tell(1)
        model.count += 0 if model.stopped else number

    @rule(index=st.integers(0, 1000), error=st.sampled_from(ERRORS))
    def fails(self, index: int, error: type[Exception]) -> None:
        model = self.pick(index)
        self.refs[model].tell(error())
        if not model.stopped:
            self.fail(model, error)

    @rule(index=st.integers(0, 1000), times=st.integers(2, 4))
    def fails_again_and_again(self, index: int, times: int) -> None:
        model = self.pick(index)
        for _ in range(times):
            self.refs[model].tell(Restarted())
            if not model.stopped:
                self.fail(model, Restarted)
            self.the_actors_are_as_the_model_says()

    @rule(index=st.integers(0, 1000))
    def stops(self, index: int) -> None:
        model = self.pick(index)
        self.refs[model].stop()
        self.stop(model)

    @rule(place=st.integers(1, NODES - 1))
    def a_node_ends(self, place: int) -> None:
        self.carrier.kill(f"node{place}")
        for model in [each for each in self.models if each.place == place and not each.stopped]:
            if model.parent is not None:
                self.stop(model)
            else:
                model.count = model.failures = 0  # another instance, at the same address

    # ---- what must be true

    def seen(self, model: Model) -> int | None:
        """Return the count of an actor; None if it has stopped."""
        while True:
            try:
                found: int = self.refs[model].ask("count").result(30)
            except an.ActorStopped:
                return None
            except an.NodeLost as error:
                if not error.may_have_run or self.refs[model].stopped:
                    return None  # it was lost with its node
            else:
                return found

    @invariant()
    def the_actors_are_as_the_model_says(self) -> None:
        for model in self.models[-12:]:
            expected = None if model.stopped else model.count
            eventually(lambda model=model, expected=expected: self.seen(model) == expected)
            if not model.stopped:
                assert self.cluster.find(model.path) == self.refs[model]

    @invariant()
    def each_death_is_told_once(self) -> None:
        eventually(lambda: len(self.deaths.ask(None).result(30)) >= len(self.ended))
        assert sorted(self.deaths.ask(None).result(30)) == sorted(self.ended)


TestClusters = Clusters.TestCase
TestClusters.settings = settings(
    max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
