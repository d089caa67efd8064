# Plans whose work is a Python callable: a part of lanes.pyx.

cdef class PythonRun:
    """A plan whose work is a Python callable over arrays; the context of its native entry."""

    def __cinit__(self, object run, str operation, object operands, object scalars):
        self.run = run
        self.operation = operation
        self.integral = [kind == "int64" for kind in scalars]
        self.operands = []
        for dtype, shape, strides in operands:
            low = high = 0
            if all(shape):
                low = sum([(n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0])
                high = sum([(n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0]) + dtype.itemsize
            self.operands.append((dtype, tuple(shape), tuple(strides), low, high))

    cdef int call(self, const atomr_call *call, atomr_failure *failure) except -1:
        cdef unsigned i
        cdef Py_ssize_t low, high
        cdef list arrays = []
        cdef list scalars = []
        for i in range(call.n_operands):
            dtype, shape, strides, first, last = self.operands[i]
            low = first
            high = last
            buffer = PyMemoryView_FromMemory(<char *>call.pointers[i] + low, high - low, PyBUF_WRITE)
            arrays.append(np.ndarray(shape, dtype, buffer, -low, strides))
        for i in range(call.n_scalars):
            if self.integral[i]:
                scalars.append((<int64_t *>&call.scalars[i])[0])
            else:
                scalars.append((<double *>&call.scalars[i])[0])
        self.run(tuple(arrays), tuple(scalars))
        return 0


cdef void put_text(char *into, size_t size, str text) noexcept:
    cdef bytes raw = text.encode("utf-8", "replace")
    strncpy(into, raw, size - 1)
    into[size - 1] = 0


cdef int explain(object error, PythonRun plan, atomr_failure *failure):
    """Fill `failure` from an exception; the atomr_code."""
    try:
        text = str(error)
    except Exception:  # the class is a user's
        text = "<exception str() failed>"
    if isinstance(error, LibraryError):
        failure.status = error.status if -(1 << 31) <= error.status < 1 << 31 else 0
        put_text(failure.lib, sizeof(failure.lib), error.lib)
        put_text(failure.name, sizeof(failure.name), error.name)
        put_text(failure.text, sizeof(failure.text), getattr(error, "words", text))
        return ATOMR_LIBRARY_ERROR
    put_text(failure.lib, sizeof(failure.lib), "python")
    put_text(failure.name, sizeof(failure.name), type(error).__name__)
    if isinstance(error, MemoryError):
        code = ATOMR_OUT_OF_MEMORY
    elif isinstance(error, Unsupported):
        code = ATOMR_UNSUPPORTED
        if not isinstance(error, PlanQuarantined):
            library, _, rule = error.rule.partition(".")  # the parent joins them again
            put_text(failure.lib, sizeof(failure.lib), library)
            put_text(failure.name, sizeof(failure.name), rule)
    elif isinstance(error, InvalidRequest):
        code = ATOMR_INVALID_REQUEST
    else:
        code = ATOMR_LIBRARY_ERROR
        text = f"{plan.operation}: {text}"
    put_text(failure.text, sizeof(failure.text), text)
    return code


cdef int run_python(void *context, const atomr_call *call, atomr_failure *failure) noexcept with gil:
    atomr_keep_state()
    cdef PythonRun plan = <PythonRun>context
    cdef int code = ATOMR_LIBRARY_ERROR
    try:
        plan.call(call, failure)
        return ATOMR_OK
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: they end the message, never the lane
        # What leaves this function is lost, and the message would be a success.
        try:
            code = explain(error, plan, failure)
        except BaseException:
            strncpy(failure.lib, b"python", sizeof(failure.lib) - 1)
            strncpy(failure.name, b"an error that cannot be explained", sizeof(failure.name) - 1)
        try:
            logger.debug("message %d of lane %d failed", call.ticket, call.lane, exc_info=error)
        except BaseException:  # of a program's filter
            pass
        return code
