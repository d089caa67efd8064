/* A rank's connection to the others: an NCCL communicator, made by a message, and made anew after a death.
 *
 * NCCL's rules, and how they are kept:
 * - A communicator is used by one thread at a time, and communicators on one device by one thread: calls are made by the
 *   device's only lane of collectives.  The watcher asks for errors and aborts under the connection's lock.
 * - Ranks connect by a communicator that does not block, so it can be aborted at any time.  Calls are made by a part of
 *   it with all ranks, which blocks: else each call would start a thread.  It shares the other one's resources, and with
 *   them the word that ends what waits.  So a call that waits for other ranks ends when the first one is aborted.
 * - When a rank dies, the kernels of the others never end: all of them abort.  What had been launched is then failed
 *   when its work has ended, by `judge`, and poisons what it wrote, and so does all that was launched behind it.
 *
 * Ranks that wait for each other inside of the library, and so without end, are given up after a time: 20 s while they
 * connect, 60 s in a call (ATOMR_NATIVE_NCCL_CONNECT_S and ATOMR_NATIVE_NCCL_CALL_S).  Kernels are the watchdog's.
 *
 * Every connection has a thread, the watcher, which looks for deaths and errors ten times in 100 ms while it is up.
 */
#ifndef ATOMR_NCCL_CONNECTION_H
#define ATOMR_NCCL_CONNECTION_H

#include "cuda/cuda_backend.h"
#include "libraries/nccl/table.h"
#include "runtime/meeting.h"

typedef struct atomr_nccl_connection atomr_nccl_connection;

/* For a rank whose page and worker outlive it; the library is loaded.  NULL, with a failure; `*code` is an atomr_code. */
atomr_nccl_connection *atomr_nccl_connection_new(atomr_cuda *, atomr_worker *, atomr_page *, unsigned rank, int *code,
                                                 atomr_failure *);
/* When no message uses it any more: aborts, waits for that up to 5 seconds, and ends the watcher.  Idempotent; messages
 * that were launched may still be judged. */
void atomr_nccl_connection_end(atomr_nccl_connection *);
void atomr_nccl_connection_delete(atomr_nccl_connection *); /* ends first */

/* In the lane, for the message `sequence`, on which all ranks have voted: have the connection that all have, or make one
 * with them.  Waits for the others.  Returns an atomr_code; after a failure the others know of it. */
int atomr_nccl_connect(atomr_nccl_connection *, uint64_t sequence, atomr_failure *);
/* In the lane: whether all ranks have the same connection, as they voted on the message. */
int atomr_nccl_has_met(const atomr_nccl_connection *, uint64_t sequence);
/* In the lane: take the connection for calls, and give it back when the library has taken them all, with the result of
 * the last one; `what` names them in failures.  Both return an atomr_code: after a failed `begin` there is no end. */
int atomr_nccl_begin(atomr_nccl_connection *, uint64_t sequence, ncclComm_t *comm, atomr_failure *);
int atomr_nccl_end(atomr_nccl_connection *, uint64_t sequence, ncclResult_t, const char *what, atomr_failure *);
/* In the lane, between `begin` and `end`: make memory a window of the connection, unless it is one, or let go of it.  All
 * ranks do so in one message, with as many bytes.  The memory stays where it is until then, or until the connection has
 * broken: the library finds windows by address.  A library without windows does nothing. */
ncclResult_t atomr_nccl_open_window(atomr_nccl_connection *, ncclComm_t, void *base, size_t nbytes);
ncclResult_t atomr_nccl_close_window(atomr_nccl_connection *, ncclComm_t, const void *base);
/* Note in the message of a call that it is judged when its work has ended. */
void atomr_nccl_judge_late(atomr_nccl_connection *, const atomr_call *);

const atomr_nccl_table *atomr_nccl_table_of(const atomr_nccl_connection *);
atomr_cuda *atomr_nccl_cuda_of(const atomr_nccl_connection *);
unsigned atomr_nccl_rank_of(const atomr_nccl_connection *);
const char *atomr_nccl_name(ncclResult_t);

#endif
