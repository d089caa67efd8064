"""Methods of the cuDNN actor for sequences: recurrent networks, a loss without alignment, attention over float8."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...plans.actor import LibraryActor
from .defaults import ZERO
from .forms import CTC_LOSS, FLOAT8_ATTENTION, FLOAT8_ATTENTION_GRADIENT, RECURRENT, RECURRENT_GRADIENT, real
from .recurrent import RecurrentReserveRequest
from .recurrent_shapes import RecurrentAttributes, check_network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...arrays.gpu_ref import GpuRef

__all__ = ["SequencesActor"]


class SequencesActor(LibraryActor):
    """What `Cudnn` does with sequences."""

    def __init__(self, device: Any, name: str) -> None:
        super().__init__(device, name)
        #: Bytes that training keeps, by network.
        self._reserves: dict[RecurrentAttributes, int] = {}

    def rnn(
        self,
        kind: str,
        x: GpuRef,
        weights: GpuRef,
        hx: GpuRef | None = None,
        cx: GpuRef | None = None,
        *,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        lengths: Sequence[int] | None = None,
        layout: str = "tnc",
        dropout: float = ZERO,
        seed: int = 0,
        offset: int = 0,
        training: bool = False,
        reserve: GpuRef | None = None,
        out: GpuRef | None = None,
        tf32: bool = False,
    ) -> Any:
        """Send a recurrent network, an LSTM or a GRU, see `RecurrentRequest`.

        In training, what the gradient needs comes behind the results: `reserve`, or a new array.  The first such call
        of a structure waits until the device has said how large it is.

        Examples
        --------
        >>> weights = device.zeros(an.RecurrentWeights("lstm", 3, 2).size, "float32")
        >>> x = device.put(np.ones((5, 1, 3), "float32"))
        >>> y, hy, cy = device.cudnn.rnn("lstm", x, weights, hidden=2)
        >>> y.shape, cy.shape
        ((5, 1, 2), (1, 1, 2))
        """
        steps = lengths if lengths is None else tuple(lengths)
        if training and reserve is None:
            reserve = self.device.empty(
                self.rnn_reserve(
                    kind, x, weights, hidden=hidden, layers=layers, bidirectional=bidirectional, bias=bias,
                    lengths=steps, layout=layout, dropout=dropout, tf32=tf32,
                ),
                "uint8",
            )  # fmt: skip
        made = self._calls.send(
            self,
            RECURRENT,
            (
                x, weights, hx, cx, reserve, out, kind, hidden, layers, bidirectional, bias, steps, layout,
                dropout if dropout is ZERO else real(dropout), tf32, training, seed, offset,
            ),
        )  # fmt: skip
        return (*made, reserve) if training else made

    def rnn_reserve(
        self,
        kind: str,
        x: GpuRef,
        weights: GpuRef,
        *,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        lengths: Sequence[int] | None = None,
        layout: str = "tnc",
        dropout: float = ZERO,
        tf32: bool = False,
    ) -> int:
        """Return how many bytes the training of a recurrent network keeps, for `reserve`.

        The first call of a structure waits for the device, which knows it; parameters are those of `rnn`.

        Examples
        --------
        >>> x, weights = device.put(np.ones((3, 1, 1))), device.put(np.ones(4))
        >>> device.cudnn.rnn_reserve("relu", x, weights, hidden=1) > 0
        True
        """
        given = SimpleNamespace(
            kind=kind, x=x, weights=weights, hidden=hidden, layers=layers, bidirectional=bidirectional, bias=bias,
            lengths=lengths if lengths is None else tuple(lengths), layout=layout, dropout=dropout, tf32=tf32,
        )  # fmt: skip
        attributes, _ = check_network(given)
        found = self._reserves.get(attributes)
        if found is None:
            sizes: GpuRef = self.tell(RecurrentReserveRequest(attributes=attributes))
            found = self._reserves[attributes] = int(sizes.numpy()[0])
        return found

    def rnn_backward(
        self,
        kind: str,
        x: GpuRef,
        weights: GpuRef,
        y: GpuRef,
        dy: GpuRef,
        reserve: GpuRef,
        hx: GpuRef | None = None,
        cx: GpuRef | None = None,
        *,
        dhy: GpuRef | None = None,
        dcy: GpuRef | None = None,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        lengths: Sequence[int] | None = None,
        layout: str = "tnc",
        dropout: float = ZERO,
        tf32: bool = False,
        keep: bool = False,
    ) -> Any:
        """Send the gradients of a recurrent network by x, the first states and the weights.

        The reserve serves for one gradient, which overwrites it.  So it is freed behind the message, and a second
        gradient of it is refused with `GpuRefStale`; with `keep` it stays, as the `reserve` of another call of `rnn`.
        See `RecurrentGradientRequest`.
        """
        made = self._calls.send(
            self,
            RECURRENT_GRADIENT,
            (
                x, weights, y, dy, reserve, hx, cx, dhy, dcy, kind, hidden, layers, bidirectional, bias,
                lengths if lengths is None else tuple(lengths), layout, dropout if dropout is ZERO else real(dropout),
                tf32,
            ),
        )  # fmt: skip
        if not keep:
            reserve.free()
        return made

    def ctc_loss(
        self,
        x: GpuRef,
        labels: GpuRef,
        input_lengths: GpuRef,
        label_lengths: GpuRef,
        *,
        blank: int = 0,
        layout: str = "tnc",
        gradient: bool = False,
        zero_infinity: bool = False,
    ) -> Any:
        """Send the loss of connectionist temporal classification, see `CtcLossRequest`; with `gradient` also that."""
        return self._calls.send(
            self,
            CTC_LOSS,
            (x, labels, input_lengths, label_lengths, blank, layout, gradient, zero_infinity),
        )

    def attention_float8(
        self,
        q: GpuRef,
        k: GpuRef,
        v: GpuRef,
        *,
        q_scale: GpuRef,
        k_scale: GpuRef,
        v_scale: GpuRef,
        weights_scale: GpuRef,
        out_scale: GpuRef,
        out: GpuRef | None = None,
        q_lengths: GpuRef | None = None,
        kv_lengths: GpuRef | None = None,
        q_offsets: GpuRef | None = None,
        kv_offsets: GpuRef | None = None,
        mask: str = "none",
        scale: float | None = None,
        statistics: bool = False,
        layout: str = "bhsd",
        max_queries: int | None = None,
        max_keys: int | None = None,
        tune: bool | str = False,
    ) -> Any:
        """Send attention of float8 arrays, see `Float8AttentionRequest`: the result and two largest magnitudes."""
        return self._calls.send(
            self,
            FLOAT8_ATTENTION,
            (
                q, k, v, q_scale, k_scale, v_scale, weights_scale, out_scale, out, q_lengths, kv_lengths, q_offsets,
                kv_offsets, mask, scale if scale is None else real(scale), statistics, layout, max_queries, max_keys,
                tune,
            ),
        )  # fmt: skip

    def attention_float8_backward(
        self,
        q: GpuRef,
        k: GpuRef,
        v: GpuRef,
        y: GpuRef,
        statistics: GpuRef,
        dy: GpuRef,
        *,
        q_scale: GpuRef,
        k_scale: GpuRef,
        v_scale: GpuRef,
        y_scale: GpuRef,
        dy_scale: GpuRef,
        weights_scale: GpuRef,
        slopes_scale: GpuRef,
        dq_scale: GpuRef,
        dk_scale: GpuRef,
        dv_scale: GpuRef,
        q_lengths: GpuRef | None = None,
        kv_lengths: GpuRef | None = None,
        q_offsets: GpuRef | None = None,
        kv_offsets: GpuRef | None = None,
        mask: str = "none",
        scale: float | None = None,
        layout: str = "bhsd",
        max_queries: int | None = None,
        max_keys: int | None = None,
        tune: bool | str = False,
    ) -> Any:
        """Send the gradients of attention of float8 arrays, and the largest magnitudes of four arrays.

        See `Float8AttentionGradientRequest`.
        """
        return self._calls.send(
            self,
            FLOAT8_ATTENTION_GRADIENT,
            (
                q, k, v, y, statistics, dy, q_scale, k_scale, v_scale, y_scale, dy_scale, weights_scale, slopes_scale,
                dq_scale, dk_scale, dv_scale, q_lengths, kv_lengths, q_offsets, kv_offsets, mask,
                scale if scale is None else real(scale), layout, max_queries, max_keys, tune,
            ),
        )  # fmt: skip
