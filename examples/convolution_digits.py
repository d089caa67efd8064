"""A small convolutional network reads digits: trained forward and backward by messages to `device.cudnn`.

Two convolutions with bias and ReLU, a pooling and a linear layer; the gradients are messages, too.  It prints the loss
curve, and the share of test images that it reads right.

    pip install '.[demo]'
    python examples/convolution_digits.py                  # on the host
    python examples/convolution_digits.py --device cuda:0
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import atomr_native as an

BATCH, CLASSES = 64, 10
PADDED = {"padding": 1}


def weights_of(seed=0):
    """Return the weights as arrays of NumPy."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (8, 1, 3, 3), "w2": (16, 8, 3, 3), "w3": (16 * 4 * 4, CLASSES)}
    made = {
        name: rng.normal(0, (2 / np.prod(n[:1] if name == "w3" else n[1:])) ** 0.5, n) for name, n in shapes.items()
    }
    return made | {"b1": np.zeros(8), "b2": np.zeros(16), "b3": np.zeros(CLASSES)}


def forward(device, p, x):
    """Send the messages of the network; return the hidden arrays and the logits."""
    dnn = device.cudnn
    first = dnn.convolution(x, p["w1"], p["b1"], activation="relu", **PADDED)
    second = dnn.convolution(first, p["w2"], p["b2"], activation="relu", **PADDED)
    pooled, index = dnn.pooling(second, "max", 2, index=True)
    flat = pooled.reshape(len(x), -1)
    return first, second, pooled, index, flat, device.blas_lt.matmul(flat, p["w3"], bias=p["b3"], epilogue="bias")


def train_step(device, p, momentum, x, labels):
    """Send one step of stochastic gradient descent; return the loss."""
    dnn, multiply, sums = device.cudnn, device.blas_lt.matmul, device.elementwise.reduce
    first, second, pooled, index, flat, logits = forward(device, p, x)
    loss, d_logits = device.elementwise.softmax_cross_entropy(logits, labels)
    g = {"b3": sums("sum", d_logits, axis=0), "w3": multiply(flat, d_logits, trans_a=True)}
    d_pooled = multiply(d_logits, p["w3"], trans_b=True).reshape(*pooled.shape)
    # ReLU passes a gradient where its result is positive, as its input is there.
    d_second = dnn.activation_backward(dnn.pooling_backward(d_pooled, (8, 8), "max", 2, index=index), second, "relu")
    g["w2"], g["b2"] = (
        dnn.convolution_backward_filter(first, d_second, 3, **PADDED),
        sums("sum", d_second, axis=(0, 2, 3)),
    )
    d_first = dnn.activation_backward(dnn.convolution_backward_data(d_second, p["w2"], (8, 8), **PADDED), first, "relu")
    g["w1"] = dnn.convolution_backward_filter(x, d_first, 3, **PADDED)
    g["b1"] = sums("sum", d_first, axis=(0, 2, 3))
    for name in p:
        device.elementwise.run("v = 0.9 * v + g; w -= 0.02 * v", w=p[name], v=momentum[name], g=g[name])
    return loss


def train(device, steps):
    """Train on the digits; return the losses, and the share of test images that are read right."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype("float32").reshape(-1, 1, 8, 8)
    x, test_x, y, test_y = train_test_split(images, labels, stratify=labels, random_state=0)
    p = {name: device.put(value.astype("float32")) for name, value in weights_of().items()}
    momentum = {name: device.zeros(ref.shape, "float32") for name, ref in p.items()}
    rng, losses = np.random.default_rng(1), []
    for _ in range(steps):
        chosen = rng.choice(len(x), BATCH, replace=False)
        losses.append(train_step(device, p, momentum, device.put(x[chosen]), device.put(y[chosen])))
    read = device.elementwise.reduce("argmax", forward(device, p, device.put(test_x))[-1], 1).numpy()
    return [float(loss.numpy()) for loss in losses], float(np.mean(read == test_y))


def main():
    """Train, and print the curve."""
    parser = argparse.ArgumentParser(description="A small convolutional network reads digits.")
    parser.add_argument("--device", default="host")
    parser.add_argument("--steps", type=int, default=300)
    chosen = parser.parse_args()
    with an.System() as system:
        losses, right = train(system.device(chosen.device), chosen.steps)
    width = max(1, chosen.steps // 15)
    for first in range(0, chosen.steps, width):
        mean = float(np.mean(losses[first : first + width]))
        print(f"step {first:4d}: loss {mean:.4f} {'#' * round(25 * mean)}")
    print(f"{100 * right:.1f} % of the test images are read right")


if __name__ == "__main__":
    main()
