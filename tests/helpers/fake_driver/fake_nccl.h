/* Windows of the fake NCCL: memory that all ranks of a communicator register together. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "libraries/nccl/table.h"

enum { FAKE_WINDOWS = 128 };

/* What the ranks share. */
typedef struct {
    _Atomic uint64_t sizes[FAKE_WINDOWS]; /* of each that was registered, in order */
    _Atomic uint32_t joined[FAKE_WINDOWS];
} fake_window_room;

struct ncclWindow_vidmem {
    struct ncclWindow_vidmem *next; /* of this process */
    const void *owner;              /* a communicator; NULL: it has ended */
    const char *base;
    size_t size;
    unsigned order; /* among those of the communicator */
};

/* Register; `order` is how many were before.  Breaches of the rules end the process. */
ncclResult_t fake_window_register(fake_window_room *, const void *owner, unsigned order, void *base, size_t size, int flags,
                                  ncclWindow_t *made);
/* Whether so many ranks have registered the one of that order. */
int fake_window_is_there(fake_window_room *, unsigned order, int ranks);
ncclResult_t fake_window_deregister(const void *owner, ncclWindow_t);
/* All of a communicator. */
void fake_windows_end(const void *owner);
/* Where an address is in a communicator's windows, the same number on all ranks; 0: in none. */
uint64_t fake_window_place(const void *owner, const void *at);
/* Whether a range is a part of any window. */
int fake_is_window(const char *at, size_t size);
void fake_nccl_breach(const char *what);

#endif
