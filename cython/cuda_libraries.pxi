# Prepared calls of cuBLASLt and cuBLAS: a part of cuda.pyx, whose CudaBackend runs them.

@cython.no_gc_clear
cdef class Matmul:
    """A prepared matmul of cuBLASLt; the context of its native entry.

    Parameters
    ----------
    backend : CudaBackend
        Whose library is open.
    description
        With `words()`, see `atomr_native.worker.cuda.matmul`.
    """

    def __cinit__(self, CudaBackend backend not None, description):
        cdef atomr_failure failure
        cdef atomr_matmul_spec spec
        cdef int64_t *words = <int64_t *>&spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        given = description.words()
        if len(given) * sizeof(int64_t) != sizeof(spec):
            raise InvalidRequest(f"a matmul description of {len(given)} words instead of {sizeof(spec) // 8}")
        for i, word in enumerate(given):
            words[i] = word
        self.backend = backend
        backend.enter()
        with nogil:
            code = atomr_matmul_new(backend.blas_lt, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            backend.look("planning a matmul")
            refuse(code, &failure, "planning a matmul")

    @property
    def workspace(self):
        """Bytes of the lane's workspace that runs use."""
        return atomr_matmul_workspace(self.native)

    def candidates(self, uint64_t limit, int most):
        """Algorithms that need at most `limit` bytes: (algorithm, workspace in bytes, what it is)."""
        cdef cublasLtMatmulHeuristicResult_t *found
        cdef int[5] config
        cdef int n
        self.backend.enter()
        found = <cublasLtMatmulHeuristicResult_t *>calloc(most, sizeof(cublasLtMatmulHeuristicResult_t))
        if found == NULL:
            raise MemoryError
        try:
            with nogil:
                n = atomr_matmul_candidates(self.native, limit, found, most)
            result = []
            for i in range(n):
                atomr_matmul_config(self.native, &found[i].algo, config)
                names = ("id", "tile", "split_k", "stages", "cluster")
                result.append((tuple([found[i].algo.data[j] for j in range(8)]), found[i].workspaceSize,
                               dict(zip(names, [config[j] for j in range(5)]))))
            return result
        finally:
            free(found)

    def time(self, tuple algo, addresses, unsigned sets, unsigned launches, uint64_t workspace, uint64_t nbytes):
        """Microseconds of one launch with an algorithm, over `launches` of them, back to back on a stream of its own.

        `addresses` are those of all operands, set after set, which the launches take in turn.  Waits for the device.
        """
        cdef atomr_failure failure
        cdef cublasLtMatmulAlgo_t chosen
        cdef atomr_timing timing
        cdef float microseconds = 0
        cdef int code
        cdef uint64_t *at = <uint64_t *>calloc(len(addresses) + 1, sizeof(uint64_t))
        if at == NULL:
            raise MemoryError
        memset(&failure, 0, sizeof(failure))
        try:
            for i, address in enumerate(addresses):
                at[i] = address
            for i in range(8):
                chosen.data[i] = algo[i]
            timing.addresses = at
            timing.sets = sets
            timing.launches = launches
            timing.workspace = workspace
            timing.workspace_bytes = nbytes
            self.backend.enter()
            with nogil:
                code = atomr_matmul_time(self.native, &chosen, &timing, &microseconds, &failure)
            if code != ATOMR_OK:
                self.backend.look("measuring a matmul")
                refuse(code, &failure, "measuring a matmul")
            return microseconds
        finally:
            free(at)

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_matmul_delete(self.native)


cdef class Blas:
    """A prepared call of cuBLAS; the context of its native entry.

    Parameters
    ----------
    backend : CudaBackend
        Whose library is open.
    words
        The members of atomr_blas_spec, in order.
    """

    def __cinit__(self, CudaBackend backend not None, tuple words):
        cdef atomr_failure failure
        cdef int64_t *into = <int64_t *>&self.native.spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        if len(words) * sizeof(int64_t) != sizeof(atomr_blas_spec):
            raise InvalidRequest(f"a BLAS call of {len(words)} words instead of {sizeof(atomr_blas_spec) // 8}")
        for i, word in enumerate(words):
            into[i] = word
        self.backend = backend
        self.native.owner = backend.blas
        code = atomr_blas_check(&self.native.spec, &failure)
        if code != ATOMR_OK:
            refuse(code, &failure, "planning a BLAS call")


cdef class Grouped:
    """A prepared call of cublasGemmGroupedBatchedEx; the context of its native entry.

    Parameters
    ----------
    backend : CudaBackend
        Whose groups are open.
    description
        With `words()`, `numbers()` and `workspace`, see `atomr_native.worker.cuda.grouped`.
    """

    def __cinit__(self, CudaBackend backend not None, description):
        cdef atomr_failure failure
        cdef int64_t *into = <int64_t *>&self.native.spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        words, numbers = description.words(), description.numbers()
        if len(words) * sizeof(int64_t) != sizeof(atomr_grouped_spec):
            raise InvalidRequest(f"a group of {len(words)} words instead of {sizeof(atomr_grouped_spec) // 8}")
        for i, word in enumerate(words):
            into[i] = word
        if len(numbers) != ATOMR_GROUP_NUMBERS * self.native.spec.n_groups:
            raise InvalidRequest(f"{len(numbers)} numbers of {self.native.spec.n_groups} groups")
        self.backend = backend
        self.native.owner = backend.groups
        self.native.workspace_bytes = description.workspace
        self.native.numbers = <int *>calloc(len(numbers) + 1, sizeof(int))
        self.native.factors = <double *>calloc(2 * self.native.spec.n_groups + 1, sizeof(double))
        if self.native.numbers == NULL or self.native.factors == NULL:
            raise MemoryError
        for i, number in enumerate(numbers):
            self.native.numbers[i] = number
        code = atomr_grouped_check(&self.native, &failure)
        if code != ATOMR_OK:
            refuse(code, &failure, "planning products of a group")

    def __dealloc__(self):
        free(self.native.numbers)
        free(self.native.factors)
