#include "libraries/cudss/region.h"

#include <stdlib.h>

enum { ALIGNMENT = 256 };

static uint64_t up(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static atomr_part *part_of(uint64_t at, uint64_t size, atomr_part *next) {
    atomr_part *const p = malloc(sizeof *p);
    if (p) *p = (atomr_part){at, size, 0, next};
    return p;
}

int atomr_region_add(atomr_region *r, uint64_t at, uint64_t size) {
    const uint64_t first = up(at);
    if (size < first - at + ALIGNMENT) return 0;
    atomr_part **place = &r->parts;
    while (*place) place = &(*place)->next;
    *place = part_of(first, (size - (first - at)) / ALIGNMENT * ALIGNMENT, NULL);
    return *place ? 0 : -1;
}

uint64_t atomr_region_take(atomr_region *r, uint64_t size) {
    const uint64_t wanted = up(size ? size : 1);
    for (atomr_part *p = r->parts; p; p = p->next) {
        if (p->used || p->size < wanted) continue;
        if (p->size > wanted) {
            atomr_part *const rest = part_of(p->at + wanted, p->size - wanted, p->next);
            if (!rest) return 0;
            p->size = wanted;
            p->next = rest;
        }
        p->used = 1;
        r->used += p->size;
        if (r->used > r->most) r->most = r->used;
        return p->at;
    }
    return 0;
}

int atomr_region_give(atomr_region *r, uint64_t at) {
    atomr_part *before = NULL;
    for (atomr_part *p = r->parts; p; before = p, p = p->next) {
        if (!p->used || p->at != at) continue;
        p->used = 0;
        r->used -= p->size;
        atomr_part *const next = p->next;
        if (next && !next->used && p->at + p->size == next->at) {
            p->size += next->size;
            p->next = next->next;
            free(next);
        }
        if (before && !before->used && before->at + before->size == p->at) {
            before->size += p->size;
            before->next = p->next;
            free(p);
        }
        return 0;
    }
    return -1;
}

void atomr_region_clear(atomr_region *r) {
    while (r->parts) {
        atomr_part *const next = r->parts->next;
        free(r->parts);
        r->parts = next;
    }
    r->used = r->most = 0;
}
