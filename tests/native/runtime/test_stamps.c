/* Stamps: which tickets may still use a piece of memory. */
#include "pool_rig.h"

static void test_stamp_fields(void) {
    const atomr_stamp s = atomr_stamp_make(63, ATOMR_TICKET_MASK);
    CHECK_EQ(atomr_stamp_lane(s), 63);
    CHECK(atomr_stamp_ticket(s) == ATOMR_TICKET_MASK);
    CHECK_EQ(atomr_stamp_lane(atomr_stamp_make(0, 7)), 0);
    CHECK_EQ(atomr_stamp_ticket(atomr_stamp_make(0, 7)), 7);
}

static void check_against(const atomr_stamps *s, const uint64_t *want) {
    uint32_t n = 0;
    for (unsigned lane = 0; lane < ATOMR_LANES; lane++) {
        if (want[lane] == 0) continue;
        CHECK(n < s->n);
        CHECK(atomr_stamps_data(s)[n] == atomr_stamp_make(lane, want[lane]));
        n++;
    }
    CHECK_EQ(s->n, n);
}

static void test_stamps_random(void) {
    uint64_t rng = 7;
    for (int round = 0; round < 3000; round++) {
        /* Few lanes in some rounds, all in others: inline, on the heap, and the way between. */
        const unsigned lanes = 1 + check_random(&rng) % (round % 2 ? 5 : ATOMR_LANES);
        uint64_t want[2][ATOMR_LANES] = {{0}};
        atomr_stamps sets[2];
        for (int k = 0; k < 2; k++) {
            atomr_stamps_init(&sets[k]);
            for (uint64_t i = check_random(&rng) % 80; i > 0; i--) {
                const unsigned lane = check_random(&rng) % lanes;
                const uint64_t ticket = 1 + check_random(&rng) % 100;
                CHECK_EQ(atomr_stamps_add(&sets[k], atomr_stamp_make(lane, ticket)), 0);
                if (ticket > want[k][lane]) want[k][lane] = ticket;
            }
            check_against(&sets[k], want[k]);
        }
        CHECK_EQ(atomr_stamps_merge(&sets[0], &sets[1]), 0);
        CHECK_EQ(atomr_stamps_merge(&sets[0], &sets[0]), 0);
        check_against(&sets[1], want[1]);
        for (unsigned i = 0; i < ATOMR_LANES; i++) {
            if (want[1][i] > want[0][i]) want[0][i] = want[1][i];
            atomic_store(&completed[i], check_random(&rng) % 100);
        }
        check_against(&sets[0], want[0]);

        /* Moved as bytes: the struct must not point into itself. */
        atomr_stamps elsewhere;
        memcpy(&elsewhere, &sets[0], sizeof elsewhere);
        memset(&sets[0], 0xee, sizeof sets[0]);
        check_against(&elsewhere, want[0]);
        atomr_stamps_init(&sets[0]);

        atomr_stamps_move(&sets[1], &elsewhere);
        CHECK_EQ(elsewhere.n, 0);
        check_against(&sets[1], want[0]);
        atomr_stamps_prune(&sets[1], is_resolved, NULL);
        int open = 0;
        for (unsigned i = 0; i < ATOMR_LANES; i++) {
            if (want[0][i] <= atomic_load(&completed[i])) want[0][i] = 0;
            open |= want[0][i] != 0;
        }
        check_against(&sets[1], want[0]);
        CHECK_EQ(atomr_stamps_drained(&sets[1], is_resolved, NULL), !open);
        check_against(&sets[1], want[0]); /* what is open is never dropped */
        complete_all();
        CHECK(atomr_stamps_drained(&sets[1], is_resolved, NULL));
        CHECK_EQ(sets[1].n, 0);
        atomr_stamps_release(&sets[1]);
        atomr_stamps_release(&sets[1]);
    }
}

static void test_stamps_without_memory(void) {
    atomr_stamps a, b;
    atomr_stamps_init(&a);
    atomr_stamps_init(&b);
    fail_all = 1;
    for (unsigned lane = 0; lane < 3; lane++) {
        CHECK_EQ(atomr_stamps_add(&a, atomr_stamp_make(lane, 5)), 0);
        CHECK_EQ(atomr_stamps_add(&b, atomr_stamp_make(lane + 1, 6)), 0);
    }
    CHECK_EQ(atomr_stamps_add(&a, atomr_stamp_make(9, 1)), -1);
    CHECK_EQ(atomr_stamps_merge(&a, &b), -1);
    CHECK_EQ(a.n, 3);
    CHECK(has(&a, 0, 5) && has(&a, 1, 5) && has(&a, 2, 5));
    CHECK_EQ(atomr_stamps_add(&a, atomr_stamp_make(2, 8)), 0); /* a lane it has needs no room */
    CHECK(has(&a, 2, 8));
    fail_all = 0;
    CHECK_EQ(atomr_stamps_merge(&a, &b), 0);
    CHECK_EQ(a.n, 4);
    CHECK(has(&a, 0, 5) && has(&a, 1, 6) && has(&a, 2, 8) && has(&a, 3, 6));
    atomr_stamps_clear(&a);
    CHECK_EQ(a.n, 0);
    atomr_stamps_release(&a);
}

int main(int argc, char **argv) {
    RUN(test_stamp_fields);
    RUN(test_stamps_random);
    RUN(test_stamps_without_memory);
    return check_end(argc, argv);
}
