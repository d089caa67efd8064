"""Products with compressed matrices, and compressions, by cuSPARSELt.

What the library does not do with a product is a kernel behind it: GELU; factors of rows, but for int8; and the bias,
where the library is not known to take it (`FUSED_BIAS`).  It reads a factor for each row of an int8 A from one array,
so a kernel multiplies the factors of a message in front of the product where there are several.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from string import Template
from typing import Any, Final, NamedTuple

import numpy as np

from ...._lib import cusparselt
from ...._lib.cusparselt import CONSTANTS, StructuredProduct
from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.target import Argument, Launch
from ....builders.cuda.tuner import Candidate, Tuner
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import DTYPES, as_dtype
from ....errors import LibraryError, Unsupported
from ....plans.spec import PlanSpec
from ....plans.tuning import spec_digest
from ..attributes import StructuredAttributes
from ..structured.figures import VERSION, near
from ..structured.matrix import compressed_bytes
from ..structured.spec import bias_dtype
from .native import StructuredCall
from .rows import BLOCKS, steps

__all__ = ["build_compress", "build_linear", "fastest", "structured_call"]

_log = logging.getLogger("atomr_native.worker")

_TYPES: Final = {
    "int8": "R_8I", "int32": "R_32I", "float16": "R_16F", "bfloat16": "R_16BF", "float32": "R_32F",
    "float8_e4m3fn": "R_8F_E4M3", "float8_e5m2": "R_8F_E5M2",
}  # fmt: skip
_TILE: Final = 4 << 20

_FACTORS: Final = Template("""\
KERNEL factors($parameters) {
  AWAIT_LAUNCH();
  for (u64 i = thread_index(); i < $m; i += thread_count()) {
    alphas[i] = $alpha;
    $betas
  }
}
""")
_EPILOGUE: Final = Template("""\
DEVICE float gelu_of(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}
KERNEL epilogue($parameters) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    const u64 line = t / $across, i = $i, j = $j;
    const $T product = $source;
    float x = $factor$wide;
    $old
    $bias
    $activation
    out[i * $row + j * $column] = $stored;
  }
}
""")
#: The nearest int32, as the library has it.
_WHOLE: Final = "x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x < -2147483648.0f ? -2147483647 - 1 : (int)rintf(x)"
#: Versions of cuSPARSELt whose plans are known to take another bias, by the dtypes of A and out.
FUSED_BIAS: Final[dict[tuple[str, str], tuple[int, ...]]] = {("float16", "float16"): (800,)}
#: Dtypes of A whose rows the library multiplies by factors of their own.
FUSED_FACTORS: Final = ("int8",)
#: Versions with algorithms that end the worker with an illegal instruction, so that they cannot be measured: of 0.8.0,
#: numbers 36 to 41 of float16 whose result lies by rows, on an H100.
UNMEASURED: Final = (800,)


def _type(dtype: str) -> int:
    return CONSTANTS[f"CUDA_{_TYPES[dtype]}"]


class Fused(NamedTuple):
    """What of a message the library does with the product; kernels do the rest.

    Attributes
    ----------
    alphas, betas : bool
        Whether alpha and beta are factors for each row of A.
    factor, adds : bool
        Whether it multiplies by alpha, and adds what out was, with beta.
    bias, relu : bool
    apart : bool
        Whether the result goes to the workspace, and not to out.
    """

    alphas: bool = False
    betas: bool = False
    factor: bool = True
    adds: bool = False
    bias: bool = False
    relu: bool = False
    apart: bool = False


def _by_rows(spec: PlanSpec[StructuredAttributes]) -> bool:
    """Whether the rows of out are without gaps, not its columns."""
    row, column = steps(spec.operands[-1])
    return column == 1 and row >= spec.attributes.shape[0]


def fastest(spec: PlanSpec[StructuredAttributes], version: int) -> tuple[int, ...]:
    """Return the numbers of the algorithms that were the fastest where products near this one were measured.

    Empty: none was, or it is the library's own choice.  Numbers of another version mean others, and results by columns
    have numbers of their own.
    """
    out = spec.operands[-1]
    found = near(spec.attributes.dtype, out.dtype, (*spec.attributes.shape, out.shape[0]))
    return () if found is None or version != VERSION or not _by_rows(spec) else found[1].algorithms


def fused(spec: PlanSpec[StructuredAttributes], version: int) -> Fused:
    """Return what a version of the library does with a product."""
    how = spec.attributes
    names = {operand.name for operand in spec.operands}
    scaled = bool(names & {"row_alpha", "row_beta", "scale_a", "scale_x"})
    by_library = not scaled or how.dtype in FUSED_FACTORS
    known = FUSED_BIAS.get((how.dtype, spec.operands[-1].dtype), ())
    quick = bool(fastest(spec, version))  # which was measured of plain products
    bias = "bias" in names and by_library and version in known and not quick
    rest = not by_library or ("bias" in names and not bias) or how.activation == "gelu" or quick
    return Fused(
        alphas=scaled and by_library, betas=scaled and by_library and how.adds, factor=by_library,
        adds=how.adds and by_library, bias=bias, relu=how.activation == "relu" and not rest,
        apart=how.adds and not by_library,
    )  # fmt: skip


def structured_call(spec: PlanSpec[StructuredAttributes], part: Fused, limit: int) -> StructuredCall:
    """Return the call of cuSPARSELt for a product, which may take `limit` bytes of workspace.

    Its operands are the compressed A, x, the result, then the bias, and factors for each row of A, alpha's and beta's,
    where there are any.
    """
    how = spec.attributes
    given = {operand.name: operand for operand in spec.operands}
    x, out = given["x"], given["out"]
    (m, k), n = how.shape, x.shape[0]
    x_row, x_column = steps(x)
    by_rows, out_by_rows = x_column == 1 and x_row >= k, _by_rows(spec)
    apart = m if out_by_rows else n
    places = iter(range(3, 6))
    bias = next(places) if part.bias else -1
    alpha_at = next(places) if part.alphas else -1
    beta_at = next(places) if part.betas else -1
    return StructuredCall(
        routine=CONSTANTS["ATOMR_STRUCTURED_MATMUL"],
        m=m, n=n, k=k, step_a=k,
        step_b=x_row if by_rows else x_column, turned_b=int(by_rows),
        step_d=apart if part.apart else steps(out)[0 if out_by_rows else 1],
        order_d=CONSTANTS["CUSPARSE_ORDER_COL" if out_by_rows else "CUSPARSE_ORDER_ROW"],
        type=_type(how.dtype), type_d=_type(out.dtype),
        compute=CONSTANTS["CUSPARSE_COMPUTE_32I" if how.dtype == "int8" else "CUSPARSE_COMPUTE_32F"],
        a=0, b=1, d=2, bias=bias, alpha_at=alpha_at, beta_at=beta_at,
        alpha=0 if part.factor and not part.alphas else -1, beta=1 if part.adds and not part.betas else -1,
        relu=int(part.relu),
        compressed_bytes=compressed_bytes(how.shape, how.dtype),
        workspace_bytes=limit,
        n_operands=3 + part.bias + part.alphas + part.betas, n_scalars=2,
    )  # fmt: skip


class _Product:
    """A product that is tuned."""

    operation = "sparse.linear_24"
    title = "a product of a structured matrix"

    def __init__(self, context: CudaContext, call: StructuredCall, native: StructuredProduct, out: str) -> None:
        self._context, self._call, self._native, self._out = context, call, native, out
        self._prepared: dict[int, StructuredProduct] = {}

    @property
    def digest(self) -> str:
        """Digest of everything that decides the time of an algorithm."""
        call = replace(self._call, configuration=-1, scratch=0, workspace_bytes=0, nowhere=0)
        return spec_digest([int(number) for number in call.fields().values()])

    def accepts(self, choice: tuple[int, ...]) -> bool:
        """Whether a choice is an algorithm of this product."""
        return len(choice) == 1 and -1 <= choice[0] < self._native.configurations

    def candidates(self) -> list[Candidate]:
        """Return the library's own choice, and then each algorithm that it has for this product."""
        found = [Candidate((-1,), self._native.workspace, {"configuration": -1})]
        self._prepared[-1] = self._native
        for number in range(self._native.configurations):
            try:
                made = StructuredProduct(self._context.backend, replace(self._call, configuration=number, scratch=0))
            except (LibraryError, Unsupported) as error:
                _log.info("algorithm %d of a product of a structured matrix is passed over: %s", number, error)
                continue
            self._prepared[number] = made
            found.append(Candidate((number,), made.workspace, {"configuration": number}))
        return found

    def _dtypes(self) -> list[str]:
        call = self._call
        names = {_type(name): name for name in _TYPES}
        kind = names[call.type]
        side = bias_dtype(kind, self._out)
        return [kind, kind, self._out, *([side] if call.bias >= 0 else []),
                *["float32"] * (call.n_operands - 3 - (call.bias >= 0))]  # fmt: skip

    def operand_bytes(self) -> list[int]:
        """Return the bytes that each operand reaches over."""
        call = self._call
        dtypes = self._dtypes()
        lines = (call.n if call.turned_b else call.k) * call.step_b * DTYPES[dtypes[1]].itemsize
        across = call.n if call.order_d == CONSTANTS["CUSPARSE_ORDER_COL"] else call.m
        made = across * call.step_d * DTYPES[dtypes[2]].itemsize
        rest = [call.m * DTYPES[dtype].itemsize for dtype in dtypes[3:]]
        return [call.compressed_bytes, lines, made, *rest]

    def tiles(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return numbers of ordinary size, since the GPU's clock depends on them.

        Each half of a byte of the compressed matrix names two different places of a four: others are illegal
        instructions.
        """
        rng = np.random.default_rng(0)
        pairs = np.array([i | j << 2 for i in range(4) for j in range(i + 1, 4)], np.uint8)
        made: list[np.ndarray[Any, Any]] = [pairs[0] << 4 | rng.choice(pairs, _TILE)]
        for dtype in (DTYPES[name] for name in self._dtypes()[1:]):
            count = _TILE // dtype.itemsize
            wide = rng.integers(-8, 8, count) if dtype.kind == "i" else rng.standard_normal(count)
            made.append(wide.astype(dtype).view(np.uint8))
        return made

    def time(self, candidate: Candidate, addresses: list[int], sets: int, launches: int, workspace: int) -> float:
        """Return microseconds of a launch."""
        return self._prepared[candidate.choice[0]].time(addresses, sets, launches, workspace)


def _untuned(context: CudaContext, call: StructuredCall, numbers: tuple[int, ...]) -> tuple[StructuredProduct, str]:
    """Return the product by the first of some algorithms that fits into the workspace; and a line about it."""
    for number in numbers:
        try:
            made = StructuredProduct(context.backend, replace(call, configuration=number))
        except (LibraryError, Unsupported) as error:
            _log.info("algorithm %d of a product of a structured matrix is passed over: %s", number, error)
        else:
            return made, f"algorithm {number}, which was among the fastest for such products"
    return StructuredProduct(context.backend, call), ""


def _prepare(
    spec: PlanSpec[StructuredAttributes], context: CudaContext, part: Fused, version: int, first: int
) -> tuple[StructuredProduct, str]:
    """Return the product, with its part of the workspace from byte `first` on, and a line about its tuning."""
    how = spec.attributes
    if first > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, first, context.workspace_limit)
    call = structured_call(spec, part, context.workspace_limit - first)
    if part.bias:
        call = replace(call, nowhere=context.backend.zeros())
    made, chosen = _untuned(context, replace(call, scratch=first), fastest(spec, version))
    if not how.tune:
        return made, chosen
    tuner = Tuner(context.backend, "cusparselt", version, dict(context.facts))
    problem = _Product(context, call, StructuredProduct(context.backend, call), spec.operands[-1].dtype)
    measure = how.tune == "measure" and not context.deterministic
    if measure and version in UNMEASURED:
        name = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
        raise Unsupported(
            f"tune=True of {spec.op}: measuring the algorithms of cuSPARSELt {name} ends the worker; "
            f"allowed: False, 'known', or a later version",
            rule="sparse.structured_tuning", lifted_by=("tune", "library"),
        )  # fmt: skip
    found = tuner.best(problem, context.progress) if measure else tuner.known(problem)
    if found is None:
        return made, chosen
    return StructuredProduct(context.backend, replace(call, configuration=found.choice[0], scratch=first)), str(found)


_NAMES: Final = ("row_alpha", "scale_a", "scale_x", "row_beta")


def _terms(spec: PlanSpec[StructuredAttributes], index: str) -> tuple[tuple[str, ...], str, str]:
    """Return the factors of rows that a message has, by name, and the expressions of alpha and beta of a row."""
    given = {operand.name: operand for operand in spec.operands}
    m = spec.attributes.shape[0]
    names = tuple(name for name in _NAMES if name in given)
    alpha = ["(float)alpha"]
    for name in names:
        if name != "row_beta":
            several = name == "row_alpha" or (name == "scale_a" and given[name].shape == (m,) and m > 1)
            alpha.append(f"{name}[{index if several else 0}]")
    return names, " * ".join(alpha), f"(float)beta{f' * row_beta[{index}]' if 'row_beta' in names else ''}"


def _factors(spec: PlanSpec[StructuredAttributes], context: CudaContext, betas: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the kernel that multiplies the factors of each row, and the operands that it reads, by name."""
    m = spec.attributes.shape[0]
    names, alpha, beta = _terms(spec, "i")
    parameters = [f"const float *{name}" for name in names] + ["float *alphas"] + (["float *betas"] if betas else [])
    text = _FACTORS.substitute(
        parameters=", ".join([*parameters, "double alpha", "double beta"]), m=f"{m}ull", alpha=alpha,
        betas=f"betas[i] = {beta};" if betas else "",
    )  # fmt: skip
    count = len(parameters)
    arguments: tuple[Argument, ...] = (*(("operand", i) for i in range(count)), ("float64", 0), ("float64", 1))
    launch = Launch("factors", (max(1, -(-m // THREADS)), 1, 1), (THREADS, 1, 1), 0, arguments)
    built = kernels(text, [launch], context.target, dtypes={"float32"}, alignments=[alignment("float32")] * count)
    return built.run, names


def _epilogue(spec: PlanSpec[StructuredAttributes], context: CudaContext, part: Fused) -> tuple[Any, tuple[str, ...]]:
    """Return the kernel behind the product, and the operands that it reads after out and the product, by name."""
    how, out = spec.attributes, spec.operands[-1]
    given = {operand.name: operand for operand in spec.operands}
    (n, m), (row, column) = out.shape, steps(out)
    by_rows = _by_rows(spec)
    names, alpha, beta = ((), "", "") if part.factor else _terms(spec, "j")
    bias = "bias" in given and not part.bias
    kind = STORAGE[out.dtype]
    names = (*names, "bias") if bias else names
    parameters = [f"{kind} *out", *([f"const {kind} *made"] if part.apart else [])]
    parameters += [f"const {STORAGE[given[name].dtype]} *{name}" for name in names]
    old = f"const {kind} before = out[i * {row}ull + j * {column}ull];"
    wide = convert(out.dtype, "float32", "before")
    activation = {"none": "", "relu": "x = x > 0 ? x : 0;", "gelu": "x = gelu_of(x);"}[how.activation]
    text = _EPILOGUE.substitute(
        parameters=", ".join([*parameters, "double alpha", "double beta"]), total=f"{n * m}ull",
        across=f"{m if by_rows else n}ull", i="line" if by_rows else f"t % {n}ull",
        j=f"t % {m}ull" if by_rows else "line", T=kind,
        source="made[t]" if part.apart else f"out[i * {row}ull + j * {column}ull]",
        factor="" if part.factor else f"{alpha} * ", wide=convert(out.dtype, "float32", "product"),
        old=f"{old} x += {beta} * {wide};" if part.apart else "",
        bias=f"const {STORAGE[given['bias'].dtype]} more = bias[j]; x += "
             f"{convert(given['bias'].dtype, 'float32', 'more')};" if bias else "",
        activation=activation, row=f"{row}ull", column=f"{column}ull",
        stored=_WHOLE if out.dtype == "int32" else convert("float32", out.dtype, "x"),
    )  # fmt: skip
    count = len(parameters)
    arguments: tuple[Argument, ...] = (*(("operand", i) for i in range(count)), ("float64", 0), ("float64", 1))
    grid = max(1, min(-(-n * m // THREADS), context.target.sm_count * BLOCKS))
    launch = Launch("epilogue", (grid, 1, 1), (THREADS, 1, 1), 0, arguments)
    dtypes = {out.dtype, "float32", *(given[name].dtype for name in names)}
    aligned = [alignment(out.dtype)] * (2 if part.apart else 1) + [alignment(given[name].dtype) for name in names]
    return kernels(text, [launch], context.target, dtypes=dtypes, alignments=aligned).run, names


def build_linear(spec: PlanSpec[StructuredAttributes], context: CudaContext) -> Built:
    """Build ``sparse.linear_24``.  Waits for the compiler where a part of it is a kernel.

    Raises
    ------
    Unsupported
        Without cuSPARSELt, for what it does not compute on this device, and for more workspace than the limit.
    """
    how, out = spec.attributes, spec.operands[-1]
    if 0 in out.shape:
        return Built("noop")
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    version = cusparselt.load(library_file("cusparseLt"))
    part = fused(spec, version)
    behind = ["factors of rows"] if not part.factor else []
    behind += ["the bias"] if "bias" in at and not part.bias else []
    behind += ["GELU"] if how.activation == "gelu" else []
    behind += ["ReLU"] if how.activation == "relu" and not part.relu else []
    if behind and out.dtype == "int8":
        raise Unsupported(
            f"{spec.op} to int8 with {behind[0]}, which cuSPARSELt is not known to add before it rounds; allowed: "
            f"out_dtype int32, float16 or bfloat16",
            rule="sparse.cusparselt", lifted_by=("out_dtype",),
        )  # fmt: skip
    vector = padded(4 * how.shape[0])
    reserved = padded(out.shape[0] * out.shape[1] * as_dtype(out.dtype).itemsize) if part.apart else 0
    first = reserved + vector * (part.alphas + part.betas)
    product, tuning = _prepare(spec, context, part, version, first)
    both: list[Source] = [("workspace", 0), ("workspace", vector)]
    rows = both[: part.alphas + part.betas]
    scalars: tuple[Source, ...] = (("scalar", 0), ("scalar", 1))
    result: Source = ("workspace", 0) if part.apart else ("operand", at["out"])
    taken: list[Source] = [("operand", at["compressed"]), ("operand", at["x"]), result]
    taken += [("operand", at["bias"])] if part.bias else []
    sequence, notes = [Step(product, (*taken, *rows), scalars)], []
    if part.alphas:
        run, names = _factors(spec, context, part.betas)
        sequence.insert(0, Step(run, (*(("operand", at[name]) for name in names), *rows), scalars))
        notes.append("the factors of each row of A are multiplied by a kernel in front")
    if behind:
        run, names = _epilogue(spec, context, part)
        made: tuple[Source, ...] = (("operand", at["out"]), *((result,) if part.apart else ()))
        sequence.append(Step(run, (*made, *(("operand", at[name]) for name in names)), scalars))
        notes.append(f"a kernel behind the product does {', '.join(behind)}")
    workspace = max(product.workspace, first)
    program = SequenceProgram(tuple(sequence), workspace, tuple(notes))
    return Built(program, workspace, tuple(notes), tuning)


def build_compress(spec: PlanSpec[Any], context: CudaContext) -> Built:
    """Build ``sparse.compress_24``.

    Raises
    ------
    Unsupported
        Without cuSPARSELt, for what it does not compress on this device, and for more workspace than the limit.
    """
    x, out = spec.operands
    cusparselt.load(library_file("cusparseLt"))
    rows, columns = x.shape
    call = StructuredCall(
        routine=CONSTANTS["ATOMR_STRUCTURED_COMPRESS"],
        m=rows, n=0, k=columns, step_a=steps(x)[0], step_b=0, turned_b=0, step_d=0, order_d=0,
        type=_type(x.dtype), type_d=0, compute=0, a=1, b=0, d=-1, compressed_bytes=out.shape[0],
        workspace_bytes=context.workspace_limit, n_operands=2, n_scalars=0,
    )  # fmt: skip
    run = StructuredProduct(context.backend, call)
    return Built(run, run.workspace)
