# Plans of several steps: a part of cuda.pyx, whose CudaBackend makes them.


cdef dict ORIGINS = {
    "operand": ATOMR_FROM_MESSAGE, "scalar": ATOMR_FROM_MESSAGE, "workspace": ATOMR_FROM_WORKSPACE,
    "constant": ATOMR_FROM_PLAN, "info": ATOMR_FROM_INFO, "lane": ATOMR_FROM_LANE,
}


cdef dict WHEN = {"always": ATOMR_ALWAYS, "zero": ATOMR_IF_ZERO, "nonzero": ATOMR_UNLESS_ZERO}


cdef atomr_source *sources(given, offsets=()) except NULL:
    """Return where operands or scalars of a step come from; the caller frees it."""
    cdef atomr_source *found = <atomr_source *>calloc(len(given) + 1, sizeof(atomr_source))
    cdef unsigned j
    if found == NULL:
        raise MemoryError
    try:
        for j in range(<unsigned>len(given)):
            kind, found[j].value = given[j]
            if offsets:
                found[j].offset = offsets[j]
            found[j].origin = <atomr_origin><int>ORIGINS[kind]
    except BaseException:
        free(found)
        raise
    return found


@cython.no_gc_clear
cdef class Sequence(NativeRun):
    """A plan of several steps; the context of its native entry.

    Parameters
    ----------
    backend : CudaBackend
        Its device.
    program : SequenceProgram
    """

    def __cinit__(self, CudaBackend backend not None, program):
        cdef atomr_step *step
        cdef unsigned i
        cdef NativeRun run
        self.function = <atomr_run>atomr_sequence_run
        self.context = &self.native
        self.workspace = program.workspace
        self.kept = []
        self.native.cuda = backend.cuda
        self.native.n_steps = len(program.steps)
        self.native.steps = <atomr_step *>calloc(self.native.n_steps + 1, sizeof(atomr_step))
        if self.native.steps == NULL:
            raise MemoryError
        self.native.workspace_bytes = program.workspace
        self.gain = RECORDS_GAIN if self.native.n_steps > 1 else RECORDS_POSSIBLE
        for i in range(self.native.n_steps):
            wanted = program.steps[i]
            step = &self.native.steps[i]
            if len(wanted.operands) > ATOMR_STEP_OPERANDS or len(wanted.scalars) > ATOMR_STEP_SCALARS:
                raise Unsupported(f"a step of {len(wanted.operands)} operands and {len(wanted.scalars)} scalars; at "
                                  f"most {ATOMR_STEP_OPERANDS} and {ATOMR_STEP_SCALARS}")
            run = backend.prepared(wanted.run)
            self.kept.append(run)
            if run.gain == NO_RECORDS:
                self.gain = NO_RECORDS
            elif self.gain != NO_RECORDS:
                self.gain = max(self.gain, run.gain)
            step.run = run.function
            step.context = run.context
            if wanted.offsets and len(wanted.offsets) != len(wanted.operands):
                raise InvalidRequest(f"{len(wanted.offsets)} offsets of {len(wanted.operands)} operands; allowed: none, or "
                                     f"one each")
            step.operands = sources(wanted.operands, wanted.offsets)
            step.n_operands = len(wanted.operands)
            step.scalars = sources(wanted.scalars)
            step.n_scalars = len(wanted.scalars)
            step.alignment = wanted.alignment
            step.apart = wanted.apart
            step.when = <atomr_when><int>WHEN[wanted.when]
            step.factors = <int (*)[2]>calloc(len(wanted.factors) + 1, 2 * sizeof(int))
            if step.factors == NULL:
                raise MemoryError
            for factor in wanted.factors:
                step.factors[step.n_factors][0] = factor[0]
                step.factors[step.n_factors][1] = factor[1] if len(factor) > 1 else -1
                step.n_factors += 1

    def __dealloc__(self):
        cdef unsigned i
        if self.native.steps != NULL:
            for i in range(self.native.n_steps):
                free(self.native.steps[i].operands)
                free(self.native.steps[i].scalars)
                free(self.native.steps[i].factors)
        free(self.native.steps)
