/* Connections of ranks by NCCL, with deaths and errors at random moments: nothing waits without end, the library is used
 * by its rules, and work that was aborted is never a value.
 *
 * Ranks are threads that run messages as a lane does: vote, connect, call, wait for the work, judge.  The library is a
 * table of functions below.  Deaths are told as the parent tells them. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "page_rig.h"
#include "libraries/nccl/connection.h"

enum { RANKS = 3, MESSAGES = 400, ROUNDS = 5, ROOMS = 8192 };

/* ---- the library */

/* The whole, which does not block, or its part, which does.  Kept after its abort, so that a use is found out. */
struct ncclComm {
    int rank, room;
    _Atomic int inside, gone;
    _Atomic int aborted; /* of the whole */
    struct ncclComm *part, **made;
    struct ncclComm *whole; /* of the part */
    int calls;              /* by the lane */
};
typedef struct {
    _Atomic int joined, divided, issued[MESSAGES + 2]; /* ranks in each of its calls */
    struct ncclComm *comms[RANKS], *parts[RANKS];
} room_of_ranks;
static room_of_ranks rooms[ROOMS];
static _Atomic int n_rooms, n_errors, is_sound;

static void enter(struct ncclComm *c) {
    CHECK(!atomic_load(&c->gone));
    CHECK(atomic_fetch_add(&c->inside, 1) == 0); /* a communicator is used by one thread at a time */
}

static void leave(struct ncclComm *c) { atomic_fetch_sub(&c->inside, 1); }

static ncclResult_t get_id(ncclUniqueId *id) {
    const int room = atomic_fetch_add(&n_rooms, 1);
    CHECK(room < ROOMS);
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &room, sizeof room);
    return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *comm, int n, ncclUniqueId id, int rank, atomr_nccl_config *config) {
    CHECK(n == RANKS && config->blocking == 0 && config->splitShare == 1);
    struct ncclComm *const c = calloc(1, sizeof *c);
    CHECK(c);
    memcpy(&c->room, id.internal, sizeof c->room);
    c->rank = rank;
    rooms[c->room].comms[rank] = c;
    atomic_fetch_add(&rooms[c->room].joined, 1);
    *comm = c;
    return ncclInProgress;
}

static ncclResult_t split(ncclComm_t whole, int color, int key, ncclComm_t *part, atomr_nccl_config *config) {
    CHECK(color == 0 && key == whole->rank && config->blocking == 1);
    enter(whole);
    struct ncclComm *const c = calloc(1, sizeof *c);
    CHECK(c);
    c->rank = whole->rank;
    c->room = whole->room;
    c->whole = whole;
    whole->part = rooms[c->room].parts[c->rank] = c;
    whole->made = part;
    atomic_fetch_add(&rooms[c->room].divided, 1);
    leave(whole);
    return rand() % 2 ? ncclInProgress : ncclSuccess; /* as older and newer versions do */
}

static void give_part(struct ncclComm *c) {
    if (c->part) *c->made = c->part;
    c->part = NULL;
}

static ncclResult_t async_error(ncclComm_t c, ncclResult_t *status) {
    enter(c);
    *status = atomic_load(&rooms[c->room].joined) < RANKS ||
                      (c->part && atomic_load(&rooms[c->room].divided) < RANKS) ? ncclInProgress : ncclSuccess;
    if (*status == ncclSuccess && !c->whole) give_part(c);
    if (*status == ncclSuccess && !atomic_load(&is_sound) && rand() % 300 == 0) { /* which no thread's order decides */
        atomic_fetch_add(&n_errors, 1);
        *status = ncclRemoteError;
    }
    leave(c);
    return ncclSuccess;
}

static ncclResult_t stop(ncclComm_t c) {
    CHECK(atomic_fetch_add(&c->inside, 1) == 0);
    if (rand() % 4 == 0) usleep(300);
    atomic_store(c->whole ? &c->whole->aborted : &c->aborted, 1);
    if (!c->whole) give_part(c);
    atomic_store(&c->gone, 1);
    return ncclSuccess;
}

static const char *text_of(ncclResult_t r) { return r == ncclSuccess ? "" : "an error"; }
static const char *last_error(ncclComm_t c) {
    (void)c;
    return "";
}

static const atomr_nccl_table table = {.ncclGetUniqueId = get_id, .ncclCommInitRankConfig = init,
                                       .ncclCommSplit = split,
                                       .ncclCommGetAsyncError = async_error, .ncclCommAbort = stop,
                                       .ncclGetErrorString = text_of, .ncclGetLastError = last_error};

/* ---- what connections use besides */

typedef struct {
    unsigned rank;
    atomr_page *page;
    _Atomic int stopping;
    atomr_nccl_connection *connection;
    uint32_t random;
    unsigned deaths, values, failures;
} lane;

const atomr_nccl_table *__wrap_atomr_nccl_load(const char *path, char *why, size_t size);
const atomr_nccl_table *__wrap_atomr_nccl_load(const char *path, char *why, size_t size) {
    (void)path, (void)why, (void)size;
    return &table;
}
CUresult __wrap_atomr_cuda_enter(atomr_cuda *c);
CUresult __wrap_atomr_cuda_enter(atomr_cuda *c) {
    (void)c;
    return CUDA_SUCCESS;
}
void __wrap_atomr_worker_end(atomr_worker *k, const char *what);
void __wrap_atomr_worker_end(atomr_worker *k, const char *what) {
    (void)k;
    fprintf(stderr, "a worker was ended: %s\n", what);
    CHECK(0);
}
const _Atomic int *__wrap_atomr_worker_stopping(const atomr_worker *k);
const _Atomic int *__wrap_atomr_worker_stopping(const atomr_worker *k) { return &((lane *)(uintptr_t)k)->stopping; }

static void connect_anew(lane *l) {
    atomr_failure failure;
    int code;
    atomr_page_begin(l->page, l->rank);
    l->connection = atomr_nccl_connection_new(NULL, (atomr_worker *)l, l->page, l->rank, &code, &failure);
    CHECK(l->connection && code == ATOMR_OK);
}

static unsigned draw(lane *l, unsigned n) {
    l->random = l->random * 1664525u + 1013904223u;
    return (l->random >> 8) % n;
}

/* The worker of a rank dies and another one begins, as the others see it; `sequence`: of the message that it was running. */
static void die(lane *l, uint64_t sequence) {
    l->deaths++;
    if (sequence) atomr_page_lose(l->page, l->rank, sequence, ATOMR_DEVICE_FAULT, 0);
    atomr_page_bury(l->page, l->rank, ATOMR_DEVICE_FAULT, 0);
    if (draw(l, 2)) usleep(draw(l, 2000));
    atomr_nccl_connection_delete(l->connection);
    connect_anew(l);
}

/* Run a message as a lane does. */
static void run(lane *l, uint64_t sequence) {
    atomr_error why, refusal;
    atomr_failure failure;
    memset(&failure, 0, sizeof failure);
    memset(&refusal, 0, sizeof refusal);
    refusal.code = ATOMR_LIBRARY_ERROR;
    const unsigned moment = draw(l, 120); /* of its death, mostly none */
    if (moment == 0) die(l, 0);
    const int refuses = draw(l, 50) == 0;
    atomr_page_cast(l->page, l->rank, sequence, refuses ? &refusal : NULL);
    const int met = atomr_page_count(l->page, l->rank, sequence, &l->stopping, &why);
    CHECK(met != ATOMR_LEFT);
    if (met != ATOMR_MET || refuses) {
        l->failures++;
        return;
    }
    if (moment == 1) {
        die(l, sequence);
        return;
    }
    if (atomr_nccl_connect(l->connection, sequence, &failure) != ATOMR_OK) {
        l->failures++;
        return;
    }
    if (moment == 2) {
        die(l, sequence);
        return;
    }
    ncclComm_t comm;
    if (atomr_nccl_begin(l->connection, sequence, &comm, &failure) != ATOMR_OK) {
        l->failures++;
        return;
    }
    enter(comm);
    room_of_ranks *const room = &rooms[comm->room];
    const int call_number = comm->calls++;
    atomic_fetch_add(&room->issued[call_number], 1);
    /* The first call makes connections: it waits for the others, who may never come. */
    while (call_number == 0 && atomic_load(&room->issued[0]) < RANKS && !atomic_load(&comm->whole->aborted)) sched_yield();
    const int made = !atomic_load(&comm->whole->aborted);
    leave(comm);
    const ncclResult_t status = made ? ncclSuccess : ncclInternalError;
    if (atomr_nccl_end(l->connection, sequence, status, "a call", &failure) != ATOMR_OK) {
        l->failures++;
        return;
    }
    _Atomic int32_t info[2];
    atomr_late late = {NULL, NULL, 0};
    atomr_call call = {0};
    const uint64_t scalars[ATOMR_KEY_WORDS] = {0, sequence};
    call.info = info;
    call.scalars = scalars;
    call.late = &late;
    atomr_nccl_judge_late(l->connection, &call);
    if (moment == 3) {
        die(l, sequence);
        return;
    }
    /* The kernel: it waits for those of the others, without end, unless it is aborted. */
    while (atomic_load(&room->issued[call_number]) < RANKS && !atomic_load(&comm->whole->aborted)) sched_yield();
    const int whole = atomic_load(&room->issued[call_number]) == RANKS;
    const int code = late.judge(late.context, info, &failure);
    if (code == ATOMR_OK) CHECK(whole); /* work that was aborted is never a value */
    if (code == ATOMR_OK) l->values++;
    else l->failures++;
}

static void *lane_main(void *argument) {
    lane *const l = argument;
    for (uint64_t sequence = 1; sequence <= MESSAGES; sequence++) run(l, sequence);
    return NULL;
}

static void try_messages(unsigned seed) {
    atomr_page *const page = page_new(RANKS);
    lane lanes[RANKS];
    pthread_t threads[RANKS];
    memset(lanes, 0, sizeof lanes);
    for (unsigned i = 0; i < RANKS; i++) {
        lanes[i].rank = i;
        lanes[i].page = page;
        lanes[i].random = RANKS * seed + i;
        snprintf(page->seats[i].device, sizeof page->seats[i].device, "cuda:%u", i);
        connect_anew(&lanes[i]);
    }
    for (unsigned i = 0; i < RANKS; i++) CHECK(pthread_create(&threads[i], NULL, lane_main, &lanes[i]) == 0);
    unsigned deaths = 0, values = 0, failures = 0;
    for (unsigned i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        deaths += lanes[i].deaths;
        values += lanes[i].values;
        failures += lanes[i].failures;
    }
    for (unsigned i = 0; i < RANKS; i++) atomr_nccl_connection_delete(lanes[i].connection);
    CHECK(deaths > 10 && values > MESSAGES && failures > 10);
    free(page);
}

static void test_ranks_that_die_and_fail(void) {
    for (unsigned seed = 0; seed < ROUNDS; seed++) try_messages(seed);
    CHECK(atomic_load(&n_errors) > 0);
}

/* As a lane does, whose rank has nothing to say against it. */
static void *connect_all(void *argument) {
    lane *const l = argument;
    atomr_error why;
    atomr_failure failure;
    atomr_page_cast(l->page, l->rank, 1, NULL);
    CHECK_EQ(atomr_page_count(l->page, l->rank, 1, &l->stopping, &why), ATOMR_MET);
    CHECK_EQ(atomr_nccl_connect(l->connection, 1, &failure), ATOMR_OK);
    return NULL;
}

/* A rank breaks its connection, and goes on to a message that moves nothing before the others look: they find out. */
static void test_a_failure_that_no_step_tells(void) {
    atomr_page *const page = page_new(RANKS);
    lane lanes[RANKS];
    pthread_t threads[RANKS];
    memset(lanes, 0, sizeof lanes);
    atomic_store(&is_sound, 1);
    for (unsigned i = 0; i < RANKS; i++) {
        lanes[i].rank = i;
        lanes[i].page = page;
        connect_anew(&lanes[i]);
        CHECK(pthread_create(&threads[i], NULL, connect_all, &lanes[i]) == 0);
    }
    for (unsigned i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(atomr_page_connected(page), 1);
    atomic_store(&page->ranks[1].connection, 0);
    while (atomic_load(&page->ranks[0].connection) || atomic_load(&page->ranks[2].connection)) sched_yield();
    for (unsigned i = 0; i < RANKS; i++) atomr_nccl_connection_delete(lanes[i].connection);
    atomic_store(&is_sound, 0);
    free(page);
}

int main(int argc, char **argv) {
    alarm(120); /* a wait without end */
    RUN(test_ranks_that_die_and_fail);
    RUN(test_a_failure_that_no_step_tells);
    return check_end(argc, argv);
}
