/* Parts of given device memory, for a library that asks for memory with each phase.
 *
 * The memory is used in the order of one stream, so a part that is given back is dealt out again at once. */
#ifndef ATOMR_REGION_H
#define ATOMR_REGION_H

#include <stddef.h>
#include <stdint.h>

typedef struct atomr_part {
    uint64_t at, size; /* the address; bytes */
    int used;
    struct atomr_part *next; /* the one behind it in memory */
} atomr_part;

typedef struct {
    atomr_part *parts;
    uint64_t used, most; /* bytes that are dealt out, now and at most */
} atomr_region;

/* Add memory.  Returns 0; -1: no host memory. */
int atomr_region_add(atomr_region *, uint64_t at, uint64_t size);
/* An address of `size` bytes, at a multiple of 256; 0: there is no room. */
uint64_t atomr_region_take(atomr_region *, uint64_t size);
/* Give a part back.  Returns 0; -1: it is none. */
int atomr_region_give(atomr_region *, uint64_t at);
void atomr_region_clear(atomr_region *);

#endif
