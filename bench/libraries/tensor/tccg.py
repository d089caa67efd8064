"""The 48 contractions of the Tensor Contraction Code Generator's benchmark: the result, and two operands.

Products of a tensor and a matrix, changes of basis, and steps of coupled-cluster methods with up to triple excitations.
"""

from __future__ import annotations

__all__ = ["CONTRACTIONS"]


def _triples() -> list[str]:
    found = []
    for y in "fed":
        rest = "".join(x for x in "def" if x != y)
        found += [f"abcdef-{rest}g{z}-g{y}{''.join(x for x in 'abc' if x != z)}" for z in "abc"]
    for z in "cba":
        rest = "".join(x for x in "abc" if x != z)
        found += [f"abcdef-g{y}{rest}-{''.join(x for x in 'def' if x != y)}g{z}" for y in "def"]
    return found


CONTRACTIONS: tuple[str, ...] = (
    "abc-bda-dc", "abc-dca-bd", "abcd-dbea-ec", "abcd-deca-be", "abcd-ebad-ce", "abcde-efbad-cf", "abcde-ecbfa-fd",
    "abcde-efcad-bf", "abcd-ea-ebcd", "abcd-eb-aecd", "abcd-ec-abed", "ab-ac-cb", "ab-acd-dbc", "ab-cad-dcb",
    "abc-acd-db", "abc-ad-bdc", "abc-adc-bd", "abc-adc-db", "abc-adec-ebd", "abcd-aebf-dfce", "abcd-aebf-fdec",
    "abcd-aecf-bfde", "abcd-aecf-fbed", "abcd-aedf-bfce", "abcd-aedf-fbec", "abcd-aefb-fdce", "abcd-aefc-fbed",
    "abcd-eafb-fdec", "abcd-eafc-bfde", "abcd-eafd-fbec", *_triples(),
)  # fmt: skip
