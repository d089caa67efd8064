"""Examples in the docstrings of clusters do what they say."""

from __future__ import annotations

import doctest
import importlib.util

import pytest
from example_programs import load

from atomr_native.ray import cluster
from atomr_native.ray.arrays import RemoteRef
from atomr_native.ray.communicator import ClusterCommunicator
from atomr_native.ray.in_process import InProcess

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("kind", [cluster.Cluster, ClusterCommunicator, RemoteRef, InProcess])
def test_examples_do_what_they_say(kind: type) -> None:
    said: list[str] = []
    found = doctest.DocTestFinder(exclude_empty=True).find(kind, kind.__name__, globs={})
    assert any(test.examples for test in found)
    for test in found:
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs the extra [demo]: scikit-learn")
def test_the_digits_on_two_nodes_and_in_a_system(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("cluster_digits")
    read = [program.main(["--where", where, "--rounds", "8"]) for where in ("process", "system")]
    assert read[0] == read[1]  # the loss of a node changes nothing
    assert read[0] > 0.85
    assert "ending node1" in capsys.readouterr().out
