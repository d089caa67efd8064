"""Kernels of CUTLASS on the fake driver: a loop in C that reads the parameters that CUTLASS's kernel would be given.

All but the template is real: the choice of the kernel, the builder of parameters, which NVRTC compiles and the worker
runs, and the launch, which fills addresses, numbers and a tensor map of A into the parameters.
"""

from __future__ import annotations

import re
from typing import Any

import kernel_shim
import pytest

from atomr_native.libraries.cutlass import code
from atomr_native.libraries.cutlass.attributes import EXTENTS, CompiledKernel
from atomr_native.libraries.cutlass.choice import kernel_of
from atomr_native.libraries.cutlass.kernels.kernel import Node, walk
from atomr_native.protocol.binaries import Binary

__all__ = ["Seen", "install"]

_C: dict[str, str] = {"float32": "float", "tfloat32": "float", "float64": "double", "int8": "signed char",
                      "int32": "int", "int64": "long long", "float16": "_Float16"}  # fmt: skip
_FUNCTORS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})", "neg": "(-{})",
    "exp": "__builtin_exp({})", "abs": "__builtin_fabs({})", "min": "({0} < {1} ? {0} : {1})",
    "relu": "({0} > 0 ? {0} : 0)", "max": "({0} > {1} ? {0} : {1})", "fma": "({} * {} + {})",
    "sigmoid": "(1 / (1 + __builtin_exp(-({}))))",
    "gelu_tanh": "({0} / (1 + __builtin_exp(-1.5957691216057308 * {0} * (1 + 0.044715 * {0} * {0}))))",
}  # fmt: skip
_EXTENTS = ("m", "n", "k", "batch")
#: Marks where a tensor map belongs; see ``compile/cutlass/parameters.py``.
_MARK = 0x50414D524D4F5441


#: The sum of a convolution at row i and column j of D, by its operation.
_CONVOLUTIONS = {
    "forward": """
      const long long q = i % p.out_width, o = i / p.out_width % p.out_height;
      const long long z = i / p.out_width / p.out_height % p.out_depth;
      const long long s = i / p.out_width / p.out_height / p.out_depth;
      FOR_TAPS for (long long e = 0; e < p.channels; e++) {
        const long long d = z * p.stride_depth + t * p.dilation_depth - p.pad_depth;
        const long long h = o * p.stride_height + r * p.dilation_height - p.pad_height;
        const long long w = q * p.stride_width + f * p.dilation_width - p.pad_width;
        if (INSIDE) acc += A(PIXEL * p.channels + e) * B((j * TAPS + TAP) * p.channels + e);
      }""",
    "data_gradient": """
      const long long w = i % p.width, h = i / p.width % p.height;
      const long long d = i / p.width / p.height % p.depth, s = i / p.width / p.height / p.depth;
      FOR_TAPS for (long long e = 0; e < p.filters; e++) {
        const long long zz = d + p.pad_depth - t * p.dilation_depth, oo = h + p.pad_height - r * p.dilation_height;
        const long long qq = w + p.pad_width - f * p.dilation_width;
        if (zz % p.stride_depth || oo % p.stride_height || qq % p.stride_width) continue;
        const long long z = zz / p.stride_depth, o = oo / p.stride_height, q = qq / p.stride_width;
        if (zz >= 0 && oo >= 0 && qq >= 0 && z < p.out_depth && o < p.out_height && q < p.out_width)
          acc += A(RESULT * p.filters + e) * B((e * TAPS + TAP) * p.channels + j);
      }""",
    "filter_gradient": """
      const long long e = j % p.channels, f = j / p.channels % p.filter_width;
      const long long r = j / p.channels / p.filter_width % p.filter_height;
      const long long t = j / p.channels / p.filter_width / p.filter_height;
      for (long long s = 0; s < p.images; s++) for (long long z = 0; z < p.out_depth; z++)
      for (long long o = 0; o < p.out_height; o++) for (long long q = 0; q < p.out_width; q++) {
        const long long d = z * p.stride_depth + t * p.dilation_depth - p.pad_depth;
        const long long h = o * p.stride_height + r * p.dilation_height - p.pad_height;
        const long long w = q * p.stride_width + f * p.dilation_width - p.pad_width;
        if (INSIDE) acc += A(RESULT * p.filters + i) * B(PIXEL * p.channels + e);
      }""",
}
_WORDS = {
    "FOR_TAPS": "for (long long t = 0; t < p.filter_depth; t++) for (long long r = 0; r < p.filter_height; r++) "
    "for (long long f = 0; f < p.filter_width; f++)",
    "INSIDE": "d >= 0 && h >= 0 && w >= 0 && d < p.depth && h < p.height && w < p.width",
    "PIXEL": "(((s * p.depth + d) * p.height + h) * p.width + w)",
    "RESULT": "(((s * p.out_depth + z) * p.out_height + o) * p.out_width + q)",
    "TAPS": "(p.filter_depth * p.filter_height * p.filter_width)",
    "TAP": "((t * p.filter_height + r) * p.filter_width + f)",
}


class Seen(list[Any]):
    """The kernels that were chosen, in order."""


def _in_c(symbol: str, function: Any, arity: int) -> str:
    """Return a Python function in C: it has its text as ``in_c``, of x0, x1 ..., or a tuple for each result."""
    text = "x1" if function.__name__ == "_last" else getattr(function, "in_c", None)
    if function.__name__ == "part":  # of what blas_lt/stand_in.py makes of a function with two results
        place = next(one for one in function.__code__.co_consts if isinstance(one, int))
        text = function.__globals__["f"].py_func.in_c[place]
    names = ", ".join(f"double x{i}" for i in range(arity))
    return f"static double {symbol}({names}) {{ return {text}; }}\n"


def _expression(node: Node, stores: list[str], place_of: str) -> str:
    """Return the C of a tree's value at row i and column j of matrix l."""
    args = [_expression(arg, stores, place_of) for arg in node.args]
    name = node.name
    kind = _C.get(node.dtype, "float")
    if node.op == "acc":
        return "(acc)"
    if node.op == "source":
        return f"(({kind} *)p.c)[l * p.batch_c + {place_of.format('ldc')}]"
    if node.op == "scalar":
        return f"p.{name}" if node.value == "host" else f"(({kind} *)p.{name})[l * p.batch_{name}]"
    if node.op in ("tensor", "aux_store"):
        place = f"(({kind} *)p.{name})[l * p.batch_{name} + {place_of.format(f'ld_{name}')}]"
        if node.op == "tensor":
            return place
        stores.append(f"{place} = {args[0]};")
        return args[0]
    if node.op.startswith("reduce_"):
        place = {"row": "j", "column": "i", "scalar": "0"}[node.op.removeprefix("reduce_")]
        place = f"(({kind} *)p.{name})[l * p.batch_{name} + {place}]"
        stores.append(f"{place} += {args[0]};" if node.value == "add" else
                      f"{place} = {place} > {args[0]} ? {place} : {args[0]};")  # fmt: skip
        return args[0]
    if node.op in ("row", "column"):
        return f"(({kind} *)p.{name})[l * p.batch_{name} + {'j' if node.op == 'row' else 'i'}]"
    if node.op == "function":
        return f"{name}({', '.join(args)})"
    return _FUNCTORS[node.op].format(*args)


def _sources(kernel: Any) -> tuple[Any, ...]:
    """Return the kernel in C, the builder in CUDA C++, its fields, pointers, scalars, and the first kernel's."""
    pointers, wide, compute = ["a", "b", "d", "workspace"], [], kernel.compute
    if kernel.family == "grouped" and kernel.arch == "sm_80":
        pointers.append("offsets")
    for letter in ("a", "b", "d"):
        wide += [f"ld{letter}", f"batch_{letter}"]
    if kernel.scale:
        pointers, wide = [*pointers, "scale"], [*wide, "ld_scale", "batch_scale"]
    scalars: dict[str, None] = {}
    for node in walk(kernel.tree):
        if node.op == "source":
            pointers, wide = [*pointers, "c"], [*wide, "ldc", "batch_c"]
        elif node.op == "scalar" and node.value == "host":
            scalars[node.name] = None
        elif node.name and node.op != "function":
            pointers.append(node.name)
            wide += [f"batch_{node.name}", *([f"ld_{node.name}"] if node.op in ("tensor", "aux_store") else [])]
    pointers, wide = list(dict.fromkeys(pointers)), list(dict.fromkeys(wide))
    fields = [(name, "int64") for name in wide]
    numbers = [(name, compute) for name in scalars]
    convolution = kernel.family == "convolution"
    ints = [(name, "int32") for name in (*_EXTENTS, "sm_count", *(EXTENTS if convolution else ()),
                                       *(("group",) if kernel.scale else ()))]  # fmt: skip
    ordered = [*fields, *numbers, *ints] if compute == "float64" else [*fields, *ints, *numbers]
    members = "".join(f"unsigned long long {name}; " for name in pointers)
    members += "".join(f"{_C[dtype]} {name}; " for name, dtype in ordered)
    given = f"typedef struct {{ {members}}} Given;\n"
    size = sum(8 if _C[dtype] in ("double", "long long") else 4 for _, dtype in ordered) + 8 * len(pointers)
    size = -(-size // 8) * 8
    pad = f"unsigned char pad[{-size % 64}]; " if size % 64 else ""
    params = f"typedef struct {{ Given g; {pad}unsigned long long map[16]; }} Params;\n"
    stores: list[str] = []
    place_of = "j * p.{} + i" if kernel.d.layout == "column" else "i * p.{} + j"
    value = _expression(kernel.tree, stores, place_of)
    scale = (
        f"* (({_C[kernel.scale]} *)p.scale)[l * p.batch_scale + q / p.group * p.ld_scale + i]" if kernel.scale else ""
    )
    at = {name: (f"{index[0]} * p.ld{name} + {index[1]}", f"{index[1]} * p.ld{name} + {index[0]}")
          for name, index in (("a", "iq"), ("b", "qj"))}  # fmt: skip
    a, b = (at[name][one.layout == "column"] for name, one in (("a", kernel.a), ("b", kernel.b)))
    acc = {"int32": "int"}.get(kernel.accumulator, _C[kernel.accumulator])
    grouped, modern = kernel.family == "grouped", kernel.arch == "sm_90a"
    offset = _C[kernel.offsets]
    ends, where = ("long long", "workspace") if modern else (offset, "offsets")
    bounds = (
        f"const {ends} *ends = (const {ends} *)p.{where}; long long first = l ? ends[l - 1] : 0, last = ends[l];\n"
        "first = first < 0 ? 0 : first > p.m ? p.m : first; last = last > p.m ? p.m : last;"
        if grouped
        else "const long long first = 0, last = p.m;"
    )
    product = f"""
    for (long long q = 0; q < p.k; q++)
      acc += ({acc})(({_C[kernel.a.dtype]} *)p.a)[l * p.batch_a + {a}] *
             ({acc})(({_C[kernel.b.dtype]} *)p.b)[l * p.batch_b + {b}] {scale};"""
    if convolution:
        product = _CONVOLUTIONS[kernel.operation]
        for word, text in _WORDS.items():
            product = re.sub(rf"\b{word}\b", text, product)
        product = re.sub(r"\b([AB])\(", rf"({acc})ELEMENT_\1(", product)
    zeroing = convolution or kernel.decomposition == "stream_k"
    setup = ("offsets", "workspace", "groups") if grouped and modern else ("workspace", "zeroed") if zeroing else ()
    kernels = f"""
extern "C" __global__ void atomr_setup(unsigned long long from, unsigned long long to, unsigned long long groups) {{
  const unsigned long long g = blockIdx.x * blockDim.x + threadIdx.x;
  if (g < groups) ((long long *)to)[g] = ((const {offset} *)from)[g];
}}
"""
    reductions = {node.name: node for node in walk(kernel.tree) if node.op.startswith("reduce_")}
    if zeroing or reductions:
        for name in reductions:
            setup = (*setup, name, f"count_{name}")
        begins = "".join(
            f"if (g < count_{name}) (({_C[node.dtype]} *){name})[g] = {'0' if node.value == 'add' else '-1e30'};\n"
            for name, node in reductions.items()
        )
        kernels = f"""
extern "C" __global__ void atomr_setup({", ".join(f"unsigned long long {name}" for name in setup)}) {{
  const unsigned long long g = blockIdx.x * blockDim.x + threadIdx.x;
  {"if (16 * g < zeroed) ((long long *)workspace)[2 * g] = ((long long *)workspace)[2 * g + 1] = 0;" if zeroing else ""}
  {begins}
}}
"""
    used = "for (int i = 0; i < 12; i++) ((long long *)p.workspace)[i]" if zeroing else ""
    elements = "".join(
        f"#define ELEMENT_{name}(place) (({_C[kernel.a.dtype]} *)p.{name.lower()})[place]\n" for name in "AB"
    )
    stored = f"narrowed({value})" if kernel.d.dtype == "int8" else value
    body = f"""{given}{params}{elements}{kernels if setup else ""}
static signed char narrowed(double x) {{ x = __builtin_rint(x); return x < -128 ? -128 : x > 127 ? 127 : x; }}
extern "C" __global__ void atomr_kernel(Params given) {{
  Given p = given.g;
  int good = given.map[0] == p.a;
  {f"{used} == 0 || (good = 0);" if used else ""}
  for (long long l = 0; l < p.batch; l++) {{ {bounds}
  for (long long i = first; i < last; i++) for (long long j = 0; j < p.n; j++) {{
    {acc} acc = 0; {product}
    {" ".join(stores)}
    (({_C[kernel.d.dtype]} *)p.d)[l * p.batch_d + {place_of.format("ldd")}] = good ? {stored} : -12345;
  }} }}
  {f"{used} = 1;" if used else ""}
}}
"""
    build = f"""{given}
extern "C" __global__ void atomr_build(Given p, unsigned char *out) {{
  const unsigned words = sizeof(Given) / 4, map = (sizeof(Given) + 63) / 64 * 64;
  int *head = (int *)out;
  head[0] = p.k % {kernel.a.alignment if kernel.a.layout == "row" and not convolution else 1} == 0;
  for (int i = 1; i < 10; i++) head[i] = 1;
  head[10] = 1024; head[11] = map + 128;
  *(unsigned long long *)(out + 48) = 512; *(unsigned long long *)(out + 56) = {96 if zeroing else 0};
  for (unsigned i = 0; i < words; i++) ((unsigned *)(out + 256))[i] = ((const unsigned *)&p)[i];
  unsigned long long *record = (unsigned long long *)(out + 256 + map);
  record[0] = {_MARK}ull; record[1] = p.{"workspace" if setup else "a"};
  record[2] = 64; record[3] = 32; record[7] = 256;
  unsigned *box = (unsigned *)(record + 11);
  box[0] = 16; box[1] = 8;
  unsigned char *rest = (unsigned char *)(box + 5);
  rest[0] = rest[1] = 1; rest[5] = 7; rest[6] = 2; rest[7] = 2;
}}
"""
    return body, build, tuple(ordered), tuple(pointers), tuple(scalars), setup


def _ptx(source: str) -> bytes:
    """Return the PTX of CUDA C++, of which the package needs none by itself."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"build.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=compute_90"])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytes(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytes(size)
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text


def install(patch: pytest.MonkeyPatch) -> Seen:
    """Let plans of CUTLASS have these kernels."""
    seen = Seen()

    def compiled(spec: Any, functions: Any, capability: tuple[int, int], _cancel: object = None) -> CompiledKernel:
        chosen = kernel_of(spec, capability)
        kernel = chosen.kernel
        seen.append(kernel)
        body, build, fields, pointers, scalars, setup = _sources(kernel)
        arities = {node.name: len(node.args) for node in walk(kernel.tree) if node.op == "function"}
        body = "".join(_in_c(f"f{i}", one, arities[f"f{i}"]) for i, one in enumerate(functions)) + body
        builder = _ptx(build)
        cubin = kernel_shim.compile_module(body)
        return CompiledKernel(
            "atomr_kernel", Binary(cubin), Binary(builder), fields, pointers, scalars, setup,
            source=chosen.source, turned=chosen.turned,
        )  # fmt: skip

    patch.setattr(code, "compiled_kernel", compiled)
    return seen
