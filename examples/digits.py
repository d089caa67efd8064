"""Learn to read digits, lose the worker half-way, and go on as if nothing had happened.

The smallest whole program: a network of two layers, trained forward and backward by messages, its weights in a durable
group.  In the middle it kills the process that does the work.  `python -m atomr_native demo` is the same in full.

    pip install '.[demo]'
    python examples/digits.py
"""

import logging
import os
import signal

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import atomr_native as an

BATCH, HIDDEN, CLASSES, STEPS, COMMIT_EVERY, KILL_AT = 64, 128, 10, 600, 20, 333

# Each message that dies with the worker would be a warning; the program below hears of it anyway.
logging.getLogger("atomr_native.dead_letters").setLevel(logging.ERROR)

images, labels = load_digits(return_X_y=True)
images = (images / 8 - 1).astype("float32")
train_x, test_x, train_y, test_y = train_test_split(images, labels, stratify=labels, random_state=0)


def batch_of(step):
    """The examples of a step: a function of its number, so that a step done again sees the same."""
    return np.random.default_rng(step).choice(len(train_x), BATCH, replace=False)


with an.System() as system:
    dev = system.device("host")
    rng = np.random.default_rng(0)

    # Durable memory survives the worker: weights, biases, and the momentum of each.
    weights = {
        "w1": rng.normal(0, (2 / 64) ** 0.5, (64, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(0, (2 / HIDDEN) ** 0.5, (HIDDEN, CLASSES)),
        "b2": np.zeros(CLASSES),
    }
    p = {name: dev.put(value, dtype="float32", durable=True) for name, value in weights.items()}
    momentum = {name: dev.zeros(value.shape, durable=True) for name, value in weights.items()}
    counter = dev.zeros((1,), "int64", durable=True)  # steps made
    state = {**p, **{f"momentum of {name}": ref for name, ref in momentum.items()}, "steps": counter}
    group = dev.durable_group(state)
    group.commit(tag=0).result()

    def train_step():
        """Send one step, 12 messages; nothing here waits for a result."""
        chosen = batch_of(step)
        x, y = dev.put(train_x[chosen]), dev.put(train_y[chosen])
        # Forward.  Each call returns a handle at once, and the device orders the messages by the data they touch.
        first = dev.blas_lt.matmul(x, p["w1"], bias=p["b1"], epilogue="gelu_aux_bias")  # .aux: what GELU was given
        logits = dev.blas_lt.matmul(first.out, p["w2"], bias=p["b2"], epilogue="bias")
        loss, d_logits = dev.elementwise.softmax_cross_entropy(logits, y)
        # Backward: bias gradients and GELU's derivative are epilogues of the products.
        g = {}
        second = dev.blas_lt.matmul(first.out, d_logits, trans_a=True, epilogue="bgradb")
        g["w2"], g["b2"] = second.out, second.bias_grad
        hidden = dev.blas_lt.matmul(d_logits, p["w2"], trans_b=True, epilogue="dgelu_bgrad", aux=first.aux)
        d_hidden, g["b1"] = hidden.out, hidden.bias_grad
        g["w1"] = dev.blas_lt.matmul(x, d_hidden, trans_a=True)
        # Stochastic gradient descent with momentum, in place, one message for each parameter.
        for name in p:
            dev.elementwise.run("v = 0.9 * v + g; w -= 0.05 * v", w=p[name], v=momentum[name], g=g[name])
        # The last message of a step needs an array that dies with the worker: so a step that was sent, even in part,
        # to a restarted device cannot pass for one that was made.
        dev.elementwise.run("n += one", n=counter, one=one)
        return loss

    one = dev.full((1,), 1, "int64")
    step, killed = 0, False
    while step < STEPS:
        try:
            loss = train_step()
            step += 1
            if step % COMMIT_EVERY == 0:
                group.commit(tag=step)  # a message, too: the state as it is at this point of the order
            if step % 100 == 0:
                print(f"step {step}: loss {float(loss.numpy()):.4f}")  # the only place that waits
            if step == KILL_AT and not killed:
                killed = True
                print(f"step {step}: killing the worker, process {dev.worker_pid}")
                os.kill(dev.worker_pid, signal.SIGKILL)
        except (an.DeviceFault, an.GpuRefStale, an.DependencyFailed) as error:
            # What was running or queued is answered with an error, and so is what names lost memory.
            print(f"step {step}: {type(error).__name__}: {error}")
            dev.wait_ready()
            group.restore().result()  # the runtime has done it already; this also undoes what we sent since
            one = dev.full((1,), 1, "int64")
            step = int(counter.numpy()[0])
            print(f"back at step {step}; the restart took {1e3 * dev.restart_timeline()['total']:.0f} ms")

    hidden = dev.blas_lt.matmul(dev.put(test_x), p["w1"], bias=p["b1"], epilogue="gelu_bias")
    logits = dev.blas_lt.matmul(hidden, p["w2"], bias=p["b2"], epilogue="bias")
    read = dev.elementwise.reduce("argmax", logits, 1).numpy()
    print(f"{100 * np.mean(read == test_y):.1f} % of {len(test_y)} test images classified correctly")
