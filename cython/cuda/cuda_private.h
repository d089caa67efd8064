/* What the files of a CUDA device share among themselves. */
#ifndef ATOMR_CUDA_PRIVATE_H
#define ATOMR_CUDA_PRIVATE_H

#include <pthread.h>

#include "cuda/cuda_backend.h"

enum { ATOMR_MARKS = 64 };

typedef struct {
    _Alignas(128) _Atomic(CUstream) stream; /* published when the lane is complete; read by everybody, so apart */
    _Alignas(128) pthread_mutex_t lock;
    uint64_t last;                 /* the last ticket launched; under `lock` */
    _Atomic int marking;           /* launches yet to be marked, since others depend on this lane */
    CUevent marks[ATOMR_MARKS];    /* after launches, by ticket modulo ATOMR_MARKS */
    uint64_t marked[ATOMR_MARKS];  /* which ticket each stands for; under `lock` */
    _Alignas(128) atomr_handles handles; /* of libraries; made by the thread of the lane */
    CUstream aside;                /* of ATOMR_ASIDE + lane; the lane's thread's */
} atomr_cuda_lane;

struct atomr_cuda {
    const atomr_driver *d;
    uint64_t id; /* no two have the same */
    CUdevice device;
    CUcontext context;
    char *w;
    CUdeviceptr w_on_device;
    CUstream control;
    pthread_mutex_t beating;
    uint64_t beats; /* signs of life asked for; under `beating` */
    atomr_cuda_lane lanes[ATOMR_ALL_LANES];
    pthread_mutex_t capturing;
    pthread_mutex_t shared_lock;
    atomr_handles shared;   /* of libraries whose handle serves all threads; made under `shared_lock` */
    _Atomic CUresult error;
};

#endif
