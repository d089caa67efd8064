# Plans of several steps: a part of cuda.pyx, whose CudaBackend makes them.

cdef class Sequence:
    """A plan of several steps; the context of its native entry.

    Parameters
    ----------
    backend : CudaBackend
        Whose.
    program
        With `steps` and `workspace`, see `atomr_native.worker.cuda.sequence`.
    """

    def __cinit__(self, CudaBackend backend not None, program):
        cdef atomr_step *step
        cdef unsigned i, j
        self.backend = backend
        self.kept = []
        self.native.n_steps = len(program.steps)
        self.native.steps = <atomr_step *>calloc(self.native.n_steps + 1, sizeof(atomr_step))
        if self.native.steps == NULL:
            raise MemoryError
        self.native.workspace_bytes = program.workspace
        for i in range(self.native.n_steps):
            wanted = program.steps[i]
            step = &self.native.steps[i]
            if len(wanted.operands) > ATOMR_STEP_OPERANDS or len(wanted.scalars) > ATOMR_STEP_SCALARS:
                raise Unsupported(f"a step of {len(wanted.operands)} operands and {len(wanted.scalars)} scalars; at "
                                  f"most {ATOMR_STEP_OPERANDS} and {ATOMR_STEP_SCALARS}")
            self.kept.append(backend.native(wanted.run, &step.run, &step.context))
            step.operands = <atomr_source *>calloc(len(wanted.operands) + 1, sizeof(atomr_source))
            if step.operands == NULL:
                raise MemoryError
            step.n_operands = len(wanted.operands)
            step.n_scalars = len(wanted.scalars)
            for j in range(step.n_operands):
                kind, value = wanted.operands[j]
                step.operands[j].own = kind == "workspace"
                step.operands[j].value = value
            for j in range(step.n_scalars):
                kind, value = wanted.scalars[j]
                step.scalars[j].own = kind == "constant"
                step.scalars[j].value = value

    def __dealloc__(self):
        cdef unsigned i
        if self.native.steps != NULL:
            for i in range(self.native.n_steps):
                free(self.native.steps[i].operands)
        free(self.native.steps)
