/* Plain C loops on the driver and on NVIDIA's libraries: what a program without this library would do.
 *
 * Each group of cases and each library may have a twin.c of such loops beside its cases.  All of them are linked into one
 * program, so that a case has one process with one context; each adds its contenders to the program's list by itself. */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include "serve.h"

enum { THREADS = 4 };

extern const atomr_driver *driver;
extern CUdevice device;
extern CUstream streams[THREADS]; /* of the primary context, as everybody's */

void synchronize(void);                     /* the device */
CUdeviceptr device_memory(uint64_t nbytes); /* for the program's life; zeroed */
const char *can_overlap(void);              /* NULL, or why a launch cannot begin before the last one has ended */
/* Launch one block as the library launches a kernel that waits for the launch before by itself. */
void launch_overlapping(CUfunction kernel, unsigned block, CUstream stream, void **arguments);
/* Call body(thread, n) in THREADS threads at once, and wait for all of them. */
void in_threads(void (*body)(int thread, int n), int n);

/* What the command line says after NAME=; NULL when it does not.  The twin.c that asks says what it means. */
const char *setting(const char *name);

void add_contenders(const contender *list); /* until a nameless one */
/* At the end of a twin.c: adds its list before `main` begins. */
#define ADD_CONTENDERS(list)                                                                                           \
    __attribute__((constructor)) static void add_##list(void) { add_contenders(list); }

#endif
