# Steps of programs: a part of lanes.pyx.

cdef dict STEP_KINDS = {"if": ATOMR_IF, "while": ATOMR_WHILE, "switch": ATOMR_SWITCH}


@cython.no_gc_clear  # lanes use what it holds
cdef class Steps:
    """The steps of a program, ready to run.

    Parameters
    ----------
    backend : Backend
        Of the device that runs them.
    program : ProgramRun
        Steps with equal runs share one.
    """

    def __cinit__(self, Backend backend not None, program):
        cdef atomr_program_step *step
        cdef atomr_run function = NULL
        cdef void *context = NULL
        cdef unsigned i, j
        cdef dict known = {}
        self.holders = []
        self.native.steps = <atomr_program_step *>calloc(len(program.steps) + 1, sizeof(atomr_program_step))
        self.native.late = <atomr_program_late *>calloc(ATOMR_INFO_STEPS, sizeof(atomr_program_late))
        if self.native.steps == NULL or self.native.late == NULL:
            raise MemoryError
        for i, wanted in enumerate(program.steps):
            step = &self.native.steps[i]
            if wanted.late > ATOMR_INFO_STEPS:
                raise Unsupported(f"a program with more than {ATOMR_INFO_STEPS} steps that may fail late")
            step.late = wanted.late
            self.native.n_late = max(self.native.n_late, step.late)
            self.native.n_steps = i + 1
            if wanted.control is not None:
                self.take_control(step, wanted.control)
            elif wanted.number not in known:
                if callable(wanted.run):
                    holder = PythonRun(wanted.run, wanted.name, wanted.layouts, wanted.kinds)
                    function, context = run_python, <void *>holder
                else:
                    holder = backend.native(wanted.run, &function, &context)
                known[wanted.number] = (<uint64_t>function, <uint64_t>context)
                self.holders.append(holder)
            if wanted.control is None:
                found = known[wanted.number]
                step.run = <atomr_run><void *><uint64_t>found[0]
                step.context = <void *><uint64_t>found[1]
            name = wanted.name.encode()
            self.holders.append(name)
            step.name = name
            step.operands = <atomr_place *>calloc(len(wanted.operands) + 1, sizeof(atomr_place))
            step.scalars = <atomr_word *>calloc(len(wanted.scalars) + 1, sizeof(atomr_word))
            step.after = <unsigned *>calloc(len(wanted.after) + 1, sizeof(unsigned))
            if step.operands == NULL or step.scalars == NULL or step.after == NULL:
                raise MemoryError
            step.workspace = wanted.workspace
            step.n_after = len(wanted.after)
            for j, before in enumerate(wanted.after):
                step.after[j] = before
            step.n_operands = len(wanted.operands)
            step.n_scalars = len(wanted.scalars)
            for j, (operand, offset) in enumerate(wanted.operands):
                step.operands[j].operand = operand
                step.operands[j].offset = offset
            for j, (given, word) in enumerate(wanted.scalars):
                step.scalars[j].given = given
                step.scalars[j].value = <uint64_t><int64_t>word

    cdef int take_control(self, atomr_program_step *step, control) except -1:
        cdef unsigned i
        step.kind = STEP_KINDS[control.kind]
        step.width = control.width
        step.is_signed = control.signed
        step.limit = control.limit
        step.bodies = <unsigned *>calloc(len(control.bodies) + 1, sizeof(unsigned))
        if step.bodies == NULL:
            raise MemoryError
        step.n_bodies = len(control.bodies)
        for i, n in enumerate(control.bodies):
            step.bodies[i] = n
            step.inside += n
        return 0

    def __dealloc__(self):
        cdef unsigned i
        if self.native.steps != NULL:
            for i in range(self.native.n_steps):
                free(self.native.steps[i].operands)
                free(self.native.steps[i].scalars)
                free(self.native.steps[i].after)
                free(self.native.steps[i].bodies)
        free(self.native.steps)
        free(self.native.late)
