"""GPU operations for shipped kernels that Numba lacks: wide loads and stores, bits, conversions.

Each compiles to LLVM or PTX, and has a bit-exact Python twin for the simulator.  Bit patterns occupy the low bits of
integers, so kernels may compute with Numba's int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..api import cuda, inlined, intrinsic, libdevice, types
from ..api import llvm as ir
from ..compiler import capability
from ..copies import twin

__all__ = [
    "address",
    "bfloat16_pair",
    "bits_of",
    "block_max",
    "fast_exp2",
    "first_bytes",
    "first_halves",
    "float_of",
    "float_of_half",
    "from_lane",
    "group_max",
    "half_of",
    "halves_of_e4m3",
    "halves_of_e5m2",
    "larger_halves",
    "load2",
    "load4",
    "last_bytes",
    "last_halves",
    "power_of_two",
    "product",
    "reciprocal",
    "sine_and_cosine",
    "store2",
    "store4",
    "swapped",
    "to_e4m3",
    "to_e5m2",
    "upper_half",
]

_I8, _I16, _I32, _I64, _F32 = (*(ir.IntType(bits) for bits in (8, 16, 32, 64)), ir.FloatType())
_FULL: Final = 0xFFFFFFFF  # every lane of a warp
_WARP: Final = 32
_THREADS: Final = 1024  # warps of the largest block


# ---------------------------------------------------------------------------------------------- memory


def _address(array: Any) -> int:
    return int(array._ary.ctypes.data)


@twin(_address)
@intrinsic  # type: ignore[untyped-decorator]
def address(_: Any, pointer: Any) -> Any:
    """Return the address of a pointer, int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], _I64)

    return types.int64(pointer), codegen


def _place(builder: Any, args: Any, number: int) -> Any:
    start = builder.bitcast(args[0], _I8.as_pointer())
    return builder.bitcast(builder.gep(start, [args[1]]), ir.VectorType(_I32, number).as_pointer())


def _simulated_words(array: Any, offset: int, number: int) -> Any:
    return array._ary.view(np.uint8)[offset : offset + 4 * number].view(np.uint32)


def _load(number: int) -> Any:
    """Return an intrinsic ``(pointer, offset)`` for one load of `number` words, as a tuple."""

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


#: Words at a byte offset from a pointer, by one access of 8 or 16 bytes; the address must be aligned to that size.
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
    """Return an intrinsic for a piece of PTX with the result ``$0``."""
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


def _bfloat16_bits(value: Any) -> int:
    bits = _bits_of(value)
    return 0x7FFF if bits & 0x7FFFFFFF > 0x7F800000 else bits + 0x7FFF + (bits >> 16 & 1) >> 16


@twin(lambda low, high: _bfloat16_bits(low) | _bfloat16_bits(high) << 16)
@intrinsic  # type: ignore[untyped-decorator]
def bfloat16_pair(_: Any, low: Any, high: Any) -> Any:
    """Return two float32 as bfloat16 in a word: rounded to nearest even; NaN is 0x7FFF."""

    def rounded(builder: Any, value: Any) -> Any:
        bits = builder.bitcast(value, _I32)
        odd = builder.and_(builder.lshr(bits, ir.Constant(_I32, 16)), ir.Constant(_I32, 1))
        up = builder.lshr(builder.add(builder.add(bits, ir.Constant(_I32, 0x7FFF)), odd), ir.Constant(_I32, 16))
        return builder.select(builder.fcmp_unordered("uno", value, value), ir.Constant(_I32, 0x7FFF), up)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if capability() >= (8, 0):
            kind = ir.FunctionType(_I32, [_F32, _F32])
            return builder.asm(kind, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", args, False)
        upper = builder.shl(rounded(builder, args[1]), ir.Constant(_I32, 16))
        return builder.or_(rounded(builder, args[0]), upper)

    return types.uint32(types.float32, types.float32), codegen


#: 1 / x in float32, within one unit in the last place; for results that may differ between devices.
reciprocal = _assembly(
    lambda value: np.float32(1) / np.float32(value), types.float32, (types.float32,), "rcp.approx.ftz.f32 $0, $1;"
)

#: 2**x in float32, within two units in the last place, and 0 below the normal numbers.
fast_exp2 = _assembly(
    lambda value: np.exp2(np.float32(value)), types.float32, (types.float32,), "ex2.approx.ftz.f32 $0, $1;"
)


@twin(lambda angle: (np.float32(math.sin(angle)), np.float32(math.cos(angle))))
@inlined
def sine_and_cosine(angle: Any) -> Any:
    """Return the sine and the cosine of a float32."""
    return libdevice.sincosf(angle)


@twin(np.exp2)
@inlined
def power_of_two(exponent: Any) -> Any:
    """Return 2 to the power of a float64."""
    return libdevice.exp2(exponent)


@twin(lambda a, b: divmod((int(a) & _FULL) * (int(b) & _FULL), 2**32)[::-1])
@intrinsic  # type: ignore[untyped-decorator]
def product(_: Any, a: Any, b: Any) -> Any:
    """Return the lower and the upper word of the product of two words, as int64.

    By one instruction: LLVM's product of extended words would also add the upper words' part, which is 0.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I32, _I32])
        whole = builder.asm(kind, "mul.wide.u32 $0, $1, $2;", "=l,r,r", args, False)
        parts = [builder.and_(whole, ir.Constant(_I64, _FULL)), builder.lshr(whole, ir.Constant(_I64, 32))]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.int64, 2)(types.uint32, types.uint32), codegen


def _larger_halves(a: int, b: int) -> int:
    return max(int(a) & 0xFFFF, int(b) & 0xFFFF) | max(int(a) >> 16 & 0xFFFF, int(b) >> 16 & 0xFFFF) << 16


#: The larger upper and the larger lower half of two words, unsigned.  Capability 9.0.
larger_halves = _assembly(_larger_halves, types.uint32, (types.uint32,) * 2, "max.u16x2 $0, $1, $2;")


#: The upper half of a word.  LLVM would extract it from the enclosing wide value by two instructions.
upper_half = _assembly(lambda a: int(a) >> 16 & 0xFFFF, types.uint32, (types.uint32,), "shr.u32 $0, $1, 16;")


def _selector(*places: int) -> Any:
    """Return an intrinsic that builds a word from four bytes of two words; bytes 0 to 3 are in the first word."""

    def selected(a: int, b: int) -> int:
        both = (int(a) & _FULL) | (int(b) & _FULL) << 32
        return sum((both >> 8 * place & 0xFF) << 8 * i for i, place in enumerate(places))

    code = sum(place << 4 * i for i, place in enumerate(places))
    return _assembly(selected, types.uint32, (types.uint32,) * 2, f"prmt.b32 $0, $1, $2, {code};")


#: Interleaved bytes of the lower and of the upper halves of two words; the lower halves, and the upper halves.
first_bytes, last_bytes = _selector(0, 4, 1, 5), _selector(2, 6, 3, 7)
first_halves, last_halves = _selector(0, 1, 4, 5), _selector(2, 3, 6, 7)


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


def _simulated_from_lane(value: Any, lane: Any) -> Any:
    values = cuda.shared.array(_THREADS, np.float64)
    thread = cuda.threadIdx.x
    values[thread] = value
    cuda.syncthreads()
    found = values[thread // _WARP * _WARP + lane]
    cuda.syncthreads()
    return type(value)(found)


@twin(_simulated_from_lane, cooperates=True)
@inlined
def from_lane(value: Any, lane: Any) -> Any:
    """Return the value, of 32 bits, of a lane of the warp; every thread of the block must call it."""
    return cuda.shfl_sync(_FULL, value, lane)


def _simulated_swapped(value: Any, distance: Any) -> Any:
    values = cuda.shared.array(_THREADS, np.int64)
    thread = cuda.threadIdx.x
    values[thread] = value
    cuda.syncthreads()
    found = values[thread ^ distance]
    cuda.syncthreads()
    return int(found)


@twin(_simulated_swapped, cooperates=True)
@inlined
def swapped(value: Any, distance: Any) -> Any:
    """Return the int32 value of the thread at this distance in the warp; every thread of the block must call it."""
    return cuda.shfl_xor_sync(_FULL, value, distance)


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
@inlined
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
    if cuda.threadIdx.x & (_WARP - 1) == 0:
        warps[cuda.threadIdx.x >> 5] = value
    cuda.syncthreads()
    lane = cuda.threadIdx.x & (_WARP - 1)
    value = group_max(warps[lane] if lane < cuda.blockDim.x >> 5 else np.int32(0), _WARP)
    cuda.syncthreads()
    return value
