"""Looking at a System from another process: sockets, snapshots, and ``python -m atomr_native top``."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import pty
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from actions import eventually
from rich.console import Console

import atomr_native as an
from atomr_native.__main__ import main
from atomr_native.observe import sockets
from atomr_native.observe.publisher import publish
from atomr_native.observe.view import render


class Echo(an.Actor):
    def receive(self, message):
        return message


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path, monkeypatch, nothing_left):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "atomr_native"


def top(capsys, *arguments):
    status = main(["top", *arguments])
    return status, *capsys.readouterr()


def at(call, path):
    """Bind or connect a socket where the folder's path may be too long for an address."""
    fd = os.open(path.parent, os.O_RDONLY)
    call(sockets.address(fd, path.name))
    os.close(fd)


def test_nothing_is_published_unless_asked_for(make_system, runtime_folder, capsys):
    make_system()
    assert not runtime_folder.exists()
    status, out, err = top(capsys)
    assert (status, out) == (1, "")
    assert "observe=True" in err
    assert str(runtime_folder) in err
    status, out, _ = top(capsys, "--json")
    assert (status, json.loads(out)) == (1, {"systems": []})


def test_a_system_is_told_of_until_it_is_closed(make_system, runtime_folder, capsys):
    system = make_system(observe=True)
    ref = system.spawn(Echo, name="echo")
    assert ref.ask(1).result(10) == 1
    (path,) = runtime_folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime_folder.stat().st_mode) == 0o700
    status, out, _ = top(capsys, "--json", str(os.getpid()))
    (told,) = json.loads(out)["systems"]
    assert status == 0
    assert (told["version"], told["pid"], told["system"]) == (1, os.getpid(), system.token[:8])
    assert told["stats"]["actors"]["/echo"]["processed"] == 1
    assert top(capsys, "--json", "1")[0] == 1  # another process
    assert f"{os.getpid()}  {system.token[:8]}" in top(capsys, "--list")[1]
    system.close()
    assert list(runtime_folder.iterdir()) == []
    assert top(capsys, "--list")[0] == 1


def test_publishing_is_idempotent_and_can_be_ended(make_system, runtime_folder):
    system = make_system()
    publisher = publish(system)
    assert publish(system) is publisher
    publisher.close()
    publisher.close()
    assert sockets.published() == []
    with publish(system) as again:
        assert again is not publisher
        assert sockets.read(again.path)["stats"]["devices"] == {}
    system.close()
    with pytest.raises(an.ActorStopped):
        publish(system)


def test_a_system_that_is_dropped_is_not_published_any_more(runtime_folder):
    an.System(observe=True)
    gc.collect()
    eventually(lambda: not sockets.published())


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_observe_is_a_boolean(value):
    with pytest.raises(an.InvalidRequest, match="observe="):
        an.System(observe=value)


def test_what_is_no_system_is_refused():
    for function in (publish, an.observe.snapshot):
        with pytest.raises(an.InvalidRequest, match="it must be a System"):
            function("system")


def test_devices_are_told_of_also_while_another_one_starts(make_system):
    system = make_system(observe=True)
    device = system.device("host")
    device.put([1.0]).wait(10)
    with system._state.lock:  # held while a device starts
        (path,) = sockets.published()
        found = []
        thread = threading.Thread(target=lambda: found.append(sockets.read(path)))
        thread.start()
        thread.join(30)
    told = found[0]["stats"]["devices"]["host"]
    assert told["state"] == "open"
    assert told["actors"]["memory"]["completed"] >= 1
    assert told["worker_pid"] == device.worker_pid


def test_sockets_of_processes_that_are_gone_are_ignored_and_removed(runtime_folder, capsys):
    runtime_folder.mkdir(mode=0o700)
    stale = runtime_folder / "999999-0123abcd.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        at(made.bind, stale)
    (runtime_folder / "notes.txt").write_text("not ours")
    assert top(capsys, "--list")[0] == 1
    assert [path.name for path in runtime_folder.iterdir()] == ["notes.txt"]


def test_one_that_does_not_answer_or_says_nonsense_is_named(runtime_folder, capsys):
    runtime_folder.mkdir(mode=0o700)
    path = runtime_folder / "77-0123abcd.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        at(silent.bind, path)
        silent.listen()
        with pytest.raises(an.AtomrError, match=r"77-0123abcd\.sock did not answer within 0.1 s"):
            sockets.read(path, timeout=0.1)

        def answer():
            for said in (b'{"version": 99}', b"[", b'"x"'):
                connection, _ = silent.accept()
                with connection:
                    connection.sendall(said)

        silent.accept()[0].close()  # who has given up
        thread = threading.Thread(target=answer)
        thread.start()
        for version in ("99", "None", "None"):
            with pytest.raises(an.AtomrError, match=f"version {version}"):
                sockets.read(path, timeout=10)
        thread.join()


def test_a_folder_that_others_may_read_is_refused(runtime_folder, capsys):
    runtime_folder.mkdir(mode=0o755)
    runtime_folder.chmod(0o755)
    with pytest.raises(an.Unsupported, match="not a private folder of this user"):
        an.System(observe=True)
    gc.collect()


def test_a_long_folder_name_is_no_obstacle(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 200)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with an.System(observe=True):
        (path,) = sockets.published()
        assert sockets.read(path)["stats"]["dead_letters"] == 0


def test_a_reader_that_does_not_read_holds_nothing_up(make_system):
    make_system(observe=True)
    (path,) = sockets.published()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as idle:
        at(idle.connect, path)
        assert sockets.read(path, 10) is not None


def test_a_forked_child_publishes_nothing(make_system):
    system = make_system(observe=True)
    (path,) = sockets.published()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            system.close()
        os._exit(0 if path.exists() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sockets.read(path) is not None


def shown(now, before=None, width=160, **options):
    console = Console(width=width, file=io.StringIO())
    console.print(render(now, before, **options))
    return console.file.getvalue()


def test_the_tables(make_system):
    system = make_system()
    system.device("host").put([1.0]).wait(10)
    ref = system.spawn(Echo, name="[red]e\x1b[2Jcho", mailbox=an.Mailbox(8))
    ref.ask(1).result(10)
    before = an.observe.snapshot(system)
    for _ in range(5):
        ref.ask(1).result(10)
    now = an.observe.snapshot(system)
    now["time_ns"] = before["time_ns"] + 2_000_000_000
    text = shown(now, before)
    (line,) = [line for line in text.splitlines() if "cho" in line]
    assert line.split() == ["/[red]e\ufffd[2Jcho", "running", "0/8", "2.5", "6", "0", "0", "0"]
    assert "\x1b" not in text
    assert "host/memory" in text
    (line,) = [line for line in shown(now).splitlines() if "cho" in line]
    assert line.split()[3] == "-"  # no rate without a look before
    before["stats"]["actors"]["/[red]e\x1b[2Jcho"]["processed"] = 100
    assert "-" in shown(now, before)  # a counter that began anew has no rate


def test_of_many_actors_the_busiest_are_shown(make_system):
    system = make_system()
    refs = [system.spawn(Echo, name=f"echo-{i}") for i in range(30)]
    before = an.observe.snapshot(system)
    refs[17].ask(1).result(10)
    now = an.observe.snapshot(system)
    text = shown(now, before, rows=20)
    assert "/echo-17" in text
    assert "actors, and 13 more" in text
    assert len(text.splitlines()) == 20
    assert "more" not in shown(now, before, rows=33)


def test_lanes_and_actors_share_the_room(make_system):
    system = make_system()
    device = system.device("host")
    for i in range(20):
        device.lane(f"lane-{i}").noop().ask().result(30)
    refs = [system.spawn(Echo, name=f"echo-{i}") for i in range(20)]
    for ref in refs:
        ref.ask(1).result(10)
    now = an.observe.snapshot(system)
    for rows in (24, 25, 40, 41):
        text = shown(now, rows=rows)
        assert text.count("more") == 2
        assert len(text.splitlines()) == rows
    refs[0].stop()
    for ref in refs[1:]:
        ref.kill()
    assert all(ref.join(10) for ref in refs)
    text = shown(an.observe.snapshot(system), rows=30)
    assert "more" not in text
    assert text.count("host/lane-") == 20


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_are_left_out_rather_than_cut(make_system, width):
    system = make_system()
    system.device("host").put([1.0]).wait(10)
    system.spawn(Echo, name="an-actor-with-a-name-that-is-much-longer-than-others").ask(1).result(10)
    now = an.observe.snapshot(system)
    now["program"] = "a-program-with-a-long-name.py" * 3
    lines = shown(now, width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    heads = [line.split() for line in lines if line.startswith(("device ", "lane ", "actor "))]
    for head, wanted in zip(
        heads, ("device state restarts", "lane queued messages/s", "actor state mailbox"), strict=True
    ):
        assert set(wanted.split()) <= set(head)
        assert not any("\N{HORIZONTAL ELLIPSIS}" in word for word in head)
    assert width > 60 or "hardware" not in heads[0]
    assert any(line.startswith("/an-actor-with-a-name-t") for line in lines)


def program(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "atomr_native", "top", *arguments], **options)


def test_once_from_another_process(make_system):
    system = make_system(observe=True)
    system.spawn(Echo, name="echo").ask(1).result(10)
    with program("--once", "--interval", "0.05", stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"pid {os.getpid()}" in out
    assert "/echo" in out


@pytest.mark.parametrize("end", ["q", "close"])
def test_live_in_a_terminal(make_system, end):
    system = make_system(observe=True)
    system.spawn(Echo, name="echo").ask(1).result(10)
    other = make_system(observe=True)
    other.spawn(Echo, name="another").ask(1).result(10)
    ours, theirs = pty.openpty()
    seen = b""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = program("--interval", "0.05", stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)

    def until(*texts):
        nonlocal seen
        while not all(text in seen for text in texts):
            seen += os.read(ours, 65536)

    try:
        until(b"/echo" if b"/echo" in seen else b"Tab: next System")
        first = b"/echo" in seen
        seen = b""
        os.write(ours, b"\t")
        until(b"/another" if first else b"/echo")
        if end == "q":
            os.write(ours, b"q")
        else:
            (other if first else system).close()
            seen = b""
            until(b"has ended", b"/echo" if first else b"/another")  # it goes to one that has not
            (system if first else other).close()
        with contextlib.suppress(OSError):  # its end is an error of the terminal
            while os.read(ours, 65536):
                pass
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("arguments", [["x"], ["--interval", "0"], ["--interval", "nan"], ["--what"]])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(["top", *arguments])
    assert left.value.code == 2
    assert capsys.readouterr().err


def test_the_folder_without_a_runtime_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    uid = os.getuid()
    temporary = Path(tempfile.gettempdir())
    assert sockets.folder() in (Path(f"/run/user/{uid}/atomr_native"), temporary / f"atomr_native-{uid}")


def test_looking_is_not_loaded_unless_it_is_asked_for():
    code = "import sys, atomr_native as an; an.System().close(); print([m for m in sys.modules if '.observe' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
