/* Plans of several steps: where operands and scalars come from, their order, and what ends them. */
#include "check.h"
#include "cuda/sequence.h"
#include "runtime/failure.h"

enum { MOST = ATOMR_STEP_SCALARS };

typedef struct {
    unsigned n;
    atomr_call calls[4];
    void *pointers[4][8];
    uint64_t scalars[4][MOST];
    int codes[4];
} record;

/* A step that keeps its call. */
static int run_recorded(void *context, const atomr_call *call, atomr_failure *failure) {
    record *r = context;
    const unsigned i = r->n++;
    r->calls[i] = *call;
    memcpy(r->pointers[i], call->pointers, call->n_operands * sizeof(void *));
    memcpy(r->scalars[i], call->scalars, call->n_scalars * sizeof(uint64_t));
    if (r->codes[i]) return atomr_refused(failure, r->codes[i], "step %u", i);
    return ATOMR_OK;
}

static char arrays[2], workspace[64], constant;
static void *given[2] = {&arrays[0], &arrays[1]};
static uint64_t words[MOST];

static atomr_call message(void) {
    for (unsigned i = 0; i < MOST; i++) words[i] = 100 + i;
    atomr_call call = {.lane = 3, .n_operands = 2, .n_scalars = MOST, .pointers = given, .scalars = words,
                       .workspace = workspace, .workspace_bytes = sizeof workspace};
    return call;
}

static void test_sources(void) {
    record r = {0};
    atomr_source operands[] = {{.value = 1, .origin = ATOMR_FROM_MESSAGE},
                               {.value = 16, .origin = ATOMR_FROM_WORKSPACE},
                               {.value = (uint64_t)(uintptr_t)&constant, .origin = ATOMR_FROM_PLAN},
                               {.value = 0, .offset = 3, .origin = ATOMR_FROM_MESSAGE}};
    atomr_source scalars[MOST];
    for (unsigned i = 0; i < MOST; i++) {
        static const atomr_origin origins[] = {ATOMR_FROM_MESSAGE, ATOMR_FROM_PLAN, ATOMR_FROM_LANE};
        scalars[i] = (atomr_source){.value = i, .origin = origins[i % 3]};
    }
    atomr_step steps[] = {{.run = run_recorded, .context = &r, .n_operands = 4, .n_scalars = MOST, .operands = operands, .scalars = scalars},
                          {.run = run_recorded, .context = &r, .n_operands = 1, .operands = operands}};
    const atomr_sequence s = {sizeof workspace, 2, steps, NULL};
    const atomr_call call = message();
    atomr_failure failure = {0};
    CHECK_EQ(atomr_sequence_run((void *)&s, &call, &failure), ATOMR_OK);
    CHECK_EQ(r.n, 2);
    CHECK(r.pointers[0][0] == &arrays[1] && r.pointers[0][1] == workspace + 16);
    CHECK(r.pointers[0][2] == &constant && r.pointers[0][3] == (char *)&arrays[0] + 3);
    for (unsigned i = 0; i < MOST; i++) CHECK_EQ(r.scalars[0][i], i % 3 == 2 ? 3 : i % 3 ? i : 100 + i);
    CHECK_EQ(r.calls[0].lane, 3);
    CHECK_EQ(r.calls[1].n_operands, 1);
    CHECK_EQ(r.calls[1].n_scalars, 0);
    CHECK(r.pointers[1][0] == &arrays[1]);
}

static void test_the_first_failure_ends_it(void) {
    record r = {.codes = {0, ATOMR_INVALID_REQUEST}};
    atomr_step steps[3];
    for (int i = 0; i < 3; i++) steps[i] = (atomr_step){.run = run_recorded, .context = &r};
    const atomr_sequence s = {0, 3, steps, NULL};
    const atomr_call call = message();
    atomr_failure failure = {0};
    CHECK_EQ(atomr_sequence_run((void *)&s, &call, &failure), ATOMR_INVALID_REQUEST);
    CHECK_EQ(r.n, 2);
    CHECK(strcmp(failure.text, "step 1") == 0);
}

static void test_a_small_workspace_is_refused(void) {
    record r = {0};
    atomr_step step = {.run = run_recorded, .context = &r};
    const atomr_sequence s = {sizeof workspace + 1, 1, &step, NULL};
    const atomr_call call = message();
    atomr_failure failure = {0};
    CHECK_EQ(atomr_sequence_run((void *)&s, &call, &failure), ATOMR_INVALID_REQUEST);
    CHECK_EQ(r.n, 0);
    CHECK(strstr(failure.text, "64 bytes") && strstr(failure.text, "need 65"));
}

/* Messages with a factor of zero run other steps: of a complex factor both parts are zero. */
static void test_steps_by_factors(void) {
    static const double given[][4] = {{2, 0, 3, 0}, {0, 0, 3, 0}, {0, 1, 3, 0}, {2, 0, 0, 0}, {0, 0, 0, 0}, {2, 0, 0, -0.0}};
    static const int zeros[] = {0, 1, 0, 1, 1, 1};
    int factors[][2] = {{0, 1}, {2, -1}};
    for (unsigned i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        record usual = {0}, other = {0}, every = {0};
        atomr_step steps[] = {{.run = run_recorded, .context = &usual, .when = ATOMR_UNLESS_ZERO, .n_factors = 2, .factors = factors},
                              {.run = run_recorded, .context = &other, .when = ATOMR_IF_ZERO, .n_factors = 2, .factors = factors},
                              {.run = run_recorded, .context = &every}};
        const atomr_sequence s = {0, 3, steps, NULL};
        atomr_call call = message();
        memcpy(words, given[i], sizeof given[i]);
        call.scalars = words;
        atomr_failure failure = {0};
        CHECK_EQ(atomr_sequence_run((void *)&s, &call, &failure), ATOMR_OK);
        CHECK_EQ(usual.n, !zeros[i]);
        CHECK_EQ(other.n, zeros[i]);
        CHECK_EQ(every.n, 1);
    }
}

/* Messages whose operands all start at multiples of an alignment run other steps. */
static void test_steps_by_alignment(void) {
    static const uint64_t bits[][2] = {{512, 256}, {512, 272}, {16, 32}, {48, 8}, {2, 512}};
    static const int multiples[][2] = {{1, 1}, {0, 1}, {0, 1}, {0, 0}, {0, 0}}; /* of 256, and of 16 */
    for (unsigned i = 0; i < sizeof bits / sizeof *bits; i++) {
        for (unsigned which = 0; which < 2; which++) {
            record aligned = {0}, apart = {0}, every = {0};
            const uint64_t alignment = which ? 16 : 256;
            atomr_step steps[] = {{.run = run_recorded, .context = &aligned, .alignment = alignment},
                                  {.run = run_recorded, .context = &apart, .alignment = alignment, .apart = 1},
                                  {.run = run_recorded, .context = &every}};
            const atomr_sequence s = {0, 3, steps, NULL};
            atomr_call call = message();
            void *const pointers[] = {(void *)(uintptr_t)bits[i][0], (void *)(uintptr_t)bits[i][1]};
            call.pointers = pointers;
            atomr_failure failure = {0};
            CHECK_EQ(atomr_sequence_run((void *)&s, &call, &failure), ATOMR_OK);
            CHECK_EQ((int)aligned.n, multiples[i][which]);
            CHECK_EQ((int)apart.n, !multiples[i][which]);
            CHECK_EQ(every.n, 1);
        }
    }
}

int main(int argc, char **argv) {
    RUN(test_sources);
    RUN(test_the_first_failure_ends_it);
    RUN(test_a_small_workspace_is_refused);
    RUN(test_steps_by_factors);
    RUN(test_steps_by_alignment);
    return check_end(argc, argv);
}
