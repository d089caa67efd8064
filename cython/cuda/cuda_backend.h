/* A CUDA device behind the lanes: one context, one stream a lane, completion by values that the GPU writes. */
#ifndef ATOMR_CUDA_BACKEND_H
#define ATOMR_CUDA_BACKEND_H

#include "cuda/driver.h"
#include "cuda/handles.h"
#include "runtime/lane_core.h"

/* Libraries take the addresses of a batch's matrices from arrays in device memory, which lie one after the other: bytes
 * from one to the next.  Each begins at a multiple of what any access to it is aligned to. */
#define ATOMR_POINTER_RUN(batch) (((uint64_t)(batch) * 8 + 255) / 256 * 256)

/* The number of the device with this UUID.  1: found; 0: the driver has no such device (any more); -1: the driver cannot
 * tell, with a reason.  Here and below `result` is what the driver said, or CUDA_SUCCESS where there is none to ask. */
int atomr_cuda_find(const char uuid[16], int *ordinal, CUresult *result, char *why, size_t size);
/* Whether nothing works in a context after this error of its kernels or its memory, in its whole process: all that was
 * queued has ended.  After any other error the device goes on. */
int atomr_cuda_is_sticky(CUresult);
/* Take the primary context of a device.  NULL, with a reason. */
atomr_cuda *atomr_cuda_open(int ordinal, CUresult *result, char *why, size_t size);
/* Let go of everything.  After a fault no driver function is called, here or below: they would fail, or block.  Only
 * `atomr_cuda_unregister` asks a device whose error was not sticky whether it rests. */
void atomr_cuda_close(atomr_cuda *);
const atomr_driver *atomr_cuda_driver(const atomr_cuda *);
/* What `atomr_worker_new` wants. */
atomr_backend atomr_cuda_backend(atomr_cuda *);
/* Let the GPU write into the worker's memory: its `completed` words. */
int atomr_cuda_register(atomr_cuda *, void *w, uint64_t nbytes, char *why, size_t size);
/* Wait, for seconds, until the device does nothing for the lanes any more, which have ended, and take that back.  0: it
 * still works, or cannot be asked; then its memory must stay where it is, and the device counts as faulted. */
int atomr_cuda_unregister(atomr_cuda *);
/* Make the context current in this thread: for the control and builder threads; lanes do it by themselves.  Fails, as
 * all that follows does, once the device has faulted. */
CUresult atomr_cuda_enter(atomr_cuda *);
/* Make the stream of a lane and its events, before its thread starts.  Once it is there, again is no error. */
CUresult atomr_cuda_open_lane(atomr_cuda *, unsigned lane);
/* Lanes without messages.  One measures: see measure.h.  The other's stream and handles are for captures.  Another thread may query any lane's stream, or
 * mark it, which ends a capture; never this one's. */
enum { ATOMR_CAPTURE_LANE = ATOMR_LANES, ATOMR_MEASURE_LANE, ATOMR_ALL_LANES };
/* Take the capture lane for a program of `lane`, with a handle of each library that this lane has, since libraries
 * allocate memory when they make one.  One thread has it at a time, until the end.  Returns an atomr_code, with the
 * driver's or library's result in the failure; then there is nothing to end. */
int atomr_cuda_begin_capture(atomr_cuda *, unsigned lane, CUstream *stream, atomr_failure *failure);
void atomr_cuda_end_capture(atomr_cuda *);
/* Lane numbers for captures of a lane's own runs: ATOMR_ASIDE + lane has a stream of its own and the lane's handles. */
enum { ATOMR_ASIDE = ATOMR_ALL_LANES };
/* Have the lane's handles use its stream aside, and then its own one again; in the lane's thread.  Both return an
 * atomr_code.  After a failed one the handles use the lane's own stream, and some may have been destroyed, with memory
 * of theirs that captured work uses. */
int atomr_cuda_begin_aside(atomr_cuda *, unsigned lane, CUstream *aside, atomr_failure *failure);
int atomr_cuda_end_aside(atomr_cuda *, unsigned lane, atomr_failure *failure);
/* Whether the driver captures into graphs that exist, behind given nodes, and has conditional nodes: CUDA 12.4. */
int atomr_cuda_captures_pieces(const atomr_cuda *);
CUcontext atomr_cuda_context(const atomr_cuda *);
/* NULL: the device has faulted. */
CUstream atomr_cuda_stream(atomr_cuda *, unsigned lane);
/* For a run that may fail late: after the work that it has enqueued, the device copies `n` int32 at `words`, at most
 * ATOMR_INFO_WORDS, to host memory, where `late.judge` gets them.  Once a message.  Of 0 words the work writes them
 * there itself.  Returns an atomr_code. */
int atomr_cuda_judge_late(atomr_cuda *, const atomr_call *, CUdeviceptr words, unsigned n, atomr_late late,
                          atomr_failure *failure);
/* Where the device writes the info words of a message, in host memory. */
char *atomr_cuda_info(const atomr_cuda *, const atomr_call *);
/* Of the control thread. */
CUstream atomr_cuda_control(atomr_cuda *);
/* The lane's handle of a native library, on the lane's stream; for the lane's thread.  The first call makes it, which
 * takes tens of milliseconds; it is destroyed before the stream.  Returns an atomr_code. */
int atomr_lane_handle(atomr_cuda *, unsigned lane, const atomr_handle_kind *, void **handle, atomr_failure *failure);
/* The device's handle of a library whose handle any thread may use at any time.  Any thread; it waits while another one
 * makes a handle.  Returns an atomr_code. */
int atomr_device_handle(atomr_cuda *, const atomr_handle_kind *, void **handle, atomr_failure *failure);
/* How many handles there are, by library; `counts` has ATOMR_HANDLES places.  Returns how many libraries. */
unsigned atomr_cuda_handles(atomr_cuda *, atomr_handle_count *counts);
/* The error after which nothing works; CUDA_SUCCESS: none was met.  `check` asks the driver, which need not look while
 * nothing runs; `examine` gives the device something to do, and waits for it: a library's error may be a fault's. */
CUresult atomr_cuda_error(atomr_cuda *);
CUresult atomr_cuda_check(atomr_cuda *);
CUresult atomr_cuda_examine(atomr_cuda *);
/* Have the device write a sign of life into the worker's memory, and wait until it is there. */
CUresult atomr_cuda_beat(atomr_cuda *);

typedef struct {
    char name[256], uuid[16];
    int major, minor, multiprocessors, driver_version;
    uint64_t total_memory;
} atomr_cuda_facts;
int atomr_cuda_describe(atomr_cuda *, atomr_cuda_facts *);
CUresult atomr_cuda_memory(atomr_cuda *, uint64_t *available, uint64_t *total);

/* Device memory that other processes can map, by a descriptor that keeps it alive; the caller's to close. */
CUresult atomr_cuda_create(atomr_cuda *, uint64_t nbytes, int *fd);
/* Map such memory, with a gap on each side. */
CUresult atomr_cuda_map(atomr_cuda *, int fd, uint64_t nbytes, CUdeviceptr *base);
CUresult atomr_cuda_unmap(atomr_cuda *, CUdeviceptr base, uint64_t nbytes);
/* The same in whatever context is current, for a device of it, and for memory of which this process has a handle. */
CUresult atomr_map_handle(const atomr_driver *, CUdevice, CUmemGenericAllocationHandle, uint64_t nbytes, CUdeviceptr *base);
CUresult atomr_map_descriptor(const atomr_driver *, CUdevice, int fd, uint64_t nbytes, CUdeviceptr *base);
CUresult atomr_unmap_descriptor(const atomr_driver *, CUdeviceptr base, uint64_t nbytes);
CUdevice atomr_cuda_device(const atomr_cuda *);
/* Let the device reach mapped host memory. */
CUresult atomr_cuda_pin(atomr_cuda *, void *base, uint64_t nbytes, CUdeviceptr *device);
CUresult atomr_cuda_unpin(atomr_cuda *, void *base);
/* For the control thread: copies on a stream of its own, and waits. */
CUresult atomr_cuda_copy_now(atomr_cuda *, CUdeviceptr to, CUdeviceptr source, uint64_t nbytes);

#endif
