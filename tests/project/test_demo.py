"""The demo: its gradients, its arithmetic of commits, its command line.  Needs scikit-learn where it says so."""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matmul_reference import gelu

import atomr_native as an
from atomr_native.__main__ import main
from atomr_native.demo import cli
from atomr_native.demo.data import Digits
from atomr_native.demo.figures import confusion
from atomr_native.demo.model import Network, initial_parameters
from atomr_native.demo.report import Result, same_bits
from atomr_native.demo.training import Kill, Observer, Settings, Training, choose_kill

needs_examples = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sklearn", "matplotlib")),
    reason="needs the extra [examples]: scikit-learn, matplotlib",
)
ROOT = Path(__file__).resolve().parents[2]
SIZES = (64, 24, 16, 10)
SHORT = Settings(seed=5, epochs=4, hidden=(24, 16), commit_every=3)


@pytest.fixture(autouse=True)
def one_blas_thread(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def digits() -> Digits:
    """Digits enough to train with, made up: classes are noisy templates."""
    random = np.random.default_rng(0)
    templates = random.uniform(0, 16, (10, 8, 8))
    labels = random.integers(0, 10, 500)
    images = np.clip(templates[labels] + random.normal(0, 2, (500, 8, 8)), 0, 16).astype(np.float32)
    mean, scale = images[:400].reshape(400, 64).mean(axis=0), np.full(64, 0.2, np.float32)
    test_x = (images[400:].reshape(100, 64) - mean) * scale
    return Digits(images[:400], labels[:400], test_x, labels[400:], mean, scale)


# ---- the network


def loss_of(parameters, x, labels):
    """Float64, written down as simply as possible."""
    layers = len(parameters) // 2
    for i in range(1, layers + 1):
        x = x @ parameters[f"w{i}"] + parameters[f"b{i}"]
        x = gelu(x) if i < layers else x
    x = x - x.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(x)), labels])


def slope(parameters, name, index, x, labels, step=1e-5):
    def at(offset):
        moved = {k: v.copy() for k, v in parameters.items()}
        moved[name][index] += offset
        return loss_of(moved, x, labels)

    return (at(step) - at(-step)) / (2 * step)


# Central differences are good to about 1e-9 in float64; the rest is what the dtype rounds, over three layers.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-6), ("float32", 1e-4), ("bfloat16", 6e-2)])
def test_gradients_are_those_of_finite_differences(dtype, tolerance):
    random = np.random.default_rng(1)
    x = random.standard_normal((32, 64)).astype(np.float32)
    labels = random.integers(0, 10, 32)
    with an.System() as system:
        device = system.device("host")
        network = Network(device, SIZES, batch=32, test_rows=8, dtype=dtype, seed=3)
        refs = device.put(x, dtype=dtype), device.put(labels), device.empty((), "float32")
        network.forward(refs[0])
        network.backward(*refs)
        gradients = {name: ref.numpy().astype(np.float64) for name, ref in network.gradients.items()}
        loss = float(refs[2].numpy())
    parameters = {name: value.astype(np.float64) for name, value in initial_parameters(SIZES, 3).items()}
    assert set(gradients) == set(parameters)
    assert loss == pytest.approx(loss_of(parameters, x.astype(np.float64), labels), rel=max(tolerance, 1e-6))
    for name, value in parameters.items():
        assert gradients[name].shape == value.shape
        scale = np.abs(gradients[name]).max()
        assert scale > 1e-4
        for flat in random.choice(value.size, min(12, value.size), replace=False):
            index = np.unravel_index(flat, value.shape)
            expected = slope(parameters, name, index, x.astype(np.float64), labels)
            assert gradients[name][index] == pytest.approx(expected, abs=tolerance * scale), (name, index)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_updates_are_adamw(dtype):
    random = np.random.default_rng(2)
    with an.System() as system:
        device = system.device("host")
        network = Network(device, SIZES, batch=16, test_rows=8, dtype=dtype, weight_decay=0.1, seed=4)
        x, labels = device.put(random.standard_normal((16, 64)), dtype=dtype), device.put(random.integers(0, 10, 16))
        loss = device.empty((), "float32")
        expected = {name: value.astype(np.float64) for name, value in initial_parameters(SIZES, 4).items()}
        m = {name: np.zeros_like(value) for name, value in expected.items()}
        v = {name: np.zeros_like(value) for name, value in expected.items()}
        for step in range(3):
            network.forward(x)
            network.backward(x, labels, loss)
            gradients = {name: ref.numpy().astype(np.float64) for name, ref in network.gradients.items()}
            network.update(step, 0.01)
            for name, g in gradients.items():
                m[name] = 0.9 * m[name] + 0.1 * g
                v[name] = 0.999 * v[name] + 0.001 * g * g
                mean, square = m[name] / (1 - 0.9 ** (step + 1)), v[name] / (1 - 0.999 ** (step + 1))
                decay = 0.1 if name.startswith("w") else 0.0
                expected[name] -= 0.01 * (mean / (np.sqrt(square) + 1e-8) + decay * expected[name])
        assert int(network.counter.numpy()[0]) == 3
        for name, value in expected.items():
            # float32 rounds the moments, whose quotient of tiny gradients moves a weight by up to the learning rate.
            np.testing.assert_allclose(network.parameters[name].numpy(), value, rtol=1e-4, atol=3e-5)


# ---- faults


class Watch(Observer):
    """Kills the worker itself, and keeps what it is told."""

    def __init__(self, device, epochs=()):
        self.device, self.epochs, self.recoveries, self.kills = device, set(epochs), [], []

    def epoch(self, epoch, loss, accuracy):
        if epoch in self.epochs:
            self.epochs.discard(epoch)
            os.kill(self.device.worker_pid, signal.SIGKILL)

    def killed(self, pid, kill):
        self.kills.append((pid, kill))

    def recovered(self, recovery):
        self.recoveries.append(recovery)


@pytest.fixture(scope="module")
def undisturbed(digits):
    with pytest.MonkeyPatch.context() as patch, an.System() as system:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        return Training(system.device("host"), digits, SHORT).run()


def check_same(outcome, other):
    assert same_bits(outcome.losses, other.losses)
    assert np.isfinite(outcome.losses).all()
    assert same_bits(outcome.predictions, other.predictions)
    for name, value in other.parameters.items():
        assert same_bits(outcome.parameters[name], value), name


@pytest.mark.parametrize("kill", [Kill(7, "forward"), Kill(9, "backward"), Kill(16, "update"), Kill(0, "forward")])
def test_a_killed_worker_changes_nothing(digits, undisturbed, kill):
    with an.System() as system:
        device = system.device("host")
        watch = Watch(device)
        outcome = Training(device, digits, SHORT, kill=kill, observer=watch).run()
        assert device.restarts == 1
    check_same(outcome, undisturbed)
    assert [seen for _, seen in watch.kills] == [kill]
    (recovery,) = outcome.recoveries
    assert watch.recoveries == [recovery]
    assert recovery.killed == kill.step
    assert recovery.step >= kill.step
    assert recovery.commit % SHORT.commit_every == 0
    assert recovery.commit <= recovery.step + 1
    assert isinstance(recovery.error, (an.DeviceFault, an.GpuRefStale, an.DependencyFailed))
    assert recovery.generation == 2
    assert 0 < recovery.device_seconds <= recovery.seconds


def test_two_faults_between_messages_change_nothing(digits, undisturbed):
    with an.System() as system:
        device = system.device("host")
        outcome = Training(device, digits, SHORT, observer=Watch(device, {0, 2})).run()
        assert device.restarts == 2
    check_same(outcome, undisturbed)
    assert [recovery.killed for recovery in outcome.recoveries] == [None, None]


class Unnoticed(Training):
    """A training whose device restarts exactly before a commit is sent, or before an epoch is."""

    def __init__(self, device, digits, settings, at, step):
        super().__init__(device, digits, settings)
        self.device, self.at = device, {(at, step)}

    def restart(self, at, step):
        if (at, step) in self.at:
            self.at.clear()
            generation = self.device.generation
            os.kill(self.device.worker_pid, signal.SIGKILL)
            while self.device.generation == generation:
                time.sleep(0.001)
            self.device.wait_ready(30)

    def _commit(self, step):
        self.restart("commit", step)
        super()._commit(step)

    def _epoch(self, step):
        self.restart("epoch", step)
        return super()._epoch(step)


@pytest.mark.parametrize(("at", "step"), [("commit", 3), ("commit", 24), ("epoch", 0), ("epoch", 18)])
def test_a_restart_between_two_messages_is_noticed(digits, undisturbed, at, step):
    with an.System() as system:
        device = system.device("host")
        outcome = Unnoticed(device, digits, SHORT, at, step).run()
        assert device.restarts == 1
    check_same(outcome, undisturbed)
    (recovery,) = outcome.recoveries
    assert recovery.commit <= step


def test_seeds_and_epochs_differ_and_are_reproducible(digits):
    first, again, other = digits.epoch(1, 0), digits.epoch(1, 0), digits.epoch(1, 1)
    assert same_bits(first[0], again[0])
    assert same_bits(first[1], again[1])
    assert not same_bits(first[0], other[0])
    assert first[0].dtype == np.float32
    assert sorted(first[1]) == sorted(digits.labels)
    kills = [choose_kill(seed, 840) for seed in range(50)]
    assert {kill.phase for kill in kills} == {"forward", "backward", "update"}
    assert all(280 <= kill.step < 560 for kill in kills)
    assert choose_kill(7, 840) == choose_kill(7, 840)
    assert choose_kill(0, 1).step == 0


def test_the_thread_placement_gives_the_same(digits, undisturbed):
    with an.System(isolation="thread") as system:
        kill = Kill(3, "forward")  # there is no process to kill
        outcome = Training(system.device("host"), digits, SHORT, kill=kill).run()
    assert not outcome.recoveries
    # Another process may use another number of threads for a product: close, not equal bit for bit.
    np.testing.assert_allclose(outcome.losses, undisturbed.losses, rtol=1e-2)


def test_on_cuda_the_same_is_learnt_whatever_dies(cuda_engine, digits, undisturbed):
    """Bit for bit what an undisturbed run on that device learns, and to rounding what the host does."""
    with an.System() as system:
        device = system.device("cuda:0")
        twin = Training(device, digits, SHORT).run()
        outcome = Training(device, digits, SHORT, kill=Kill(16, "update")).run()
        assert device.restarts == 1
    check_same(outcome, twin)
    assert len(outcome.recoveries) == 1
    np.testing.assert_allclose(twin.losses, undisturbed.losses, rtol=1e-2, atol=1e-4)
    assert (twin.predictions == undisturbed.predictions).mean() > 0.98


# ---- the verdict


def test_a_single_bit_is_a_difference(undisturbed):
    changed = undisturbed.losses.copy()
    changed.view(np.uint32)[5] ^= 1
    result = Result(undisturbed, 1.0, {}, {}, 1, twin=replace(undisturbed, losses=changed))
    assert not result.identical
    assert Result(undisturbed, 1.0, {}, {}, 0, twin=undisturbed).identical
    parameters = {**undisturbed.parameters, "b1": undisturbed.parameters["b1"] + np.float32(1e-6)}
    assert not Result(undisturbed, 1.0, {}, {}, 1, twin=replace(undisturbed, parameters=parameters)).identical
    assert not same_bits(np.array([0.0]), np.array([-0.0]))


def test_confusion_counts_rows_as_truth():
    counts = confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), 3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]


# ---- the command


def run(*arguments, cwd=ROOT):
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "atomr_native", "demo", *arguments],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": path}, cwd=cwd,
    )  # fmt: skip


@needs_examples
def test_the_command_survives_its_fault(tmp_path):
    done = run("--epochs", "3", "--seed", "1", "--min-accuracy", "0.5", "--output", str(tmp_path / "a" / "b"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    text = " ".join(done.stdout.split())
    for part in ("gets SIGKILL", "back to commit", "Identical", "bit for bit", "blas_lt", "restarts of the device"):
        assert part in text
    for name in ("loss.png", "confusion.png"):
        content = (tmp_path / "a" / "b" / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000


@needs_examples
def test_the_command_survives_its_fault_on_cuda(cuda_engine, tmp_path):
    done = run("--device", "cuda:0", "--epochs", "2", "--min-accuracy", "0.5", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    for part in ("device cuda:0", "gets SIGKILL", "back to commit", "Identical", "bit for bit"):
        assert part in text


@needs_examples
@pytest.mark.slow
@pytest.mark.parametrize("options", [("--seed", "3"), ("--dtype", "bfloat16")])
def test_the_whole_demo_reaches_its_bar(tmp_path, options):
    done = run("--output", str(tmp_path), *options)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_examples
@pytest.mark.parametrize("options", [("--no-fault",), ("--isolation", "thread")])
def test_the_command_without_a_fault(tmp_path, capsys, options):
    arguments = ["--epochs", "2", "--min-accuracy", "0.3", "--output", str(tmp_path), *options]
    assert main(["demo", *arguments]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "SIGKILL" not in text
    assert "a second run without a crash" not in text
    assert ("would kill the program" in text) == ("thread" in options)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


@needs_examples
def test_an_accuracy_below_the_bar_is_a_failure(tmp_path):
    arguments = ["--epochs", "1", "--no-fault", "--min-accuracy", "1", "--output", str(tmp_path)]
    assert cli.main(arguments) == 1


@needs_examples
@pytest.mark.parametrize("device", ["cuda:99", "toaster"])
def test_a_device_that_is_not_there_takes_one_line(tmp_path, capsys, device):
    assert cli.main(["--device", device, "--output", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert len(printed.err.splitlines()) == 1
    assert device in printed.err


@needs_examples
def test_an_output_that_is_a_file_takes_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["--output", str(tmp_path / "file")]) == 2
    assert "cannot write into" in capsys.readouterr().err


def test_missing_extras_take_one_line(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main([]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.splitlines() == [
        "the demo needs scikit-learn and matplotlib: pip install '.[demo]' in a clone of atomr_native"
    ]


@pytest.mark.parametrize(
    "options",
    [["--epochs", "0"], ["--epochs", "1.5"], ["--epochs", "9" * 20], ["--seed", "-1"], ["--seed", "x"],
     ["--min-accuracy", "2"], ["--min-accuracy", "nan"], ["--dtype", "int8"], ["--isolation", "fork"]],
)  # fmt: skip
def test_usage_errors(capsys, options):
    with pytest.raises(SystemExit) as left:
        cli.main(options)
    assert left.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert options[0] in said
    assert options[1] in said
    assert "allowed" in said or "choose from" in said


@needs_examples
def test_an_output_that_cannot_be_written_is_known_before_the_training(capsys):
    assert cli.main(["--output", "/proc"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("cannot write into /proc: ")


@needs_examples
def test_figures_that_cannot_be_written_take_one_line(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("atomr_native.demo.figures.draw_losses", full)
    options = ["--epochs", "1", "--no-fault", "--min-accuracy", "0", "--output", str(tmp_path)]
    assert cli.main(options) == 1
    printed = capsys.readouterr()
    assert "test accuracy" in printed.out
    assert printed.err == f"cannot write into {tmp_path}: No space left on device\n"


def test_the_modules_load_without_the_extras():
    code = (
        "import sys; sys.modules['sklearn'] = sys.modules['matplotlib'] = None; "
        "from atomr_native.demo import cli, data, figures, model, report, training"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})


@needs_examples
def test_the_example_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "digits.py")],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killing the worker" in done.stdout
    assert "back at step" in done.stdout
    accuracy = float(done.stdout.splitlines()[-1].split()[0])
    assert accuracy > 95
