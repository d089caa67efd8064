"""Learn to read digits on two nodes of a cluster, lose one of them half-way, and serve from both.

Each node trains a copy of the network on its half of the images for some steps; then the weights are averaged, and sent
to both again.  A node that ends half-way is restarted, and repeats the round: weights are in the messages, so nothing
is lost with it.  The actors are the same in a plain System.

    pip install '.[demo,ray]'
    python examples/cluster_digits.py
    python examples/cluster_digits.py --where system
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import atomr_native as an

BATCH, HIDDEN, CLASSES, RATE, STEPS = 64, 64, 10, 0.05, 20
Weights = dict[str, np.ndarray[Any, Any]]


@dataclass
class Train:
    """Train from these weights for some steps, and answer with the new weights and the loss."""

    weights: Weights
    round: int


@dataclass
class Read:
    """Answer with the digits of images."""

    weights: Weights
    images: np.ndarray[Any, Any]


class Pid:
    """Answer with the process of the actor."""


class Learner(an.Actor):
    """Trains on its own images; it knows nothing of nodes."""

    def __init__(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
        self.images, self.labels = images, labels
        self.device = self.context.system.device("host")

    @an.handler
    def train(self, message: Train) -> tuple[Weights, float]:
        dev = self.device
        w = {name: dev.put(value, dtype="float32") for name, value in message.weights.items()}
        rng = np.random.default_rng(message.round)
        for _ in range(STEPS):
            chosen = rng.choice(len(self.images), BATCH, replace=False)
            x, y = dev.put(self.images[chosen]), dev.put(self.labels[chosen])
            first = dev.blas_lt.matmul(x, w["w1"], bias=w["b1"], epilogue="gelu_aux_bias")
            logits = dev.blas_lt.matmul(first.out, w["w2"], bias=w["b2"], epilogue="bias")
            loss, d_logits = dev.elementwise.softmax_cross_entropy(logits, y)
            second = dev.blas_lt.matmul(first.out, d_logits, trans_a=True, epilogue="bgradb")
            hidden = dev.blas_lt.matmul(d_logits, w["w2"], trans_b=True, epilogue="dgelu_bgrad", aux=first.aux)
            gradients = {
                "w1": dev.blas_lt.matmul(x, hidden.out, trans_a=True), "b1": hidden.bias_grad,
                "w2": second.out, "b2": second.bias_grad,
            }  # fmt: skip
            for name, gradient in gradients.items():
                dev.elementwise.run(f"w -= {RATE} * g", w=w[name], g=gradient)
        return {name: ref.numpy() for name, ref in w.items()}, float(loss.numpy())

    @an.handler
    def read(self, message: Read) -> np.ndarray[Any, Any]:
        dev = self.device
        w = {name: dev.put(value, dtype="float32") for name, value in message.weights.items()}
        hidden = dev.blas_lt.matmul(dev.put(message.images), w["w1"], bias=w["b1"], epilogue="gelu_bias")
        logits = dev.blas_lt.matmul(hidden, w["w2"], bias=w["b2"], epilogue="bias")
        return dev.elementwise.reduce("argmax", logits, 1).numpy()

    @an.handler
    def pid(self, _: Pid) -> int:
        return os.getpid()


def first_weights() -> Weights:
    rng = np.random.default_rng(0)
    return {
        "w1": rng.normal(0, (2 / 64) ** 0.5, (64, HIDDEN)).astype("float32"), "b1": np.zeros(HIDDEN, "float32"),
        "w2": rng.normal(0, (2 / HIDDEN) ** 0.5, (HIDDEN, CLASSES)).astype("float32"),
        "b2": np.zeros(CLASSES, "float32"),
    }  # fmt: skip


def train_round(learners: Sequence[an.ActorRef], weights: Weights, number: int) -> tuple[Weights, float]:
    """Train on all nodes at once; a node that is lost meanwhile repeats its part."""
    answers = [learner.ask(Train(weights, number)) for learner in learners]
    results = []
    for learner, answer in zip(learners, answers, strict=True):
        while True:
            try:
                results.append(answer.result(120))
                break
            except an.NodeLost as error:
                print(f"round {number}: {error}")
                answer = learner.ask(Train(weights, number))
    mean = {name: np.mean([found[name] for found, _ in results], axis=0, dtype="float32") for name in weights}
    return mean, float(np.mean([loss for _, loss in results]))


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and serve; return the fraction of test images that are read correctly."""
    parser = argparse.ArgumentParser(description="Train and serve the digits on two nodes")
    parser.add_argument("--where", choices=("ray", "process", "system"), default="ray", help="default: ray")
    parser.add_argument("--rounds", type=int, default=20, help="default: 20")
    options = parser.parse_args(arguments)

    images, labels = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype("float32")
    train_x, test_x, train_y, test_y = train_test_split(images, labels, stratify=labels, random_state=0)
    with ExitStack() as stack:
        logger = logging.getLogger("atomr_native")  # the loss of the node is printed below
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        carrier: Any = None
        if options.where == "system":
            system = stack.enter_context(an.System())
            learners = [system.spawn(Learner, train_x[part::2], train_y[part::2]) for part in (0, 1)]
        else:
            from atomr_native.ray import Cluster

            if options.where == "process":
                from atomr_native.ray.in_process import InProcess

                carrier = InProcess()
            cluster = stack.enter_context(Cluster(nodes=2, strategy="SPREAD", carrier=carrier))
            learners = [
                cluster.spawn(Learner, train_x[part::2], train_y[part::2], node=part, name="learner")
                for part in (0, 1)
            ]  # fmt: skip
        weights = first_weights()
        for number in range(options.rounds):
            if number == options.rounds // 2 and options.where != "system":
                print(f"round {number}: ending node1")
                if carrier is not None:
                    carrier.kill("node1")
                else:
                    os.kill(learners[1].ask(Pid()).result(60), signal.SIGKILL)
            weights, loss = train_round(learners, weights, number)
            if number % 5 == 4:
                print(f"round {number + 1}: loss {loss:.4f}")
        halves = np.array_split(test_x, 2)
        answers = [learner.ask(Read(weights, half)) for learner, half in zip(learners, halves, strict=True)]
        read = np.concatenate([answer.result(120) for answer in answers])
    correct = float(np.mean(read == test_y))
    print(f"{100 * correct:.1f} % of {len(test_y)} test images read correctly")
    return correct


if __name__ == "__main__":
    sys.exit(0 if main() > 0.9 else 1)
