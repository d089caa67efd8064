"""Who keeps memory behind DLPack capsules alive, and for how long: owners, cycles, threads, interpreter exit."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest
from crowds import together
from dlpack_abi import Exported, Owner, Versioned, capsule_pointer, owned

from atomr_native._lib import dlpack
from atomr_native.errors import InvalidRequest


@pytest.mark.parametrize("versioned", [False, True])
def test_owner_lives_exactly_as_long_as_the_consumer(versioned: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    capsule = owner.capsule(versioned=versioned)
    del owner
    imported = dlpack.from_capsule(capsule)
    del capsule
    assert alive()
    view = dlpack.as_numpy(imported)
    del imported
    part = view[2:4]
    del view
    assert alive()
    np.testing.assert_array_equal(part, [2, 3])
    del part
    assert not alive()


@pytest.mark.parametrize("versioned", [False, True])
def test_unconsumed_capsule_frees_itself(versioned: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    capsule = owner.capsule(versioned=versioned)
    del owner
    assert alive()
    del capsule
    assert not alive()


@pytest.mark.parametrize("versioned", [False, True])
def test_second_consumption_is_refused(versioned: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    capsule = owner.capsule(versioned=versioned)
    del owner
    imported = dlpack.from_capsule(capsule)
    with pytest.raises(InvalidRequest, match="consumed before"):
        dlpack.from_capsule(capsule)
    del imported
    assert not alive()
    with pytest.raises(InvalidRequest, match="consumed before"):
        dlpack.from_capsule(capsule)


@pytest.mark.parametrize("consumed", [False, True])
def test_cycles_through_a_consumer_are_collected(consumed: bool) -> None:
    owner, alive = owned(np.arange(6.0))
    ring: list[object] = [owner.capsule()]
    del owner
    if consumed:
        ring[0] = dlpack.as_numpy(dlpack.from_capsule(ring[0]))
    ring.append(ring)
    del ring
    assert alive()
    gc.collect()
    assert not alive()


def test_empty_views_keep_their_owner_too() -> None:
    owner, alive = owned(np.empty((0, 3)))
    view = dlpack.as_numpy(dlpack.from_capsule(owner.capsule()))
    del owner
    assert view.shape == (0, 3)
    assert alive()
    del view
    assert not alive()


def test_no_reference_is_lost_or_left() -> None:
    owner = Owner(np.arange(6.0))
    before = sys.getrefcount(owner)
    for _ in range(100):
        dlpack.as_numpy(dlpack.from_capsule(owner.capsule()))
        owner.capsule(versioned=False)
        np.from_dlpack(Exported(owner.values))
    assert sys.getrefcount(owner) == before


def test_pending_exception_survives_the_deleter() -> None:
    class Noisy(Owner):
        def __del__(self) -> None:
            with contextlib.suppress(RuntimeError):
                raise RuntimeError

    def fail() -> None:
        view = dlpack.as_numpy(dlpack.from_capsule(Noisy(np.arange(6.0)).capsule()))
        capsule = Noisy(np.arange(6.0)).capsule()
        raise KeyError(view.size, capsule is None)

    with pytest.raises(KeyError, match="6, False"):
        fail()


def test_threads_consume_their_own() -> None:
    alive: list[weakref.ref[Owner]] = []
    wrong: list[object] = []

    def work(seed: int) -> None:
        for turn in range(200):
            owner, ref = owned(np.full(8, seed * 1000 + turn))
            alive.append(ref)
            view = dlpack.as_numpy(dlpack.from_capsule(owner.capsule(versioned=bool(turn % 2))))
            del owner
            if not (view == seed * 1000 + turn).all():
                wrong.append(view)

    together(work, range(8))
    assert not wrong
    assert not any(ref() for ref in alive)


def test_racing_threads_consume_once() -> None:
    for _ in range(50):
        owner, alive = owned(np.arange(4.0))
        capsule = owner.capsule()
        del owner
        won: list[object] = []
        lost: list[object] = []
        barrier = threading.Barrier(4)

        def race(_: int) -> None:
            barrier.wait()  # noqa: B023
            try:
                won.append(dlpack.from_capsule(capsule))  # noqa: B023
            except InvalidRequest as error:
                lost.append(str(error))  # noqa: B023

        together(race, range(4))
        assert (len(won), len(lost)) == (1, 3)
        won.clear()
        assert not alive()


def test_deleter_may_be_called_without_the_lock() -> None:
    owner, alive = owned(np.arange(4.0))
    capsule = owner.capsule()
    del owner
    pointer = capsule_pointer(capsule, b"dltensor_versioned")
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
    used = b"used_dltensor_versioned"
    rename(capsule, used)
    managed = Versioned.from_address(pointer)

    def call(_: int) -> None:
        managed.deleter(pointer)  # ctypes lets go of the lock around the call

    together(call, range(1))
    assert not alive()
    del capsule


def test_interpreter_exit_with_everything_alive() -> None:
    script = """
        import builtins, sys, threading
        import numpy as np
        from atomr_native._lib import dlpack

        class Owner:
            def __init__(self):
                self.values = np.arange(4.0)
            def capsule(self, versioned):
                address = self.values.__array_interface__["data"][0]
                return dlpack.to_capsule(self, address, (4,), (1,), self.values.dtype, 1, 0,
                                         versioned=versioned)
            def __del__(self):
                if sys.is_finalizing():
                    print("owner touched while finalizing")

        builtins.kept = [Owner().capsule(True), Owner().capsule(False)]
        builtins.kept += [dlpack.from_capsule(Owner().capsule(True)),
                          dlpack.as_numpy(dlpack.from_capsule(Owner().capsule(False)))]
        local = threading.local()
        local.view = dlpack.as_numpy(dlpack.from_capsule(Owner().capsule(True)))
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("ready")
    """
    done = subprocess.run(
        [sys.executable, "-P", "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
