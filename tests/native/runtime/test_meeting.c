/* Votes of ranks of which some are lost: each wait ends, and ranks that live come to one result. */
#include "page_rig.h"

enum { RANKS = 3 };
static const _Atomic int stopping = 1; /* what has to wait leaves instead */

static int count(atomr_page *page, unsigned rank, uint64_t sequence) {
    atomr_error why;
    return atomr_page_count(page, rank, sequence, &stopping, &why);
}

static void cast_all(atomr_page *page, uint64_t sequence, uint64_t connection) {
    for (unsigned i = 0; i < page->n_ranks; i++) {
        atomic_store(&page->ranks[i].connection, connection);
        atomr_page_cast(page, i, sequence, NULL);
    }
}

static void test_ranks_wait_for_each_other(void) {
    atomr_page *const page = page_new(RANKS);
    atomr_page_cast(page, 0, 1, NULL);
    atomr_page_cast(page, 1, 1, NULL);
    CHECK_EQ(count(page, 0, 1), ATOMR_LEFT);
    atomr_page_cast(page, 2, 1, NULL);
    for (unsigned i = 0; i < RANKS; i++) CHECK_EQ(count(page, i, 1), ATOMR_MET);
    free(page);
}

/* Rank 2 dies in the second message, so rank 0 goes on to the third before rank 1 has counted the first. */
static void test_a_slow_rank_counts_a_vote_that_was_overwritten(void) {
    atomr_page *const page = page_new(RANKS);
    cast_all(page, 1, 7);
    CHECK_EQ(count(page, 2, 1), ATOMR_MET);
    CHECK_EQ(count(page, 0, 1), ATOMR_MET);
    CHECK_EQ(atomr_page_connection(page, 1), 7);
    atomr_page_lose(page, 2, 2, ATOMR_DEVICE_FAULT, 0);
    atomr_page_cast(page, 0, 2, NULL);
    CHECK_EQ(count(page, 0, 2), ATOMR_NOT_MET);
    const atomr_error refusal = {.code = ATOMR_LIBRARY_ERROR, .lib = "test"};
    atomr_page_cast(page, 0, 3, &refusal); /* in the place of its first vote */
    CHECK_EQ(count(page, 1, 1), ATOMR_MET);
    CHECK_EQ(atomr_page_connection(page, 1), 0); /* it cannot know any more, and takes part in nothing */
    atomr_page_cast(page, 1, 2, NULL);
    CHECK_EQ(count(page, 1, 2), ATOMR_NOT_MET);
    CHECK_EQ(count(page, 0, 3), ATOMR_LEFT); /* it waits for the new worker of rank 2, and for rank 1 */
    free(page);
}

/* The same with two: the worker of rank 1 dies, and the next one votes, before rank 0 has counted. */
static void test_a_rank_that_is_back_has_voted_again(void) {
    atomr_page *const page = page_new(2);
    cast_all(page, 4, 2);
    CHECK_EQ(count(page, 1, 4), ATOMR_MET);
    atomr_page_cast(page, 1, 5, NULL);
    atomr_page_lose(page, 1, 5, ATOMR_DEVICE_FAULT, 0);
    atomr_page_bury(page, 1, ATOMR_DEVICE_FAULT, 0);
    atomr_page_begin(page, 1);
    atomr_page_cast(page, 1, 6, NULL);
    CHECK_EQ(count(page, 0, 4), ATOMR_MET);
    atomr_page_cast(page, 0, 5, NULL);
    CHECK_EQ(count(page, 0, 5), ATOMR_MET); /* it had voted before it died */
    atomr_error why;
    CHECK_EQ(atomr_page_meet(page, 0, 5, 2, &stopping, &why), ATOMR_NOT_MET);
    free(page);
}

/* Another process's page: rank 0 has counted all votes, and its words are here before those of rank 2. */
static void test_a_vote_that_is_on_its_way_is_waited_for(void) {
    atomr_page *const page = page_new(RANKS);
    atomr_page_cast(page, 0, 1, NULL);
    atomr_page_cast(page, 1, 1, NULL);
    atomic_store(&page->ranks[0].step, (uint64_t)1 << ATOMR_STEP_BITS | ATOMR_STEP_BEGUN);
    CHECK_EQ(count(page, 1, 1), ATOMR_LEFT);
    atomr_page_cast(page, 2, 1, NULL);
    CHECK_EQ(count(page, 1, 1), ATOMR_MET);
    free(page);
}

/* Nobody was ready for a message, so a vote that is gone ends it by the loss. */
static void test_a_message_that_nobody_began_ends_by_the_loss(void) {
    atomr_page *const page = page_new(RANKS);
    const atomr_error refusal = {.code = ATOMR_LIBRARY_ERROR, .lib = "test"};
    for (unsigned i = 0; i < RANKS; i++) atomr_page_cast(page, i, 1, i == 2 ? &refusal : NULL);
    CHECK_EQ(count(page, 0, 1), ATOMR_NOT_MET);
    atomr_page_lose(page, 2, 2, ATOMR_DEVICE_FAULT, 0);
    atomr_page_cast(page, 0, 2, NULL);
    CHECK_EQ(count(page, 0, 2), ATOMR_NOT_MET);
    atomr_page_cast(page, 0, 3, NULL);
    CHECK_EQ(count(page, 1, 1), ATOMR_NOT_MET);
    free(page);
}

int main(int argc, char **argv) {
    RUN(test_ranks_wait_for_each_other);
    RUN(test_a_slow_rank_counts_a_vote_that_was_overwritten);
    RUN(test_a_rank_that_is_back_has_voted_again);
    RUN(test_a_vote_that_is_on_its_way_is_waited_for);
    RUN(test_a_message_that_nobody_began_ends_by_the_loss);
    return check_end(argc, argv);
}
