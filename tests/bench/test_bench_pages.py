"""Pages of figures: what is generated is what the data say, and so is each figure in the page for people."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bench_case import MACHINE, document

from bench.__main__ import main
from bench.harness import documents, report
from bench.harness.bars import Bar, judge
from bench.harness.discovery import all_bars

PAGE = report.DOCS / report.PAGE


def _pages() -> dict[Path, str]:
    return report.pages(documents.load_all(), all_bars(), PAGE.read_text())


@pytest.mark.parametrize("path", sorted(_pages()), ids=lambda path: path.stem)
def test_a_page_is_what_the_data_say(path: Path) -> None:
    """Edited by hand, or made of older data: `python -m bench render` writes it."""
    assert path.read_text() == _pages()[path]


def test_there_is_a_page_for_each_machine_and_no_other() -> None:
    generated = {path for path in _pages() if path != PAGE}
    assert set((report.DOCS / "performance").iterdir()) == generated
    for path in generated:
        assert f"<!-- bars: {path.stem} -->" in PAGE.read_text()
        assert f"(performance/{path.name})" in PAGE.read_text()


# ------------------------------------------------------------------------------------------ what the page says

HOST = documents.load(documents.RESULTS / "2026-11-22-2-core-host.json")
GPU = documents.load(documents.RESULTS / "2026-11-23-nvidia-h200.json")
PAIR = documents.load(documents.RESULTS / "2026-11-26-nvidia-h200-x2.json")
FLOOR, ROW_FLOOR = "C: cuMemcpyAsync, pinned, and synchronize", "C: 8 x cuMemcpyAsync, pinned, and synchronize"
MEAN = "mean of squares from 2048"
CCCL = "CUDA C++ with CCCL, 1st, from the cache"
#: Cases with few rounds, which the page names.
FEW = ("gpu_eager", "gpu_compile")


def _figure(value: documents.Document, case: str, series: str, under: str = "", field: str = "median") -> float:
    """A figure of a series, or of its ratio over another."""
    (found,) = (each for each in value["cases"] if each["name"] == case)
    if under:
        (line,) = (each for each in found["ratios"] if (each["over"], each["under"]) == (series, under))
    else:
        (line,) = (each for each in found["contenders"] if each["name"] == series)
    return float(line["summary"][field])


def host(case: str, series: str, under: str = "", field: str = "median") -> str:
    return report.number(_figure(HOST, case, series, under, field))


def gpu(case: str, series: str, under: str = "") -> str:
    return report.number(_figure(GPU, case, series, under))


def pair(case: str, series: str, under: str = "") -> str:
    return report.number(_figure(PAIR, case, series, under))


def reduced(size: str) -> str:
    """The ratio of a large all-reduce over C's."""
    return pair("gpu_collectives", f"atomr all_reduce, {size}", f"C all_reduce, {size}")


def among(*figures: tuple[str, str, str]) -> str:
    """The lowest and the highest of several ratios on the GPU: case, over, under."""
    found = sorted(_figure(GPU, *each) for each in figures)
    return f"{report.number(found[0])} to {report.number(found[-1])}"


def highest(shape: str) -> str:
    """The largest ratio of an epilogue over the plain product of a shape."""
    (found,) = (each for each in GPU["cases"] if each["name"] == "gpu_gemm_epilogues")
    plain = f"atomr default, bfloat16 {shape}"
    return report.number(max(line["summary"]["median"] for line in found["ratios"] if line["under"] == plain))


def rounds(*, at: int, only: str = "") -> str:
    """How many rounds tables have: the fewest, or the most; of a case, or of all but those with few."""
    cases = [case for value in (HOST, GPU) for case in value["cases"]]
    chosen = [c for c in cases if c["name"] == only or (not only and c["name"] not in FEW)]
    counts = {line["summary"]["count"] for case in chosen for line in case["contenders"] if line["summary"]}
    return str(sorted(counts)[at])


def mebibytes(who: str) -> str:
    return f"{_figure(GPU, 'gpu_eager', f'{who}: held'):.2f}"


def _claims() -> list[tuple[Any, ...]]:
    """Every sentence of the page with a figure, and its figures, as the data have them."""
    place = ("process", "thread")
    kinds = ("bfloat16", "float16", "float8")
    narrow = [f"float8 16 x {n} x {k}" for n, k in ((28672, 8192), (8192, 28672), (8192, 8192))]
    spin, tell = "C processes, spin", "atomr process, lane awake"
    ranks, tiny = "gpu_collectives_small", "atomr all_reduce, 8 B"
    stream, matmul, mib = "atomr process, 1 lane", "C cublasLtMatmul", "atomr empty + del, 1 MiB, process"
    to_device, to_host = "copies, {} to the device", "copies, {} to the host"
    return [
        (
            "Tables of the host and the H200 have {} to {} rounds, but for peak memory with {}, and first calls of "
            "kernels with {}.",
            rounds(at=0), rounds(at=-1), *(rounds(at=0, only=case) for case in FEW),
        ),
        (
            "covers the median with {:.0f} %",
            100 * _figure(GPU, "gpu_compile", f"atomr: {CCCL}", field="coverage"),
        ),
        (
            "{} us, with an interval from {} to {}, and {} of C's time",
            host("ask", "atomr process"), host("ask", "atomr process", field="low"),
            host("ask", "atomr process", field="high"), host("ask", "atomr process", spin),
        ),
        (
            "**Tell**: {} us, and {} with `out=`, on a day when C's own ring took {}. Its no-op takes {}",
            host("tell", tell), host("tell", f"{tell}, out= by keyword"),
            host("tell", "C ring, processes, pinned apart"), host("tell", "atomr no-op process, lane awake"),
        ),
        (
            "**Awaiting an actor**: {} us, and {} with xoscar",
            host("actor_await", "atomr"), host("actor_await", "xoscar, same process"),
        ),
        (
            "an ask of an actor takes {} us, and a tell {}",
            host("actor_tracing", "ask, trace running"), host("actor_tracing", "tell, trace running"),
        ),
        ("16 lanes in a process take {} of C's time", host("lanes", "atomr process, 16", "C processes, 16")),
        (
            "C's `cublasLtMatmul` took {} us there and {} in the table of streams, and torch's `mm` {} and {}",
            gpu("gpu_tell", matmul), gpu("gpu_matmul", matmul), gpu("gpu_tell", "torch.mm(out=)"),
            gpu("gpu_matmul", "torch.mm(out=)"),
        ),
        (
            "A planned tell takes {} us, with four handles, and its interval begins at {}.",
            gpu("gpu_tell", "atomr planned matmul, process"),
            report.number(_figure(GPU, "gpu_tell", "atomr planned matmul, process", field="low")),
        ),
        (
            "An immediate matmul takes {} us; torch's `addmm`, which allocates its output too, {}.",
            gpu("gpu_tell", "atomr immediate matmul, process"), gpu("gpu_tell", "torch.addmm"),
        ),
        (
            "a stream takes {} of C where each launch waits for the last one, and {} where C's launches overlap",
            gpu("gpu_kernel", stream, "C cuLaunchKernel"), gpu("gpu_kernel", stream, "C cuLaunchKernelEx, overlapping"),
        ),
        (
            "Users' kernels with three arguments take {} of C without overlap",
            among(*(("gpu_arguments", f"atomr Numba kernel, {p}, 3 arguments", "C, 3 arguments") for p in place)),
        ),
        (
            "in turn on two lanes, take {} of C's streams and events",
            among(*(("gpu_order", f"atomr {p}, two lanes", "C two streams") for p in place)),
        ),
        (
            "the mean of squares is {} of torch's time in bfloat16 and in float16, and {} in float8",
            gpu("gpu_gemm_bfloat16", f"atomr, {MEAN}", f"torch, {MEAN}"),
            gpu("gpu_gemm_float8", f"atomr, {MEAN}", f"torch, {MEAN}"),
        ),
        (
            "At 1024 ours take {}.",
            among(*((f"gpu_gemm_{kind}", f"atomr, {kind} 1024", f"torch, {kind} 1024") for kind in kinds)),
        ),
        (
            "torch's {} us there are little more than the {} of its smallest product",
            gpu("gpu_gemm_bfloat16", "torch, bfloat16 1024"), gpu("gpu_matmul", "torch.mm(out=)"),
        ),
        (
            "In float8, layers of Llama-70B with 16 rows take {}.",
            among(*(("gpu_gemm_float8", f"atomr, {each}", f"torch, {each}") for each in narrow)),
        ),
        (
            "up to {} of the plain product at 4096 x 8192 x 8192, and up to {} at 1024 x 4096 x 4096",
            highest("4096 x 8192 x 8192"), highest("1024 x 4096 x 4096"),
        ),
        (
            "take {} and {} of C's time, and {} in a row",
            gpu(to_device.format("64 MiB"), "put of a host_array", FLOOR),
            gpu(to_host.format("64 MiB"), "get into a host_array", FLOOR),
            gpu(to_host.format("64 MiB"), "get_into a host_array, 8 in a row", ROW_FLOOR),
        ),
        (
            "1 MiB takes {} of C's time to the device and {} to the host",
            gpu(to_device.format("1 MiB"), "put", FLOOR), gpu(to_host.format("1 MiB"), "get", FLOOR),
        ),
        (
            "the eager loop reserves {} MiB, and torch {}",
            gpu("gpu_eager", "atomr process: reserved"), gpu("gpu_eager", "torch: reserved"),
        ),
        ("Arrays hold {} MiB, and torch's {}", mebibytes("atomr process"), mebibytes("torch")),
        (
            "**Allocating** takes {} us, which is {} of torch's time",
            gpu("gpu_alloc", mib), gpu("gpu_alloc", mib, "torch.empty + del, 1 MiB"),
        ),
        (
            "takes {} ms out of the cache, and {} in CuPy",
            gpu("gpu_compile", f"atomr: {CCCL}"), gpu("gpu_compile", f"CuPy: {CCCL}"),
        ),
        (
            "takes {} of Numba's own time to compile, and {} of it out of the cache",
            *(
                gpu("gpu_compile", f"atomr: Numba kernel, {how}", f"Numba: Numba kernel, {how}")
                for how in ("compiled", "from the cache")
            ),
        ),
        (
            "an all-reduce of 8 B takes {} us sustained, which is {} of NCCL's own call from C and {} of torch's; "
            "asked, {} us",
            pair(ranks, f"{tiny}, sustained"),
            *(pair(ranks, f"{tiny}, sustained", f"{who} all_reduce, 8 B, sustained") for who in ("C", "torch")),
            pair(ranks, f"{tiny}, asked"),
        ),
        (
            "An all-reduce of 1 MiB takes {} of C's time for that reason, and of 16 MiB {}. From 256 MiB on it is {}",
            reduced("1 MiB"), reduced("16 MiB"), reduced("256 MiB"),
        ),
        (
            "{} us for a message of 8 B to both ranks, and {} for one of 4 KiB. C's calls take {} and {}",
            *(pair(ranks, f"{who} all_reduce, {n}, told") for who in ("atomr", "C") for n in ("8 B", "4 KiB")),
        ),
        (
            "they take {} of `cuMemcpyPeerAsync` at 1 MiB, and {} at 256 MiB",
            *(pair("gpu_peer_copies", f"atomr copy, {n}", f"C copy, {n}") for n in ("1 MiB", "256 MiB")),
        ),
    ]  # fmt: skip


def _prose() -> str:
    """The page without what is generated, without code, and with single spaces."""
    text = re.sub(r"<!-- bars: .*?<!-- /bars -->", "", PAGE.read_text(), flags=re.DOTALL)
    return " ".join(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split())


def test_each_figure_of_the_page_is_in_the_data() -> None:
    text = _prose().replace("At most 1.176 x of a copy's time is at least 85 % of its speed", "")
    assert round(1 / 1.176, 2) == 0.85
    for sentence, *figures in _claims():
        claim = sentence.format(*figures)
        assert text.count(claim) == 1, claim
        text = text.replace(claim, "")
    assert re.findall(r"\d+\.\d+", text) == []


def test_squares_of_the_mean_are_those_that_the_page_names() -> None:
    same = {gpu(f"gpu_gemm_{kind}", f"atomr, {MEAN}", f"torch, {MEAN}") for kind in ("bfloat16", "float16")}
    assert len(same) == 1
    for case in ("gpu_gemm_bfloat16", "gpu_gemm_float16", "gpu_gemm_float8"):
        (found,) = (each for each in GPU["cases"] if each["name"] == case)
        (mean,) = (line for line in found["contenders"] if line["name"] == f"atomr, {MEAN}")
        assert mean["remark"] == "of 4096, 8192, 16384"
        assert not any("torch graph" in line["name"] for line in found["contenders"])
    sizes = "It is of 4096, 8192 and 16384; 2048 and torch in a CUDA graph have their figures on an H100 (below)."
    assert sizes in _prose()


# ------------------------------------------------------------------------------------------ how they are made


def test_render_writes_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    monkeypatch.setattr(report, "DOCS", docs)
    assert main(["render"]) == 2
    assert "performance.md" in capsys.readouterr().err
    (docs / "performance.md").write_text("# By hand\n<!-- bars: intel-xeon-2c -->\nold\n<!-- /bars -->\nafter\n")
    assert main(["render"]) == 0
    page = (docs / "performance.md").read_text()
    assert page.startswith("# By hand\n<!-- bars: intel-xeon-2c -->\n\n| work | bar | measured | verdict |\n")
    assert page.endswith("<!-- /bars -->\nafter\n")
    assert "old" not in page
    assert "written: docs/performance/intel-xeon-2c.md" in capsys.readouterr().out
    made = (docs / "performance" / "intel-xeon-2c.md").read_text()
    assert made == (PAGE.parent / "performance" / "intel-xeon-2c.md").read_text()
    (docs / "performance.md").write_text("<!-- bars: nowhere -->\n<!-- /bars -->\n")
    assert main(["render"]) == 2
    assert "performance.md has bars of nowhere: there are results of" in capsys.readouterr().err


def test_results_of_one_kind_of_machine_share_a_page_the_newest_first() -> None:
    older = document()
    newer = {**document(), "machine": {**MACHINE, "date": "2026-05-05T00:00:00Z"}}
    (path, text), (page, _) = report.pages([older, newer], all_bars(), "").items()
    assert (path.name, page.name) == ("some-e5-v3-2c.md", "performance.md")
    assert text.index("2026-05-05") < text.index("2026-01-02")
    assert "edit neither" in text.splitlines()[0]


def test_an_interval_of_few_rounds_says_what_it_covers() -> None:
    value = document()
    case = value["cases"][0]  # type: ignore[index]
    for line in (*case["contenders"][:1], *case["ratios"][:1]):
        line["summary"] = {"median": 2.0, "low": 1.5, "high": 3.0, "coverage": 0.5, "count": 2}
    text = report.markdown([value], ())
    assert "| atomr process | 2.00 | 1.50 to 3.00, 50 % | 2 |" in text
    assert "| atomr process / twin | 2.00 (1.50 to 3.00, 50 %) |" in text
    assert "| twin | 2.00 | 2.00 to 2.00 | 7 |" in text


def _verdicts(*medians: float | None) -> list[tuple[str, ...]]:
    """Rows of the short table, of bars of 1.0 with intervals of 0.1 on either side."""
    bars = [Bar("work", "c", f"s{i}", 1.0, "x", part=f"{i}") for i in range(len(medians))]
    contenders = [
        {"name": f"s{i}", "summary": None if m is None else {"median": m, "low": m - 0.1, "high": m + 0.1}}
        for i, m in enumerate(medians)
    ]
    return report.short_bar_rows(judge([{"name": "c", "contenders": contenders, "ratios": []}], bars))


@pytest.mark.parametrize(
    ("medians", "row"),
    [
        ((0.5,), ("work (0)", "at most 1 x", "0.500", "met")),
        ((0.95,), ("work (0)", "at most 1 x", "0.950", "met, within the spread")),
        ((0.5, 0.7), ("work (0, 1)", "at most 1 x", "0.500 to 0.700", "met")),
        ((1.5, 1.05), ("work (0, 1)", "at most 1 x", "1.05 to 1.50", "missed; 1 within the spread")),
        ((0.5, 1.5, None), ("work (0, 1, 2)", "at most 1 x", "0.500 to 1.50", "1 of 2 met, 1 not measured")),
        ((0.5, 0.5, 1.5, 2.0), ("work (4 of them)", "at most 1 x", "0.500 to 2.00", "2 of 4 met")),
        ((None,), ("work (0)", "at most 1 x", "", "not measured")),
        ((1.00004,), ("work (0)", "at most 1 x", "1.00004", "missed, within the spread")),
    ],
)
def test_bars_of_one_work_are_one_row(medians: tuple[float | None, ...], row: tuple[str, ...]) -> None:
    assert _verdicts(*medians) == [row]
