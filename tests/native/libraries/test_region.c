/* Parts of memory for a library: they never overlap, stay inside, and all of them are one again when they are given back. */
#include <stdlib.h>

#include "check.h"
#include "libraries/cudss/region.h"

enum { PARTS = 40, MEMORY = 1 << 16, OTHER = 1 << 15, STEPS = 20000 };

static uint64_t free_bytes(const atomr_region *r, unsigned *pieces) {
    uint64_t sum = 0;
    *pieces = 0;
    for (const atomr_part *p = r->parts; p; p = p->next)
        if (!p->used) sum += p->size, ++*pieces;
    return sum;
}

static void test_what_is_taken_comes_back_as_one(void) {
    atomr_region r = {0};
    CHECK_EQ(atomr_region_take(&r, 1), 0);
    CHECK_EQ(atomr_region_add(&r, 4096 + 8, 1100), 0); /* 3 times 256 from 4352 on */
    const uint64_t a = atomr_region_take(&r, 0), b = atomr_region_take(&r, 257);
    CHECK_EQ(a, 4352);
    CHECK_EQ(b, 4608);
    CHECK_EQ(r.used, 768);
    CHECK_EQ(atomr_region_take(&r, 1), 0);
    CHECK_EQ(atomr_region_give(&r, b + 1), -1);
    CHECK_EQ(atomr_region_give(&r, a), 0);
    CHECK_EQ(atomr_region_give(&r, a), -1);
    CHECK_EQ(atomr_region_give(&r, b), 0);
    CHECK_EQ(atomr_region_take(&r, 768), 4352);
    CHECK_EQ(r.most, 768);
    atomr_region_clear(&r);
}

static void test_random_parts_lie_apart(void) {
    atomr_region r = {0};
    const uint64_t first = 1 << 20, second = 1 << 24;
    CHECK_EQ(atomr_region_add(&r, first, MEMORY), 0);
    CHECK_EQ(atomr_region_add(&r, second, OTHER), 0);
    uint64_t at[PARTS] = {0}, size[PARTS] = {0}, used = 0;
    unsigned refused = 0, pieces;
    srand(7);
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned i = (unsigned)rand() % PARTS;
        if (at[i]) {
            CHECK_EQ(atomr_region_give(&r, at[i]), 0);
            used -= size[i];
            at[i] = 0;
        } else {
            const uint64_t wanted = (uint64_t)rand() % 9000;
            at[i] = atomr_region_take(&r, wanted);
            size[i] = ((wanted ? wanted : 1) + 255) / 256 * 256;
            refused += !at[i];
            if (!at[i]) continue;
            used += size[i];
            CHECK_EQ(at[i] % 256, 0);
            const uint64_t base = at[i] < second ? first : second, whole = at[i] < second ? MEMORY : OTHER;
            CHECK(at[i] >= base && at[i] + size[i] <= base + whole);
            for (unsigned j = 0; j < PARTS; j++)
                if (j != i && at[j]) CHECK(at[i] + size[i] <= at[j] || at[j] + size[j] <= at[i]);
        }
        CHECK_EQ(r.used, used);
        CHECK_EQ(free_bytes(&r, &pieces) + used, MEMORY + OTHER);
    }
    CHECK(refused > 0);
    for (unsigned i = 0; i < PARTS; i++)
        if (at[i]) CHECK_EQ(atomr_region_give(&r, at[i]), 0);
    CHECK_EQ(free_bytes(&r, &pieces), MEMORY + OTHER);
    CHECK_EQ(pieces, 2);
    atomr_region_clear(&r);
}

int main(int argc, char **argv) {
    RUN(test_what_is_taken_comes_back_as_one);
    RUN(test_random_parts_lie_apart);
    return check_end(argc, argv);
}
