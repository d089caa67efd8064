/* The pool: carves large segments of memory that it never touches (device memory) into blocks.
 *
 * Two-level segregated fit: free blocks lie in classes of size (32 to each power of two), bitmaps find
 * a class with room in a few instructions, and a freed block is joined with both of its neighbours at
 * once.  Allocating and freeing are O(1), whatever the number of blocks.  All bookkeeping is out of
 * band, in nodes of the pool's own.
 *
 * A freed range may be handed out at once, while the device still works on it: every free block carries
 * the stamps of all that may still use any byte of it, and who gets the range inherits those stamps and
 * orders its own work after them.  So an eager loop reuses its memory without ever waiting.
 *
 * A *deferred* pool is for memory that the CPU writes without a ticket (staging): a block that is still
 * in use there waits, and becomes free when all its stamps are resolved.
 *
 * Not thread-safe: callers hold one mutex around every call.  `resolved` is called under it, and must
 * not call back into the pool.  Nothing here waits, and nothing but memory for bookkeeping is allocated.
 */
#ifndef ATOMR_POOL_H
#define ATOMR_POOL_H

#include <stdint.h>

#include "runtime/stamps.h"

#define ATOMR_POOL_UNIT UINT64_C(256)         /* granularity and alignment, in bytes */
#define ATOMR_POOL_MAX (UINT64_C(1) << 47)    /* bytes of the largest segment and of the largest block */

/* What the calls answer beside 0. */
#define ATOMR_POOL_REFUSED (-1) /* a mistake of the caller, or the thing is busy; nothing was changed */
#define ATOMR_NO_ROOM (-2)      /* no free range is long enough */
#define ATOMR_NO_MEMORY (-3)    /* malloc failed for the bookkeeping; nothing was changed */

typedef struct atomr_pool atomr_pool;

/* A block handed out.  `node` names the bookkeeping, with a count that tells this use of the range from
 * earlier ones; to be given back as it came. */
typedef struct {
    uint32_t segment; /* as named in atomr_pool_add_segment */
    uint32_t node;
    uint64_t offset; /* bytes from the start of the segment, a multiple of 256 */
    uint64_t nbytes; /* as asked, rounded up to 256 */
} atomr_block;

/* In bytes: total = in_use + free + deferred. */
typedef struct {
    uint64_t total;    /* of all segments */
    uint64_t in_use;   /* handed out and not freed */
    uint64_t free;     /* would be handed out, perhaps with stamps to inherit */
    uint64_t largest;  /* the longest free range: a request for so much succeeds */
    uint64_t deferred; /* freed, and waiting for its stamps (deferred pools only) */
    uint32_t segments;
    uint32_t blocks; /* handed out and not freed */
} atomr_pool_stats;

/* NULL: no memory, or no `resolved`. */
atomr_pool *atomr_pool_new(int deferred, atomr_resolved_fn resolved, void *ctx);
/* Frees the bookkeeping, blocks in use or not.  NULL is allowed. */
void atomr_pool_delete(atomr_pool *pool);

/* Adds a range; `segment` is the caller's name for it, not 0 and not in use.  `nbytes`, rounded down to
 * 256, must be from 256 to ATOMR_POOL_MAX.  0, ATOMR_POOL_REFUSED or ATOMR_NO_MEMORY. */
int atomr_pool_add_segment(atomr_pool *pool, uint32_t segment, uint64_t nbytes);
/* Takes a range away.  0, or ATOMR_POOL_REFUSED when it is unknown, when any byte is in use, or when any
 * stamp on it is open. */
int atomr_pool_remove_segment(atomr_pool *pool, uint32_t segment);
/* A segment that atomr_pool_remove_segment would take away, or 0. */
uint32_t atomr_pool_find_empty(atomr_pool *pool);

/* Hands out a block of at least `nbytes` (0 counts as 1).  The open stamps of the range are added to
 * `inherited`, an initialised set, which may be NULL for a deferred pool only, where there are none.
 * 0, ATOMR_NO_ROOM, ATOMR_NO_MEMORY or ATOMR_POOL_REFUSED; on these three, nothing has changed. */
int atomr_pool_alloc(atomr_pool *pool, uint64_t nbytes, atomr_block *out, atomr_stamps *inherited);
/* Takes a block back.  `stamps` (NULL: none) are all that may still use it, with those inherited if they
 * are open; they are consumed, which leaves the set empty.  Always succeeds for a block in use, also
 * without memory; ATOMR_POOL_REFUSED, with block and stamps left alone, for one freed before (as far as
 * 256 uses of one node back), altered or invented. */
int atomr_pool_free(atomr_pool *pool, const atomr_block *block, atomr_stamps *stamps);

/* The counters as they are, without polling waiting blocks; `largest` is not kept up to date. */
const atomr_pool_stats *atomr_pool_figures(const atomr_pool *pool);
/* Polls the whole queue of a deferred pool first: for reports, not for hot paths. */
void atomr_pool_get_stats(atomr_pool *pool, atomr_pool_stats *out);
/* Verifies all bookkeeping, in time linear in the blocks.  0, or the line of pool_check.c whose rule is broken.
 * For tests and for hunting a corruption. */
int atomr_pool_check(const atomr_pool *pool);

#endif
