"""How the methods of Fourier transforms behave on a GPU, as data; `docs/libraries/fft.md` has the same table."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["BEHAVIOUR", "Behaviour"]


class Behaviour(NamedTuple):
    """The behaviour of a method.  None waits for the device, and recorded programs have all of them in their graphs.

    Attributes
    ----------
    messages : str
        ``"one"``, or ``"several"`` of this actor and others.
    same_everywhere : bool
        Whether it gives the same bits on every device; the others do for one plan on one kind of device.
    """

    messages: str = "one"
    same_everywhere: bool = False


_SEVERAL: Final = Behaviour("several")
BEHAVIOUR: Final[dict[str, Behaviour]] = {
    **dict.fromkeys(
        (
            "fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "rfft", "rfft2", "rfftn", "irfft", "irfft2", "irfftn",
            "hfft", "hfftn", "ihfft", "ihfftn", "many", "transform", "half", "dct", "dctn", "dst", "dstn", "idct",
            "idctn", "idst", "idstn", "stft", "istft",
        ),
        Behaviour(),
    ),
    **dict.fromkeys(("convolve", "correlate"), _SEVERAL),
    **dict.fromkeys(("fftshift", "ifftshift"), Behaviour(same_everywhere=True)),
    **dict.fromkeys(("fftfreq", "rfftfreq"), Behaviour("several", same_everywhere=True)),
}  # fmt: skip
