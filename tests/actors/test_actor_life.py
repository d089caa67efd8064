"""How actors end: stop, kill, closing a System, forks, Ctrl-C, the end of the interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from actions import Gate, eventually
from leaks import Baseline

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


class Call(an.Actor):
    def receive(self, message: Any) -> Any:
        return message(self)


class Echo(an.Actor):
    def receive(self, message: Any) -> Any:
        return message


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System() as made:
        yield made


def test_stop_finishes_what_is_there(system: an.System) -> None:
    gate = threading.Event()
    ref = system.spawn(Call)
    ref.tell(lambda _: gate.wait(30))
    answers = [ref.ask(lambda _, i=i: i) for i in range(10)]
    ref.stop()
    late = ref.ask(lambda _: "late")
    with pytest.raises(an.ActorStopped):
        late.result(0)
    assert not ref.join(0)
    gate.set()
    assert [answer.result(10) for answer in answers] == list(range(10))
    assert ref.join(10)


def test_kill_drops_what_is_there_at_once(system: an.System) -> None:
    gate, begun = threading.Event(), threading.Event()
    ref = system.spawn(Call, name="killed")
    at_work = ref.ask(lambda _: (begun.set(), gate.wait(30), "done")[2])
    waiting = [ref.ask(lambda _: 1) for _ in range(3)]
    ref.tell(lambda _: 1)
    assert begun.wait(10)
    ref.kill()
    for answer in waiting:  # although the thread is still busy
        with pytest.raises(an.ActorStopped):
            answer.result(0)
    assert len(system.dead_letters) == 1
    assert not ref.stopped
    gate.set()
    assert at_work.result(10) == "done"
    assert ref.join(10)


def test_a_kill_after_a_stop_counts() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Echo)
        answers = [ref.ask(i) for i in range(5)]
        ref.stop()
        ref.kill()
        ref.stop()
        ref.kill()
        sim.run()
        assert ref.stopped
        for answer in answers:
            with pytest.raises(an.ActorStopped):
                answer.result()


def test_stop_from_inside() -> None:
    class Suicidal(an.Actor):
        def __init__(self, where: str) -> None:
            self.where = where
            if where == "constructor":
                self.context.stop()

        def pre_start(self) -> None:
            if self.where == "pre_start":
                self.context.stop()

        def receive(self, message: Any) -> Any:
            if self.where == "receive":
                self.context.stop()
            return message

    for where in ("constructor", "pre_start", "receive"):
        with Deterministic() as sim:
            ref = sim.system.spawn(Suicidal, where)
            answers = [ref.ask(i) for i in range(3)]
            sim.run()
            assert ref.stopped
            assert [answer.result() for answer in answers] == [0, 1, 2]  # accepted before the stop
            with pytest.raises(an.ActorStopped):
                ref.ask(4).result()


def test_stop_drains_children_too(system: an.System) -> None:
    seen: list[int] = []

    class Child(an.Actor):
        def receive(self, message: int) -> None:
            time.sleep(0.001)
            seen.append(message)

    class Parent(an.Actor):
        def pre_start(self) -> None:
            self.child = self.context.spawn(Child)

        def receive(self, message: int) -> None:
            self.child.tell(message)

    ref = system.spawn(Parent)
    for i in range(50):
        ref.tell(i)
    ref.stop()
    assert ref.join(30)
    assert seen == list(range(50))


def test_a_queued_message_does_not_make_a_stopping_actor_spin(system: an.System) -> None:
    gate = threading.Event()

    class Child(an.Actor):
        def post_stop(self) -> None:
            gate.wait(30)

        def receive(self, message: Any) -> None: ...

    class Parent(an.Actor):
        def pre_start(self) -> None:
            self.context.spawn(Child)

        def receive(self, message: Any) -> None: ...

    ref = system.spawn(Parent)
    eventually(lambda: ref.stats()["state"] == "running")
    ref.kill()
    eventually(lambda: ref.stats()["state"] == "stopping")
    ref.cell._put_back(an.actors.cell.Envelope("late"))  # as an unstash would
    thread = ref.cell.thread
    assert thread is not None
    clock = time.pthread_getcpuclockid(thread.ident)  # type: ignore[arg-type]
    before = time.clock_gettime(clock)
    time.sleep(0.3)
    assert time.clock_gettime(clock) - before < 0.1
    gate.set()
    assert ref.join(10)
    assert [letter.text for letter in system.dead_letters] == ["'late'"]


def test_stopping_while_waiting_for_a_restart() -> None:
    class Fails(an.Actor):
        def receive(self, message: Any) -> None:
            raise ValueError(f"at {message}")

    for drain in (True, False):
        with Deterministic() as sim:
            probe = Probe(sim.system)
            ref = sim.system.spawn(Fails, supervision=an.OneForOne(backoff=10, jitter=0))
            probe.watch(ref)
            ref.tell(1)
            ref.tell(2)
            asked = ref.ask(3)
            sim.run()
            assert ref.stats()["state"] == "waiting"
            if drain:
                ref.stop()
                sim.run()
                assert ref.stats()["state"] == "waiting"  # what it has is still to be done
                sim.advance(10)
                with pytest.raises(ValueError, match="at 3"):
                    asked.result()
                sim.advance(20)
            else:
                ref.kill()
                with pytest.raises(an.ActorStopped):
                    asked.result()
            probe.expect_terminated(ref)
            assert sim.clock.next_due() is None


# ---- closing


def test_close_finishes_what_is_there_and_takes_nothing_more() -> None:
    before = Baseline()
    system = an.System()
    seen: list[int] = []

    class Slow(an.Actor):
        def receive(self, message: int) -> None:
            time.sleep(0.001)
            seen.append(message)

    ref = system.spawn(Slow)
    for i in range(50):
        ref.tell(i)
    system.close()
    system.close()
    assert seen == list(range(50))
    assert ref.stopped
    with pytest.raises(an.ActorStopped):
        ref.ask(1).result(0)
    with pytest.raises(an.ActorStopped, match="closed"):
        system.spawn(Slow)
    assert system.stats()["actors"] == {}
    del ref
    before.check()


def test_close_has_one_deadline_for_all(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    system = an.System()
    refs = [system.spawn(Call, name=f"busy-{i}") for i in range(5)]
    held = [ref.ask(lambda _: gate.wait(60)) for ref in refs]
    waiting = [ref.ask(lambda _: 1) for ref in refs]
    began = time.monotonic()
    system.close(0.2)
    assert time.monotonic() - began < 10  # not five times as long, and not for ever
    for answer in held + waiting:
        with pytest.raises(an.ActorStopped):
            answer.result(0)
    assert "/busy-3" in caplog.text
    assert "left behind" in caplog.text
    threads = [ref.cell.thread for ref in refs]
    gate.set()
    for thread in threads:
        assert thread is not None
        thread.join(10)
        assert not thread.is_alive()
    assert all(ref.stopped for ref in refs)


def test_an_actor_cannot_close_its_system(system: an.System) -> None:
    with pytest.raises(an.InvalidRequest, match="cannot close its System"):
        system.spawn(Call).ask(lambda actor: actor.context.system.close()).result(10)
    assert not system.closed


def test_spawning_and_sending_while_closing() -> None:
    before = Baseline()
    for _ in range(10):
        system = an.System()
        errors: list[BaseException] = []

        def busy(system: an.System = system, errors: list[BaseException] = errors) -> None:
            try:
                while True:
                    ref = system.spawn(Echo)
                    for i in range(5):
                        ref.tell(i)
            except an.ActorStopped:
                return
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.005)
        system.close(0.1)
        for thread in threads:
            thread.join(30)
        assert not errors
        assert system.stats()["actors"] == {}
    before.check()


def test_actors_that_wait_for_a_device_are_released() -> None:
    before = Baseline()
    system = an.System(standby="off", allow_crash=True)
    device = system.device("host")

    class Waits(an.Actor):
        def receive(self, message: Any) -> Any:
            return message.result()

    gate = Gate(device.lane("a"))
    answer = system.spawn(Waits).ask(gate.reply)
    system.close(0.1)
    with pytest.raises(an.ActorStopped):
        answer.result(10)
    del gate, device, answer, system
    before.check()


def test_many_actors_in_many_threads(nothing_left: None) -> None:
    with an.System() as system:
        totals: list[int] = []

        class Sum(an.Actor):
            def __init__(self) -> None:
                self.total = 0

            def receive(self, message: int) -> int:
                self.total += message
                return self.total

        def work() -> None:
            refs = [system.spawn(Sum) for _ in range(10)]
            for i in range(100):
                for ref in refs:
                    ref.tell(i)
            totals.extend(ref.ask(0).result(30) for ref in refs)
            for ref in refs:
                ref.stop()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert totals == [4950] * 40


def test_no_more_threads_is_a_typed_error(system: an.System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.spawn(Echo)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(an.ActorStopped, match="could not be started"):
        system.spawn(Echo, name="none")
    monkeypatch.undo()
    assert system.find("/none") is None
    assert system.spawn(Echo, name="none").ask(1).result(10) == 1


def test_join_async(system: an.System) -> None:
    import asyncio

    async def main() -> None:
        ref = system.spawn(Echo)
        ref.stop()
        await asyncio.wait_for(ref.join_async(), 10)

    asyncio.run(main())


# ---- forks, signals, and the end of the interpreter


def test_in_a_forked_child_everything_is_a_typed_error(system: an.System) -> None:
    gate = threading.Event()
    ref = system.spawn(Call, name="here")
    answer = ref.ask(lambda _: gate.wait(30))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for use in (
                lambda: ref.ask(1), lambda: ref.tell(1), lambda: answer.result(1), ref.stop, ref.kill,
                lambda: system.spawn(Echo), lambda: system.pool(Echo, size=2),
            ):  # fmt: skip
                with pytest.raises(an.ActorStopped):
                    use()
            system.close()
            with an.System() as own:
                assert own.spawn(Echo).ask(3).result(10) == 3
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    gate.set()
    assert answer.result(10) is True


def test_a_fork_inside_of_an_actor_ends_cleanly(system: an.System) -> None:
    def fork(_: Any) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert system.spawn(Call).ask(fork).result(30) == 7


def run(program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    warnings = ("-W", "error", "-W", "ignore::ResourceWarning")  # of Systems that are left open
    return subprocess.run(
        [sys.executable, *warnings, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120,
        check=False, **options,
    )  # fmt: skip


def test_the_interpreter_ends_with_actors_at_work() -> None:
    done = run("""
        import asyncio, time
        import atomr_native as an

        class Busy(an.Actor):
            def receive(self, message):
                self.context.self_ref.tell(message)

        class Loop(an.Actor):
            async def receive(self, message):
                await asyncio.sleep(60)

        class Ticks(an.Actor):
            def pre_start(self):
                self.context.timers.start_periodic(0.001, "tick")
            def receive(self, message): ...

        class Stuck(an.Actor):
            def receive(self, message):
                time.sleep(60)

        system = an.System()
        system.spawn(Busy).tell(1)
        system.spawn(Loop).tell(1)
        system.spawn(Ticks)
        system.spawn(Stuck).tell(1)
        time.sleep(0.05)
        print("end")
    """)
    assert done.returncode == 0
    assert done.stdout == "end\n"
    assert "Traceback" not in done.stderr
    assert "left behind: /Stuck" in done.stderr


def test_ctrl_c_interrupts_a_wait_and_closes_at_once() -> None:
    program = """
        import time
        import atomr_native as an


        class Stuck(an.Actor):
            def receive(self, message):
                time.sleep(2)

        try:
            with an.System() as system:
                ref = system.spawn(Stuck)
                answers = [ref.ask(i) for i in range(100)]
                print("ready", flush=True)
                answers[-1].result()
        except KeyboardInterrupt:
            failed = sum(isinstance(answer.exception(), an.ActorStopped) for answer in answers if answer.done())
            print("interrupted", failed >= 99, flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted True\n"
    assert process.returncode == 0


def test_ctrl_c_interrupts_a_sender_that_waits_for_room() -> None:
    program = """
        import threading
        import atomr_native as an

        gate = threading.Event()

        class Stuck(an.Actor):
            def receive(self, message):
                gate.wait(30)

        with an.System(timeout=None) as system:
            ref = system.spawn(Stuck, mailbox=an.Mailbox(1))
            print("ready", flush=True)
            try:
                while True:
                    ref.tell(1)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            gate.set()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"
