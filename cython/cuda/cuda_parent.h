/* The program's own use of a GPU, for arrays of other libraries: its primary context, which they use too.
 *
 * Every call makes that context current for its own length only, since the thread is the program's.  Nothing here is
 * called before somebody asks for such an array.
 */
#ifndef ATOMR_CUDA_PARENT_H
#define ATOMR_CUDA_PARENT_H

#include "cuda/cuda_backend.h"

typedef struct atomr_parent atomr_parent;

/* The number that this process has for the GPU with that UUID, or -1 with a reason.  Makes no context. */
int atomr_parent_find(const char uuid[16], char *why, size_t size);
/* Take the primary context.  NULL, with a reason. */
atomr_parent *atomr_parent_open(int ordinal, char *why, size_t size);
void atomr_parent_close(atomr_parent *);
const atomr_driver *atomr_parent_driver(const atomr_parent *);
/* Make the context current in this thread, and take it away again. */
CUresult atomr_parent_enter(atomr_parent *);
CUresult atomr_parent_leave(atomr_parent *);
/* A stream of ours, for other libraries to order their work before. */
CUstream atomr_parent_stream(const atomr_parent *);

/* Map a segment by its descriptor. */
CUresult atomr_parent_map(atomr_parent *, int fd, uint64_t nbytes, CUdeviceptr *base);
CUresult atomr_parent_unmap(atomr_parent *, CUdeviceptr base, uint64_t nbytes);
/* Wait for one stream (a handle of the driver, or 0, 1, 2 for the default ones), or for the whole context. */
CUresult atomr_parent_synchronize(atomr_parent *, int whole, uint64_t stream);
/* Copy to host memory, and wait. */
CUresult atomr_parent_copy_out(atomr_parent *, void *to, CUdeviceptr source, uint64_t nbytes);

typedef struct {
    int ordinal, managed;
    int shareable; /* by cuIpcGetMemHandle */
} atomr_pointer;
/* What an address is; an error for one that is no memory of CUDA. */
CUresult atomr_parent_locate(CUdeviceptr address, atomr_pointer *, char *why, size_t size);
/* The allocation around an address. */
CUresult atomr_parent_range(atomr_parent *, CUdeviceptr address, CUdeviceptr *base, uint64_t *nbytes);
/* Export an allocation to other processes, by its first address. */
CUresult atomr_parent_share(atomr_parent *, CUdeviceptr base, char handle[64]);

#endif
