"""What shipped kernels need of a GPU and Numba has no name for: wide loads and stores, bits, conversions.

Each is LLVM or PTX in machine code, and has a twin in Python for the simulator, which is exact to the bit.  Numbers of
bits are the lowest of the integers that are passed, so that kernels may compute with Numba's int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .._numba import cuda, intrinsic, types
from .._numba import llvm as ir
from .._numba_copies import twin

__all__ = [
    "address",
    "bits_of",
    "block_max",
    "float_of",
    "float_of_half",
    "group_max",
    "half_of",
    "halves_of_e4m3",
    "halves_of_e5m2",
    "load2",
    "load4",
    "lower_product",
    "store2",
    "store4",
    "to_e4m3",
    "to_e5m2",
    "upper_product",
]

_I8, _I16, _I32, _I64, _F32 = (*(ir.IntType(bits) for bits in (8, 16, 32, 64)), ir.FloatType())
_FULL: Final = 0xFFFFFFFF  # every lane of a warp
_WARP: Final = 32
_THREADS: Final = 1024  # of the largest block


# ---------------------------------------------------------------------------------------------- memory


def _address(array: Any) -> int:
    return int(array._ary.ctypes.data)


@twin(_address)
@intrinsic  # type: ignore[untyped-decorator]
def address(_: Any, pointer: Any) -> Any:
    """Return the address that a pointer is, int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], _I64)

    return types.int64(pointer), codegen


def _place(builder: Any, args: Any, number: int) -> Any:
    start = builder.bitcast(args[0], _I8.as_pointer())
    return builder.bitcast(builder.gep(start, [args[1]]), ir.VectorType(_I32, number).as_pointer())


def _simulated_words(array: Any, offset: int, number: int) -> Any:
    return array._ary.view(np.uint8)[offset : offset + 4 * number].view(np.uint32)


def _load(number: int) -> Any:
    """Return an intrinsic ``(pointer, offset)`` for one load of `number` words, which are returned as a tuple."""

    def load(_: Any, pointer: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = builder.load(_place(builder, args, number))
            vector.align = 4 * number
            parts = [builder.extract_element(vector, ir.Constant(_I32, i)) for i in range(number)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(types.uint32, number)(pointer, types.int64), codegen

    def simulated(array: Any, offset: int) -> tuple[int, ...]:
        return tuple(int(word) for word in _simulated_words(array, offset, number))

    return twin(simulated)(intrinsic(load))


def _store(number: int) -> Any:
    """Return an intrinsic ``(pointer, offset, words)`` for one store of a tuple of `number` words."""

    def store(_: Any, pointer: Any, offset: Any, words: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.Constant(ir.VectorType(_I32, number), ir.Undefined)
            for i in range(number):
                vector = builder.insert_element(vector, builder.extract_value(args[2], i), ir.Constant(_I32, i))
            builder.store(vector, _place(builder, args, number)).align = 4 * number
            return context.get_dummy_value()

        return types.void(pointer, types.int64, types.UniTuple(types.uint32, number)), codegen

    def simulated(array: Any, offset: int, words: tuple[int, ...]) -> None:
        _simulated_words(array, offset, number)[:] = [int(word) & _FULL for word in words]

    return twin(simulated)(intrinsic(store))


#: Words at an offset in bytes from a pointer, by one access of 8 or 16 bytes; the address must be a multiple of that.
load2, load4, store2, store4 = _load(2), _load(4), _store(2), _store(4)


# ---------------------------------------------------------------------------------------------- numbers


def _bits_of(value: Any) -> int:
    return int(np.float32(value).view(np.uint32))


@twin(_bits_of)
@intrinsic  # type: ignore[untyped-decorator]
def bits_of(_: Any, value: Any) -> Any:
    """Return the bits of a float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I32)

    return types.uint32(types.float32), codegen


def _float_of(bits: int) -> Any:
    return np.uint32(int(bits) & _FULL).view(np.float32)


@twin(_float_of)
@intrinsic  # type: ignore[untyped-decorator]
def float_of(_: Any, bits: Any) -> Any:
    """Return the float32 with these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F32)

    return types.float32(types.uint32), codegen


def _assembly(python: Callable[..., Any], result: Any, parameters: tuple[Any, ...], text: str) -> Any:
    """Return an intrinsic of one piece of PTX, in which ``$0`` is the result."""
    kinds = {types.uint16: (_I16, "h"), types.uint32: (_I32, "r"), types.float32: (_F32, "f")}
    constraints = ",".join([f"={kinds[result][1]}", *(kinds[p][1] for p in parameters)])
    function = ir.FunctionType(kinds[result][0], [kinds[p][0] for p in parameters])

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.asm(function, text, constraints, args, False)

    def one(_: Any, a: Any) -> Any:
        return result(*parameters), codegen

    def two(_: Any, a: Any, b: Any) -> Any:
        return result(*parameters), codegen

    def four(_: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return result(*parameters), codegen

    return twin(python)(intrinsic({1: one, 2: two, 4: four}[len(parameters)]))


def _float_of_half(bits: int) -> Any:
    return np.float32(np.uint16(int(bits) & 0xFFFF).view(np.float16))


@np.errstate(over="ignore", under="ignore")
def _half_of(value: Any) -> int:
    return 0x7FFF if np.isnan(value) else int(np.float16(value).view(np.uint16))


#: float16, as 16 bits, to float32 and back (round to nearest even).
float_of_half = _assembly(_float_of_half, types.float32, (types.uint16,), "cvt.f32.f16 $0, $1;")
half_of = _assembly(_half_of, types.uint16, (types.float32,), "cvt.rn.f16.f32 $0, $1;")


def _upper_product(a: int, b: int) -> int:
    return (int(a) & _FULL) * (int(b) & _FULL) >> 32


def _lower_product(a: int, b: int) -> int:
    return int(a) * int(b) & _FULL


#: The upper and the lower word of the product of two words.
upper_product = _assembly(_upper_product, types.uint32, (types.uint32,) * 2, "mul.hi.u32 $0, $1, $2;")
lower_product = _assembly(_lower_product, types.uint32, (types.uint32,) * 2, "mul.lo.u32 $0, $1, $2;")


def _to_float8(dtype: str, python: Callable[..., Any]) -> Any:
    parts = "".join(
        f"cvt.rn.satfinite.{dtype}x2.f32 {half}, ${high}, ${low}; " for half, high, low in (("l", 2, 1), ("h", 4, 3))
    )
    text = "{ .reg .b16 l, h; " + parts + "mov.b32 $0, {l, h}; }"
    return _assembly(python, types.uint32, (types.float32,) * 4, text)


def _halves_of(dtype: str, python: Callable[..., Any]) -> Any:
    return _assembly(python, types.uint32, (types.uint16,), f"cvt.rn.f16x2.{dtype}x2 $0, $1;")


def _codes(dtype: str, largest: float) -> Callable[..., int]:
    limit = np.float32(largest)

    def codes(*values: Any) -> int:
        import ml_dtypes

        kind = getattr(ml_dtypes, dtype)
        found = np.clip(np.array(values, np.float32), -limit, limit).astype(kind)
        return int(np.where(np.isnan(found), 0x7F, found.view(np.uint8)).astype(np.uint8).view(np.uint32)[0])

    return codes


def _halves(dtype: str) -> Callable[..., int]:
    def halves(pair: int) -> int:
        import ml_dtypes

        codes = np.array([pair & 0xFF, pair >> 8 & 0xFF], np.uint8).view(getattr(ml_dtypes, dtype))
        return int(codes.astype(np.float16).view(np.uint32)[0])

    return halves


#: Four float32 to four codes in a word, the first lowest: rounded to nearest even, saturating.  Capability 8.9.
to_e4m3, to_e5m2 = (
    _to_float8("e4m3", _codes("float8_e4m3fn", 448.0)),
    _to_float8("e5m2", _codes("float8_e5m2", 57344.0)),
)
#: Two codes in 16 bits to two float16 in a word, the first lowest.  Capability 8.9.
halves_of_e4m3, halves_of_e5m2 = (
    _halves_of("e4m3", _halves("float8_e4m3fn")),
    _halves_of("e5m2", _halves("float8_e5m2")),
)


# ---------------------------------------------------------------------------------------------- blocks of threads


def _simulated_group_max(value: Any, width: Any) -> Any:
    values = cuda.shared.array(_THREADS, np.int64)
    thread = cuda.threadIdx.x
    values[thread] = value
    cuda.syncthreads()
    first = thread // width * width
    largest = values[first]
    for i in range(first + 1, first + width):
        largest = max(largest, values[i])
    cuda.syncthreads()
    return int(largest)


@twin(_simulated_group_max, cooperates=True)
@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def group_max(value: Any, width: Any) -> Any:
    """Return the largest of non-negative int32 values among `width` neighbouring threads: a power of 2 up to 32.

    Every thread of the block must call it.
    """
    distance = width // 2
    while distance > 0:
        value = max(value, cuda.shfl_xor_sync(_FULL, value, distance))
        distance //= 2
    return value


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def block_max(value: Any) -> Any:
    """Return the largest of non-negative int32 values among the threads of a block of whole warps; all must call it."""
    warps = cuda.shared.array(_WARP, types.int32)
    value = group_max(value, _WARP)
    if cuda.threadIdx.x % _WARP == 0:
        warps[cuda.threadIdx.x // _WARP] = value
    cuda.syncthreads()
    largest = warps[0]
    for i in range(1, cuda.blockDim.x // _WARP):
        largest = max(largest, warps[i])
    cuda.syncthreads()
    return largest
