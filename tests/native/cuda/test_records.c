/* Launch records: which messages make them, which are launched from them, and when they go. */
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "cuda/records.h"
#include "runtime/failure.h"

enum { LANE = 3, OPERANDS = 2, SCALARS = 1 };

/* ---- a driver that notes launches: a graph is a list of the addresses that its kernels write */

struct CUgraph_st {
    unsigned n;
    uint64_t words[ATOMR_RECORD_NODES + 8];
    CUgraphNodeType type;
};
struct CUgraphExec_st {
    struct CUgraph_st holds;
};

static atomr_driver driver;
static int device, own, aside, faulted; /* stand for the device and its streams */
static _Atomic int graphs, execs, refuse_aside, refuse_capture, refuse_instance, refuse_launch;
static _Atomic unsigned asides;
static _Atomic(CUgraphExec) last_exec;
static __thread CUgraph captured;
static CUgraphNodeType node_type;
static __thread uint64_t launched[1 << 12];
static __thread unsigned n_launched;

const atomr_driver *atomr_cuda_driver(const atomr_cuda *c) {
    (void)c;
    return &driver;
}
CUresult atomr_cuda_enter(atomr_cuda *c) {
    (void)c;
    return faulted ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
CUstream atomr_cuda_stream(atomr_cuda *c, unsigned lane) {
    (void)c;
    return faulted ? NULL : (CUstream)(lane >= ATOMR_ASIDE ? &aside : &own);
}
int atomr_cuda_begin_aside(atomr_cuda *c, unsigned lane, CUstream *stream, atomr_failure *failure) {
    (void)c, (void)lane;
    asides++;
    *stream = (CUstream)&aside;
    return refuse_aside == 1 ? atomr_refused(failure, ATOMR_LIBRARY_ERROR, "no") : ATOMR_OK;
}
int atomr_cuda_end_aside(atomr_cuda *c, unsigned lane, atomr_failure *failure) {
    (void)c, (void)lane;
    return refuse_aside == 2 ? atomr_refused(failure, ATOMR_LIBRARY_ERROR, "no") : ATOMR_OK;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
    CHECK(stream == (CUstream)&aside && mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !captured);
    if (refuse_capture) return CUDA_ERROR_UNKNOWN;
    captured = calloc(1, sizeof *captured);
    captured->type = node_type;
    graphs++;
    return CUDA_SUCCESS;
}
static CUresult end_capture(CUstream stream, CUgraph *graph) {
    CHECK(stream == (CUstream)&aside && captured);
    *graph = captured;
    captured = NULL;
    return CUDA_SUCCESS;
}
static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    for (unsigned i = 0; nodes && i < graph->n; i++) nodes[i] = (CUgraphNode)graph;
    *n = graph->n;
    return CUDA_SUCCESS;
}
static CUresult get_type(CUgraphNode node, CUgraphNodeType *type) {
    *type = ((CUgraph)node)->type;
    return CUDA_SUCCESS;
}
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CHECK_EQ(flags, 0);
    if (refuse_instance) return CUDA_ERROR_OUT_OF_MEMORY;
    *exec = malloc(sizeof **exec);
    (*exec)->holds = *graph;
    last_exec = *exec;
    execs++;
    return CUDA_SUCCESS;
}
static CUresult launch(CUgraphExec exec, CUstream stream) {
    CHECK(stream == (CUstream)&own);
    if (refuse_launch) return CUDA_ERROR_UNKNOWN;
    for (unsigned i = 0; i < exec->holds.n; i++) launched[n_launched++ % 4096] = exec->holds.words[i];
    return CUDA_SUCCESS;
}
static CUresult destroy_exec(CUgraphExec exec) {
    free(exec);
    execs--;
    return CUDA_SUCCESS;
}
static CUresult destroy_graph(CUgraph graph) {
    free(graph);
    graphs--;
    return CUDA_SUCCESS;
}

/* ---- a plan whose run launches `n` kernels, and a lane */

typedef struct {
    unsigned n, runs, captures;
    int code, late, prompts;
} library;

static int judge(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    (void)context, (void)info, (void)failure;
    return ATOMR_OK;
}

static int run_library(void *context, const atomr_call *call, atomr_failure *failure) {
    library *l = context;
    if (l->code) return atomr_refused(failure, l->code, "no");
    const int captures = call->lane == ATOMR_ASIDE + LANE;
    CHECK_EQ(captures, captured != NULL);
    *(captures ? &l->captures : &l->runs) += 1;
    for (unsigned i = 0; i < l->n; i++) {
        const uint64_t word = (uint64_t)(uintptr_t)call->pointers[0] * 31 + (uint64_t)(uintptr_t)call->pointers[1] * 7 +
                              (uint64_t)(uintptr_t)call->workspace * 3 + call->scalars[0] + i;
        if (captures) captured->words[captured->n++] = word;
        else launched[n_launched++ % 4096] = word;
    }
    if (l->prompts) *call->prompt = 1;
    if (l->late) call->late->judge = judge;
    return ATOMR_OK;
}

static char memory[4096], workspaces[2];
static __thread uint64_t ticket;
static __thread void *workspace;

/* One message of a lane, with these operands and this number; what its run has launched must be this message's. */
static int send_in(unsigned lane, atomr_recorded *p, unsigned x, unsigned y, uint64_t number, unsigned n) {
    void *pointers[] = {&memory[x], &memory[y]};
    int prompt = 0;
    atomr_late late = {NULL, NULL, 0};
    atomr_after after = {NULL, NULL};
    atomr_failure failure;
    const atomr_call call = {.lane = lane, .n_operands = OPERANDS, .n_scalars = SCALARS, .ticket = ++ticket,
                             .pointers = pointers, .scalars = &number, .workspace = workspace, .workspace_bytes = 1,
                             .prompt = &prompt, .late = &late, .after = &after};
    n_launched = 0;
    const int code = atomr_recorded_run(p, &call, &failure);
    CHECK_EQ(n_launched, code == ATOMR_OK ? n : 0);
    for (unsigned i = 0; i < n_launched; i++)
        CHECK_EQ(launched[i], (uint64_t)(uintptr_t)pointers[0] * 31 + (uint64_t)(uintptr_t)pointers[1] * 7 +
                                  (uint64_t)(uintptr_t)workspace * 3 + number + i);
    if (after.run) after.run(after.context);
    return prompt;
}
static int send(atomr_recorded *p, unsigned x, unsigned y, uint64_t number) { return send_in(LANE, p, x, y, number, 1); }

/* Send it until it is launched from a record. */
static void settle(atomr_records *a, atomr_recorded *p, unsigned x, unsigned y, uint64_t number) {
    const uint64_t before = atomr_records_count(a).replays;
    for (int i = 0; i < 1000000 && atomr_records_count(a).replays == before; i++) {
        send(p, x, y, number);
        sched_yield();
    }
    CHECK_EQ(atomr_records_count(a).replays, before + 1);
}

static atomr_records *begin(void) {
    refuse_aside = refuse_capture = refuse_instance = refuse_launch = faulted = 0;
    node_type = CU_GRAPH_NODE_TYPE_KERNEL;
    workspace = &workspaces[0];
    driver.cuStreamBeginCapture_v2 = begin_capture;
    driver.cuStreamEndCapture = end_capture;
    driver.cuGraphGetNodes = get_nodes;
    driver.cuGraphNodeGetType = get_type;
    driver.cuGraphInstantiateWithFlags = instantiate;
    driver.cuGraphLaunch = launch;
    driver.cuGraphExecDestroy = destroy_exec;
    driver.cuGraphDestroy = destroy_graph;
    return atomr_records_new((atomr_cuda *)&device);
}
static atomr_recorded *plan_of(atomr_records *a, library *l) {
    return atomr_recorded_new(a, run_library, l, OPERANDS, SCALARS);
}
static void end(atomr_records *a, atomr_recorded *p) {
    atomr_recorded_end(p);
    CHECK_EQ(atomr_records_count(a).kept, 0);
    CHECK_EQ(atomr_records_count(a).nodes, 0);
    CHECK_EQ(execs, 0);
    CHECK_EQ(graphs, 0);
    atomr_records_end(a);
}

static void test_the_second_message_is_captured_and_later_ones_are_launched_from_it(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    send(p, 0, 1, 5);
    CHECK_EQ(l.captures, 0);
    send(p, 0, 1, 5);
    CHECK_EQ(l.captures, 1);
    settle(a, p, 0, 1, 5);
    const unsigned runs = l.runs;
    for (int i = 0; i < 100; i++) send(p, 0, 1, 5);
    CHECK_EQ(l.runs, runs);
    CHECK_EQ(l.captures, 1);
    const atomr_record_counts c = atomr_records_count(a);
    CHECK(c.kept == 1 && c.nodes == 1 && c.captures == 1 && c.refused == 0 && c.replays == 101);
    end(a, p);
}

static void test_each_word_of_a_tuple_counts(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    settle(a, p, 0, 1, 5);
    const unsigned runs = l.runs;
    send(p, 2, 1, 5);
    send(p, 0, 2, 5);
    send(p, 0, 1, 6);
    send_in(LANE + 1, p, 0, 1, 5, 1); /* of another lane, if ever */
    CHECK_EQ(l.runs, runs + 4);
    send(p, 0, 1, 5);
    CHECK_EQ(l.runs, runs + 4);
    end(a, p);
}

static void test_alternating_operands_are_all_launched_from_records(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    for (unsigned i = 0; i < ATOMR_PLAN_RECORDS; i++) settle(a, p, i, 1, 5);
    const unsigned runs = l.runs;
    for (unsigned i = 0; i < 10 * ATOMR_PLAN_RECORDS; i++) send(p, i % ATOMR_PLAN_RECORDS, 1, 5);
    CHECK_EQ(l.runs, runs);
    CHECK_EQ(atomr_records_count(a).kept, ATOMR_PLAN_RECORDS);
    end(a, p);
}

static void test_operands_that_never_come_again_are_never_captured(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    for (uint64_t i = 0; i < 5000; i++) send(p, 0, 1, i);
    CHECK_EQ(l.captures, 0);
    CHECK_EQ(asides, 0);
    end(a, p);
}

static void test_captures_without_use_come_to_an_end(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    for (uint64_t i = 0; i < 5000; i++) send(p, 0, 1, i / 2);
    CHECK_EQ(l.captures, ATOMR_PLAN_RECORDS);
    for (unsigned i = 0; i < ATOMR_RECORD_REPLAYS; i++) settle(a, p, 0, 1, ATOMR_PLAN_RECORDS - 1);
    for (uint64_t i = 0; i < 5000; i++) send(p, 1, 1, i / 2);
    CHECK_EQ(l.captures, ATOMR_PLAN_RECORDS + 1); /* what the replays have earned */
    end(a, p);
}

static void test_the_least_recently_used_record_of_a_plan_goes(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    for (unsigned i = 0; i < ATOMR_PLAN_RECORDS; i++) settle(a, p, i, 1, 5);
    for (unsigned i = 0; i < ATOMR_RECORD_REPLAYS; i++) /* all but one: each replay counts towards credit */
        for (unsigned j = 0; j < ATOMR_PLAN_RECORDS; j++)
            if (j != 7) send(p, j, 1, 5);
    settle(a, p, ATOMR_PLAN_RECORDS, 1, 5);
    CHECK_EQ(atomr_records_count(a).kept, ATOMR_PLAN_RECORDS);
    const unsigned runs = l.runs;
    for (unsigned j = 0; j <= ATOMR_PLAN_RECORDS; j++)
        if (j != 7) send(p, j, 1, 5);
    CHECK_EQ(l.runs, runs);
    send(p, 7, 1, 5);
    CHECK_EQ(l.runs, runs + 1);
    end(a, p);
}

static void test_a_lane_keeps_records_and_launches_up_to_its_bounds(void) {
    atomr_records *a = begin();
    enum { PLANS = ATOMR_LANE_RECORDS / ATOMR_PLAN_RECORDS + 1 };
    library l[PLANS + 1];
    atomr_recorded *p[PLANS + 1];
    for (unsigned i = 0; i < PLANS; i++) {
        l[i] = (library){.n = 1};
        p[i] = plan_of(a, &l[i]);
        for (unsigned j = 0; j < ATOMR_PLAN_RECORDS; j++) settle(a, p[i], j, 1, 5);
    }
    CHECK_EQ(atomr_records_count(a).kept, ATOMR_LANE_RECORDS);
    unsigned runs = l[0].runs;
    for (unsigned j = 0; j < ATOMR_PLAN_RECORDS; j++) send(p[0], j, 1, 5); /* the first plan's were the oldest */
    CHECK_EQ(l[0].runs, runs + ATOMR_PLAN_RECORDS);
    runs = l[1].runs;
    send(p[1], ATOMR_PLAN_RECORDS - 1, 1, 5);
    CHECK_EQ(l[1].runs, runs);
    l[PLANS] = (library){.n = ATOMR_RECORD_NODES};
    p[PLANS] = plan_of(a, &l[PLANS]);
    for (unsigned j = 0; j < ATOMR_LANE_NODES / ATOMR_RECORD_NODES; j++)
        for (int i = 0; i < 2; i++) send_in(LANE, p[PLANS], j, 1, 5, ATOMR_RECORD_NODES);
    CHECK_EQ(atomr_records_count(a).nodes, ATOMR_LANE_NODES);
    CHECK_EQ(atomr_records_count(a).kept, ATOMR_LANE_NODES / ATOMR_RECORD_NODES);
    for (unsigned i = 0; i < PLANS; i++) atomr_recorded_end(p[i]);
    end(a, p[PLANS]);
}

static void test_refusals_end_the_attempts(void) {
    for (int way = 0; way < 6; way++) {
        atomr_records *a = begin();
        library l = {.n = way == 2 ? ATOMR_RECORD_NODES + 1 : way == 3 ? 0 : 1};
        atomr_recorded *p = plan_of(a, &l);
        refuse_capture = way == 0;
        node_type = way == 1 ? 1 : CU_GRAPH_NODE_TYPE_KERNEL; /* a copy */
        refuse_instance = way == 4;
        if (way == 5) {
            settle(a, p, 0, 1, 5);
            refuse_launch = 1;
        }
        for (uint64_t i = 0; i < 100; i++) send_in(LANE, p, 0, 1, way == 5 ? 5 : i / 4, l.n);
        const uint64_t refused = atomr_records_count(a).refused;
        if (way == 4) CHECK(l.captures <= ATOMR_PLAN_RECORDS); /* each of its tuples is captured once */
        else CHECK_EQ(refused, ATOMR_RECORD_REFUSALS);
        if (way != 4) CHECK_EQ(atomr_records_count(a).kept, 0);
        end(a, p);
    }
}

static void test_a_message_that_fails_or_may_fail_late_is_never_captured(void) {
    atomr_records *a = begin();
    library l = {.n = 1, .late = 1};
    atomr_recorded *p = plan_of(a, &l);
    for (int i = 0; i < 10; i++) send(p, 0, 1, 5);
    CHECK_EQ(l.captures, 0);
    CHECK_EQ(l.runs, 10);
    atomr_recorded_end(p);
    l = (library){.n = 1, .code = ATOMR_INVALID_REQUEST};
    p = plan_of(a, &l);
    for (int i = 0; i < 10; i++) send(p, 0, 1, 5);
    CHECK_EQ(asides, 0);
    end(a, p);
}

static void test_long_work_stays_known_as_such(void) {
    atomr_records *a = begin();
    library l = {.n = 1, .prompts = 1};
    atomr_recorded *p = plan_of(a, &l);
    settle(a, p, 0, 1, 5);
    const unsigned runs = l.runs;
    CHECK_EQ(send(p, 0, 1, 5), 1);
    CHECK_EQ(l.runs, runs);
    end(a, p);
}

static void test_records_go_with_the_memory_that_they_name(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    settle(a, p, 10, 1, 5);
    settle(a, p, 20, 1, 5);
    settle(a, p, 20, 4000, 5);
    atomr_records_forget(a, &memory[15], 5);
    CHECK_EQ(atomr_records_count(a).kept, 3);
    atomr_records_forget(a, &memory[10], 1);
    CHECK_EQ(atomr_records_count(a).kept, 2);
    for (int i = 0; i < 1000000 && execs != 2; i++) sched_yield();
    CHECK_EQ(execs, 2); /* before any message */
    const unsigned runs = l.runs;
    send(p, 20, 1, 5);
    CHECK_EQ(l.runs, runs);
    settle(a, p, 10, 1, 5); /* mapped again: a record of its own */
    CHECK_EQ(atomr_records_count(a).captures, 4);
    atomr_records_forget(a, &memory[15], 6);
    CHECK_EQ(atomr_records_count(a).kept, 1);
    end(a, p);
}

static void test_records_go_with_the_workspace(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    settle(a, p, 0, 1, 5);
    workspace = &workspaces[1];
    send(p, 0, 1, 5);
    settle(a, p, 0, 1, 5);
    CHECK_EQ(atomr_records_count(a).kept, 1);
    CHECK_EQ(l.captures, 2);
    end(a, p);
}

/* Captured kernels may use memory of a handle, which is destroyed when it cannot change its stream. */
static void test_records_of_a_lane_go_with_its_handles(void) {
    for (int way = 1; way <= 2; way++) {
        atomr_records *a = begin();
        library l = {.n = 1}, other = {.n = 1};
        atomr_recorded *p = plan_of(a, &l), *q = plan_of(a, &other);
        settle(a, p, 0, 1, 5);
        settle(a, p, 0, 2, 5);
        settle(a, q, 0, 1, 5);
        refuse_aside = way;
        send(q, 0, 3, 5);
        send(q, 0, 3, 5);
        CHECK_EQ(atomr_records_count(a).kept, 0);
        CHECK_EQ(atomr_records_count(a).refused, 1);
        refuse_aside = 0;
        const unsigned runs = l.runs;
        send(p, 0, 1, 5);
        CHECK_EQ(l.runs, runs + 1);
        settle(a, p, 0, 1, 5);
        atomr_recorded_end(q);
        end(a, p);
    }
}

static void test_after_a_fault_the_driver_is_not_called(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    atomr_recorded *p = plan_of(a, &l);
    settle(a, p, 0, 1, 5);
    CHECK_EQ(execs, 1);
    faulted = 1;
    atomr_recorded_end(p);
    CHECK_EQ(execs, 1);
    atomr_records_end(a);
    destroy_exec(last_exec);
}

typedef struct {
    atomr_records *all;
    _Atomic int stop;
} shared;

static void *count_and_forget(void *argument) {
    shared *s = argument;
    while (!s->stop) {
        CHECK(atomr_records_count(s->all).kept <= ATOMR_LANE_RECORDS);
        atomr_records_forget(s->all, &memory[1000], 1000); /* which no message names */
        sched_yield();
    }
    return NULL;
}

static void *end_plan(void *plan) {
    atomr_recorded_end(plan);
    return NULL;
}

static void test_plans_end_while_others_run(void) {
    atomr_records *a = begin();
    shared s = {a, 0};
    pthread_t other, ending;
    library l[64];
    atomr_recorded *lasting = plan_of(a, &l[63]);
    l[63] = (library){.n = 1};
    CHECK_EQ(pthread_create(&other, NULL, count_and_forget, &s), 0);
    for (unsigned i = 0; i < 60; i++) {
        l[i] = (library){.n = 1};
        atomr_recorded *p = plan_of(a, &l[i]);
        for (unsigned j = 0; j < 4 + i % 3; j++) send(p, j / 2, 1, i);
        CHECK_EQ(pthread_create(&ending, NULL, end_plan, p), 0);
        for (unsigned j = 0; j < 20; j++) send(lasting, j % 3, 1, i / 8);
        pthread_join(ending, NULL);
    }
    s.stop = 1;
    pthread_join(other, NULL);
    end(a, lasting);
}

typedef struct {
    atomr_recorded *plan;
    _Atomic int done;
} ending;

static void *end_and_tell(void *argument) {
    ending *e = argument;
    atomr_recorded_end(e->plan);
    e->done = 1;
    return NULL;
}

/* The device may have finished the last message before its lane has captured it, so that the plan is dropped meanwhile. */
static void test_a_plan_does_not_end_before_what_its_message_has_left_to_do(void) {
    atomr_records *a = begin();
    library l = {.n = 1};
    ending e = {plan_of(a, &l), 0};
    pthread_t thread;
    void *pointers[] = {&memory[0], &memory[1]};
    const uint64_t number = 5;
    atomr_after after = {NULL, NULL};
    atomr_late late = {NULL, NULL, 0};
    atomr_failure failure;
    const atomr_call call = {.lane = LANE, .n_operands = OPERANDS, .n_scalars = SCALARS, .ticket = 1, .pointers = pointers,
                             .scalars = &number, .workspace = workspace, .workspace_bytes = 1, .late = &late,
                             .after = &after};
    for (int i = 0; i < 2; i++) CHECK_EQ(atomr_recorded_run(e.plan, &call, &failure), ATOMR_OK);
    CHECK(after.run);
    CHECK_EQ(pthread_create(&thread, NULL, end_and_tell, &e), 0);
    for (int i = 0; i < 2000 && !e.done; i++) sched_yield();
    CHECK(!e.done);
    after.run(after.context);
    pthread_join(thread, NULL);
    CHECK_EQ(l.captures, 1);
    CHECK(execs == 0 && graphs == 0);
    atomr_records_end(a);
}

int main(int argc, char **argv) {
    asides = 0;
    RUN(test_operands_that_never_come_again_are_never_captured);
    RUN(test_a_message_that_fails_or_may_fail_late_is_never_captured);
    RUN(test_the_second_message_is_captured_and_later_ones_are_launched_from_it);
    RUN(test_each_word_of_a_tuple_counts);
    RUN(test_alternating_operands_are_all_launched_from_records);
    RUN(test_captures_without_use_come_to_an_end);
    RUN(test_the_least_recently_used_record_of_a_plan_goes);
    RUN(test_a_lane_keeps_records_and_launches_up_to_its_bounds);
    RUN(test_refusals_end_the_attempts);
    RUN(test_long_work_stays_known_as_such);
    RUN(test_records_go_with_the_memory_that_they_name);
    RUN(test_records_go_with_the_workspace);
    RUN(test_records_of_a_lane_go_with_its_handles);
    RUN(test_after_a_fault_the_driver_is_not_called);
    RUN(test_plans_end_while_others_run);
    RUN(test_a_plan_does_not_end_before_what_its_message_has_left_to_do);
    return check_end(argc, argv);
}
