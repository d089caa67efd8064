"""Systems: the devices and actors of one program, and their shared state."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ._lib.guard import Persisting, shielded
from ._support import registry
from ._support.checks import as_flag
from ._support.process_bound import ProcessBound
from ._support.public import public
from ._support.timeouts import seconds_of
from .arrays.owner import owner_of
from .errors import ActorStopped, DeviceLost, InvalidRequest, Unsupported
from .runtime.addresses import address_of
from .runtime.config import SystemConfig
from .runtime.dead_letters import DeadLetters
from .runtime.listing import DeviceListing, has_gpu, list_devices
from .runtime.system_state import SystemState

if TYPE_CHECKING:
    from types import TracebackType

    from .actors.actor import Actor
    from .actors.clock import Clock
    from .actors.mailbox import Mailbox
    from .actors.pool import Pool
    from .actors.ref import ActorRef
    from .actors.supervision import Supervision
    from .actors.tree import ActorTree
    from .arrays.gpu_ref import GpuRef
    from .communicators.communicator import Communicator
    from .communicators.registry import Communicators
    from .device import Device
    from .runtime.statistics import SystemStats

__all__ = ["System", "SystemConfig", "state_of"]

_log = logging.getLogger("atomr_native.dead_letters")
_GRACE = 1.0  # seconds for actors to finish their current message when everything is closed


def _is_set(variable: str, default: str = "0") -> bool:
    """Whether an environment variable is on."""
    value = os.environ.get(variable, "") or default
    if value not in ("0", "1"):
        raise InvalidRequest(f"environment variable {variable}={value!r}; allowed: 0, 1")
    return value == "1"


def state_of(system: System) -> SystemState:
    """Return the internal state of a System, for the package's own modules."""
    return system._state  # noqa: SLF001 - the one way from the public face to the state


@public
class System(ProcessBound):
    """The devices and actors of a program; a context manager.

    Parameters
    ----------
    isolation : {"process", "thread"}
        Where devices run: each in its own worker process, which contains faults (the default), or in threads of this
        process, for debuggers and embedding, without recovery.
    memory_limit : int or mapping, optional
        Limit for the arrays of each device, in bytes, or of each device of a kind, as in ``{"host": 1 << 30}``;
        `Device.host_array` and staging memory do not count.  By default
        four fifths of the free host memory, and nine tenths of the free memory of a GPU, when the device is first used.
    mailbox_size : int
        Cells of 256 bytes in each mailbox, rounded up to a power of two; most messages take one.
    mailbox : {"block", "reject"}
        Behaviour of a send to a full mailbox: wait up to `timeout`, or raise `MailboxFull` at once.
    timeout : float or None
        Seconds that senders wait for room, and that calls wait for a restarting device; None: no limit.
    max_restarts, within : int, float
        Restart budget: a device that dies more than `max_restarts` times within `within` seconds is lost.
    standby : {"warm", "hot", "off"}
        Whether a spare worker process makes restarts fast.  A *warm* standby has loaded all libraries and uses no
        device memory.  A *hot* standby has also opened the GPU, which uses about half a gigabyte of device memory and
        saves about half of the restart time.  On ``host`` both are the same.
    watchdog : float, optional
        Seconds that one message may run before the worker is killed and restarted; None: no limit.  On a GPU every
        message then reports its completion separately, which costs about as much as a small kernel.
    deterministic : bool
        Whether results must not depend on timing.  Tuning then measures nothing: ``tune=True`` takes what has been
        measured or imported before, since algorithms add in different orders.  All other operations add in a fixed
        order anyway; atomic operations in users' kernels are theirs.
    seed : int, optional
        Seed of the random variation of the pauses before actors restart (`Supervision`).  Operations that draw random
        numbers take their own.
    spin_us : int
        Microseconds that idle lanes and waiting threads spin before they park.  Where the last wait for the same took
        up to eight times as long, they spin for twice its time, at most eight times as long: one thread of a process to
        each four processors, so that a loop of asks meets nobody asleep.
    allow_crash : bool
        Allow `Device.inject_fault`, for tests.
    debug : bool
        Make kernels (`Device.kernel`) check their indices, unless they are made with ``debug=False``, and errors of
        messages name the file and line of the send (`MessageCall`); the environment variable ``ATOMR_NATIVE_DEBUG=1``
        does only the latter.  A send then takes about a microsecond longer.
    blocking : bool
        Make each send to a device wait for its completion and raise its error, `tell` and immediate calls too, as
        ``CUDA_LAUNCH_BLOCKING`` does; the environment variable ``ATOMR_NATIVE_BLOCKING=1`` sets it for every System.
        To find the call behind an error.  Messages to Python actors do not wait.
    workspace_limit : int, optional
        Bytes of scratch memory that one plan may use.  Each actor keeps one workspace in device memory, as large as the
        largest one that its plans need.  By default libraries choose among algorithms that need at most 32 MiB, which
        NVIDIA recommends for cuBLASLt on Hopper, and a plan that cannot do with that may use an eighth of the device's
        memory.  A number is the limit for both: a higher one lets a library choose among more algorithms.
    launch_records : {"auto", "all", "off"}
        Plans whose launches the worker of a GPU keeps, and repeats by one call for messages with the same operands and
        numbers: those that gain from it (calls of libraries, several kernels), all that can, or none.  Results are the
        same.  The environment variable ``ATOMR_NATIVE_LAUNCH_RECORDS=0`` turns it off for every System.
    clock : Clock, optional
        Clock of actors' timers and restarts, for tests; see `atomr_native.testing.FakeClock`.
    observe : bool
        Let other processes of this user read the statistics, as ``python -m atomr_native top`` does.
    """

    def __init__(
        self,
        *,
        isolation: Literal["process", "thread"] = "process",
        memory_limit: int | Mapping[str, int] | None = None,
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
        blocking: bool = False,
        workspace_limit: int | None = None,
        launch_records: Literal["auto", "all", "off"] = "auto",
        clock: Clock | None = None,
        observe: bool = False,
    ) -> None:
        self.config = SystemConfig(
            isolation, memory_limit, mailbox_size, mailbox, timeout, max_restarts, within, standby, watchdog,
            deterministic, seed, spin_us, allow_crash, debug, workspace_limit,
            as_flag("blocking", blocking) or _is_set("ATOMR_NATIVE_BLOCKING"),
            launch_records if _is_set("ATOMR_NATIVE_LAUNCH_RECORDS", "1") else "off",
            as_flag("debug", debug) or _is_set("ATOMR_NATIVE_DEBUG"),
        )  # fmt: skip
        self.token = os.urandom(16).hex()
        self._state = SystemState(self.config)
        if clock is not None and not callable(getattr(clock, "now", None)):
            raise InvalidRequest(f"clock={clock!r}; allowed: None, or a clock such as atomr_native.testing.FakeClock()")
        self._clock = clock
        observe = as_flag("observe", observe)
        registry.add(self)
        if observe:
            from .observe.publisher import publish

            publish(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state.closed

    @property
    def dead_letters(self) -> DeadLetters:
        """Failures without a holder of their reply, among all messages resolved so far."""
        for device in list(self._state.devices.values()):
            with contextlib.suppress(DeviceLost):  # in a forked child
                owner_of(device).collect_failures()
        return self._state.dead_letters

    def device(self, name: str | None = None) -> Device:
        """Return a device; start it on first use.  Waits until it is open.

        Parameters
        ----------
        name : str, optional
            ``"cuda:0"`` and so on, or ``"host"``; ``"host:1"`` to ``"host:15"`` are further host devices, each with a
            worker and memory of its own, and ``"host:0"`` is ``"host"``.  By default the first GPU, or the host if
            there is none.

        Raises
        ------
        InvalidRequest
            For an unknown name.
        Unsupported
            If the device cannot run here.
        """
        from .device import Device

        if name is None:
            return self._default()
        found: Device | None = self._state.devices.get(name) if isinstance(name, str) else None
        if found is not None and not self._state.closed:
            return found
        address = address_of(name)
        name = address.name
        try:
            self._state.check(address)
            return self._start(Device, name)
        except Unsupported as error:
            why, rule, lifted_by = str(error), error.rule, error.lifted_by
        # Outside the handler, so that the error does not keep frames, and with them a half-made device.
        text = f"device {name!r}: {why}; the 'host' device works everywhere"
        raise Unsupported(text, rule=rule, lifted_by=lifted_by)

    def devices(self) -> list[DeviceListing]:
        """List the devices that can be used: the host, the machine's GPUs, and every device that is in use.

        Starts nothing, loads no CUDA library and does not wait.  A further host device (``"host:1"`` to
        ``"host:15"``) is listed once it is in use.

        Examples
        --------
        >>> "host" in [listed.name for listed in device.system.devices()]
        True
        """
        return list_devices(self._state.states())

    def place(
        self,
        near: GpuRef | Sequence[GpuRef] | None = None,
        policy: Literal["least_loaded", "round_robin", "by_key"] = "least_loaded",
        key: Hashable = None,
        *,
        among: Sequence[str | Device] | None = None,
    ) -> Device:
        """Choose a device for new work.  Does not wait, unless `among` names a device that is not started.

        Parameters
        ----------
        near : GpuRef or sequence of GpuRef, optional
            Choose among the devices that hold the most bytes of these arrays.
        policy : {"least_loaded", "round_robin", "by_key"}
            The device with the fewest messages that are not resolved, and among these the one with the most free
            memory; each in turn; by a key, so that the same device is chosen for it as long as it is there.
        key : str, bytes, int or tuple of them, optional
            Of ``"by_key"``.
        among : sequence of str or Device, optional
            The devices to choose from; by default all that are in use, or the default device if none is.

        Raises
        ------
        InvalidRequest
            For a policy or key that is not allowed, or a device of another System.
        DeviceLost
            If none of the devices can take work.

        Examples
        --------
        >>> x = device.put([1.0, 2.0])
        >>> device.system.place(near=x) is device
        True
        """
        if among is not None:
            devices = self._own(among, "among")
        else:
            devices = list(self._state.devices.values()) or [self._default()]
        self._check_open()
        chosen: Device = self._state.chooser.choose([owner_of(d) for d in devices], near, policy, key).device
        return chosen

    def _own(self, devices: Sequence[str | Device], name: str) -> list[Device]:
        """Return devices of this System, given by name or as they are; those that are not started start."""
        if isinstance(devices, str) or not isinstance(devices, Sequence):
            raise InvalidRequest(f"{name}={devices!r}; allowed: a list such as ['host:0', 'host:1']")
        found = [self.device(device) if isinstance(device, str) else device for device in devices]
        for device in found:
            if getattr(device, "system", None) is not self:
                raise InvalidRequest(f"{name} has {device!r}; allowed: names and devices of this System")
        return found

    def communicator(
        self,
        devices: Sequence[str | Device],
        *,
        on_death: Literal["abort", "restart"] = "abort",
        copy_engines: bool = False,
    ) -> Communicator:
        """Make a communicator of devices, which are started where necessary.

        Waits until all workers know it, and GPUs are connected.

        Parameters
        ----------
        devices : sequence of str or Device
            Host devices or GPUs of this System, each once; their places are the ranks.
        on_death : {"abort", "restart"}
            How GPUs that survive the death of a rank leave what they were doing together: ``"abort"`` keeps their
            workers and memory, and may take seconds; ``"restart"`` ends their workers at once, for ranks whose state is
            durable.  Host devices have nothing to leave.
        copy_engines : bool
            Whether ``all_gather`` and ``all_to_all`` of symmetric arrays use copy engines instead of multiprocessors,
            with NCCL 2.28.3 and newer.  It takes longer for small arrays; and nobody can abort the waits of a copy
            engine, so the death of a rank may end the workers of the others, as with ``on_death="restart"``.

        Raises
        ------
        InvalidRequest
            For no device, a device twice, devices of two kinds, or a device of another System.
        Unsupported
            For GPUs without NCCL, or with a version before 2.18.
        LibraryError
            If NCCL cannot connect them.
        """
        return self._communicators().make(self._own(devices, "devices"), on_death, copy_engines)

    async def communicator_async(
        self,
        devices: Sequence[str | Device],
        *,
        on_death: Literal["abort", "restart"] = "abort",
        copy_engines: bool = False,
    ) -> Communicator:
        """Like `communicator`, but awaitable: it does not block the event loop."""
        import asyncio  # at first use: most programs have no coroutines

        return await asyncio.to_thread(self.communicator, devices, on_death=on_death, copy_engines=copy_engines)

    @shielded
    def _communicators(self) -> Communicators:
        with self._state.lock:
            self._check_open()
            if self._state.communicators is None:
                from .communicators.registry import Communicators

                self._state.communicators = Communicators()
            made: Communicators = self._state.communicators
            return made

    @shielded
    def _start(self, kind: type[Device], name: str) -> Device:
        with self._state.lock:
            self._check_open()
            made: Device | None = self._state.devices.get(name)
            if made is None:
                made = self._state.devices[name] = kind(self, name, self._state)
            return made

    def _check_open(self) -> None:
        if self._state.closed:
            raise ActorStopped("this System is closed; make a new one")

    def _default(self) -> Device:
        if has_gpu():
            try:
                return self.device("cuda:0")
            except Unsupported as error:
                _log.warning("the GPU of this machine cannot be used: %s", error)
        return self.device("host")

    # ---- actors

    def _tree(self) -> ActorTree:
        tree: ActorTree | None = self._state.tree
        if tree is not None and not self._state.closed:
            return tree  # without the lock, which is held while a device starts
        return self._make_tree()

    @shielded
    def _make_tree(self) -> ActorTree:
        with self._state.lock:
            self._check_open()
            if self._state.tree is None:
                from .actors.tree import ActorTree

                self._state.tree = ActorTree(self, self._state.dead_letters, self._clock, self._state.stepper)
            made: ActorTree = self._state.tree
            return made

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
            Arguments of its constructor, which is called again with the same objects at each restart.
        name : str, optional
            Unique among the running actors of the same parent; by default derived from the class.
        supervision : Supervision, optional
            The strategy for its failures: `OneForOne` or `AllForOne`; by default the parent's strategy for its
            children.
        mailbox : Mailbox, optional
            By default with the size and the policy of the System.

        Raises
        ------
        InvalidRequest
            For a name that is taken, or an invalid argument.
        ActorStopped
            If the System is closed.
        """
        return self._tree().top().family.spawn(kind, args, kwargs, name, supervision, mailbox).ref

    def pool(self, kind: type[Actor], *args: Any, size: int, **options: Any) -> Pool:
        """Start several actors of one kind behind one address; see `Pool`.

        With ``devices=["host:0", "host:1"]`` each actor has a device, its constructor's argument ``device``.
        """
        from .actors.pool import spawn_pool

        if "devices" in options:
            options["devices"] = self._own(options["devices"], "devices")
        return spawn_pool(self._tree().top(), kind, args, size, options)

    def find(self, path: str) -> ActorRef | None:
        """Return the actor of a path such as ``"/trainer/worker"``; None if there is none."""
        tree = self._state.tree
        return None if tree is None else tree.find(path)

    def stats(self) -> SystemStats:
        """Return the statistics of every device and actor, and the number of dead letters."""
        devices = self._state.devices.copy()
        tree = self._state.tree
        return {
            "devices": {name: device.stats() for name, device in devices.items()},
            "actors": {} if tree is None else tree.stats(),
            "dead_letters": self.dead_letters.total,
        }

    def close(self, timeout: float = 5.0) -> None:
        """Let actors and devices finish, for at most `timeout` seconds in total, then end them.  Idempotent.

        An interrupt (Ctrl-C) ends the wait; everything still ends, in another thread, and the next `close` waits for
        that.  A signal handler may call it at any moment.

        Unresolved messages fail with `ActorStopped`; messages without a reply become dead letters.

        Raises
        ------
        InvalidRequest
            If an actor of this System calls it.
        """
        timeout = seconds_of(timeout, limited=True)
        tree = self._state.tree
        if tree is not None:
            tree.check_closing()
        self._close(time.monotonic() + timeout)

    @shielded
    def _close(self, deadline: float) -> None:
        self._state.closed = True  # so that no device starts after those that start now
        with Persisting(), self._state.closing:
            self._end(deadline)

    def _end(self, deadline: float) -> None:
        with self._state.lock:
            tree = self._state.tree
            devices = dict(self._state.devices)
        try:
            with contextlib.ExitStack() as stack:  # even if one of them is interrupted
                if tree is not None:
                    # Last: an actor may wait for a device, which answers when it is closed.
                    stack.callback(tree.join, _GRACE)
                for device in devices.values():
                    stack.callback(_close_device, device, deadline)
                if tree is not None:
                    stack.callback(tree.drain, deadline)
        finally:
            registry.remove(self)
            for closer in self._state.closers:
                closer()

    def __enter__(self) -> System:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, or Ctrl-C, the rest of the queue does not matter.
        self.close(5.0 if kind is None else 0.2)

    def __repr__(self) -> str:
        return f"<System of {', '.join(self._state.devices) or 'no device'}{', closed' if self._state.closed else ''}>"


def _close_device(device: Device, deadline: float) -> None:
    device.close(max(0.0, deadline - time.monotonic()))


def _close_all() -> None:
    """At the interpreter's exit: end what is still open, with a warning, as for files and subprocesses."""
    with contextlib.ExitStack() as stack:
        for system in registry.systems():
            stack.callback(system.close, 1.0)
            stack.callback(_warn_if_open, system)


def _warn_if_open(system: System) -> None:
    state = state_of(system)
    if not system.closed and (state.devices or state.tree is not None):
        text = f"{system!r} was not closed before the program ended: use 'with System() as system', or system.close()"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=system)


def _abandon_all() -> None:
    """In a forked child: release the parent's objects, which must not be used or ended from here."""
    actors = sys.modules.get("atomr_native._lib.actor_cell")
    if actors is not None:
        actors.forked()
    for system in registry.systems():
        state_of(system).abandon()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
