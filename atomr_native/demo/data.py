"""The data: scikit-learn's handwritten digits, and the batches of each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Digits", "load_digits"]

Array = np.ndarray[Any, Any]
_SIDE = 8
_TEST_SHARE = 0.25
_SHIFTED = 0.25
_SEEDS = 2**32  # scikit-learn accepts 32-bit seeds
_ORDER = 2  # the random stream of epochs


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of 8 x 8 pixels and their digits, split into a training set and a test set.

    Attributes
    ----------
    images : numpy.ndarray
        float32, (images, 8, 8): grey levels from 0 to 16, for training.
    labels, test_labels : numpy.ndarray
        int64, (images,): 0 to 9.
    test_x : numpy.ndarray
        float32, (images, 64): standardised, for testing.
    mean, scale : numpy.ndarray
        float32, (64,): mean and scale of each pixel in the training set.
    """

    images: Array
    labels: Array
    test_x: Array
    test_labels: Array
    mean: Array
    scale: Array

    def epoch(self, seed: int, epoch: int) -> tuple[Array, Array]:
        """Return the inputs (float32, standardised) and labels of an epoch, in its own order.

        A quarter of the images, different ones each time, is shifted by up to one pixel.  The result is a function of
        the arguments, so a training that returned to a commit gets the same data again.
        """
        random = np.random.default_rng([seed, _ORDER, epoch])
        count = len(self.images)
        order = random.permutation(count)
        shift = random.integers(-1, 2, (2, count, 1, 1)) * (random.random((count, 1, 1)) < _SHIFTED)
        padded = np.pad(self.images[order], ((0, 0), (1, 1), (1, 1)))
        inner = np.arange(1, _SIDE + 1)
        shifted = padded[np.arange(count)[:, None, None], inner[:, None] + shift[0], inner + shift[1]]
        return self._standard(shifted), self.labels[order]

    def _standard(self, images: Array) -> Array:
        return (images.reshape(len(images), -1) - self.mean) * self.scale


def load_digits(seed: int) -> Digits:
    """Load scikit-learn's digits, and hold back a quarter of them for testing.

    Parameters
    ----------
    seed
        Selects the held-back images; each class is split in the same ratio.

    Raises
    ------
    ImportError
        If scikit-learn is missing.
    """
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    pixels, labels = load(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        pixels.astype(np.float32), labels.astype(np.int64),
        test_size=_TEST_SHARE, stratify=labels, random_state=seed % _SEEDS,
    )  # fmt: skip
    mean = train.mean(axis=0)
    scale = 1.0 / np.maximum(train.std(axis=0), 1.0)  # border pixels hardly ever differ from 0
    images = train.reshape(-1, _SIDE, _SIDE)
    return Digits(images, train_labels, (test - mean) * scale, test_labels, mean, scale)
