"""What requests and trees of CUTLASS refuse, with values and nodes; trees and texts are one value.  Needs no device."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]
Tree = an.EpilogueTree
A, B, C = np.ones((4, 8), "f4"), np.ones((8, 6), "f4"), np.ones((4, 6), "f4")
ROW = np.ones(6, "f4")


def twice(x: float) -> float:
    return x * 2.0


def plus(acc: float, bias: float) -> float:
    return acc + bias


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"a": A[0]}, r"a has shape \(8,\); allowed: matrices"),
        ({"b": A}, r"K=8 in a \(4, 8\) is not K=4 in b \(4, 8\)"),
        ({"a": A[:, :0], "b": B[:0]}, r"K=0 in a \(4, 0\); allowed: 1 or more"),
        ({"a": np.ones((2, 4, 8), "f4"), "b": np.ones((3, 8, 6), "f4")}, r"batches do not broadcast: a\(2,\), b\(3,\)"),
        ({"a": A.astype("f8")}, "a has dtype float64 and b has dtype float32; allowed: float64 by float64"),
        ({"compute": "float16"}, "compute='float16'; allowed for these operands: float32, tf32"),
        ({"out_dtype": "float16"}, "out has dtype float16; allowed for operands of float32: float32"),
        ({"out": C[:3]}, r"out has shape \(3, 6\); allowed: \(4, 6\)"),
        ({"out": C.copy(), "out_dtype": "float64"}, "out has dtype float32, but out_dtype is 'float64'"),
        ({"b_scale": np.ones((1, 6), "f4")}, "b_scale is given for float32 by float32; allowed for: float16 by int8"),
        (
            {"a": A.astype("f2"), "b": B.astype("i1"), "b_scale": np.ones((3, 6), "f2")},
            r"b_scale has shape \(3, 6\); allowed: \(G, 6\), a row for each of G equal parts of K=8",
        ),
        (
            {"a": A.astype("f2"), "b": B.astype("i1"), "b_scale": np.ones((2, 6), "f4")},
            "b_scale has dtype float32; allowed: float16, as a",
        ),
        ({"a": A.astype("i1"), "b": B.astype("f2")}, "a has dtype int8 and b has dtype float16; allowed"),
        ({"alpha": "2"}, "alpha='2' is a str; it must be a real number, or an array"),
        ({"alpha": 1j}, "must be a real number"),
        ({"alpha": np.ones(1)}, "alpha has dtype float64; allowed: float32"),
        ({"c": C[:3], "beta": 1.0}, r"c has shape \(3, 6\); allowed: what broadcasts to out's \(4, 6\)"),
        ({"c": C.astype("f8"), "beta": 1.0}, "c has dtype float64; allowed: float32"),
        ({"fast_accum": 1}, "fast_accum=1; allowed: False, True"),
        ({"config": (128, 128)}, "config is a tuple; allowed: None, GemmConfig"),
        ({"epilogue": 3}, "epilogue is a int; allowed: None, str, EpilogueTree, a Python function"),
        ({"epilogue": "acc + bias"}, "the epilogue uses 'bias', which is not given; given: acc, alpha, beta"),
        ({"epilogue": "acc + c"}, "the epilogue uses 'c', which is not given"),
        ({"operands": {"bias": ROW}}, "bias is given, but the epilogue .* does not use it"),
        ({"epilogue": "acc", "alpha": 2.0}, "alpha is given, but the epilogue acc does not use it"),
        ({"epilogue": "acc", "c": C}, "c is given, but the epilogue"),
        ({"operands": {"out": ROW}}, "operand 'out' is a product's own"),
        ({"operands": {"a b": ROW}}, "operands has the name 'a b'; allowed: identifiers"),
        ({"operands": 5}, "operands is 5; allowed: a mapping from names"),
        ({"epilogue": "acc + x", "operands": {"x": np.ones(4, "f4")}}, r"x has shape \(4,\); allowed: what broadcasts"),
        ({"epilogue": "acc + x", "operands": {"x": np.ones(6)}}, "x has dtype float64; allowed: float32, bfloat16"),
        ({"outputs": {"pre": "float32"}}, "outputs are pre, but the epilogue stores none"),
        (
            {"epilogue": "s = sum(acc, 2); out = acc", "outputs": {"s": "float32"}},
            r"'sum\(acc, 2\)' at line 1, column 5 of .*; allowed: sum\(acc\), sum\(acc, 0\), sum\(acc, 1\)",
        ),
        ({"epilogue": "s = sum(acc); out = c", "c": C, "outputs": {"s": "float32"}}, "'acc' is assigned and not used"),
        ({"epilogue": "s = sum(pre); out = acc", "outputs": {"s": "float32"}}, "'pre' at line 1.* a statement before"),
        ({"epilogue": "s = sum(acc); out = acc"}, "unknown function 'sum'"),
        (
            {"epilogue": "s = sum(acc); out = acc", "outputs": {"s": "bfloat16"}},
            "output s of a reduction has dtype bfloat16; allowed: float32",
        ),
        (
            {"epilogue": "s = sum(acc, 0); out = acc", "outputs": {"s": C}},
            r"output s has shape \(4, 6\); allowed: \(6,\)",
        ),
        (
            {"epilogue": "s = sum(acc); out = acc", "outputs": {"s": "float32"}, "a": A[:0]},
            r"output s is a reduction of no elements: out has shape \(0, 6\)",
        ),
        ({"epilogue": "pre = acc; out = relu(pre)", "outputs": {"pre": "int8"}}, "output pre has dtype int8; allowed"),
        (
            {"epilogue": "pre = acc; out = relu(pre)", "outputs": {"pre": C[:2]}},
            r"output pre has shape \(2, 6\); allowed: \(4, 6\)",
        ),
        ({"epilogue": "pre = acc; out = 1 * acc", "outputs": {"pre": "float32"}}, "a stored value must be used by out"),
        ({"epilogue": plus}, "the epilogue uses 'bias', which is not given"),
        ({"epilogue": lambda: 1.0}, "has 1 arguments"),
        ({"epilogue": lambda acc, *, bias: acc}, "has the parameter bias; allowed: positional ones"),
        ({"epilogue": lambda acc, bias=1.0: acc}, "has a default; allowed: none"),
        ({"epilogue": abs}, "is a builtin_function_or_method; allowed: a Python function"),
    ],
)
def test_requests_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        an.GemmRequest(**{"a": A, "b": B} | changed)


def test_outputs_share_no_memory() -> None:
    with pytest.raises(an.InvalidRequest, match="out overlaps a"):
        an.GemmRequest(a=C, b=np.ones((6, 6), "f4"), out=C)
    with pytest.raises(an.InvalidRequest, match="pre overlaps out"):
        an.GemmRequest(a=A, b=B, out=C, epilogue="pre = acc; out = relu(pre)", outputs={"pre": C})
    an.GemmRequest(a=A, b=B, c=C, out=C, beta=1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("acc +", "cannot be parsed"),
        ("acc ** 2", r"'acc \*\* 2' at line 1, column 1 of 'acc \*\* 2'; allowed: names, numbers"),
        ("acc.T", "'acc.T' at line 1, column 1"),
        ("acc + softmax(acc)", "unknown function 'softmax' at line 1, column 7 .*; allowed: abs, sqrt"),
        ("relu(acc, 2)", r"relu\(acc, 2.0\) has 2 arguments; relu takes 1"),
        ("clamp(acc, 0)", r"clamp\(acc, 0.0\) has 2 arguments; clamp takes 3"),
        ("relu(x=acc)", "'relu\\(x=acc\\)' at line 1"),
        ("x = acc; out = acc", "'x' is assigned and not used at line 1, column 1"),
        ("x = acc; y = x", "'y = x' at line 1, column 10 .* last `out = expression`"),
        ("out = acc; out = acc", "'out = acc' at line 1, column 1"),
        ("acc; acc", "'acc' at line 1, column 1 .* statements"),
        ("acc = 1; out = acc", "'acc = 1'"),
        ("acc + True", "'True' at line 1, column 7"),
        ("acc + a", "'a' is no name of an operand; allowed: identifiers but a, acc, b, out"),
        ("acc + 1" + "0" * 400, "a number that is too large at line 1"),
        (" + ".join(["acc"] * 40), "the tree has 65 nodes at its call add; allowed: 64"),
        ("(" * 2000 + "acc" + ")" * 2000, "cannot be parsed|nested too deeply"),
        ("acc" + " " * 5000, "the epilogue has 5003 characters; allowed: text of up to 4096"),
    ],
)
def test_texts_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        Tree.parse(text)


def test_trees_that_cannot_be() -> None:
    for make, words in (
        (lambda: Tree.call("softmax", Tree.acc()), r"unknown functor in softmax\(acc\); allowed: abs"),
        (lambda: Tree.call(twice, Tree.acc(), 1), r"twice\(acc, 1.0\) has 2 arguments; twice takes 1"),
        (lambda: Tree.acc() + "1", "'1' is a str; allowed in a tree: EpilogueTree, real numbers"),
        (lambda: Tree.call("relu", None), "None is a NoneType"),
        (lambda: Tree.name("acc"), "'acc' is no name of an operand"),
        (lambda: Tree.name("not a name"), "is no name"),
        (lambda: Tree("mystery"), "op='mystery'; allowed: acc, name"),
        (lambda: Tree("call", (Tree.acc(),), "mystery"), r"unknown functor in mystery\(acc\)"),
        (lambda: Tree("call", ("acc",), "relu"), "an argument of 'relu' is a str"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            make()
    two = Tree.acc().stored("pre") + (Tree.acc() * 2).stored("pre")
    with pytest.raises(an.InvalidRequest, match="two values are stored in 'pre'"):
        an.GemmRequest(a=A, b=B, epilogue=two, outputs={"pre": "float32"})


LEAVES = st.one_of(
    st.just((Tree.acc(), "acc")),
    st.sampled_from(["alpha", "x", "row"]).map(lambda name: (Tree.name(name), name)),
    st.floats(0, 1e6).map(lambda number: (Tree("number", (), number), repr(number))),
)


def grown(children: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        st.tuples(st.sampled_from("+-*/"), children, children).map(
            lambda t: (eval("a" + t[0] + "b", {"a": t[1][0], "b": t[2][0]}), f"({t[1][1]} {t[0]} {t[2][1]})")
        ),
        st.tuples(st.sampled_from(["relu", "gelu", "tanh", "abs"]), children).map(
            lambda t: (Tree.call(t[0], t[1][0]), f"{t[0]}({t[1][1]})")
        ),
    )


@given(pair=st.recursive(LEAVES, grown, max_leaves=8))
def test_texts_and_trees_are_one_value(pair: tuple[Any, str]) -> None:
    tree, text = pair
    parsed = Tree.parse(text)
    assert parsed == tree
    assert hash(parsed) == hash(tree)
    assert pickle.loads(pickle.dumps(tree)) == tree


@given(first=st.recursive(LEAVES, grown, max_leaves=5), second=st.recursive(LEAVES, grown, max_leaves=5))
def test_plans_differ_where_trees_do(first: tuple[Any, str], second: tuple[Any, str]) -> None:
    def spec(tree: Any) -> Any:
        tree = Tree.acc() + Tree.name("alpha") * Tree.name("x") * Tree.name("row") + tree
        return an.GemmRequest(a=A, b=B, epilogue=tree, operands={"x": C, "row": ROW}).lowered.spec()

    assert (spec(first[0]) == spec(second[0])) == (first[0] == second[0])


def test_functions_are_called_by_texts() -> None:
    tree = Tree.parse("twice(acc) + 1", {"twice": twice})
    assert tree == Tree.call(twice, Tree.acc()) + 1
    for functions, words in (
        ({"relu": twice}, "a function is called 'relu'; allowed: identifiers but"),
        ({"twice": 3}, "function twice is a int"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            Tree.parse("acc", functions)


def test_results_by_type() -> None:
    for dtype, want in (("f2", "float16"), (ml_dtypes.bfloat16, "bfloat16"), ("i1", "int32"), ("f8", "float64"),
                        (ml_dtypes.float8_e4m3fn, "bfloat16")):  # fmt: skip
        request = an.GemmRequest(a=A.astype(dtype), b=B.astype(dtype))
        assert request.lowered.operands[-1].spec.dtype == want


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arch": "sm_70"}, "arch='sm_70'; allowed: 'sm_80', 'sm_90a'"),
        ({"schedule": "auto"}, "schedule='auto'; allowed: 'cooperative'"),
        ({"tile": (128, 128)}, r"tile is \(128, 128\); it must be 3 multiples of 8 up to 512"),
        ({"tile": (128, 128, 1024)}, "tile is"),
        ({"cluster": (3, 1, 1)}, r"cluster is \(3, 1, 1\); it must be \(1, 2 or 4, 1, 2 or 4, 1\)"),
        ({"cluster": (1, 1, 2)}, "cluster is"),
        ({"stages": 1}, "stages=1; allowed: None, 2, 3"),
        ({"swizzle": 3}, "swizzle=3; allowed: None, 1, 2, 4, 8"),
        ({"stages": True}, "stages=True"),
        ({"decomposition": "slices"}, "decomposition='slices'; allowed: 'tiles', 'stream_k', 'split_k'"),
        ({"splits": 0}, "splits=0"),
        ({"splits": 2, "decomposition": "stream_k"}, "splits=2 with decomposition='stream_k'; allowed: 'split_k'"),
        ({"decomposition": "split_k"}, "splits is None with decomposition='split_k'; allowed: 1 to 4096"),
    ],
)
def test_configurations_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        an.GemmConfig(**options)
