/* Two pages of one communicator, whose words are copied from one to the other and back: ranks vote, step and fail as on
 * one page. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "page_rig.h"
#include "runtime/mirror.h"

enum { RANKS = 2, ROUNDS = 400 };
static atomr_page *pages[RANKS]; /* of the program of each rank */
static _Atomic int stopping, over;

/* The relay of both programs: copies what has changed. */
static void *copy_words(void *unused) {
    (void)unused;
    atomr_rank_words last[RANKS], words;
    memset(last, 0, sizeof last);
    while (!atomic_load(&over))
        for (unsigned rank = 0; rank < RANKS; rank++) {
            atomr_page *const own = pages[rank];
            const uint32_t bell = atomr_mirror_bell(own);
            atomr_mirror_read(own, rank, &words);
            if (memcmp(&words, &last[rank], sizeof words)) {
                last[rank] = words;
                atomr_mirror_write(pages[1 - rank], rank, &words);
            } else {
                atomr_mirror_await(own, bell, 10000);
            }
        }
    return NULL;
}

static int vote(atomr_page *page, unsigned rank, uint64_t sequence, const atomr_error *refusal, atomr_error *why) {
    atomr_page_cast(page, rank, sequence, refusal);
    return atomr_page_count(page, rank, sequence, &stopping, why);
}

static int refuses(unsigned rank, uint64_t sequence) { return sequence % 5 == 0 && sequence / 5 % RANKS == rank; }
static int fails(unsigned rank, uint64_t sequence) { return sequence % 7 == 0 && sequence / 7 % RANKS == rank; }

static void *run_rank(void *argument) {
    const unsigned rank = (unsigned)(uintptr_t)argument, other = 1 - rank;
    atomr_page *const page = pages[rank];
    for (uint64_t sequence = 1; sequence <= ROUNDS; sequence++) {
        atomr_error mine = {.code = ATOMR_LIBRARY_ERROR, .status = (int32_t)sequence, .lib = "test"}, why;
        snprintf(mine.text, sizeof mine.text, "refusal %d of rank %u", (int)sequence, rank);
        const int refused = refuses(rank, sequence);
        atomic_store(&page->ranks[rank].connection, sequence);
        const int met = vote(page, rank, sequence, refused ? &mine : NULL, &why);
        if (met == ATOMR_NOT_MET && !refuses(other, sequence)) { /* it has failed before this rank has seen its vote */
            CHECK(fails(other, sequence));
            CHECK(!strcmp(why.text, "failed"));
            continue;
        }
        CHECK_EQ(met, refuses(other, sequence) ? ATOMR_NOT_MET : ATOMR_MET);
        if (met == ATOMR_NOT_MET) {
            char text[64];
            snprintf(text, sizeof text, "refusal %d of rank %u", (int)sequence, other);
            CHECK(!strcmp(why.text, text));
            CHECK_EQ(why.status, sequence);
        }
        if (met != ATOMR_MET || refused) continue;
        CHECK_EQ(atomr_page_connection(page, sequence), sequence);
        if (rank == 0) memset(page->ranks[0].id, (int)(sequence & 127), ATOMR_ID_BYTES);
        if (fails(rank, sequence)) {
            atomr_page_fail(page, rank, sequence, "test", 3, "name", "failed");
            continue;
        }
        const int stepped = atomr_page_meet(page, rank, sequence, 2, &stopping, &why);
        CHECK_EQ(stepped, fails(other, sequence) ? ATOMR_NOT_MET : ATOMR_MET);
        if (stepped == ATOMR_NOT_MET) CHECK(!strcmp(why.text, "failed"));
        else CHECK_EQ(page->ranks[0].id[ATOMR_ID_BYTES - 1], (int)(sequence & 127));
    }
    return NULL;
}

static void test_ranks_agree(void) {
    pthread_t relay, ranks[RANKS];
    for (unsigned i = 0; i < RANKS; i++) pages[i] = page_new(RANKS);
    for (unsigned i = 0; i < RANKS; i++) atomr_mirror_follow(pages[i]);
    pthread_create(&relay, NULL, copy_words, NULL);
    for (unsigned i = 0; i < RANKS; i++) pthread_create(&ranks[i], NULL, run_rank, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < RANKS; i++) pthread_join(ranks[i], NULL);
    atomic_store(&over, 1);
    pthread_join(relay, NULL);
    for (unsigned i = 0; i < RANKS; i++) {
        atomr_mirror_leave(pages[i]);
        CHECK_EQ(atomic_load(&pages[i]->sleepers), 0);
    }
    for (unsigned i = 0; i < RANKS; i++) free(pages[i]);
}

static void test_a_loss_is_copied(void) {
    atomr_page *const from = page_new(RANKS), *const to = page_new(RANKS);
    atomr_rank_words words;
    atomr_error why;
    atomr_page_lose(from, 1, 3, ATOMR_DEVICE_FAULT, 4);
    atomr_page_bury(from, 1, ATOMR_DEVICE_FAULT, 4);
    const uint32_t bell = atomr_mirror_bell(to);
    atomr_mirror_read(from, 1, &words);
    atomr_mirror_write(to, 1, &words);
    CHECK(atomr_mirror_bell(to) != bell);
    CHECK_EQ(atomic_load(&to->seats[1].deaths), 1);
    CHECK_EQ(vote(to, 0, 3, NULL, &why), ATOMR_NOT_MET);
    CHECK_EQ(why.status, 4);
    free(from);
    free(to);
}

int main(int argc, char **argv) {
    RUN(test_ranks_agree);
    RUN(test_a_loss_is_copied);
    return check_end(argc, argv);
}
