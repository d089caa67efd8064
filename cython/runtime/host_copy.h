/* Copies within host memory by several threads.
 *
 * One thread moves 10 to 15 GB/s, a PCIe 5 link 55: so large copies are cut into pieces that a few threads of
 * the process share with whoever asked.  The threads start with the first large copy, live as long as the
 * process and never keep it from ending; a forked child starts its own.  All functions may be called from any
 * thread, and wait for nothing but copies.
 */
#ifndef ATOMR_HOST_COPY_H
#define ATOMR_HOST_COPY_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    ATOMR_COPY_MAX_HELPERS = 64,
    ATOMR_COPY_ALONE = 256 << 10 /* bytes up to which the caller is as fast alone */
};

/* What a job does to its range. */
enum atomr_copy_kind {
    ATOMR_COPY,       /* copy, to pages that are there */
    ATOMR_COPY_FRESH, /* copy, to pages that may not be there yet */
    ATOMR_COPY_ZERO,  /* set to zero */
    ATOMR_COPY_TOUCH  /* make the pages be there, and leave their bytes */
};

/* One job.  The caller's memory, from `start` until `finish` has returned; nothing of it is for others. */
typedef struct atomr_copy {
    char *dst;
    const char *src;
    uint64_t nbytes, piece, skew; /* piece i begins at i * piece - skew, so that pieces begin on whole pages */
    uint32_t kind, pieces, taken;
    uint32_t era;                 /* of the threads: another one after a fork */
    _Atomic uint32_t left;        /* pieces that are not done */
    struct atomr_copy *next;
} atomr_copy;

/* Begin.  `dst` and `src` do not overlap, and stay valid until `finish` has returned. */
void atomr_copy_start(atomr_copy *, enum atomr_copy_kind, void *dst, const void *src, uint64_t nbytes);
/* Nonzero when nothing is left to do. */
int atomr_copy_done(const atomr_copy *);
/* Help, and wait for the rest: 0.  Idempotent; after it the job is the caller's alone.  -1 in a child that was
 * forked after `start`: the threads that had pieces are not there, and the range holds some of them only. */
int atomr_copy_finish(atomr_copy *);

/* How many threads help: half of the processors that this process may use, 1 to 8, unless it was set. */
int atomr_copy_helpers(void);
/* 0 to ATOMR_COPY_MAX_HELPERS; 0: the caller copies alone.  Threads beyond the number sleep. */
void atomr_copy_set_helpers(int n);

#endif
