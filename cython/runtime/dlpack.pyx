"""DLPack capsules, both ways, and NumPy arrays over raw host memory.

Contract: ``to_capsule`` makes a capsule, ``from_capsule`` takes one over, ``array_at`` and ``as_numpy`` make views.
Errors are ``InvalidRequest`` and ``Unsupported`` (``BufferError`` where the protocol asks for it).
Python's lock is held throughout; only the deleter of an exported tensor may be called without it, by any thread.
Nothing is asynchronous and nothing is copied: the caller has waited for the last writer before it exports.
An exported owner lives until its consumer calls the deleter; an imported tensor until ``Imported`` is dropped.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport strcmp

import ml_dtypes
import numpy as np

from atomr_native.errors import InvalidRequest, Unsupported

__all__ = ["Imported", "array_at", "as_numpy", "from_capsule", "to_capsule"]


# Declared with plain pointers: a capsule reaches its destructor with no references left, and an
# `object` argument could bring it back to life for a moment and destroy it twice.
cdef extern from "Python.h":
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define Py_IsFinalizing _Py_IsFinalizing
    #endif
    """
    ctypedef struct PyObject
    bint Py_IsInitialized() nogil
    bint Py_IsFinalizing() nogil
    void Py_INCREF(PyObject *)
    void Py_DECREF(PyObject *)
    void *PyMem_RawMalloc(size_t) nogil
    void PyMem_RawFree(void *) nogil
    object PyCapsule_New(void *, const char *, void (*)(PyObject *) noexcept)
    bint PyCapsule_CheckExact(object)
    bint PyCapsule_IsValid(PyObject *, const char *) noexcept
    void *PyCapsule_GetPointer(PyObject *, const char *) noexcept
    const char *PyCapsule_GetName(object) except? NULL
    int PyCapsule_SetName(PyObject *, const char *) noexcept


cdef const char *LEGACY = "dltensor"
cdef const char *VERSIONED = "dltensor_versioned"
cdef const char *USED_LEGACY = "used_dltensor"
cdef const char *USED_VERSIONED = "used_dltensor_versioned"

cdef int MAX_DIMENSIONS = 64  # as NumPy's
cdef char nothing = 0  # where views of no bytes point

cdef dict CODES = {
    np.dtype(name): (code, np.dtype(name).itemsize * 8)
    for code, names in (
        (kDLInt, ("int8", "int16", "int32", "int64")),
        (kDLUInt, ("uint8", "uint16", "uint32", "uint64")),
        (kDLFloat, ("float16", "float32", "float64")),
        (kDLBfloat, (ml_dtypes.bfloat16,)),
        (kDLComplex, ("complex64", "complex128")),
        (kDLBool, ("bool",)),
        (kDLFloat8_e4m3fn, (ml_dtypes.float8_e4m3fn,)),
        (kDLFloat8_e5m2, (ml_dtypes.float8_e5m2,)),
    )
    for name in names
}
cdef dict DTYPES = {code: dtype for dtype, code in CODES.items()}
cdef str ALLOWED = ", ".join(str(dtype) for dtype in CODES)


# ---------------------------------------------------------------------------------------- export

# One block for each export: the managed tensor, what keeps the memory alive, then shape and strides.
cdef struct Export:
    PyObject *owner
    DLManagedTensor legacy
    DLManagedTensorVersioned versioned


cdef void release(Export *export) noexcept nogil:
    """Free an export and drop its owner, from any thread.  A finalizing interpreter is left alone."""
    cdef PyObject *owner = export.owner
    if not Py_IsInitialized() or Py_IsFinalizing():
        return
    PyMem_RawFree(export)
    with gil:
        Py_DECREF(owner)


cdef void delete_legacy(DLManagedTensor *tensor) noexcept nogil:
    release(<Export *> tensor.manager_ctx)


cdef void delete_versioned(DLManagedTensorVersioned *tensor) noexcept nogil:
    release(<Export *> tensor.manager_ctx)


cdef void destroy_legacy(PyObject *capsule) noexcept:
    """Free a legacy capsule that nobody has consumed."""
    if PyCapsule_IsValid(capsule, LEGACY):
        delete_legacy(<DLManagedTensor *> PyCapsule_GetPointer(capsule, LEGACY))


cdef void destroy_versioned(PyObject *capsule) noexcept:
    """Free a versioned capsule that nobody has consumed."""
    if PyCapsule_IsValid(capsule, VERSIONED):
        delete_versioned(<DLManagedTensorVersioned *> PyCapsule_GetPointer(capsule, VERSIONED))


cdef list integers(object values, str what):
    """Return `values` as a list of Python integers that fit 64 bits."""
    cdef int64_t value
    cdef list found = []
    try:
        for item in values:
            value = PyNumber_Index(item)
            found.append(value)
    except (TypeError, OverflowError) as error:
        raise InvalidRequest(f"{what} must be 64-bit integers, got {values!r}") from error
    return found


def to_capsule(
    object owner,
    object address,
    tuple shape,
    tuple strides,
    object dtype,
    object device_type,
    object device_id,
    *,
    bint versioned,
    bint readonly=False,
    bint copied=False,
):
    """Wrap memory in a DLPack capsule, without copying.

    Synchronous; whoever wrote the memory must have finished.

    Parameters
    ----------
    owner
        Kept alive until the consumer calls the deleter (which any thread may do, with or without
        Python's lock), or until the capsule is dropped unconsumed.
    address
        Of element ``[0, ..., 0]``, in the address space of the device.
    shape, strides
        In elements; strides may be negative or zero.
    dtype
        A native NumPy or ``ml_dtypes`` dtype.
    device_type, device_id
        As DLPack numbers them; ``(1, 0)`` is host memory.
    versioned
        Make a ``dltensor_versioned`` capsule (DLPack 1) rather than a legacy ``dltensor``.
    readonly, copied
        The two flags of a versioned capsule: consumers must not write; the memory is a fresh copy.

    Raises
    ------
    InvalidRequest
        If the description is malformed, or DLPack has no name for the dtype.
    BufferError
        If `readonly` is asked of a legacy capsule, which cannot say it.
    """
    cdef Export *export
    cdef DLTensor *tensor
    cdef int64_t *dims
    cdef int32_t kind, number
    cdef uintptr_t start
    cdef Py_ssize_t axis, ndim = len(shape)
    cdef bint empty = False
    cdef list lengths = integers(shape, "shape")
    cdef list steps = integers(strides, "strides")

    code = CODES.get(dtype) if isinstance(dtype, np.dtype) else None
    if code is None:
        shown = str(dtype) if isinstance(dtype, np.dtype) else repr(dtype)
        raise InvalidRequest(f"DLPack has no type for dtype {shown}; allowed: {ALLOWED}")
    if ndim > MAX_DIMENSIONS:
        raise InvalidRequest(f"{ndim} dimensions; at most {MAX_DIMENSIONS} are possible")
    if len(strides) != ndim:
        raise InvalidRequest(f"shape {shape} and strides {strides} differ in length")
    for length in lengths:
        if length < 0:
            raise InvalidRequest(f"shape {shape} has a negative length")
        empty = empty or length == 0
    try:
        start = PyNumber_Index(address)
        kind = PyNumber_Index(device_type)
        number = PyNumber_Index(device_id)
    except (TypeError, OverflowError) as error:
        raise InvalidRequest(
            f"address {address!r} or device ({device_type!r}, {device_id!r}) is no number of its range"
        ) from error
    if start == 0 and not empty:
        raise InvalidRequest(f"address 0 for an array of shape {shape}")
    if readonly and not versioned:
        raise BufferError(
            "read-only memory cannot be exported as a legacy DLPack capsule; "
            "the consumer must ask with max_version=(1, 0) or later, or for a copy"
        )

    export = <Export *> PyMem_RawMalloc(sizeof(Export) + 2 * <size_t> ndim * sizeof(int64_t))
    if export == NULL:
        raise MemoryError()
    dims = <int64_t *> (export + 1)
    for axis in range(ndim):
        dims[axis] = lengths[axis]
        dims[ndim + axis] = steps[axis]
    tensor = &export.versioned.dl_tensor if versioned else &export.legacy.dl_tensor
    tensor.data = NULL if empty else <void *> start
    tensor.device = DLDevice(kind, number)
    tensor.ndim = <int32_t> ndim
    tensor.dtype = DLDataType(code[0], code[1], 1)
    tensor.shape = dims
    tensor.strides = dims + ndim
    tensor.byte_offset = 0
    export.owner = <PyObject *> owner
    Py_INCREF(export.owner)
    try:
        if versioned:
            # The narrow floats came with 1.1; everything else is 1.0.
            export.versioned.version = DLPackVersion(DLPACK_MAJOR_VERSION, code[0] > kDLBool)
            export.versioned.manager_ctx = export
            export.versioned.deleter = delete_versioned
            export.versioned.flags = (
                DLPACK_FLAG_BITMASK_READ_ONLY * readonly + DLPACK_FLAG_BITMASK_IS_COPIED * copied
            )
            return PyCapsule_New(&export.versioned, VERSIONED, destroy_versioned)
        export.legacy.manager_ctx = export
        export.legacy.deleter = delete_legacy
        return PyCapsule_New(&export.legacy, LEGACY, destroy_legacy)
    except BaseException:
        release(export)
        raise


# ---------------------------------------------------------------------------------------- import

@cython.final
@cython.no_gc  # holds numbers, tuples of numbers and a dtype: no cycle can pass through it
cdef class Imported:
    """A tensor that was taken over from a capsule; made by `from_capsule`.

    Its memory stays valid while this object lives; dropping it calls the producer's deleter, once.

    Attributes
    ----------
    address : int
        Of element ``[0, ..., 0]``; 0 where there are no elements.
    shape : tuple of int
    strides : tuple of int
        In bytes.
    dtype : numpy.dtype
    device_type, device_id : int
        As DLPack numbers them.
    readonly, copied : bool
        The flags of a versioned capsule.  A legacy one says neither: it is read-only, as far as is known.
    """

    def __init__(self):
        raise TypeError("Imported cannot be made directly; use from_capsule()")

    def __dealloc__(self):
        # Python's lock stays held: deleters that need it are as common as deleters that take it.
        if self._legacy != NULL and self._legacy.deleter != NULL:
            self._legacy.deleter(self._legacy)
        if self._versioned != NULL and self._versioned.deleter != NULL:
            self._versioned.deleter(self._versioned)

    @property
    def versioned(self):
        """Whether the capsule had a version, and so said whether it may be written."""
        return self._versioned != NULL

    def __repr__(self):
        return (
            f"Imported(address={self.address:#x}, shape={self.shape}, strides={self.strides}, "
            f"dtype={self.dtype}, device=({self.device_type}, {self.device_id}), "
            f"readonly={self.readonly})"
        )

    cdef bint _claim(self, object capsule) noexcept:
        """Take the tensor out of `capsule` and mark it used; nothing else can run in between."""
        cdef PyObject *taken = <PyObject *> capsule
        if PyCapsule_IsValid(taken, VERSIONED):
            self._versioned = <DLManagedTensorVersioned *> PyCapsule_GetPointer(taken, VERSIONED)
            PyCapsule_SetName(taken, USED_VERSIONED)
            return True
        if PyCapsule_IsValid(taken, LEGACY):
            self._legacy = <DLManagedTensor *> PyCapsule_GetPointer(taken, LEGACY)
            PyCapsule_SetName(taken, USED_LEGACY)
            return True
        return False

    cdef int _describe(self) except -1:
        """Check the claimed tensor and fill the attributes."""
        cdef DLTensor *tensor
        cdef uint64_t flags = 0
        if self._versioned != NULL:
            version = (self._versioned.version.major, self._versioned.version.minor)
            if version[0] > DLPACK_MAJOR_VERSION:
                raise Unsupported(
                    f"DLPack {version[0]}.{version[1]} capsule; versions 0.x (legacy) and 1.x are "
                    "understood: have the producer export with max_version=(1, 1)"
                )
            if version[0] < DLPACK_MAJOR_VERSION:
                raise InvalidRequest(
                    f"malformed DLPack capsule: versioned, and says version {version[0]}.{version[1]}"
                )
            flags = self._versioned.flags
            tensor = &self._versioned.dl_tensor
        else:
            tensor = &self._legacy.dl_tensor
        self.readonly = self._versioned == NULL or flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0
        self.copied = flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0
        self.device_type = tensor.device.device_type
        self.device_id = tensor.device.device_id

        if tensor.dtype.lanes != 1:
            raise InvalidRequest(f"DLPack vector type of {tensor.dtype.lanes} lanes; only 1 is allowed")
        self.dtype = DTYPES.get((tensor.dtype.code, tensor.dtype.bits))
        if self.dtype is None:
            raise InvalidRequest(
                f"DLPack type code {tensor.dtype.code} with {tensor.dtype.bits} bits is no dtype of a "
                f"device; allowed: {ALLOWED}"
            )
        if not 0 <= tensor.ndim <= MAX_DIMENSIONS:
            raise InvalidRequest(
                f"malformed DLPack capsule: {tensor.ndim} dimensions (0 to {MAX_DIMENSIONS} are allowed)"
            )
        if tensor.ndim and tensor.shape == NULL:
            raise InvalidRequest(f"malformed DLPack capsule: {tensor.ndim} dimensions and no shape")
        self.shape = tuple([tensor.shape[axis] for axis in range(tensor.ndim)])
        cdef object itemsize = self.dtype.itemsize
        cdef bint empty = 0 in self.shape
        if tensor.strides == NULL or empty:
            self.strides = contiguous(self.shape, itemsize)
        else:
            self.strides = tuple([tensor.strides[axis] * itemsize for axis in range(tensor.ndim)])
        self.address = <object> <uintptr_t> tensor.data
        if empty:
            self.address = 0
        elif tensor.data == NULL:
            raise InvalidRequest(f"malformed DLPack capsule: no data for shape {self.shape}")
        else:
            self.address += tensor.byte_offset
        extent(self.address, self.shape, self.strides, itemsize)
        return 0


cdef tuple contiguous(tuple shape, object itemsize):
    """Return the row-major strides of `shape`, in bytes."""
    strides = []
    for length in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(length, 1)
    return tuple(reversed(strides))


cdef tuple extent(object address, tuple shape, tuple strides, object itemsize):
    """Return the first byte that is used and the number of bytes from there on.

    In Python integers, which do not overflow.  Raises `InvalidRequest` where no such array can exist.
    """
    low, high, elements = 0, itemsize, 1
    for length, step in zip(shape, strides):
        if length < 0:
            raise InvalidRequest(f"negative length in shape {shape}")
        elements *= max(length, 1)
        if step < 0:
            low += (length - 1) * step
        else:
            high += (length - 1) * step
    if elements * itemsize >= 1 << 63:
        raise InvalidRequest(f"shape {shape} of {itemsize}-byte elements is more than 2**63 bytes")
    if 0 in shape:
        return address, 0
    if address + low < 0 or address + high > 1 << 64 or high - low >= 1 << 63:
        raise InvalidRequest(
            f"shape {shape} with strides {strides} (bytes) at address {address:#x} "
            "leaves the address space"
        )
    return address + low, high - low


def from_capsule(object capsule not None):
    """Take the tensor out of a DLPack capsule, legacy or versioned.

    Synchronous; copies nothing.  The capsule is used up even if its content turns out unusable:
    then the producer's deleter has been called.

    Parameters
    ----------
    capsule
        What ``__dlpack__`` returned.

    Returns
    -------
    Imported

    Raises
    ------
    InvalidRequest
        If it is no unconsumed DLPack capsule, or is malformed, or has a dtype that no device holds.
    Unsupported
        If it was made by a later major version of DLPack.
    """
    cdef Imported imported
    cdef bint claimed
    cdef const char *name
    if not PyCapsule_CheckExact(capsule):
        raise InvalidRequest(f"expected a DLPack capsule, got {type(capsule).__name__}")
    imported = Imported.__new__(Imported)
    with cython.critical_section(capsule):
        claimed = imported._claim(capsule)
    if not claimed:
        name = PyCapsule_GetName(capsule)
        if name != NULL and (strcmp(name, USED_LEGACY) == 0 or strcmp(name, USED_VERSIONED) == 0):
            raise InvalidRequest("this DLPack capsule was consumed before; export the array again")
        shown = "no name" if name == NULL else repr((<bytes> name).decode("utf-8", "backslashreplace"))
        raise InvalidRequest(f"capsule with {shown} is not DLPack's ('dltensor' or 'dltensor_versioned')")
    imported._describe()
    return imported


# ----------------------------------------------------------------------------------------- views

@cython.final
cdef class Span:
    """Bytes of host memory as a buffer; keeps their owner alive."""

    cdef void *start
    cdef Py_ssize_t nbytes
    cdef bint readonly
    cdef readonly object owner

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.nbytes, self.readonly, flags)


def array_at(
    object owner, object address, tuple shape, tuple strides, object dtype not None, *, bint readonly=False
):
    """Return an array over host memory that `owner` keeps valid.

    Synchronous; copies nothing.  The array and its views keep `owner` alive.

    Parameters
    ----------
    owner
        Whatever keeps the memory valid.
    address
        Of element ``[0, ..., 0]``.
    shape, strides
        Strides in bytes: any multiple, negative or zero.
    dtype, readonly
        A NumPy dtype; whether writing through the array is refused.

    Raises
    ------
    InvalidRequest
        If no such array can exist.
    """
    cdef Span span = Span.__new__(Span)
    cdef uintptr_t start
    if len(strides) != len(shape):
        raise InvalidRequest(f"shape {shape} and strides {strides} differ in length")
    shape = tuple(integers(shape, "shape"))
    strides = tuple(integers(strides, "strides"))
    first, nbytes = extent(PyNumber_Index(address), shape, strides, dtype.itemsize)
    start = first if nbytes else 0
    if nbytes and start == 0:
        raise InvalidRequest(f"address 0 for an array of shape {shape}")
    span.start = <void *> start if nbytes else &nothing
    span.nbytes = nbytes
    span.readonly = readonly
    span.owner = owner
    if not nbytes:
        return np.ndarray(shape, dtype, buffer=span)
    return np.ndarray(shape, dtype, buffer=span, offset=address - first, strides=strides)


def as_numpy(Imported imported not None, *, readonly=None):
    """Return an array over an imported tensor, which the array keeps alive.

    Synchronous; copies nothing.  Read-only where the producer has not said otherwise, or as `readonly` says.

    Raises
    ------
    Unsupported
        If the tensor is not in memory that the host can read.
    """
    if imported.device_type != kDLCPU and imported.device_type != kDLCUDAHost:
        raise Unsupported(
            f"the tensor is on DLPack device ({imported.device_type}, {imported.device_id}), which is "
            f"not host memory ({<int> kDLCPU}, 0); copy it to the host first"
        )
    return array_at(
        imported, imported.address, imported.shape, imported.strides, imported.dtype,
        readonly=imported.readonly if readonly is None else readonly,
    )
