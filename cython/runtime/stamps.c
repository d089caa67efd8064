#include "runtime/stamps.h"

#include <stdlib.h>
#include <string.h>

static inline atomr_stamp *data_of(atomr_stamps *s) { return s->items != NULL ? s->items : s->few; }

static int reserve(atomr_stamps *s, uint32_t need) {
    if (need <= (s->items != NULL ? s->cap : ATOMR_STAMPS_FEW)) return 0;
    /* One stamp per lane bounds it: 8, 16, 32, 64. */
    uint32_t cap = 8;
    while (cap < need) cap *= 2;
    atomr_stamp *items = realloc(s->items, cap * sizeof *items);
    if (items == NULL) return -1;
    if (s->items == NULL) memcpy(items, s->few, s->n * sizeof *items);
    s->items = items;
    s->cap = cap;
    return 0;
}

void atomr_stamps_release(atomr_stamps *s) {
    free(s->items);
    atomr_stamps_init(s);
}

int atomr_stamps_add(atomr_stamps *s, atomr_stamp stamp) {
    const unsigned lane = atomr_stamp_lane(stamp);
    atomr_stamp *a = data_of(s);
    uint32_t at = s->n;
    /* Linear: sets are small, and the stamps above have to be shifted anyway. */
    while (at > 0 && atomr_stamp_lane(a[at - 1]) > lane) at--;
    if (at > 0 && atomr_stamp_lane(a[at - 1]) == lane) {
        if (stamp > a[at - 1]) a[at - 1] = stamp;
        return 0;
    }
    if (reserve(s, s->n + 1) != 0) return -1;
    a = data_of(s);
    memmove(a + at + 1, a + at, (s->n - at) * sizeof *a);
    a[at] = stamp;
    s->n++;
    return 0;
}

int atomr_stamps_merge(atomr_stamps *into, const atomr_stamps *from) {
    if (into == from || from->n == 0) return 0;
    const atomr_stamp *b = atomr_stamps_data(from);
    const atomr_stamp *a = atomr_stamps_data(into);
    uint32_t i = 0, j = 0, lanes = 0;
    for (; i < into->n && j < from->n; lanes++) {
        const unsigned x = atomr_stamp_lane(a[i]), y = atomr_stamp_lane(b[j]);
        i += x <= y;
        j += y <= x;
    }
    lanes += (into->n - i) + (from->n - j);
    /* The only step that can fail comes before the first change. */
    if (reserve(into, lanes) != 0) return -1;

    /* Backward and in place: the write position never falls below the next unread stamp of `into`. */
    atomr_stamp *to = data_of(into);
    uint32_t at = lanes;
    i = into->n;
    j = from->n;
    while (j > 0) {
        if (i == 0 || atomr_stamp_lane(to[i - 1]) < atomr_stamp_lane(b[j - 1])) {
            to[--at] = b[--j];
        } else if (atomr_stamp_lane(to[i - 1]) > atomr_stamp_lane(b[j - 1])) {
            to[--at] = to[--i];
        } else {
            i--, j--;
            to[--at] = to[i] > b[j] ? to[i] : b[j];
        }
    }
    into->n = lanes;
    return 0;
}

void atomr_stamps_prune(atomr_stamps *s, atomr_resolved_fn resolved, void *ctx) {
    atomr_stamp *a = data_of(s);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!resolved(ctx, a[i])) a[kept++] = a[i];
    }
    s->n = kept;
}

int atomr_stamps_drained(atomr_stamps *s, atomr_resolved_fn resolved, void *ctx) {
    const atomr_stamp *a = data_of(s);
    /* From the end, so that dropping one is a decrement and the order by lane stays. */
    while (s->n > 0 && resolved(ctx, a[s->n - 1])) s->n--;
    return s->n == 0;
}

void atomr_stamps_move(atomr_stamps *to, atomr_stamps *from) {
    if (to == from) return;
    free(to->items);
    *to = *from;
    atomr_stamps_init(from);
}
