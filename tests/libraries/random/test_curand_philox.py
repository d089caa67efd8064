"""cuRAND's sequence: numbers that its host generator gave, and its rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]

#: A seed, and positions on both sides of the one where cuRAND's sequences come to their second counter.
SEED, STARTS = 2**63 + 12345, (0, 262141)
#: Of ``curandGenerate`` and its like, in cuRAND 10.4.0, from these positions on.
KNOWN: dict[tuple[str, str], tuple[list[Any], ...]] = {
    ("integers", "uint32"): (
        [839173618, 2921583128, 2798820529, 800659238, 3260660735, 2908127322],
        [295166180, 3810058891, 389618073, 4145900332, 2764609423, 1485904551],
    ),
    ("uniform", "float32"): (
        [
            0.19538533687591553,
            0.6802340745925903,
            0.6516512036323547,
            0.18641801178455353,
            0.7591817378997803,
            0.6771011352539062,
        ],
        [
            0.06872373074293137,
            0.887098491191864,
            0.09071502834558487,
            0.9652926325798035,
            0.6436858177185059,
            0.34596410393714905,
        ],
    ),
    ("uniform", "float64"): (
        [
            0.6802341658969324,
            0.18641770272087949,
            0.6436853539010818,
            0.43390858069399924,
            0.6771015098328235,
            0.7115007314632773,
        ],
        [
            0.09071531933212057,
            0.13762856086644354,
            0.42844797912794413,
            0.41186820037122746,
            0.12168385600754766,
            0.009773624682503257,
        ],
    ),
    ("normal", "float32"): (
        [
            -1.6362311840057373,
            -0.7670143842697144,
            0.8525937795639038,
            0.35996583104133606,
            -0.6657968163490295,
            -0.3282419443130493,
        ],
        [
            0.8989711999893188,
            0.2641349136829376,
            0.41210588812828064,
            -0.20866839587688446,
            -0.16463735699653625,
            0.5877988934516907,
        ],
    ),
    ("normal", "float64"): (
        [
            0.8087326940111866,
            0.3414495374031272,
            0.37868726354232285,
            -0.8588867578286169,
            -0.8573899916748218,
            -0.2115432708875292,
        ],
        [
            1.9483133533901107,
            0.8655060134365585,
            -1.7936813992109224,
            0.9220072928684678,
            0.961252473362163,
            -2.4481719623535994,
        ],
    ),
    ("lognormal", "float32"): (
        [
            0.19471248984336853,
            0.46439751982688904,
            2.3457231521606445,
            1.4332804679870605,
            0.5138639211654663,
            0.7201887369155884,
        ],
        [
            2.457073926925659,
            1.3023039102554321,
            1.5099942684173584,
            0.811664342880249,
            0.8482012152671814,
            1.800022006034851,
        ],
    ),
    ("lognormal", "float64"): (
        [
            2.245061003802914,
            1.406985591367899,
            1.460366254551729,
            0.4236334265045498,
            0.42426798145067457,
            0.8093342596833042,
        ],
        [
            7.0168426604147625,
            2.376208175079494,
            0.16634665262365358,
            2.5143323292724427,
            2.6149696030120686,
            0.08645147869660529,
        ],
    ),
}
#: Normal numbers of a mathematics library are within some roundings of these.
CLOSE = {"float32": 4e-6, "float64": 1e-14}


@pytest.fixture(scope="module", params=["host", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def drawn(device: an.Device, kind: str, shape: Any, dtype: str, **source: Any) -> np.ndarray:
    bounds = {"low": 0, "high": 2**32} if kind == "integers" else {}
    made = getattr(device.random, kind)(shape, dtype, engine="curand_philox", **bounds, **source)
    return made.numpy()


@pytest.mark.parametrize(("kind", "dtype"), KNOWN)
def test_the_sequence_of_curand(device: an.Device, kind: str, dtype: str) -> None:
    for start, want in zip(STARTS, KNOWN[kind, dtype], strict=True):
        got = drawn(device, kind, len(want), dtype, seed=SEED, offset=start)
        assert got.dtype == dtype
        if kind in ("integers", "uniform"):
            assert got.tolist() == want
        else:
            np.testing.assert_allclose(got, want, CLOSE[dtype], CLOSE[dtype])
            assert len(np.unique(got)) == len(want)
        at = device.put(np.array([start]))
        parts = [drawn(device, kind, 1, dtype, seed=SEED, offset=at), drawn(device, kind, 5, dtype, seed=SEED,
                 offset=start + 1)]  # fmt: skip
        assert np.concatenate(parts).tolist() == got.tolist()


def test_parameters_and_generators(device: an.Device) -> None:
    g = an.Generator(SEED)
    source = {"engine": "curand_philox", "generator": g}
    word, unit = KNOWN["integers", "uint32"][0], KNOWN["uniform", "float32"][0]
    assert device.random.integers(2, low=0, high=2**32, **source).numpy().tolist() == word[:2]
    assert device.random.uniform(2, low=-1.0, high=3.0, **source).numpy().tolist() == [4 * u - 1 for u in unit[2:4]]
    some = device.random.integers(2, low=10, high=12, **source)
    assert g.offset == 6
    assert some.dtype == np.uint32
    assert some.numpy().tolist() == [10 + (w >> 31) for w in word[4:6]]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("normal", {"engine": "xorwow"}, "engine='xorwow'"),
    (
        "normal",
        {"dtype": "float16"},
        "dtype float16 of normal numbers of engine 'curand_philox'; allowed: float32, float64",
    ),
    ("integers", {"dtype": "int64"}, "dtype int64 .* allowed: uint32"),
    ("uniform", {"stream": 1}, "stream=1; allowed: .* 0 to 0"),
]


@pytest.mark.parametrize(("kind", "given", "message"), REFUSED)
def test_refused(device: an.Device, kind: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(an.InvalidRequest, match=message):
        getattr(device.random, kind)(2, **{"engine": "curand_philox", "seed": 1} | given)


def test_other_distributions_are_refused() -> None:
    with pytest.raises(an.InvalidRequest, match="of gamma numbers; allowed with it: uniform, normal, lognormal, integ"):
        _ = an.RandomRequest(
            distribution="gamma", shape=2, parameters=(1.0, 1.0), seed=1, engine="curand_philox"
        ).lowered
