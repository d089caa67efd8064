/* Messages that read an open outcome: which of them are sure to fail, so that they must not run. */
#include "check.h"
#include "runtime/poison.h"

static atomr_wheader header;
static atomr_poison table;

static atomr_operand operand(uint32_t slot, uint32_t access) {
    return (atomr_operand){.slot = slot, .generation = 1, .access = access};
}

static int is_certain(const atomr_operand *read, unsigned n, unsigned n_open) {
    atomr_history *histories[4];
    int certain = -1;
    CHECK_EQ(atomr_poison_collect(&table, read, n, histories, &certain), n_open);
    atomr_poison_forget(&table, histories, n_open, NULL);
    return certain;
}

static void test_what_a_certain_failure_writes(void) {
    atomr_poison_init(&table, &header);
    const atomr_operand written[] = {operand(1, ATOMR_WRITE), operand(2, ATOMR_WRITE | ATOMR_OVERWRITE),
                                     operand(3, ATOMR_WRITE | ATOMR_OVERWRITE | ATOMR_HOST)};
    atomr_outcome *const fails = atomr_outcome_new(1, 0);
    atomr_poison_suspend(&table, written, 3, fails);
    for (uint32_t slot = 1; slot <= 3; slot++) {
        const atomr_operand read = operand(slot, ATOMR_READ);
        CHECK_EQ(is_certain(&read, 1, 1), slot != 3); /* memory of the host keeps what the processor wrote */
    }
    const atomr_error error = {.code = 1, .ticket = 7};
    atomr_poison_resolve(&table, written, 3, fails, &error);
    atomr_error cause;
    const atomr_operand read = operand(2, ATOMR_READ);
    CHECK_EQ(atomr_poison_find(&table, &read, 1, &cause), ATOMR_POISONED);
    CHECK_EQ(cause.ticket, 7);
    atomr_poison_forget(&table, NULL, 0, fails);
    atomr_poison_release(&table);
}

static void test_an_open_outcome_beside_poison(void) {
    atomr_poison_init(&table, &header);
    const atomr_operand open = operand(1, ATOMR_WRITE), poisoned = operand(2, ATOMR_WRITE);
    atomr_outcome *const may_fail = atomr_outcome_new(0, 0);
    atomr_poison_suspend(&table, &open, 1, may_fail);
    const atomr_error error = {.code = 1};
    atomr_poison_add(&table, &poisoned, 1, &error);
    const atomr_operand both[] = {operand(1, ATOMR_READ), operand(2, ATOMR_READ), operand(3, ATOMR_READ)};
    CHECK_EQ(is_certain(both, 1, 1), 0);
    CHECK_EQ(is_certain(both, 3, 2), 1);
    atomr_poison_resolve(&table, &open, 1, may_fail, NULL);
    CHECK_EQ(is_certain(both, 1, 0), 0);
    atomr_poison_forget(&table, NULL, 0, may_fail);
    atomr_poison_release(&table);
}

/* Who decides about what is in an operand. */
static uint32_t decider(uint32_t slot) {
    const atomr_operand read = operand(slot, ATOMR_READ);
    atomr_history *histories[1];
    int certain;
    const unsigned n = atomr_poison_collect(&table, &read, 1, histories, &certain);
    const uint32_t found = atomr_poison_decider(&table, histories, n);
    atomr_poison_forget(&table, histories, n, NULL);
    return found;
}

static void test_who_decides(void) {
    atomr_poison_init(&table, &header);
    const uint32_t part = ATOMR_WRITE, whole = ATOMR_WRITE | ATOMR_OVERWRITE;
    atomr_outcome *const first = atomr_outcome_new(0, 5), *const second = atomr_outcome_new(0, 5),
                  *const other = atomr_outcome_new(0, 6), *const any = atomr_outcome_new(0, 0);
    const atomr_operand by_first[] = {operand(1, whole), operand(2, part), operand(3, part), operand(4, part)};
    const atomr_operand by_second[] = {operand(1, part)}, by_other[] = {operand(2, part)}, by_any[] = {operand(3, part)};
    const struct {
        const atomr_operand *ops;
        unsigned n;
        atomr_outcome *outcome;
    } writers[] = {{by_first, 4, first}, {by_second, 1, second}, {by_other, 1, other}, {by_any, 1, any}};
    for (unsigned i = 0; i < 4; i++) atomr_poison_suspend(&table, writers[i].ops, writers[i].n, writers[i].outcome);
    CHECK_EQ(decider(1), 5); /* one after the other, by the same ranks */
    CHECK_EQ(decider(2), 0); /* by ranks of two communicators */
    CHECK_EQ(decider(3), 0); /* by a message that may fail by itself */
    CHECK_EQ(decider(4), 5);
    CHECK_EQ(decider(9), 0); /* nothing is open */
    atomr_poison_resolve(&table, by_any, 1, any, NULL);
    CHECK_EQ(decider(3), 5);
    const atomr_error error = {.code = 1};
    atomr_poison_resolve(&table, by_first, 4, first, &error);
    for (uint32_t slot = 1; slot <= 4; slot++) CHECK_EQ(decider(slot), 0); /* a failure lies below */
    atomr_poison_resolve(&table, by_second, 1, second, NULL);
    atomr_poison_resolve(&table, by_other, 1, other, NULL);
    for (unsigned i = 0; i < 4; i++) atomr_poison_forget(&table, NULL, 0, writers[i].outcome);
    atomr_poison_release(&table);
}

/* Messages in place, each of which reads the last one's result: only the newest counts, whatever lies below. */
static void test_a_queue_in_place(void) {
    enum { DEPTH = 100 };
    atomr_poison_init(&table, &header);
    const atomr_operand whole = operand(1, ATOMR_WRITE | ATOMR_OVERWRITE), read = operand(1, ATOMR_READ);
    const atomr_error error = {.code = 1, .status = 7};
    atomr_error cause;
    atomr_poison_add(&table, &whole, 1, &error);
    CHECK_EQ(decider(1), 0);
    atomr_outcome *open[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        open[i] = atomr_outcome_new(0, 5);
        atomr_poison_suspend(&table, &whole, 1, open[i]);
        CHECK_EQ(decider(1), 5);
        CHECK_EQ(atomr_poison_find(&table, &read, 1, &cause), ATOMR_OPEN_OUTCOME);
    }
    for (int i = 0; i < DEPTH - 2; i++) atomr_poison_resolve(&table, &whole, 1, open[i], NULL);
    CHECK_EQ(decider(1), 5);
    atomr_poison_resolve(&table, &whole, 1, open[DEPTH - 2], &error);
    CHECK_EQ(atomr_poison_find(&table, &read, 1, &cause), ATOMR_OPEN_OUTCOME);
    const atomr_error second = {.code = 1, .status = 8};
    atomr_poison_resolve(&table, &whole, 1, open[DEPTH - 1], &second);
    CHECK_EQ(atomr_poison_find(&table, &read, 1, &cause), ATOMR_POISONED);
    CHECK_EQ(cause.status, 7); /* the first cause after the last whole overwrite */
    for (int i = 0; i < DEPTH; i++) atomr_poison_forget(&table, NULL, 0, open[i]);
    atomr_poison_release(&table);
}

int main(int argc, char **argv) {
    RUN(test_who_decides);
    RUN(test_what_a_certain_failure_writes);
    RUN(test_an_open_outcome_beside_poison);
    RUN(test_a_queue_in_place);
    return check_end(argc, argv);
}
