/* How long threads spin before they park, and for how many there is room to spin longer. */
#include <pthread.h>

#include "check.h"
#include "runtime/spinning.h"

static void test_time(void) {
    CHECK_EQ(atomr_spin_for(0, 50), 50);
    CHECK_EQ(atomr_spin_for(25, 50), 50);
    CHECK_EQ(atomr_spin_for(26, 50), 52);
    CHECK_EQ(atomr_spin_for(120, 50), 240);
    CHECK_EQ(atomr_spin_for(300, 50), 400); /* eight times the least, not more */
    CHECK_EQ(atomr_spin_for(399, 50), 400);
    CHECK_EQ(atomr_spin_for(400, 50), 50); /* that would not be met */
    CHECK_EQ(atomr_spin_for(UINT64_MAX, 50), 50);
    CHECK_EQ(atomr_spin_for(100, 0), 0); /* whoever is not to spin does not */
}

static void test_room(void) {
    atomr_spinners s = {0, 2};
    CHECK_EQ(atomr_spin_begins(&s, 50, 50), 50); /* takes none */
    CHECK_EQ(atomr_spin_begins(&s, 200, 50), 200);
    CHECK_EQ(atomr_spin_begins(&s, 300, 50), 300);
    CHECK_EQ(atomr_spin_begins(&s, 400, 50), 50);
    atomr_spin_ended(&s, 50, 50); /* of one that had none */
    CHECK_EQ(atomr_spin_begins(&s, 400, 50), 50);
    atomr_spin_ended(&s, 200, 50);
    CHECK_EQ(atomr_spin_begins(&s, 400, 50), 400);
    atomr_spinners none = {0, 0}; /* few processors */
    CHECK_EQ(atomr_spin_begins(&none, 400, 50), 50);
    CHECK_EQ(none.n, 0);
}

enum { THREADS = 4, ROOM = 2, TURNS = 20000 };
static atomr_spinners shared = {0, ROOM};
static _Atomic int inside, most;

static void *take_turns(void *unused) {
    for (int i = 0; i < TURNS; i++) {
        const uint64_t spin = atomr_spin_begins(&shared, 400, 50);
        if (spin > 50) {
            const int now = atomic_fetch_add(&inside, 1) + 1;
            if (now > atomic_load(&most)) atomic_store(&most, now);
            CHECK(now <= ROOM);
            atomic_fetch_sub(&inside, 1);
        }
        atomr_spin_ended(&shared, spin, 50);
    }
    return unused;
}

static void test_threads(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(atomic_load(&most) >= 1);
    CHECK_EQ(shared.n, 0);
}

int main(int argc, char **argv) {
    RUN(test_time);
    RUN(test_room);
    RUN(test_threads);
    return check_end(argc, argv);
}
