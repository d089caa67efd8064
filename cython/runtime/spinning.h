/* How long a thread looks for something all the time before it parks. */
#ifndef ATOMR_SPINNING_H
#define ATOMR_SPINNING_H

#include <stdatomic.h>
#include <stdint.h>

/* Threads of one process that spin longer than the least time.  There is room for one to each four processors. */
typedef struct {
    _Atomic int32_t n;
    int32_t room;
} atomr_spinners;

enum { ATOMR_SPIN_LONGER = 8, ATOMR_PROCESSORS_PER_SPINNER = 4 };

/* At least `least_ns`, at most eight times as long, and twice as long as `last_ns`, the last wait for the same.  To be
 * woken takes 10 to 30 us: a loop whose steps take 100 us each would be a quarter slower for it.  What came later than
 * eight times `least_ns` is not waited for: a thread that is seldom wanted costs no more processor time than before. */
static inline uint64_t atomr_spin_for(uint64_t last_ns, uint64_t least_ns) {
    const uint64_t most = ATOMR_SPIN_LONGER * least_ns;
    if (last_ns >= most || 2 * last_ns <= least_ns) return least_ns;
    return 2 * last_ns < most ? 2 * last_ns : most;
}

/* The least time, where no room is left; else the caller gives its room back by `atomr_spin_ended`. */
static inline uint64_t atomr_spin_begins(atomr_spinners *s, uint64_t wanted_ns, uint64_t least_ns) {
    if (wanted_ns <= least_ns) return least_ns;
    if (atomic_fetch_add_explicit(&s->n, 1, memory_order_relaxed) < s->room) return wanted_ns;
    atomic_fetch_sub_explicit(&s->n, 1, memory_order_relaxed);
    return least_ns;
}

static inline void atomr_spin_ended(atomr_spinners *s, uint64_t spun_ns, uint64_t least_ns) {
    if (spun_ns > least_ns) atomic_fetch_sub_explicit(&s->n, 1, memory_order_relaxed);
}

#endif
