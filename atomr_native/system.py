"""Systems: the devices and actors of one program, and what they share."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import reprlib
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ._checks import as_flag
from ._log_events import log_fields
from ._process_bound import ProcessBound
from .errors import ActorStopped, AtomrError, DeviceLost, InvalidRequest, Unsupported
from .placement import worker_environment
from .system_config import SystemConfig, number

if TYPE_CHECKING:
    from types import TracebackType

    from .actors.actor import Actor
    from .actors.clock import Clock
    from .actors.mailbox import Mailbox
    from .actors.pool import Pool
    from .actors.ref import ActorRef
    from .actors.supervision import Supervision
    from .actors.tree import ActorTree
    from .device import Device
    from .statistics import SystemStats

__all__ = ["DeadLetter", "System", "SystemConfig", "find_device", "find_system"]

_log = logging.getLogger("atomr_native.dead_letters")
_GRACE = 1.0  # seconds for actors to end the message at work when everything is closed


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed, or was not delivered, while nobody held its reply.

    Attributes
    ----------
    device, ticket
        Of a message to a device; for one to an actor of the program's own ``""`` and 0.
    actor : str
        Whose message; a path such as ``"/trainer"`` for an actor of the program's own.
    error : AtomrError
        Why.
    text : str
        A short description of a message to an actor of the program's own.
    sender : str or None
        The path of the actor that has sent it.
    message : object
        The message itself, for subscribers only: the letters that are kept keep nothing else alive.
    """

    device: str
    actor: str
    ticket: int
    error: AtomrError
    text: str = ""
    sender: str | None = None
    message: object = None


@dataclass
class _DeadLetters:
    """The last failures that nobody waited for, oldest first; `total` counts all."""

    total: int = 0
    _letters: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=10_000))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _subscribers: list[Callable[[DeadLetter], object]] = field(default_factory=list)

    def __iter__(self) -> Iterator[DeadLetter]:
        with self._lock:
            return iter(tuple(self._letters))

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, letter: DeadLetter) -> int:
        """Keep a letter, and give it to the subscribers; returns how many there have been."""
        with self._lock:
            self._letters.append(letter if letter.message is None else replace(letter, message=None))
            self.total += 1
            total, subscribers = self.total, tuple(self._subscribers)
        for subscriber in subscribers:
            try:
                subscriber(letter)
            except Exception:
                _log.exception("a subscriber of dead letters failed")
        return total

    def subscribe(self, subscriber: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Have each letter given to a function; returns what ends that.

        The function runs in the thread in which the message failed: it must be short.  To have an actor told, pass
        ``ref.try_tell``: a full mailbox then loses letters, not time.
        """
        if not callable(subscriber):
            raise InvalidRequest(f"subscriber {subscriber!r} is not callable; it is called with each DeadLetter")
        with self._lock:
            self._subscribers.append(subscriber)

        def end() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._subscribers.remove(subscriber)

        return end

    def clear(self) -> None:
        """Forget the letters; the count goes on."""
        with self._lock:
            self._letters.clear()


def _has_gpu() -> bool:
    """Whether the kernel's driver knows a GPU; this process loads nothing of CUDA to find out."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists()


_systems: weakref.WeakValueDictionary[str, System] = weakref.WeakValueDictionary()
_systems_lock = threading.Lock()


def find_system(token: str) -> System | None:
    """Return the System that a pickled name belongs to, if it is one of this process and not closed."""
    system = _systems.get(token)
    return None if system is None or system.closed else system


def find_device(token: str, name: str) -> Device:
    """Return the device that a pickled handle names."""
    system = find_system(token)
    if system is None:
        raise InvalidRequest("this handle belongs to another System (another process, or one that is closed)")
    return system.device(name)


class System(ProcessBound):
    """The devices and actors of a program; a context manager.

    Parameters
    ----------
    isolation : {"process", "thread"}
        Where devices work: in a worker process each, which a fault cannot outlive (the default), or in threads of
        this process, for debuggers and embedding, with no recovery.
    memory_limit : int, optional
        Bytes of memory that the arrays of each device may take; `Device.host_array` and staging are not counted.  By
        default four fifths of the host memory, and nine tenths of a GPU's memory, that are free when the device is
        first used.
    mailbox_size : int
        Cells of 256 bytes in each mailbox, rounded up to a power of two; most messages take one.
    mailbox : {"block", "reject"}
        What a sender meets in a full mailbox: wait up to `timeout`, or `MailboxFull` at once.
    timeout : float or None
        Seconds that senders wait for room, and calls for a device that restarts; None for ever.
    max_restarts, within : int, float
        A device that dies more than `max_restarts` times within so many seconds is lost.
    standby : {"warm", "hot", "off"}
        Whether a worker process waits in reserve, which makes restarts fast.  A *warm* one has loaded everything and
        takes none of the device's memory; a *hot* one has opened the GPU too, which takes about half a gigabyte of
        its memory and saves about half of a restart.  On ``host`` they are the same.
    watchdog : float, optional
        Seconds that one message may run before the worker is ended and restarted; None: no limit.  On a GPU the end
        of every message is then told by itself, which costs about as much as a small kernel.
    deterministic : bool
        Ask for operations whose results do not depend on timing.  On ``host`` all are.
    seed : int, optional
        Seed for operations that draw random numbers.
    spin_us : int
        Microseconds that idle lanes and waiting threads spin before they park.
    allow_crash : bool
        Allow `Device.inject_fault`, for tests.
    debug : bool
        Have kernels (`Device.kernel`) check their indices, unless they are made with ``debug=False``.
    workspace_limit : int
        Bytes of scratch memory that one plan may want.  Each actor keeps one workspace in the device's memory, as
        large as the largest that its plans want; the more there may be, the more algorithms a library has to choose
        from.  The default, 32 MiB, is what NVIDIA recommends for cuBLASLt on Hopper.
    clock : Clock, optional
        Of actors' timers and restarts, for tests: see `atomr_native.testing.FakeClock`.
    observe : bool
        Let other processes of this user look at the statistics, as ``python -m atomr_native top`` does.
    """

    def __init__(
        self,
        *,
        isolation: Literal["process", "thread"] = "process",
        memory_limit: int | None = None,
        mailbox_size: int = 1024,
        mailbox: Literal["block", "reject"] = "block",
        timeout: float | None = 30.0,
        max_restarts: int = 3,
        within: float = 60.0,
        standby: Literal["warm", "hot", "off"] = "warm",
        watchdog: float | None = None,
        deterministic: bool = False,
        seed: int | None = None,
        spin_us: int = 50,
        allow_crash: bool = False,
        debug: bool = False,
        workspace_limit: int = 32 << 20,
        clock: Clock | None = None,
        observe: bool = False,
    ) -> None:
        self.config = SystemConfig(
            isolation, memory_limit, mailbox_size, mailbox, timeout, max_restarts, within, standby, watchdog,
            deterministic, seed, spin_us, allow_crash, debug, workspace_limit,
        )  # fmt: skip
        self.token = os.urandom(16).hex()
        self._environment = worker_environment()
        self._devices: dict[str, Device] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._dead_letters = _DeadLetters()
        if clock is not None and not callable(getattr(clock, "now", None)):
            raise InvalidRequest(f"clock={clock!r}; allowed: None, or a clock such as atomr_native.testing.FakeClock()")
        self._clock = clock
        self._stepper: Any = None
        self._actors: ActorTree | None = None
        self._closers: list[Callable[[], object]] = []
        observe = as_flag("observe", observe)
        with _systems_lock:
            _systems[self.token] = self
        if observe:
            from .observe.publisher import publish

            publish(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def dead_letters(self) -> _DeadLetters:
        """Failures of messages that nobody held a reply of, of all that is resolved by now."""
        for device in list(self._devices.values()):
            with contextlib.suppress(DeviceLost):  # in a forked child
                device._collect_failures()
        return self._dead_letters

    def device(self, name: str | None = None) -> Device:
        """Return a device, started on first use.  Waits until it is open.

        Parameters
        ----------
        name : str, optional
            ``"host"``, or ``"cuda:0"`` and so on.  By default the first GPU, or the host where there is none.

        Raises
        ------
        InvalidRequest
            For an unknown name.
        Unsupported
            For a device that is not possible here.
        """
        from .device import Device

        if name is None:
            return self._default()
        if not isinstance(name, str) or (name != "host" and not re.fullmatch(r"cuda:\d{1,3}", name)):
            raise InvalidRequest(f"unknown device {name!r}; allowed: 'host', 'cuda:0', 'cuda:1', ...")
        with self._lock:
            if self._closed:
                raise ActorStopped("this System is closed; make a new one")
            found = self._devices.get(name)
            if found is not None:
                return found
            try:
                found = self._devices[name] = Device(self, name, self._environment)
                return found
            except Unsupported as error:
                why = str(error)
        # Outside of the handler, so that the error keeps no frames, and with them no half-made device.
        raise Unsupported(f"device {name!r}: {why}; the 'host' device works everywhere")

    def _default(self) -> Device:
        if _has_gpu():
            try:
                return self.device("cuda:0")
            except Unsupported as error:
                _log.warning("the GPU of this machine cannot be used: %s", error)
        return self.device("host")

    # ---- actors

    def _tree(self) -> ActorTree:
        tree = self._actors
        if tree is not None and not self._closed:
            return tree  # without the lock, which is held while a device starts
        with self._lock:
            if self._closed:
                raise ActorStopped("this System is closed; make a new one")
            if self._actors is None:
                from .actors.tree import ActorTree

                self._actors = ActorTree(self, self._clock, self._stepper)
            return self._actors

    def spawn(
        self,
        kind: type[Actor],
        *args: Any,
        name: str | None = None,
        supervision: Supervision | None = None,
        mailbox: Mailbox | None = None,
        **kwargs: Any,
    ) -> ActorRef:
        """Start an actor.  Returns at once; it is constructed in its own thread, before its first message.

        Parameters
        ----------
        kind : type
            A subclass of `Actor`.
        *args, **kwargs
            Of its constructor, which is called anew with the same objects at each restart.
        name : str, optional
            Unique among the actors of the same parent that have not stopped; by default made from the class.
        supervision : Supervision, optional
            What happens when it fails: `OneForOne` or `AllForOne`; by default what its parent has for its children.
        mailbox : Mailbox, optional
            By default as large, and with the policy, that the System was given.

        Raises
        ------
        InvalidRequest
            For a name that is taken, or anything that could not work.
        ActorStopped
            If the System is closed.
        """
        return self._tree().top().family.spawn(kind, args, kwargs, name, supervision, mailbox).ref

    def pool(self, kind: type[Actor], *args: Any, size: int, **options: Any) -> Pool:
        """Start several actors of one kind behind one address; see `Pool`."""
        from .actors.pool import spawn_pool

        return spawn_pool(self._tree().top(), kind, args, size, options)

    def find(self, path: str) -> ActorRef | None:
        """Return the actor of a path such as ``"/trainer/worker"``; None if there is none."""
        tree = self._actors
        return None if tree is None else tree.find(path)

    def _actor_dead_letter(self, actor: str, message: object, sender: str | None, error: AtomrError) -> None:
        letter = DeadLetter("", actor, 0, error, _describe(message), sender, message)
        total = self._dead_letters.add(letter)
        if total <= 10 or total & (total - 1) == 0:
            _log.warning("dead letter for %s from %s: %s (%d such): %s", actor, sender or "outside", letter.text, total,
                         error, extra=log_fields("dead_letter", actor=actor, cause=error))  # fmt: skip

    def stats(self) -> SystemStats:
        """Return the statistics of every device and actor, and the number of dead letters."""
        with self._lock:
            devices = dict(self._devices)
        tree = self._actors
        return {
            "devices": {name: device.stats() for name, device in devices.items()},
            "actors": {} if tree is None else tree.stats(),
            "dead_letters": self.dead_letters.total,
        }

    def close(self, timeout: float = 5.0) -> None:
        """Let actors and devices finish, for `timeout` seconds at most for all together, then end them.  Idempotent.

        Messages still unresolved fail with `ActorStopped`, or become dead letters if nobody has asked.

        Raises
        ------
        InvalidRequest
            When an actor of this System calls it.
        """
        timeout = number("timeout", timeout, 0, 1e9)
        deadline = time.monotonic() + timeout
        tree = self._actors
        if tree is not None:
            tree.check_closing()
        with self._lock:
            self._closed = True
            devices = dict(self._devices)
        try:
            with contextlib.ExitStack() as stack:  # also if one of them is interrupted
                if tree is not None:
                    # Last: what an actor waits for may be a device, which answers when it is closed.
                    stack.callback(tree.join, _GRACE)
                for device in devices.values():
                    stack.callback(_close_device, device, deadline)
                if tree is not None:
                    stack.callback(tree.drain, deadline)
        finally:
            with _systems_lock:
                _systems.pop(self.token, None)
            for closer in self._closers:
                closer()

    def _when_closed(self, closer: Callable[[], object]) -> None:
        """Have something called at the end of `close`, each time; it must not raise."""
        self._closers.append(closer)

    def _dead_letter(self, device: str, actor: str, ticket: int, error: AtomrError) -> tuple[DeadLetter, int]:
        letter = DeadLetter(device, actor, ticket, error)
        return letter, self._dead_letters.add(letter)

    def _report(self, letter: DeadLetter, total: int) -> None:
        if total <= 10 or total & (total - 1) == 0:  # a flood is told by its powers of two
            _log.warning("message %d of %r on %s failed, and nobody waits for it: %s (%d such)",
                         letter.ticket, letter.actor, letter.device, letter.error, total,
                         extra=log_fields("dead_letter", actor=letter.actor, device=letter.device,
                                          cause=letter.error))  # fmt: skip

    def __enter__(self) -> System:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, or Ctrl-C, nobody is interested in the rest of the queue.
        self.close(5.0 if kind is None else 0.2)

    def __repr__(self) -> str:
        return f"<System of {', '.join(self._devices) or 'no device'}{', closed' if self._closed else ''}>"


def _close_device(device: Device, deadline: float) -> None:
    device.close(max(0.0, deadline - time.monotonic()))


def _describe(message: object) -> str:
    try:
        return reprlib.repr(message)
    except Exception:
        return f"<{type(message).__name__}>"


def _close_all() -> None:
    with contextlib.ExitStack() as stack:
        for system in list(_systems.values()):
            stack.callback(system.close, 1.0)


def _abandon_all() -> None:
    """In a forked child: nothing of the parent's may be used or ended from here."""
    global _systems_lock
    actors = sys.modules.get("atomr_native._lib.actor_cell")
    if actors is not None:
        actors.forked()
    _systems_lock = threading.Lock()  # another thread, which does not exist here, may have held it
    for system in list(_systems.values()):
        system._closed = True
        system._lock = threading.RLock()
        system._dead_letters._lock = threading.Lock()
        for device in system._devices.values():
            device.abandon()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
