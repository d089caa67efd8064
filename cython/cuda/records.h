/* Launch records: what a plan launches for a message, captured once and launched again for equal messages.
 *
 * A plan that makes records runs as ever for a tuple (addresses, scalars, workspace) that is new.  When it has run for one
 * the second time, its lane lets it run once more on the lane's stream aside, which is captured; a thread of the device
 * makes an executable graph of it meanwhile.  From then on that tuple is one cuGraphLaunch.
 *
 * A plan keeps the records that it used last, and so does a lane.  Each capture costs credit, which a plan begins with and
 * which replays earn: addresses that never come again soon cost no capture at all. */
#ifndef ATOMR_RECORDS_H
#define ATOMR_RECORDS_H

#include "cuda/cuda_backend.h"

enum {
    ATOMR_PLAN_RECORDS = 64,   /* of one plan */
    ATOMR_LANE_RECORDS = 256,  /* of all plans of a lane: 112 KiB of device memory each on an H200 */
    ATOMR_LANE_NODES = 4096,
    ATOMR_RECORD_NODES = 256,  /* launches of one record */
    ATOMR_RECORD_REPLAYS = 16, /* that earn the credit for one capture */
    ATOMR_RECORD_REFUSALS = 3, /* captures that fail before a plan is never captured again */
};

/* Those of a device. */
typedef struct atomr_records atomr_records;
/* One plan, with its records. */
typedef struct atomr_recorded atomr_recorded;

typedef struct {
    uint64_t kept, nodes;      /* now */
    uint64_t captures, refused; /* graphs captured; captures that have failed, and graphs that could not be kept */
    uint64_t replays;          /* messages launched from a record */
} atomr_record_counts;

atomr_records *atomr_records_new(atomr_cuda *); /* NULL: no memory */
/* Destroy the records; no plan of them is left. */
void atomr_records_end(atomr_records *);
atomr_record_counts atomr_records_count(atomr_records *);
/* Let go of records that name memory in these bytes, which no message names any more. */
void atomr_records_forget(atomr_records *, const void *base, uint64_t nbytes);

/* A plan whose run is this one.  NULL: no memory. */
atomr_recorded *atomr_recorded_new(atomr_records *, atomr_run, void *context, unsigned n_operands, unsigned n_scalars);
/* Let go of its records, and wait until they are destroyed.  No lane runs it. */
void atomr_recorded_end(atomr_recorded *);
/* An atomr_run; context: atomr_recorded. */
int atomr_recorded_run(void *context, const atomr_call *, atomr_failure *);

#endif
