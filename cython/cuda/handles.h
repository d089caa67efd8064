/* Handles of native libraries, such as a cublasHandle_t: one for each lane that uses the library.
 *
 * A handle has state that a run changes (its stream, its workspace, its modes), so lanes do not share one.  It is made
 * with the lane's first message that needs it, in the lane's thread, and lives as long as the lane's stream.  A library
 * whose handle has no such state (cuBLASLt) has one handle for the device: `atomr_device_handle` of cuda_backend.h.
 */
#ifndef ATOMR_HANDLES_H
#define ATOMR_HANDLES_H

#include <stdatomic.h>

#include "cuda/driver.h"
#include "runtime/lane_core.h"

typedef struct atomr_cuda atomr_cuda;

/* What a library's handles are.  The context of the device is current in each call; create and set_stream return an
 * atomr_code. */
typedef struct {
    const char *library; /* its name in counts: "cublas" */
    int (*create)(atomr_cuda *, void **handle, atomr_failure *);
    int (*set_stream)(void *handle, CUstream, atomr_failure *); /* once, of a new handle; NULL: it has no stream */
    void (*destroy)(void *handle);
} atomr_handle_kind;

enum { ATOMR_HANDLES = 16 }; /* kinds that a lane can have handles of */

/* The handles of one lane, by kind.  One thread makes them; any thread may count them. */
typedef struct {
    const atomr_handle_kind *kinds[ATOMR_HANDLES];
    void *handles[ATOMR_HANDLES];
    _Atomic unsigned n; /* complete ones */
} atomr_handles;

/* The handle of a kind, made if there is none yet.  Returns an atomr_code; after a failure there is none, and the next
 * call tries again. */
int atomr_handles_get(atomr_handles *, const atomr_handle_kind *, atomr_cuda *, CUstream, void **handle,
                      atomr_failure *);
/* Have all of them use another stream; for the thread that makes them.  Returns an atomr_code.  One that cannot is
 * destroyed, and the next call that needs it makes it anew. */
int atomr_handles_point(atomr_handles *, CUstream, atomr_failure *);
/* Destroy them all, the newest first.  Nobody may use or make any meanwhile. */
void atomr_handles_end(atomr_handles *);

/* Numbers of handles by library. */
typedef struct {
    const char *library;
    unsigned count;
} atomr_handle_count;
/* Add the handles to the counts of their libraries; `n` counts are there.  Returns how many are there then: at most
 * ATOMR_HANDLES. */
unsigned atomr_handles_count(atomr_handles *, atomr_handle_count *counts, unsigned n);

#endif
