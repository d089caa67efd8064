# Programs as CUDA graphs: a part of cuda.pyx, whose CudaBackend makes them.


@cython.no_gc_clear
cdef class Graph(NativeRun):
    """A program, captured where that is possible; the context of its native entry.

    Parameters
    ----------
    backend : CudaBackend
        Its device.
    program : ProgramRun
    """

    def __cinit__(self, CudaBackend backend not None, program):
        self.steps = Steps(backend, program)
        self.function = <atomr_run>atomr_graph_run
        self.context = &self.native
        self.workspace = program.workspace
        self.gain = NO_RECORDS  # it is captured by itself
        self.native.program = self.steps.native
        self.native.program.fetch = <atomr_fetch>atomr_graph_fetch
        self.native.program.self = backend.cuda
        if program.conditions is not None:
            self.conditions = Kernels(backend, program.conditions)
            self.native.branch = (<Kernels>self.conditions).native.launches[0].function
            self.native.loop = (<Kernels>self.conditions).native.launches[1].function
        self.native.loops_at = program.loops_at
        for step in program.steps:
            self.native.n_loops += step.control is not None and step.control.kind == "while"
        self.native.cuda = backend.cuda
        self.native.workspace_bytes = program.workspace
        self.native.captures = program.captures
        self.native.n_key = program.n_operands + program.n_scalars + 1
        self.native.key = <uint64_t *>calloc(self.native.n_key, sizeof(uint64_t))
        self.native.wanted = <uint64_t *>calloc(self.native.n_key, sizeof(uint64_t))
        self.native.nodes = <CUgraphNode *>calloc(len(program.steps), sizeof(CUgraphNode))
        if self.native.key == NULL or self.native.wanted == NULL or self.native.nodes == NULL:
            raise MemoryError

    def replays(self):
        """How its messages were run, by counts, and why captures have failed."""
        cdef CUresult refused = self.native.refused
        cdef const char *name = NULL
        why = ""
        if refused:
            if refused > 0:
                atomr_cuda_driver(self.native.cuda).cuGetErrorName(refused, &name)
            why = f"a step cannot be captured: {name.decode() if name != NULL else f'status {refused}'}"
        return {"stepwise": self.native.counts[ATOMR_GRAPH_STEPWISE], "launched": self.native.counts[ATOMR_GRAPH_LAUNCHED],
                "captured": self.native.counts[ATOMR_GRAPH_CAPTURED], "instantiated": self.native.counts[ATOMR_GRAPH_MADE],
                "patched": self.native.counts[ATOMR_GRAPH_PATCHED],
                "refused": why}

    def __dealloc__(self):
        with nogil:
            atomr_graph_end(&self.native)
        free(self.native.key)
        free(self.native.wanted)
        free(self.native.nodes)
