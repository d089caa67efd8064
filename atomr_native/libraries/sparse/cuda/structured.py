"""Products with compressed matrices, and compressions, by cuSPARSELt.

The library reads a factor for each row of A from one array, so a kernel multiplies the factors of a message in front of
the product where there are several.  GELU is a kernel behind it, since the library has it for int8 alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from string import Template
from typing import Any, Final

import numpy as np

from ...._lib import cusparselt
from ...._lib.cusparselt import CONSTANTS, StructuredProduct
from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, MapOperand, alignment, convert, kernels, map_kernel
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.target import Argument, Launch
from ....builders.cuda.tuner import Candidate, Tuner
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import DTYPES, as_dtype
from ....errors import LibraryError, Unsupported
from ....plans.spec import OperandSpec, PlanSpec
from ....plans.tuning import spec_digest
from ..attributes import StructuredAttributes
from ..structured.matrix import compressed_bytes
from ..structured.spec import bias_dtype
from .native import StructuredCall
from .rows import steps

__all__ = ["build_compress", "build_linear", "structured_call"]

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
_GELU: Final = """\
DEVICE float gelu_of(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}
"""


def _type(dtype: str) -> int:
    return CONSTANTS[f"CUDA_{_TYPES[dtype]}"]


def structured_call(spec: PlanSpec[StructuredAttributes], vectors: tuple[bool, bool], limit: int) -> StructuredCall:
    """Return the call of cuSPARSELt for a product.

    Its operands are the compressed A, x, out, then the bias, and factors for each row of A, alpha's and beta's, where
    there are any.

    Parameters
    ----------
    vectors
        Whether alpha and beta are such factors.
    limit
        Bytes of workspace that it may have.
    """
    how = spec.attributes
    given = {operand.name: operand for operand in spec.operands}
    x, out = given["x"], given["out"]
    (m, k), n = how.shape, x.shape[0]
    x_row, x_column = steps(x)
    out_row, out_column = steps(out)
    by_rows = x_column == 1 and x_row >= k
    out_by_rows = out_column == 1 and out_row >= m
    places = iter(range(3, 6))
    bias = next(places) if "bias" in given else -1
    alpha_at = next(places) if vectors[0] else -1
    beta_at = next(places) if vectors[1] else -1
    return StructuredCall(
        routine=CONSTANTS["ATOMR_STRUCTURED_MATMUL"],
        m=m, n=n, k=k, step_a=k,
        step_b=x_row if by_rows else x_column, turned_b=int(by_rows),
        step_d=out_row if out_by_rows else out_column,
        order_d=CONSTANTS["CUSPARSE_ORDER_COL" if out_by_rows else "CUSPARSE_ORDER_ROW"],
        type=_type(how.dtype), type_d=_type(out.dtype),
        compute=CONSTANTS["CUSPARSE_COMPUTE_32I" if how.dtype == "int8" else "CUSPARSE_COMPUTE_32F"],
        a=0, b=1, d=2, bias=bias, alpha_at=alpha_at, beta_at=beta_at,
        alpha=-1 if vectors[0] else 0, beta=-1 if vectors[1] or not how.adds else 1,
        relu=int(how.activation == "relu"),
        compressed_bytes=compressed_bytes(how.shape, how.dtype),
        workspace_bytes=limit,
        n_operands=3 + (bias >= 0) + vectors[0] + vectors[1], n_scalars=2,
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
        call = replace(self._call, configuration=-1, scratch=0, workspace_bytes=0)
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
        """Return numbers of ordinary size, since the GPU's clock depends on them."""
        rng = np.random.default_rng(0)
        made = []
        for dtype in (DTYPES[name] for name in self._dtypes()):
            count = _TILE // dtype.itemsize
            wide = rng.integers(-8, 8, count) if dtype.kind == "i" else rng.standard_normal(count)
            made.append(wide.astype(dtype).view(np.uint8))
        return made

    def time(self, candidate: Candidate, addresses: list[int], sets: int, launches: int, workspace: int) -> float:
        """Return microseconds of a launch."""
        return self._prepared[candidate.choice[0]].time(addresses, sets, launches, workspace)


def _prepare(
    spec: PlanSpec[StructuredAttributes], context: CudaContext, vectors: tuple[bool, bool], first: int
) -> tuple[StructuredProduct, str]:
    """Return the product, with its part of the workspace from byte `first` on, and a line about its tuning."""
    how = spec.attributes
    version = cusparselt.load(library_file("cusparseLt"))
    call = structured_call(spec, vectors, max(0, context.workspace_limit - first))
    made = StructuredProduct(context.backend, replace(call, scratch=first))
    if not how.tune:
        return made, ""
    tuner = Tuner(context.backend, "cusparselt", version, dict(context.facts))
    problem = _Product(context, call, StructuredProduct(context.backend, call), spec.operands[-1].dtype)
    measure = how.tune == "measure" and not context.deterministic
    found = tuner.best(problem, context.progress) if measure else tuner.known(problem)
    if found is None:
        return made, ""
    return StructuredProduct(context.backend, replace(call, configuration=found.choice[0], scratch=first)), str(found)


def _factors(spec: PlanSpec[StructuredAttributes], context: CudaContext, betas: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the kernel that multiplies the factors of each row, and the operands that it reads, by name."""
    given = {operand.name: operand for operand in spec.operands}
    m = spec.attributes.shape[0]
    names = tuple(name for name in ("row_alpha", "scale_a", "scale_x", "row_beta") if name in given)
    terms = ["(float)alpha"]
    for name in names:
        if name != "row_beta":
            several = name == "row_alpha" or (name == "scale_a" and given[name].shape == (m,) and m > 1)
            terms.append(f"{name}[{'i' if several else 0}]")
    parameters = [f"const float *{name}" for name in names] + ["float *alphas"] + (["float *betas"] if betas else [])
    text = _FACTORS.substitute(
        parameters=", ".join([*parameters, "double alpha", "double beta"]), m=f"{m}ull", alpha=" * ".join(terms),
        betas=f"betas[i] = (float)beta{' * row_beta[i]' if 'row_beta' in names else ''};" if betas else "",
    )  # fmt: skip
    count = len(parameters)
    arguments: tuple[Argument, ...] = (
        *(("operand", i) for i in range(count)), ("float64", 0), ("float64", 1),
    )  # fmt: skip
    launch = Launch("factors", (max(1, -(-m // THREADS)), 1, 1), (THREADS, 1, 1), 0, arguments)
    built = kernels(text, [launch], context.target, dtypes={"float32"}, alignments=[alignment("float32")] * count)
    return built.run, names


def _gelu(out: OperandSpec, context: CudaContext) -> Any:
    size = as_dtype(out.dtype).itemsize
    operand = MapOperand(0, out.dtype, tuple(step // size for step in out.strides), reads=True, writes=True)
    value = f"gelu_of({convert(out.dtype, 'float32', 'x0')})"
    body = (f"const float made = {value};", f"y0 = {convert('float32', out.dtype, 'made')};")
    text, launch = map_kernel(out.shape, [operand], (), (), body, context.target)
    return kernels(
        _GELU + text, [launch], context.target, dtypes={out.dtype, "float32"}, alignments=[alignment(out.dtype)]
    ).run


def build_linear(spec: PlanSpec[StructuredAttributes], context: CudaContext) -> Built:
    """Build ``sparse.linear_24``.  Waits for the compiler where there are factors of rows, or GELU.

    Raises
    ------
    Unsupported
        Without cuSPARSELt, for what it does not compute on this device, and for more workspace than the limit.
    """
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    out = spec.operands[-1]
    if 0 in out.shape:
        return Built("noop")
    scaled = any(name in at for name in ("row_alpha", "row_beta", "scale_a", "scale_x"))
    vectors = (scaled, scaled and how.adds)
    part = padded(4 * how.shape[0])
    first = part * sum(vectors)
    if first > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, first, context.workspace_limit)
    product, tuning = _prepare(spec, context, vectors, first)
    both: list[Source] = [("workspace", 0), ("workspace", part)]
    rows = both[: sum(vectors)]
    before, after = [], []
    scalars: tuple[Source, ...] = (("scalar", 0), ("scalar", 1))
    if scaled:
        run, names = _factors(spec, context, vectors[1])
        before.append(Step(run, (*(("operand", at[name]) for name in names), *rows), scalars))
    operands: list[Source] = [("operand", at[name]) for name in ("compressed", "x", "out")]
    operands += [("operand", at["bias"])] if "bias" in at else []
    if how.activation == "gelu":
        after.append(Step(_gelu(out, context), (("operand", at["out"]),)))
    every = Step(product, (*operands, *rows), scalars)
    workspace = max(product.workspace, first)
    notes = []
    if scaled:
        notes.append("the factors of each row of A are multiplied by a kernel in front")
    if after:
        notes.append("GELU is a kernel behind the product")
    program = SequenceProgram((*before, every, *after), workspace, tuple(notes))
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
