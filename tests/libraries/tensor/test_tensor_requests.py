"""Requests of tensors: refusals before anything is sent, what two plans share, and what a path is said to cost."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an

pytestmark = pytest.mark.plain

A, B, C = np.ones((2, 3)), np.ones((3, 4)), np.ones((2, 4))


def einsum(**given: Any) -> an.EinsumRequest:
    return an.EinsumRequest(**{"subscripts": "ij,jk->ik", "operands": (A, B), **given})


def elementwise(**given: Any) -> an.TensorElementwiseRequest:
    return an.TensorElementwiseRequest(**{"subscripts": "ij,ij->ji", "operands": (A, A), **given})


def reduce(**given: Any) -> an.TensorReduceRequest:
    return an.TensorReduceRequest(**{"op": "sum", "subscripts": "ij->i", "x": A, **given})


@pytest.mark.parametrize(
    ("make", "given", "text"),
    [
        (einsum, {"operands": (A, A)}, "mode 'j' has extent 3 in operand 0 and 2 in operand 1"),
        (einsum, {"subscripts": "ij,jk->il"}, "mode 'l' of the output is no mode of an operand; allowed: i, j, k"),
        (einsum, {"operands": ()}, "operands: 0 of them; allowed: 1 to 64"),
        (einsum, {"operands": "ab"}, "operands: str of them|operands: 2 of them; allowed"),
        (einsum, {"operands": (A, 3.0)}, "operand 1 is a float"),
        (einsum, {"out": np.ones((4, 2))}, r"out is float64\[4, 2\]; allowed: float64\[2, 4\]"),
        (einsum, {"out": np.broadcast_to(1.0, (2, 4))}, "out of shape .* overlaps itself"),
        (einsum, {"out_dtype": "int32"}, "out_dtype is int32 with operands of float64; allowed: float16, float32"),
        (einsum, {"out": np.ones((2, 4), int)}, "out is int64 with operands of float64"),
        (einsum, {"operands": (A * 1j, B), "out_dtype": "float64"}, "with operands of complex128; allowed: complex64"),
        (einsum, {"compute": "tf32"}, "compute='tf32' with operands of float64; allowed: float64"),
        (einsum, {"route": "nvcc"}, "route='nvcc'; allowed: 'auto', 'kernel', 'blas_lt'"),
        (einsum, {"conj": (True,)}, "conj=.*; allowed: a bool, or one for each of 2 operands"),
        (einsum, {"conj": 1}, "conj=1 must be True or False"),
        (einsum, {"beta": 2}, "beta=2 without c; allowed: beta=0"),
        (einsum, {"c": B, "beta": 2}, r"c is float64\[3, 4\]; allowed: float64\[2, 4\]"),
        (einsum, {"c": B}, r"c is float64\[3, 4\]; allowed"),
        (einsum, {"alpha": 1j}, "alpha=1j is a complex; it must be a real number"),
        (einsum, {"alpha": np.ones(1, "float32")}, r"alpha is float32\[1\]; allowed: a number, or one element"),
        (einsum, {"alpha": np.ones(1), "c": C, "beta": 1}, "one of alpha and beta is an array"),
        (einsum, {"operands": (A.astype(int), B.astype(int)), "alpha": 0.5}, "alpha=0.5; allowed: integers"),
        (einsum, {"memory_limit": -1}, "memory_limit=-1; allowed: integers from 0"),
        (einsum, {"optimize": "best"}, "optimize='best'; allowed: 'auto'"),
        (elementwise, {"subscripts": "ij,ij->i"}, "modes 'j' are not in the output"),
        (elementwise, {"ab": "sub"}, "ab='sub'; allowed: 'add', 'mul', 'max', 'min'"),
        (elementwise, {"operands": (A * 1j, A), "ab": "max"}, "ab='max'; allowed: 'add', 'mul'"),
        (elementwise, {"operands": (A * 1j, A), "unary": ("exp",)}, "the operator 'exp' of complex128 values; allowed"),
        (elementwise, {"operands": (A.astype(int),) * 2, "unary": ("exp",)}, "the operator 'exp' of int64 values"),
        (elementwise, {"unary": ("neg",) * 3}, "for 2 operands; allowed: an operator for each"),
        (elementwise, {"padding": 1}, "padding=1 of 2 operands; allowed: of one"),
        (elementwise, {"subscripts": "ij->ij", "operands": (A,), "padding": ((1, -1), (0, 0))}, "padding=.*allowed: 0"),
        (elementwise, {"alpha": np.ones(1)}, "alpha is an array; allowed: a number"),
        (elementwise, {"operands": (A,) * 4, "subscripts": "ij,ij,ij,ij->ij"}, "4 of them; allowed: 1 to 3"),
        (reduce, {"op": "median"}, "op='median'; allowed: 'sum'"),
        (reduce, {"x": A * 1j, "op": "norm2"}, "op='norm2' of complex128; allowed: sum, prod, mean, any, all"),
        (reduce, {"x": A * 1j, "out_dtype": "float64"}, "out_dtype is float64 with x of complex128"),
        (reduce, {"op": "any", "alpha": 2}, "alpha=2, beta=0 with op='any'; allowed: 1 and 0"),
        (reduce, {"x": A[:, :0], "op": "max"}, "op='max' over modes of 0 elements"),
    ],
)  # fmt: skip
def test_refusals(make: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        make(**given)


def test_extents_that_overflow() -> None:
    rows = np.broadcast_to(1.0, (2**40,))
    with pytest.raises(an.InvalidRequest, match=r"the result of shape .* the largest array has"):
        an.EinsumRequest(subscripts="i,j->ij", operands=(rows, rows))


def test_requests_are_values() -> None:
    request = einsum(alpha=2.0, conj=[False, True])
    assert pickle.loads(pickle.dumps(request)).lowered.spec() == request.lowered.spec()
    assert copy.copy(request).lowered.spec() == request.lowered.spec()
    assert hash(request.subscripts) == hash("ij,jk->ik")


def test_renamed_modes_share_a_plan() -> None:
    specs = {
        an.EinsumRequest(subscripts=subscripts, operands=(A, B)).lowered.spec()
        for subscripts in ("ij,jk->ik", "ab,bc->ac", " x y , y z ", [[5, 3], [3, 4], [5, 4]], "zy,yx->zx")
    }
    assert len(specs) == 1


FIELDS: dict[str, list[dict[str, Any]]] = {
    "modes": [{}, {"subscripts": "ij,jk->ki"}, {"subscripts": "ij,jk->k"}, {"subscripts": "ij,lk->ik"}],
    "extents": [{}, {"operands": (np.ones((5, 3)), B)}],
    "strides": [{}, {"operands": (np.ones((3, 2)).T, B)}, {"operands": (np.ones((2, 6))[:, ::2], B)}],
    "types": [{}, {"operands": (A.astype("float32"), B)}, {"out_dtype": "float32"}, {"out_dtype": "complex128"}],
    "operators": [{}, {"conj": True}, {"conj": (False, True)}],
    "compute": [{"operands": (A.astype("f4"), B.astype("f4"))},
                {"operands": (A.astype("f4"), B.astype("f4")), "compute": "tf32"}],
    "factors": [{}, {"alpha": 2}, {"alpha": 0}, {"c": C, "beta": 1}, {"alpha": np.ones(1)}],
    "preferences": [{}, {"route": "kernel"}, {"route": "blas_lt"}, {"route": "cutlass"}, {"deterministic": True},
                    {"tune": True}, {"tune": 2.0}, {"tune": "known"}],
    "order": [{}, {"order": "any"}],  # the modes of the larger operand first
    "memory": [{"subscripts": "ij,jk,kl->il", "operands": (A, B, B.T)},
               {"subscripts": "ij,jk,kl->il", "operands": (A, B, B.T), "memory_limit": 24},
               {"subscripts": "ij,jk,kl->il", "operands": (A, B, B.T), "optimize": [(1, 2), (0, 1)]}],
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_requests_that_differ_in_one_field_have_two_plans(field: str) -> None:
    specs = [einsum(**given).lowered.spec() for given in FIELDS[field]]
    assert len(set(specs)) == len(specs)


#: Values of each field of a structure: how A lies, dtype of B, subscripts, alpha, conj and route.
STRUCTURES = st.tuples(
    st.sampled_from(["C", "F"]), st.sampled_from(["f4", "f8"]),
    st.sampled_from(["ij,jk->ik", "ab,bc->ac", "ij,jk->ki"]),
    st.sampled_from([1, 0, 2.0, 3.0]), st.booleans(), st.sampled_from(["auto", "kernel"]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(STRUCTURES, STRUCTURES)
def test_plans_are_the_same_where_structures_are(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    keys, specs = [], []
    for order, dtype, subscripts, alpha, conj, route in (first, second):
        operands = (np.asarray(A, order=order), B.astype(dtype))
        request = einsum(operands=operands, subscripts=subscripts, alpha=alpha, conj=conj, route=route)
        specs.append(request.lowered.spec())
        factor = alpha if alpha in (0, 1) else 2
        keys.append((order, dtype, subscripts == "ij,jk->ki", factor, conj, route))
    assert (specs[0] == specs[1]) == (keys[0] == keys[1])


def test_scalars_travel_and_their_values_make_no_plan() -> None:
    first, second = (einsum(alpha=alpha).lowered for alpha in (2.0, 3.5))
    assert first.spec() == second.spec()
    assert [scalar.value for scalar in second.scalars] == [3.5, 0.0]
    assert einsum().lowered.scalars == ()


def test_a_path_says_what_it_costs() -> None:
    with an.System(isolation="thread") as system:
        tensor = system.device("host").tensor
        a, b, c = np.ones((40, 2)), np.ones((2, 40)), np.ones((40, 50))
        path = tensor.einsum_path("ij,jk,kl->il", a, b, c)
        assert path.path == ((1, 2), (0, 1))
        assert path.flops == 2 * (2 * 40 * 50 + 40 * 2 * 50)
        assert path.naive_flops == 3 * 40 * 2 * 40 * 50
        assert path.peak == 2 * 50 * 8
        assert [step.subscripts for step in path.steps] == ["bc,cd->bd", "ab,bd->ad"]
        assert path.steps[0].nbytes == 8 * (2 * 40 + 40 * 50 + 2 * 50)
        sliced = tensor.einsum_path("ij,jk,kl->il", a, b, c, memory_limit=100)
        assert sliced.slices == {"l": 50}
        assert sliced.peak == 16
        assert "sliced: l (50)" in str(sliced)
        assert tensor.einsum_path(path_of := "ij,jk,kl->il", a, b, c, optimize=path.path).path == path.path, path_of


def test_gradients_refuse() -> None:
    with an.System(isolation="thread") as system:
        device = system.device("host")
        a, b = device.put(A), device.put(B)
        grad = device.put(C)
        with pytest.raises(an.InvalidRequest, match=r"'beta' of einsum_gradient.*allowed: alpha, compute, conj, route"):
            device.tensor.einsum_gradient("ij,jk->ik", a, b, grad=grad, beta=1)
        with pytest.raises(an.InvalidRequest, match="operand 2 of 2; allowed: -2 to 1"):
            device.tensor.einsum_gradient("ij,jk->ik", a, b, grad=grad, wanted=[2])
        with pytest.raises(an.InvalidRequest, match=r"grad is float64\[2, 3\]; allowed: float64\[2, 4\]"):
            device.tensor.einsum_gradient("ij,jk->ik", a, b, grad=a)
