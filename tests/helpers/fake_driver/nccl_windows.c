/* Windows of the fake NCCL, by these rules: whole pages of memory that this process has made by cuMemCreate, of one size on
 * all ranks; found by address; unmapped only when they have been let go of, or when their communicator has ended. */
#define _GNU_SOURCE
#include "fake_nccl.h"

#include <stdlib.h>

#include "fake_memory.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclWindow_vidmem *windows;

/* Whether a range lies in one mapping of memory that can be exported. */
static int is_own(const char *base, size_t size) {
    int found = 0;
    pthread_mutex_lock(&fake_lock);
    for (const mapping *m = fake_mappings; m && !found; m = m->next)
        found = inside(base, size, m->base, m->size) && m->memory->exportable;
    pthread_mutex_unlock(&fake_lock);
    return found;
}

ncclResult_t fake_window_register(fake_window_room *room, const void *owner, unsigned order, void *base, size_t size, int flags,
                                  ncclWindow_t *made) {
    uint64_t none = 0;
    if (flags != NCCL_WIN_COLL_SYMMETRIC || !size || (uintptr_t)base % 4096) return ncclInvalidArgument;
    if (!is_own(base, size)) return ncclUnhandledCudaError; /* the driver does not export it */
    if (order >= FAKE_WINDOWS) return ncclInternalError;
    if (!atomic_compare_exchange_strong(&room->sizes[order], &none, size) && none != size)
        fake_nccl_breach("ranks register windows of different sizes");
    struct ncclWindow_vidmem *const w = calloc(1, sizeof *w);
    if (!w) return ncclSystemError;
    *w = (struct ncclWindow_vidmem){NULL, owner, base, size, order};
    pthread_mutex_lock(&lock);
    for (const struct ncclWindow_vidmem *other = windows; other; other = other->next)
        if (other->owner == owner && overlaps(base, size, other->base, other->size))
            fake_nccl_breach("memory is registered twice");
    w->next = windows;
    windows = w;
    pthread_mutex_unlock(&lock);
    *made = w;
    atomic_fetch_add(&room->joined[order], 1);
    return ncclSuccess;
}

int fake_window_is_there(fake_window_room *room, unsigned order, int ranks) {
    return (int)atomic_load(&room->joined[order]) >= ranks;
}

ncclResult_t fake_window_deregister(const void *owner, ncclWindow_t window) {
    ncclResult_t result = ncclInvalidArgument;
    pthread_mutex_lock(&lock);
    for (struct ncclWindow_vidmem *w = windows; w; w = w->next)
        if (w == window && w->owner == owner) {
            w->owner = NULL;
            result = ncclSuccess;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

void fake_windows_end(const void *owner) {
    pthread_mutex_lock(&lock);
    for (struct ncclWindow_vidmem *w = windows; w; w = w->next)
        if (w->owner == owner) w->owner = NULL;
    pthread_mutex_unlock(&lock);
}

uint64_t fake_window_place(const void *owner, const void *at) {
    uint64_t place = 0;
    pthread_mutex_lock(&lock);
    for (const struct ncclWindow_vidmem *w = windows; w; w = w->next)
        if (w->owner == owner && (const char *)at >= w->base && (const char *)at < w->base + w->size)
            place = (uint64_t)(w->order + 1) << 48 | (uint64_t)((const char *)at - w->base);
    pthread_mutex_unlock(&lock);
    return place;
}

int fake_is_window(const char *at, size_t size) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (const struct ncclWindow_vidmem *w = windows; w; w = w->next)
        found = found || (w->owner && overlaps(at, size, w->base, w->size));
    pthread_mutex_unlock(&lock);
    return found;
}
