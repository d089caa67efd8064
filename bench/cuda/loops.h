/* Plain C loops on the driver and on cuBLASLt: what a program without this library would do. */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include "serve.h"

enum { THREADS = 4 };

extern const atomr_driver *driver;
extern CUdevice device;
extern CUstream streams[THREADS]; /* of the primary context, as everybody's */

void synchronize(void);                     /* the device */
CUdeviceptr device_memory(uint64_t nbytes); /* for the program's life; zeroed */
/* Call body(thread, n) in THREADS threads at once, and wait for all of them. */
void in_threads(void (*body)(int thread, int n), int n);

extern const contender kernel_loops[], argument_loops[], matmul_loops[], memory_loops[];
/* The kernel that they launch: function(double *, double, double) with one block. */
void set_kernel(const char *cubin, const char *function, unsigned block);
/* What argument_loops launch; see there. */
void set_argument_kernels(const char *list);

#endif
