# Loaded modules and their launches: a part of cuda.pyx, whose CudaBackend makes them.

NARROW = {
    "bool": (0, 1), "int8": (-2**7, 2**7 - 1), "int16": (-2**15, 2**15 - 1), "int32": (-2**31, 2**31 - 1),
    "uint8": (0, 2**8 - 1), "uint16": (0, 2**16 - 1), "uint32": (0, 2**32 - 1),
}

# Kinds of places in structs, and how many bytes each fills.
PLACES = {
    "operand": (ATOMR_ARG_OPERAND, 8), "workspace": (ATOMR_ARG_WORKSPACE, 8), "float64": (ATOMR_ARG_WORD, 8),
    "float32": (ATOMR_ARG_FLOAT32, 4), "tensor_map": (ATOMR_ARG_TENSOR_MAP, 128),
}

cdef enum:
    PORTABLE_CLUSTER = 8  # blocks that every device with clusters takes


cdef bytearray tensor_map_of(tuple axes, tuple modes):
    """Return what `ATOMR_ARG_TENSOR_MAP` points to; see `atomr_native.tensor_map`."""
    made = bytearray(sizeof(atomr_tensor_map))
    cdef atomr_tensor_map *m = <atomr_tensor_map *>PyByteArray_AS_STRING(made)
    m.type, m.interleave, m.swizzle, m.promotion, m.fill = modes
    m.axes = len(axes)
    for i, (extent, stride, box, step) in enumerate(axes[:5]):
        m.extents[i], m.box[i], m.steps[i] = extent, box, step
        if i:
            m.strides[i - 1] = stride
    return made


cdef bytearray struct_of(bytes data, tuple places, list kept):
    """Return what `ATOMR_ARG_FILLED` points to; appends to `kept` what it refers to."""
    cdef atomr_filled_place *place
    cdef atomr_filled_struct *made
    cdef unsigned i
    if len(data) > ATOMR_MAX_STRUCT:
        raise Unsupported(f"a kernel with a struct of {len(data)} bytes; at most {ATOMR_MAX_STRUCT}")
    listed, described = bytearray(len(places) * sizeof(atomr_filled_place)), bytearray(sizeof(atomr_filled_struct))
    kept.extend((data, listed, described))
    for i, (kind, offset, index, added, map_) in enumerate(places):
        place = <atomr_filled_place *>PyByteArray_AS_STRING(listed) + i
        place.kind, size = PLACES[kind]
        if not 0 <= offset <= len(data) - size:
            raise InvalidRequest(f"a place of {size} bytes at byte {offset} of a struct; it has {len(data)}")
        place.offset, place.index, place.added = offset, index, added
        if kind == "tensor_map":
            encoded = tensor_map_of(map_[0], map_[1])
            kept.append(encoded)
            place.map = <const atomr_tensor_map *>PyByteArray_AS_STRING(encoded)
    made = <atomr_filled_struct *>PyByteArray_AS_STRING(described)
    made.size, made.n_places = len(data), len(places)
    made.bytes = <const unsigned char *><char *>data
    made.places = <const atomr_filled_place *>PyByteArray_AS_STRING(listed)
    return described


@cython.no_gc_clear
cdef class Kernels(NativeRun):
    """A loaded module and its launches; the context of their native entry.

    Parameters
    ----------
    backend : CudaBackend
        Whose.
    program
        With `cubin` and `launches`, see `atomr_native.worker.cuda`.
    """

    def __cinit__(self, CudaBackend backend not None, program):
        cdef unsigned i, j
        cdef bytes cubin = program.cubin
        cdef const char *image = cubin
        cdef CUresult r
        cdef atomr_launch *launch
        self.function = <atomr_run>atomr_cuda_run_kernels
        self.context = &self.native
        self.workspace = program.workspace
        self.native.cuda = backend.cuda
        backend.enter()
        with nogil:
            r = atomr_cuda_driver(self.native.cuda).cuModuleLoadData(&self.native.module, image)
        backend.check(r, "loading a kernel")
        self.native.alignments = <uint32_t *>calloc(len(program.alignments) + 1, sizeof(uint32_t))
        if self.native.alignments == NULL:
            raise MemoryError
        for i in range(len(program.alignments)):
            self.native.alignments[i] = program.alignments[i]
        self.native.n_alignments = len(program.alignments)
        self.structs = []
        self.native.report = program.report
        self.sites = [site.encode("utf-8", "replace")[:600] for site in program.sites]
        self.native.sites = <const char **>calloc(len(self.sites) + 1, sizeof(char *))
        if self.native.sites == NULL:
            raise MemoryError
        for i in range(len(self.sites)):
            self.native.sites[i] = <const char *>(<bytes>self.sites[i])
        self.native.n_sites = len(self.sites)
        self.lacking = program.lacking.encode()
        self.native.lacking = self.lacking
        if program.sets:
            self.native.sets = backend.mark(program.sets)
        if program.needs:
            self.native.needs = backend.mark(program.needs)
        self.native.workspace = program.workspace
        self.native.info = ATOMR_NO_INFO
        if program.info is not None:
            kind, place = program.info
            self.native.info = ATOMR_INFO_IN_WORKSPACE if kind == "workspace" else place
            self.native.info_offset = place if kind == "workspace" else 0
        self.native.n_launches = len(program.launches)
        if program.report >= 0 or program.sets or program.needs or program.info is not None:
            self.gain = NO_RECORDS
        else:
            self.gain = RECORDS_GAIN if self.native.n_launches > 1 else RECORDS_POSSIBLE
        self.native.launches = <atomr_launch *>calloc(self.native.n_launches + 1, sizeof(atomr_launch))
        if self.native.launches == NULL:
            raise MemoryError
        for i in range(self.native.n_launches):
            wanted = program.launches[i]
            launch = &self.native.launches[i]
            name = wanted.function.encode()
            backend.check(atomr_cuda_driver(self.native.cuda).cuModuleGetFunction(
                &launch.function, self.native.module, name), f"finding kernel {wanted.function}")
            for j in range(3):
                launch.grid[j] = wanted.grid[j]
                launch.block[j] = wanted.block[j]
            launch.shared = wanted.shared
            launch.cooperative = wanted.cooperative
            launch.overlaps = wanted.overlaps
            if wanted.cluster is not None:
                for j in range(3):
                    launch.cluster[j] = wanted.cluster[j]
                if launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > PORTABLE_CLUSTER:
                    backend.check(atomr_cuda_driver(self.native.cuda).cuFuncSetAttribute(
                        launch.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                        f"giving kernel {wanted.function} clusters of {wanted.cluster}")
            if wanted.shared:  # even a little, since arrays of the kernel's own count, too
                backend.check(atomr_cuda_driver(self.native.cuda).cuFuncSetAttribute(
                    launch.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, <int>wanted.shared),
                    f"giving kernel {wanted.function} {wanted.shared} bytes of shared memory")
            if launch.cooperative and not launch.cluster[0]:
                self.check_residence(launch, wanted.function)
            launch.n_arguments = len(wanted.arguments)
            if launch.n_arguments > ATOMR_MAX_ARGUMENTS:
                raise Unsupported(f"a kernel with {launch.n_arguments} arguments; at most {ATOMR_MAX_ARGUMENTS}")
            launch.arguments = <atomr_argument *>calloc(launch.n_arguments + 1, sizeof(atomr_argument))
            if launch.arguments == NULL:
                raise MemoryError
            n_maps = sum(1 for kind, _ in wanted.arguments if kind == "tensor_map")
            if n_maps > ATOMR_MAX_TENSOR_MAPS:
                raise Unsupported(f"a kernel with {n_maps} tensor maps; at most {ATOMR_MAX_TENSOR_MAPS}")
            for j in range(launch.n_arguments):
                kind, value = wanted.arguments[j]
                if kind == "operand":
                    launch.arguments[j].kind = ATOMR_ARG_OPERAND
                    launch.arguments[j].index = value
                elif kind == "float32":
                    launch.arguments[j].kind = ATOMR_ARG_FLOAT32
                    launch.arguments[j].index = value
                elif kind == "float16":
                    launch.arguments[j].kind = ATOMR_ARG_FLOAT16
                    launch.arguments[j].index = value
                elif kind in ("float64", "int64"):
                    launch.arguments[j].kind = ATOMR_ARG_WORD
                    launch.arguments[j].index = value
                elif kind == "bytes":
                    self.structs.append(value)
                    launch.arguments[j].kind = ATOMR_ARG_BYTES
                    launch.arguments[j].value = <uint64_t><char *>(<bytes>value)
                elif kind == "tensor_map":
                    made = tensor_map_of(value[1], value[2])
                    self.structs.append(made)
                    launch.arguments[j].kind = ATOMR_ARG_TENSOR_MAP
                    launch.arguments[j].index = value[0]
                    launch.arguments[j].value = <uint64_t>PyByteArray_AS_STRING(made)
                elif kind == "filled":
                    if any(other == "filled" for other, _ in wanted.arguments[:j]):
                        raise Unsupported("a kernel with two structs that messages fill; at most 1")
                    made = struct_of(value[0], value[1], self.structs)
                    launch.arguments[j].kind = ATOMR_ARG_FILLED
                    launch.arguments[j].value = <uint64_t>PyByteArray_AS_STRING(made)
                elif kind == "scalars":
                    launch.arguments[j].kind = ATOMR_ARG_SCALARS
                    launch.arguments[j].index = value
                elif kind in NARROW:
                    launch.arguments[j].kind = ATOMR_ARG_NARROW
                    launch.arguments[j].index = value
                    launch.arguments[j].least, launch.arguments[j].value = NARROW[kind]
                elif kind in ("uint64", "workspace"):
                    launch.arguments[j].kind = ATOMR_ARG_CONSTANT if kind == "uint64" else ATOMR_ARG_WORKSPACE
                    launch.arguments[j].value = value
                else:
                    raise Unsupported(f"unknown kind of kernel argument {kind!r}")

    cdef int check_residence(self, atomr_launch *launch, str name) except -1:
        """Refuse a cooperative grid whose blocks cannot all run at once: they would wait for each other forever."""
        cdef int blocks = 0
        cdef unsigned block = launch.block[0] * launch.block[1] * launch.block[2]
        self.backend.check(atomr_cuda_driver(self.native.cuda).cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, launch.function, <int>block, launch.shared), f"asking how many blocks of {name} can run at once")
        most = blocks * self.backend.facts()["multiprocessors"]
        grid = int(launch.grid[0]) * launch.grid[1] * launch.grid[2]
        if grid > most:
            raise InvalidRequest(
                f"grid {tuple(launch.grid)} of cooperative kernel {name} has {grid} blocks; at most {most} of "
                f"{block} threads and {launch.shared} bytes of dynamic shared memory can run at once on this device")
        return 0

    def __dealloc__(self):
        cdef unsigned i
        if self.native.module != NULL and atomr_cuda_enter(self.native.cuda) == CUDA_SUCCESS:
            with nogil:
                atomr_cuda_driver(self.native.cuda).cuModuleUnload(self.native.module)
        if self.native.launches != NULL:
            for i in range(self.native.n_launches):
                free(self.native.launches[i].arguments)
            free(self.native.launches)
        free(self.native.alignments)
        free(self.native.sites)
