"""A multilayer perceptron and its optimiser, with every operation as a message.

No method waits for the device: each sends messages to prepared plans, and the device orders them by the data they
touch.  Weights, the optimiser's moments and the step counter are durable; all other memory is scratch, allocated again
after a restart by `Network.allocate`.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from ..plans.plan import Plan

__all__ = ["Network", "initial_parameters"]

_WEIGHTS = 1  # the random stream of initial weights
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
#: AdamW. A message binds the arrays w, m, v, g and the numbers lr, decay, c1 and c2 (bias corrections).
_ADAMW = f"""
m = {_BETA1} * m + {1 - _BETA1:.3g} * g
v = {_BETA2} * v + {1 - _BETA2:.3g} * g * g
w = w - lr * (m * c1 / (sqrt(v * c2) + {_EPSILON}) + decay * w)
"""


def initial_parameters(sizes: tuple[int, ...], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights ``w1, w2, ...`` (inputs x outputs) and biases ``b1, b2, ...`` at the start, float32."""
    random = np.random.default_rng([seed, _WEIGHTS])
    found: dict[str, np.ndarray[Any, Any]] = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        scale = np.float32(math.sqrt(2.0 / inputs))
        found[f"w{i}"] = random.standard_normal((inputs, outputs), dtype=np.float32) * scale
        found[f"b{i}"] = np.zeros(outputs, np.float32)
    return found


class Network:
    """A perceptron with GELU between its layers, softmax cross entropy at the end, and AdamW.

    Parameters
    ----------
    device
        The device of the network.
    sizes
        Width of each layer, the input first and the classes last.
    batch, test_rows
        Rows of a training batch, and of the test set.
    dtype
        ``"float32"``, ``"bfloat16"``, ``"float16"`` or ``"float64"``: the dtype of products.  Parameters are float32
        (float64 for float64); for 16-bit dtypes they have a working copy in `dtype`.
    weight_decay
        Weight decay of AdamW, per unit of learning rate; for weights, not for biases.
    seed
        Seed of the initial weights.

    Attributes
    ----------
    durable : dict of str to GpuRef
        The members of a commit: parameters, their moments, and the step counter.
    gradients : dict of str to GpuRef
        Gradients of the last `backward`.
    """

    def __init__(
        self,
        device: Device,
        sizes: tuple[int, ...],
        *,
        batch: int,
        test_rows: int,
        dtype: str = "float32",
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.device = device
        self.sizes = sizes
        self.batch = batch
        self.test_rows = test_rows
        self.dtype = dtype
        self.weight_decay = weight_decay
        self.layers = range(1, len(sizes))
        self._last = len(sizes) - 1
        self._kept = "float64" if dtype == "float64" else "float32"
        self._narrow = dtype != self._kept
        initial = initial_parameters(sizes, seed)
        self.parameters = {name: device.put(value, dtype=self._kept, durable=True) for name, value in initial.items()}
        self._moments = {
            f"{moment}_{name}": device.zeros(value.shape, self._kept, durable=True)
            for name, value in initial.items()
            for moment in ("m", "v")
        }
        self.counter = device.zeros((1,), "int64", durable=True)
        self.durable = {**self.parameters, **self._moments, "step": self.counter}
        self.allocate()
        self._forward = {i: self._forward_plan(i, batch, training=True) for i in self.layers}
        self._predict = {i: self._forward_plan(i, test_rows, training=False) for i in self.layers}
        self._weight_gradient = {i: self._weight_gradient_plan(i) for i in self.layers}
        self._input_gradient = {i: self._input_gradient_plan(i) for i in self.layers[1:]}
        self._update = {name: self._update_plan(name) for name in self.parameters}
        self._count = device.elementwise.plan("step = step + one", step=self.counter, one=self._one)

    def allocate(self) -> None:
        """Allocate the scratch memory: activations, gradients, working copies; needed again after a restart."""
        empty, dtype, sizes = self.device.empty, self.dtype, self.sizes
        hidden = self.layers[:-1]
        self._activations = {i: empty((self.batch, sizes[i]), dtype) for i in self.layers}
        self._before_gelu = {i: empty((self.batch, sizes[i]), dtype) for i in hidden}
        self._tested = {i: empty((self.test_rows, sizes[i]), dtype) for i in self.layers}
        self._deltas = {i: empty((self.batch, sizes[i]), dtype) for i in self.layers}
        self.gradients = {f"w{i}": empty((sizes[i - 1], sizes[i]), self._kept) for i in self.layers}
        # A bias gradient has the dtype of the product whose epilogue computes it.
        self.gradients |= {f"b{i}": empty((sizes[i],), dtype) for i in hidden}
        self.gradients[f"b{self._last}"] = empty((sizes[-1],), self._kept)
        self.predictions = empty((self.test_rows,), "int64")
        self._one = self.device.full((1,), 1, "int64")
        self._working = (
            {name: self.device.copy(ref, dtype=dtype) for name, ref in self.parameters.items()}
            if self._narrow
            else self.parameters
        )

    # ---- plans: made once, valid also after a restart

    def _forward_plan(self, layer: int, rows: int, *, training: bool) -> Plan:
        """``x @ w + b``, and GELU unless it is the last layer; training keeps the value before GELU."""
        epilogue = "bias" if layer == self._last else "gelu_aux_bias" if training else "gelu_bias"
        return self.device.blas_lt.plan(
            self.device.empty((rows, self.sizes[layer - 1]), self.dtype),  # only its layout is used
            self._working[f"w{layer}"],
            bias=self._working[f"b{layer}"],
            epilogue=epilogue,
        )

    def _weight_gradient_plan(self, layer: int) -> Plan:
        """``x.T @ delta``; the plan of the last layer also sums delta over the rows, its bias gradient."""
        return self.device.blas_lt.plan(
            self.device.empty((self.batch, self.sizes[layer - 1]), self.dtype),
            self._deltas[layer],
            trans_a=True,
            epilogue="bgradb" if layer == self._last else "default",
            out_dtype=self._kept,
        )

    def _input_gradient_plan(self, layer: int) -> Plan:
        """``(delta @ w.T) * gelu'``, and its sum over the rows: delta and bias gradient of the layer below."""
        return self.device.blas_lt.plan(
            self._deltas[layer],
            self._working[f"w{layer}"],
            trans_b=True,
            aux=self._before_gelu[layer - 1],
            epilogue="dgelu_bgrad",
        )

    def _update_plan(self, name: str) -> Plan:
        arrays = {"w": self.parameters[name], "g": self.gradients[name]}
        arrays |= {moment: self._moments[f"{moment}_{name}"] for moment in ("m", "v")}
        program = _ADAMW
        if self._narrow:
            program += "copy = w\n"
            arrays["copy"] = self._working[name]
        decay = self.weight_decay if name.startswith("w") else 0.0
        return self.device.elementwise.plan(program, **arrays, lr=0.0, decay=decay, c1=1.0, c2=1.0)

    # ---- a training step, as messages

    def forward(self, x: GpuRef) -> None:
        """Send the forward pass of a batch."""
        for i in self.layers:
            outputs = {"out": self._activations[i]}
            if i != self._last:
                outputs["aux"] = self._before_gelu[i]
            self._forward[i].tell(x, self._working[f"w{i}"], self._working[f"b{i}"], **outputs)
            x = self._activations[i]

    def backward(self, x: GpuRef, labels: GpuRef, loss: GpuRef) -> None:
        """Send loss and gradients of the last `forward` batch; its mean loss goes to `loss` (float32, shape ())."""
        self.device.elementwise.softmax_cross_entropy(
            self._activations[self._last], labels, grad_out=self._deltas[self._last], loss_out=loss
        )
        for i in reversed(self.layers):
            outputs = {"out": self.gradients[f"w{i}"]}
            if i == self._last:
                outputs["bias_grad"] = self.gradients[f"b{i}"]
            self._weight_gradient[i].tell(self._activations[i - 1] if i > 1 else x, self._deltas[i], **outputs)
            if i > 1:
                self._input_gradient[i].tell(
                    self._deltas[i],
                    self._working[f"w{i}"],
                    self._before_gelu[i - 1],
                    out=self._deltas[i - 1],
                    bias_grad=self.gradients[f"b{i - 1}"],
                )

    def update(self, step: int, rate: float) -> None:
        """Send AdamW for each parameter, and increment the step counter.

        Parameters
        ----------
        step
            Number of this step, from 0.
        rate
            Learning rate.
        """
        c1, c2 = 1.0 / (1.0 - _BETA1 ** (step + 1)), 1.0 / (1.0 - _BETA2 ** (step + 1))
        for name, plan in self._update.items():
            arrays = {"w": self.parameters[name], "g": self.gradients[name]}
            if self._narrow:
                arrays["copy"] = self._working[name]
            plan.tell(**arrays, m=self._moments[f"m_{name}"], v=self._moments[f"v_{name}"], lr=rate, c1=c1, c2=c2)
        # The increment is a volatile array: after a restart that the program has not noticed yet, this message is
        # refused like all others of the step.
        self._count.tell(step=self.counter, one=self._one)

    def predict(self, x: GpuRef) -> GpuRef:
        """Send the forward pass of the test set; the handle of the predicted classes, int64."""
        for i in self.layers:
            self._predict[i].tell(x, self._working[f"w{i}"], self._working[f"b{i}"], out=self._tested[i])
            x = self._tested[i]
        self.device.elementwise.reduce("argmax", x, 1, out=self.predictions)
        return self.predictions
