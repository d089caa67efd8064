/* Memory of other processes and of other GPUs, as a worker of a CUDA device maps it. */
#ifndef ATOMR_CUDA_FOREIGN_H
#define ATOMR_CUDA_FOREIGN_H

#include "cuda/cuda_backend.h"

/* Map an allocation that another process exported by cuIpcGetMemHandle.  Opened twice, it is to be closed twice. */
CUresult atomr_cuda_open_shared(atomr_cuda *, const char handle[64], CUdeviceptr *base);
CUresult atomr_cuda_close_shared(atomr_cuda *, CUdeviceptr base);

/* Memory that this process makes and keeps the handle of, since only who makes memory can export it, which NCCL does with
 * memory of windows.  By the rules of ncclMemAlloc: exported as a descriptor, over NVLink fabrics, and to network cards,
 * as far as the device can.  `close` lets go of it, once nothing uses it. */
CUresult atomr_cuda_open_own(atomr_cuda *, uint64_t nbytes, CUdeviceptr *base, CUmemGenericAllocationHandle *);
CUresult atomr_cuda_close_own(atomr_cuda *, CUdeviceptr base, uint64_t nbytes, CUmemGenericAllocationHandle);

/* Can this device read the memory of the one with that UUID?  1 or 0, or -1: the driver shows no such device here. */
int atomr_cuda_reaches(atomr_cuda *, const char uuid[16]);

#endif
