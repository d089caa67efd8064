"""Plans of cuDNN: the real library's functions and engines, and on the fake one its errors, handles and workspaces."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scripts
from actions import eventually
from cuda_wheels import find
from cudnn_reference import assert_close, filter_gradient, random_images
from fake_cuda import compiling_here, using
from lt_emulator import source
from stub_driver import stub_driver

import atomr_native as an
from atomr_native._lib.cudnn import CONSTANTS
from atomr_native.libraries.cudnn.cuda import build
from atomr_native.libraries.cudnn.cuda.descriptors import describe_graph
from atomr_native.libraries.cudnn.cuda.steps import densified, is_taken
from atomr_native.libraries.cudnn.draft import packed, settled
from atomr_native.libraries.cudnn.support import RULES, is_trusted

PROFILE = Path(scripts.HELPERS) / "h200_profile.json"


@pytest.fixture
def system(fake_environment: dict[str, str]) -> Iterator[an.System]:
    with using(fake_environment), an.System() as made:
        yield made


def send(device: an.Device, rows: int = 4, **options: object) -> an.GpuRef:
    x, w = device.put(np.ones((1, 8, rows, 4), "float32")), device.put(np.ones((8, 8, 1, 1), "float32"))
    return device.cudnn.convolution(x, w, **options)


@pytest.mark.abi
@pytest.mark.plain
def test_every_function_is_exported() -> None:
    found = find("libcudnn.so.9")
    if not found:
        pytest.skip("libcudnn not found; pip install nvidia-cudnn-cu13, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cudnn\w+),", source("libraries/cudnn/names.h").read_text())
    assert len(names) == 39
    for path in found:
        library = ctypes.CDLL(str(path))
        assert [name for name in names if not hasattr(library, name)] == []
        assert library.cudnnGetVersion() >= 90800


ENGINES = """
import ctypes, sys
from pathlib import Path
import numpy as np
import atomr_native as an
from atomr_native._lib import cudnn
from atomr_native.libraries.cudnn.cuda.descriptors import describe_graph

library, profile = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
for name in ("libcublasLt.so.*", "libcublas.so.*"):
    for path in library.parents[2].glob(f"*/lib/{name}"):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
cudnn.load(str(library))

def describe(request):
    spec = request.lowered.spec()
    return describe_graph(spec.attributes, len(spec.operands), 1 << 28)

def build(request):
    return cudnn.plan_for(profile, describe(request))

for dtype in ("float16", "float32", "float64"):
    x, w, dy = (np.zeros(shape, dtype) for shape in ((2, 16, 9, 9), (24, 8, 3, 3), (2, 24, 9, 9)))
    how = {"padding": 1, "groups": 2}
    for request in (
        an.ConvolutionRequest(x=x, w=w, **how),
        an.ConvolutionRequest(x=x, w=w, bias=np.zeros(24, dtype), activation="relu", **how),
        an.ConvolutionDataGradientRequest(dy=dy, w=w, size=9, **how),
        an.ConvolutionFilterGradientRequest(x=x, dy=dy, size=3, **how),
    ):
        engine, workspace, text = build(request)
        assert engine >= 0 and workspace <= 1 << 28
        assert cudnn.plan_for(profile, describe(request), text, engine)[:2] == (engine, workspace)
        for damaged in (text[: len(text) // 2], b"{}"):
            try:
                cudnn.plan_for(profile, describe(request), damaged, engine)
            except an.Unsupported as error:
                assert error.rule == "cudnn.saved_plan"
            else:
                raise AssertionError(damaged)
try:
    build(an.ConvolutionRequest(x=np.zeros((1, 8, 4, 4), "float64"), w=np.zeros((8, 8, 1, 1)), activation="gelu"))
except an.Unsupported as error:
    print(error.rule)
"""


@pytest.mark.abi
def test_the_real_library_has_engines_for_an_h200_that_is_not_here() -> None:
    """Graphs are accepted as they are described, and plans are built, by a description of the device."""
    found = find("libcudnn.so.9")
    if not found:
        pytest.skip("libcudnn not found; pip install nvidia-cudnn-cu13, or set ATOMR_NATIVE_CUDA_WHEELS")
    assert scripts.run(ENGINES, str(found[-1]), str(PROFILE)).strip() == "cudnn.engine"


COMPILED = """
import ctypes, sys
from pathlib import Path
import numpy as np
import atomr_native as an
from atomr_native._lib import cudnn
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.cudnn.cuda.descriptors import describe_graph
from atomr_native.libraries.cudnn.cuda.steps import alone, attention_parts

library, profile = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
for name in ("libcublasLt.so.*", "libcublas.so.*", "libnvrtc.so.*"):
    for path in library.parents[2].glob(f"*/lib/{name}"):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
cudnn.load(str(library))
q, rows, one = np.zeros((1, 2, 128, 64), "float16"), np.zeros((1, 2, 128), "float32"), np.ones(1, "float32")
codes, image = (np.zeros(shape, DTYPES["float8_e4m3fn"]) for shape in ((1, 2, 128, 64), (2, 6, 6, 32)))
scales = {f"{name}_scale": one.copy() for name in ("q", "k", "v", "weights", "out")}
wide, names = np.zeros((1, 2, 128, 128), codes.dtype), "q k v y dy weights slopes dq dk dv"
slopes = {f"{name}_scale": one.copy() for name in names.split()}
filters = np.zeros((16, 3, 3, 32), image.dtype)
for request in (
    an.AttentionRequest(q=q, k=q, v=q, statistics=True, mask="causal", dropout=0.1),
    an.AttentionGradientRequest(q=q, k=q, v=q, y=q, dy=q, statistics=rows, dropout=0.1),
    an.Float8AttentionRequest(q=codes, k=codes, v=codes, mask="causal", **scales),
    an.Float8AttentionGradientRequest(
        q=wide, k=wide[:, :1], v=wide[:, :1], y=wide, dy=wide, statistics=rows, mask="causal", **slopes
    ),
    an.ConvolutionRequest(x=image, w=filters, channels_last=True, x_scale=one, w_scale=one.copy(), activation="relu"),
):
    spec = request.lowered.spec()
    graph, n = spec.attributes, len(spec.operands)
    if "attention" in spec.op:
        (part,) = (part for part in attention_parts(graph) if not part.is_around)
        graph, n = alone(graph, part), len(part.bound)
    engine, workspace, text = cudnn.plan_for(profile, describe_graph(graph, n, 1 << 28))
    assert engine >= 0 and len(text) > 10000, request
print("built")
"""


@pytest.mark.abi
def test_the_real_library_compiles_attention_for_an_h200_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs with dropout and of float8 have engines, by a driver that has no device."""
    found, compilers = find("libcudnn.so.9"), find("libnvrtc-builtins.so.*")
    if not found or not compilers or shutil.which("gcc") is None or stub_driver(tmp_path) is None:
        pytest.skip("libcudnn, NVRTC, cuda.h or gcc not found; pip install -e '.[test-cuda]'")
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join((str(tmp_path), *(str(path.parent) for path in compilers))))
    assert scripts.run(COMPILED, str(found[-1]), str(PROFILE)).strip() == "built"


@pytest.mark.parametrize(
    ("refusals", "error", "text"),
    [
        ({"cudnnCreate": (4000, 1)}, an.LibraryError, r"CUDNN_STATUS_INTERNAL_ERROR \(4000\) .*cudnnCreate"),
        ({"cudnnBackendSetAttribute": (2000, 1)}, an.Unsupported, "cuDNN refuses descriptor .* status 2000"),
        ({"cudnnBackendCreateDescriptor": (5000, 1)}, an.LibraryError, "CUDNN_STATUS_EXECUTION_FAILED"),
        ({"cudnnBackendExecute": (5000, 1)}, an.LibraryError, r"CUDNN_STATUS_EXECUTION_FAILED \(5000\) .*Execute"),
        ({"cudnnBackendExecute": (4004, 1)}, an.OutOfMemory, "no device memory"),
    ],
)
def test_errors_name_function_and_status(
    refuse: Callable[..., Path], refusals: dict[str, tuple[int, int]], error: type[Exception], text: str
) -> None:
    refuse(**refusals)
    fresh = 1 + time.time_ns() % 10**9 / 10**9  # of a plan that no earlier run has kept on disk
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        with pytest.raises(error, match=text):
            send(device, alpha=fresh).numpy()
        send(device, 5).numpy()


def test_a_missing_library_is_named(fake_environment: dict[str, str]) -> None:
    environment = {**fake_environment, "ATOMR_NATIVE_CUDNN": "/nowhere/libcudnn.so"}
    said = pytest.raises(an.Unsupported, match=r"cuDNN cannot be opened: .*pip install nvidia-cudnn-cu13")
    with using(environment), an.System(standby="off") as system, said:
        send(system.device("cuda:0")).numpy()


def test_each_lane_has_a_handle(system: an.System) -> None:
    device = system.device("cuda:0")
    send(device).numpy()
    assert device.stats()["native_handles"] == {"cudnn": 2}  # one is the device's, by which plans are built
    x, w = device.put(np.ones((1, 8, 4, 4), "float32")), device.put(np.ones((8, 8, 1, 1), "float32"))
    second = an.Cudnn(device, "second")
    assert (second.convolution(x, w).numpy() == 8).all()
    assert device.stats()["native_handles"] == {"cudnn": 3}


def test_plans_and_handles_end_with_their_device(fake_environment: dict[str, str]) -> None:
    """In this process: the worker of a thread leaves nothing behind."""
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUDNN"])
    alive = [ctypes.c_uint.in_dll(library, f"fake_dnn_{name}") for name in ("descriptors", "handles")]
    before = [count.value for count in alive]
    with using(fake_environment), compiling_here(), an.System(isolation="thread") as system:
        device = system.device("cuda:0")
        send(device).numpy()
        assert alive[0].value > before[0]
    gc.collect()
    eventually(lambda: [count.value for count in alive] == before)


def test_workspaces_have_a_limit(fake_environment: dict[str, str]) -> None:
    """Exact float32 needs memory in the fake; TensorFloat-32, which is asked for, needs none."""
    with using(fake_environment), an.System(workspace_limit=1024, standby="off") as system:
        device = system.device("cuda:0")
        with pytest.raises(an.Unsupported, match="needs 4096 bytes of workspace, and the limit is 1024") as caught:
            send(device)
        assert caught.value.rule == "cudnn.workspace_limit"
        assert (send(device, tf32=True).numpy() == 8).all()


def test_a_plan_is_built_with_less_where_memory_is_short(fake_environment: dict[str, str]) -> None:
    """Its first engine needs 64 arrays of partial sums, the next one none."""
    rng = np.random.default_rng(3)
    x, dy = (random_images(rng, (1, 64, 4, 4), "float16") for _ in range(2))
    want = filter_gradient(x, dy, (3, 3), padding=1)
    with using(fake_environment), an.System(standby="off", memory_limit=16 << 20) as system:
        device = system.device("cuda:0")
        rx, rdy, dw = device.put(x), device.put(dy), device.empty((64, 64, 3, 3), "float16")
        request = an.ConvolutionFilterGradientRequest(x=rx, dy=rdy, size=3, padding=1, out=dw)
        rest = device.zeros((10 << 20,), "uint8")
        lessened = device.cudnn.plan(request).wait(60)
        assert lessened.record.workspace == 0
        lessened.tell(rx, rdy, out=dw)
        assert_close(dw.numpy(), want, "float16")
        del rest
        other = an.ConvolutionFilterGradientRequest(x=rx, dy=rdy, size=3, padding=1, out=dw, alpha=1.0, beta=0.5)
        plan = device.cudnn.plan(other).wait(60)
        assert plan.record.workspace == 64 * 4 * 64 * 64 * 9


def test_engines_that_round_float32_are_used_only_if_asked_for(system: an.System) -> None:
    device = system.device("cuda:0")
    x, w = device.put(np.full((1, 8, 4, 4), 1 + 2**-12, "float32")), device.put(np.ones((8, 8, 1, 1), "float32"))
    assert (device.cudnn.convolution(x, w).numpy() == np.float32(8 * (1 + 2**-12))).all()
    assert (device.cudnn.convolution(x, w, tf32=True).numpy() == 8).all()


def test_addresses_are_checked(system: an.System) -> None:
    """cuDNN does not check them, and is wrong for some: a message says so, and the device goes on."""
    device = system.device("cuda:0")
    x, w = device.put(np.ones((2, 1, 3, 3), "float32")), device.put(np.ones((1, 1, 1, 1), "float32"))
    with pytest.raises(an.Unsupported, match=r"aligned to 4 bytes only, .* for multiples of 16") as caught:
        device.cudnn.convolution(x[1:], w).numpy()
    assert caught.value.rule == "cudnn.alignment"
    assert (device.cudnn.convolution(device.copy(x[1:]), w).numpy() == 1).all()


def test_notes_name_the_steps(system: an.System) -> None:
    device = system.device("cuda:0")
    x, w = np.ones((1, 8, 4, 4), "float32"), np.ones((8, 8, 1, 1), "float32")
    plan = device.cudnn.plan(an.ConvolutionRequest(x=x, w=w, activation="gelu"))
    plan.wait(60)
    assert "2 steps" in plan.notes[0]
    whole = device.cudnn.plan(an.ConvolutionRequest(x=x, w=w, activation="relu"))
    whole.wait(60)
    assert whole.notes == ()


def test_strides_of_axes_with_one_element() -> None:
    """cuDNN recognises memory orders by all strides, which NumPy leaves open where an axis has one element."""
    assert packed((2, 3, 4, 5)) == (60, 20, 5, 1)
    assert packed((2, 3, 4, 5), channels_last=True) == (60, 1, 15, 3)
    assert settled((2, 3, 1, 5), (15, 5, 77, 1)) == (15, 5, 5, 1)
    assert settled((2, 3, 1, 5), (15, 1, 77, 3)) == (15, 1, 15, 3)
    assert settled((2, 1, 4, 5), (20, 9, 5, 1)) == (20, 1, 5, 1)
    assert settled((2, 1, 4, 5), (20, 9, 5, 1), channels_last=False) == (20, 20, 5, 1)


def test_attention_needs_a_cudnn_without_known_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "library_file", lambda key: key)
    monkeypatch.setattr(build, "cudnn", SimpleNamespace(load=lambda path: 91500))
    q = np.zeros((1, 2, 4, 8), "float16")
    with pytest.raises(an.Unsupported, match="with cuDNN 91500; allowed: 91600 and later") as caught:
        build.build_graph(an.AttentionRequest(q=q, k=q, v=q).lowered.spec(), SimpleNamespace(backend=None))
    assert caught.value.rule == "cudnn.attention_version"


def test_engines_of_attention_may_use_tensor_cores() -> None:
    """Its graphs have float32 intermediate results; operands in float32 are what TensorFloat-32 would round."""
    q, rows = np.zeros((1, 2, 4, 8), "float16"), np.zeros((1, 2, 4), "float32")
    x, w = np.zeros((1, 8, 4, 4), "float32"), np.zeros((8, 8, 1, 1), "float32")
    note = 1 << CONSTANTS["CUDNN_NUMERICAL_NOTE_TENSOR_CORE"]
    banned = []
    for request in (
        an.AttentionGradientRequest(q=q, k=q, v=q, y=q, dy=q, statistics=rows),
        an.ConvolutionRequest(x=x, w=w),
    ):
        spec = request.lowered.spec()
        banned.append(bool(describe_graph(spec.attributes, len(spec.operands), 1 << 20).banned & note))
    assert banned == [False, True]


def test_instance_norms_are_computed_with_channels_first() -> None:
    x, v = np.zeros((2, 3, 4, 8), "float32"), np.zeros(8, "float32")
    for kind, taken in (("instance", False), ("batch", True)):
        request = an.NormalizationRequest(kind=kind, x=x, scale=v, bias=v, channels_last=True)
        graph = request.lowered.spec().attributes
        assert all(is_taken(graph, node, at) for node in graph.nodes for _, at in node.ports) is taken
        (norm,) = [node for node in densified(graph).nodes if node.op == "norm_forward"]
        image = densified(graph).tensors[dict(norm.ports)["x"]]
        assert image.strides == packed(image.shape, channels_last=taken)


def test_rules_say_what_is_allowed() -> None:
    attention = {"window", "bottom_right", "packed_bias", "one_token", "float8_heads", "float8_lengths"} | {
        "float8_groups"
    }
    assert {rule.name for rule in RULES} == {"elements", *(f"attention_{name}" for name in attention)}
    assert all("{value}" in rule.text and rule.lifted_by for rule in RULES)


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({"activation": "gelu"}, True),
        ({"activation": "relu", "alpha": 2.0, "beta": 0.5, "residual": np.zeros((1, 3, 2, 2), "float32")}, True),
        ({"activation": "gelu", "alpha": 2.0}, False),
        ({"activation": "silu", "beta": 1.0, "residual": np.zeros((1, 3, 2, 2), "float32")}, False),
    ],
)
def test_fusions_that_were_not_compared_are_cut(options: dict[str, object], whole: bool) -> None:
    x, w, bias = np.zeros((1, 2, 4, 4), "float32"), np.zeros((3, 2, 3, 3), "float32"), np.zeros(3, "float32")
    request = an.ConvolutionRequest(x=x, w=w, bias=bias, **options)
    assert is_trusted(request.lowered.spec().attributes) is whole


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x": np.zeros((1, 2, 4, 4), "int32")}, "x has dtype int32; allowed: float16, bfloat16, float32"),
        ({"w": np.zeros((3, 2, 3, 3))}, "w has dtype float64; allowed: float32"),
        ({"w": np.zeros((3, 2, 3), "float32")}, r"w has shape \(3, 2, 3\); allowed: 4 axes"),
        ({"groups": 2}, "w has 2 channels in a filter, and x has 2 in 2 groups"),
        ({"padding": (1, 2, 3)}, r"padding=\(1, 2, 3\); allowed: an integer, 2 integers, or 2 pairs"),
        ({"padding": -1}, "padding=-1; allowed: integers from 0"),
        ({"stride": 0}, "stride=0; allowed: integers from 1"),
        ({"dilation": 9}, "the filter reaches over 19 elements of spatial axis 0, and x has 4"),
        ({"activation": "selu"}, "activation='selu'; allowed: 'relu', 'gelu'"),
        ({"beta": 1.0}, "beta=1.0 without residual and out"),
        ({"residual": np.zeros((1, 3, 2, 2), "float32")}, "residual is given, and beta is 0"),
        ({"bias": np.zeros(4, "float32")}, r"bias has shape \(4,\); allowed: \(3,\)"),
        ({"out": np.zeros((1, 3, 2, 3), "float32")}, r"out is float32\[1, 3, 2, 3\]; allowed: float32\[1, 3, 2, 2\]"),
        ({"channels_last": 1}, "channels_last=1 must be True or False"),
    ],
)
def test_bad_input(options: dict[str, object], text: str) -> None:
    given = {"x": np.zeros((1, 2, 4, 4), "float32"), "w": np.zeros((3, 2, 3, 3), "float32"), **options}
    with pytest.raises(an.InvalidRequest, match=text):
        an.ConvolutionRequest(**given)


def test_gradients_need_the_shape_of_the_result() -> None:
    dy, w = np.zeros((1, 3, 4, 4), "float32"), np.zeros((3, 2, 3, 3), "float32")
    with pytest.raises(an.InvalidRequest, match=r"dy has shape \(1, 3, 4, 4\); allowed: \(1, 3, 3, 3\)"):
        an.ConvolutionDataGradientRequest(dy=dy, w=w, size=5)


def test_later_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a structure that was seen makes no request, whatever its numbers are."""
    kinds = (an.ConvolutionRequest, an.ConvolutionDataGradientRequest, an.ConvolutionFilterGradientRequest,
             an.NormalizationRequest, an.AttentionRequest, an.PoolingRequest, an.ActivationFunctionRequest)  # fmt: skip
    made: list[str] = []
    for kind in kinds:

        def counted(self: object, lowering: Callable[..., object] = kind.lowering, name: str = kind.__name__) -> object:
            made.append(name)
            return lowering(self)

        monkeypatch.setattr(kind, "lowering", counted)
    with an.System(isolation="thread") as system:
        device = system.device("host")
        dnn = device.cudnn
        x, w, v = (
            device.zeros((1, 2, 4, 4), "float32"),
            device.zeros((2, 2, 3, 3), "float32"),
            device.zeros(2, "float32"),
        )
        q = device.zeros((1, 2, 4, 8), "float16")
        for _ in range(3):
            y = dnn.convolution(x, w, padding=((1, 1), (1, 1)))
            dnn.convolution(x, w, padding=1, alpha=2.0, beta=0.5, out=y)
            dnn.tell(an.ConvolutionRequest(x=x, w=w, alpha=3.0))
            dnn.convolution_backward_data(y, w, (4, 4), padding=1)
            dnn.convolution_backward_filter(x, y, 3, padding=1, alpha=0.5)
            dnn.norm("batch", x, v, v)
            dnn.norm("batch", x, v, v, epsilon=1e-3)
            dnn.attention(q, q, q)
            dnn.attention(q, q, q, scale=0.25)
            dnn.pooling(x, "max", (2, 2))
            dnn.activation(x, "relu")
    assert len(made) == 11 + 3  # requests that are told have checked themselves
