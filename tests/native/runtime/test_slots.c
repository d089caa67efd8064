/* Slots of allocations: used again in turn, but for those whose generations are exhausted. */
#include "rig.h"

#include "runtime/sender_private.h"

/* A generation that came again would make a stale handle one of a live array. */
static void test_an_exhausted_slot_is_never_used_again(void) {
    rig r;
    rig_open(&r, 64, 1, 3);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 14);
    rig_start_worker(&r);
    rig_buffer worn = rig_alloc(&r, ATOMR_VOLATILE, 256), other = rig_alloc(&r, ATOMR_VOLATILE, 256);
    worn.generation = r.s->slots[worn.slot].generation = UINT32_MAX - 1;
    CHECK_EQ(atomr_free(r.s, worn.slot, worn.generation), ATOMR_DONE);
    CHECK_EQ(atomr_free(r.s, other.slot, other.generation), ATOMR_DONE);
    CHECK_EQ(atomr_check(r.s, worn.slot, worn.generation), ATOMR_STALE);
    int again = 0;
    for (unsigned i = 0; i < 1000; i++) {
        rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, 256);
        CHECK(b.slot != worn.slot);
        again += b.slot == other.slot;
        CHECK_EQ(atomr_free(r.s, b.slot, b.generation), ATOMR_DONE);
    }
    CHECK(again > 1);
    rig_close(&r);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_an_exhausted_slot_is_never_used_again);
    return check_end(argc, argv);
}
