#define _GNU_SOURCE
#include "cuda/records.h"

#include <stdlib.h>
#include <string.h>

enum { TUPLES = 128 }; /* that a plan remembers to have run for */

/* MAKING: the thread has it.  FAILED: this tuple is not tried again.  GONE: its memory is unmapped. */
enum { MAKING, READY, FAILED, GONE };

typedef struct record {
    struct record *next_job;
    struct record *before, *after; /* of the lane */
    atomr_recorded *plan;
    _Atomic int state;
    int listed, queued, dropped;   /* under the lock; dropped: the plan does not know it any more */
    int prompt;                    /* what a message's `prompt` becomes by its run */
    unsigned nodes;
    CUgraph graph;                 /* until it is instantiated */
    CUgraphExec exec;
    uint64_t used;                 /* ticket of the last message that was launched from it; its lane's */
    uint64_t key[];
} record;

struct atomr_records {
    atomr_cuda *cuda;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    int started, ending;
    record *first_job, *last_job;
    record *lanes[ATOMR_LANES];
    unsigned kept[ATOMR_LANES], nodes[ATOMR_LANES];
    _Atomic uint64_t forgotten;    /* how often memory was unmapped */
    _Atomic uint64_t captures, refused, replays[ATOMR_LANES];
};

struct atomr_recorded {
    atomr_records *all;
    atomr_run run;
    void *context;
    unsigned n_operands, n_scalars, n_key; /* words of a key: addresses, then scalars */
    /* Its lane's. */
    int lane;                      /* the only one that makes records; -1: not known yet */
    int off, refusals;
    unsigned credit, replays;      /* captures that it may still make; replays since the last credit */
    uint64_t forgotten;
    void *workspace;
    uint64_t workspace_bytes;
    uint64_t tuples[TUPLES];       /* hashes of what it has run for */
    uint64_t *wanted, wanted_hash; /* the tuple that is captured after its message */
    uint64_t ticket;
    /* Changed under the lock, by the lane. */
    unsigned n;
    uint64_t hashes[ATOMR_PLAN_RECORDS];
    record *records[ATOMR_PLAN_RECORDS];
    /* Under the lock. */
    int capturing;
    unsigned going;                /* records that are let go of, and not destroyed yet */
};

static void count(_Atomic uint64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- the thread that makes and destroys executable graphs; and records, under the lock */

static void queue(atomr_records *a, record *r) {
    if (r->queued) return;
    r->queued = 1;
    r->next_job = NULL;
    if (a->first_job) a->last_job->next_job = r;
    else a->first_job = r;
    a->last_job = r;
    pthread_cond_signal(&a->work);
}

static void unlist(atomr_records *a, record *r) {
    const int lane = r->plan->lane;
    if (!r->listed) return;
    if (r->before) r->before->after = r->after;
    else a->lanes[lane] = r->after;
    if (r->after) r->after->before = r->before;
    r->listed = 0;
    a->kept[lane]--;
    a->nodes[lane] -= r->nodes;
}

static void list(atomr_records *a, record *r) {
    const int lane = r->plan->lane;
    r->after = a->lanes[lane];
    if (r->after) r->after->before = r;
    a->lanes[lane] = r;
    r->listed = 1;
    a->kept[lane]++;
    a->nodes[lane] += r->nodes;
}

/* Take a record from its plan; the thread destroys it. */
static void drop(atomr_records *a, atomr_recorded *p, unsigned at) {
    record *r = p->records[at];
    p->n--;
    p->records[at] = p->records[p->n];
    p->hashes[at] = p->hashes[p->n];
    unlist(a, r);
    r->dropped = 1;
    p->going++;
    queue(a, r);
}

static void drop_listed(atomr_records *a, record *r) {
    unsigned at = 0;
    while (r->plan->records[at] != r) at++;
    drop(a, r->plan, at);
}

static void destroy(const atomr_records *a, record *r) {
    const atomr_driver *d = atomr_cuda_driver(a->cuda);
    const int alive = atomr_cuda_enter(a->cuda) == CUDA_SUCCESS; /* else the driver is not called any more */
    if (r->graph && alive) d->cuGraphDestroy(r->graph);
    if (r->exec && alive) d->cuGraphExecDestroy(r->exec); /* one that runs is freed when it has ended */
    r->graph = NULL;
    r->exec = NULL;
}

static void instantiate(atomr_records *a, record *r) {
    const atomr_driver *d = atomr_cuda_driver(a->cuda);
    CUresult result = atomr_cuda_enter(a->cuda);
    if (result == CUDA_SUCCESS) {
        result = d->cuGraphInstantiateWithFlags(&r->exec, r->graph, 0);
        d->cuGraphDestroy(r->graph);
    }
    r->graph = NULL;
    if (result == CUDA_SUCCESS) return;
    r->exec = NULL;
    count(&a->refused, 1);
}

static void *make_records(void *argument) {
    atomr_records *a = argument;
    pthread_setname_np(pthread_self(), "atomr-records");
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->first_job && !a->ending) pthread_cond_wait(&a->work, &a->lock);
        record *r = a->first_job;
        if (!r) break;
        a->first_job = r->next_job;
        int over;
        do { /* it may be let go of meanwhile */
            over = r->dropped || atomic_load(&r->state) == GONE;
            pthread_mutex_unlock(&a->lock);
            if (over) destroy(a, r);
            else if (r->graph) instantiate(a, r);
            pthread_mutex_lock(&a->lock);
        } while (!over && (r->dropped || atomic_load(&r->state) == GONE));
        r->queued = 0;
        if (r->dropped) {
            r->plan->going--;
            pthread_cond_broadcast(&a->done);
            free(r);
        } else if (!over) {
            if (!r->exec) unlist(a, r);
            atomic_store_explicit(&r->state, r->exec ? READY : FAILED, memory_order_release);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

atomr_records *atomr_records_new(atomr_cuda *cuda) {
    atomr_records *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->cuda = cuda;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->done, NULL);
    return a;
}

void atomr_records_end(atomr_records *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->ending = 1;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
    if (a->started) pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->done);
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

atomr_record_counts atomr_records_count(atomr_records *a) {
    atomr_record_counts c = {.captures = atomic_load(&a->captures), .refused = atomic_load(&a->refused)};
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        c.kept += a->kept[i];
        c.nodes += a->nodes[i];
        c.replays += atomic_load_explicit(&a->replays[i], memory_order_relaxed);
    }
    pthread_mutex_unlock(&a->lock);
    return c;
}

void atomr_records_forget(atomr_records *a, const void *base, uint64_t nbytes) {
    const uint64_t first = (uint64_t)(uintptr_t)base;
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        for (record *r = a->lanes[i], *after; r; r = after) {
            after = r->after;
            int named = 0;
            for (unsigned j = 0; j < r->plan->n_operands; j++) named |= r->key[j] - first < nbytes;
            if (!named) continue;
            unlist(a, r);
            atomic_store(&r->state, GONE);
            queue(a, r);
        }
    }
    pthread_mutex_unlock(&a->lock);
    count(&a->forgotten, 1);
}

/* ---- a plan, in its lane */

/* What another launch may do without a message: kernels and fills.  A copy's other end may be memory of the host that a
 * library changes with each call; memory of a graph's own is not ours to count.  0: not these, or too many. */
static unsigned nodes_of(const atomr_driver *d, CUgraph graph) {
    CUgraphNode nodes[ATOMR_RECORD_NODES];
    size_t n = 0;
    if (d->cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n > ATOMR_RECORD_NODES) return 0;
    if (n && d->cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS) return 0;
    for (size_t i = 0; i < n; i++) {
        CUgraphNodeType type;
        if (d->cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) return 0;
        if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMSET && type != CU_GRAPH_NODE_TYPE_EMPTY)
            return 0;
    }
    return (unsigned)n;
}

/* Handles of libraries, whose memory captured kernels may use, are gone. */
static void drop_lane(atomr_records *a, unsigned lane) {
    pthread_mutex_lock(&a->lock);
    while (a->lanes[lane]) drop_listed(a, a->lanes[lane]);
    pthread_mutex_unlock(&a->lock);
}

/* Capture what the plan launches for the wanted tuple; NULL: that is not possible. */
static CUgraph capture(atomr_recorded *p, int *prompt) {
    atomr_cuda *cuda = p->all->cuda;
    const atomr_driver *d = atomr_cuda_driver(cuda);
    const unsigned lane = (unsigned)p->lane;
    atomr_failure failure;
    atomr_late late = {NULL, NULL, 0};
    memset(&failure, 0, sizeof failure);
    CUstream aside = NULL;
    CUgraph graph = NULL;
    int code = atomr_cuda_begin_aside(cuda, lane, &aside, &failure);
    if (code != ATOMR_OK) {
        drop_lane(p->all, lane);
        return NULL;
    }
    CUresult r = d->cuStreamBeginCapture_v2(aside, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (r == CUDA_SUCCESS) {
        const atomr_call call = {.lane = ATOMR_ASIDE + lane, .n_operands = p->n_operands, .n_scalars = p->n_scalars,
                                 .ticket = p->ticket, .pointers = (void *const *)(void *)p->wanted,
                                 .scalars = p->wanted + p->n_operands, .workspace = p->workspace,
                                 .workspace_bytes = p->workspace_bytes, .prompt = prompt, .late = &late};
        code = p->run(p->context, &call, &failure);
        r = d->cuStreamEndCapture(aside, &graph);
    }
    if (atomr_cuda_end_aside(cuda, lane, &failure) != ATOMR_OK) {
        code = ATOMR_LIBRARY_ERROR;
        drop_lane(p->all, lane);
    }
    if (r == CUDA_SUCCESS && code == ATOMR_OK && !late.judge) return graph;
    if (r == CUDA_SUCCESS && graph) d->cuGraphDestroy(graph);
    return NULL;
}

/* Under the lock: make room for a record, in its plan and in its lane.  The least recently used goes. */
static void make_room(atomr_recorded *p, unsigned nodes) {
    atomr_records *a = p->all;
    if (p->n == ATOMR_PLAN_RECORDS) {
        unsigned oldest = 0;
        for (unsigned i = 1; i < p->n; i++)
            if (p->records[i]->used < p->records[oldest]->used) oldest = i;
        drop(a, p, oldest);
    }
    while (a->kept[p->lane] >= ATOMR_LANE_RECORDS || a->nodes[p->lane] + nodes > ATOMR_LANE_NODES) {
        record *oldest = a->lanes[p->lane];
        for (record *r = oldest->after; r; r = r->after)
            if (r->used < oldest->used) oldest = r;
        drop_listed(a, oldest);
    }
}

/* Keep a captured graph, which becomes the record's; 0: there is no memory for it, or no thread. */
static int keep(atomr_recorded *p, CUgraph graph, unsigned nodes, int prompt) {
    atomr_records *a = p->all;
    record *r = calloc(1, sizeof *r + p->n_key * sizeof *r->key);
    if (!r) return 0;
    r->plan = p;
    r->graph = graph;
    r->nodes = nodes;
    r->prompt = prompt;
    r->used = p->ticket;
    memcpy(r->key, p->wanted, p->n_key * sizeof *r->key);
    pthread_mutex_lock(&a->lock);
    if (!a->started) a->started = pthread_create(&a->thread, NULL, make_records, a) == 0;
    const int started = a->started;
    if (started) {
        make_room(p, nodes);
        p->records[p->n] = r;
        p->hashes[p->n++] = p->wanted_hash;
        list(a, r);
        queue(a, r);
    }
    pthread_mutex_unlock(&a->lock);
    if (!started) free(r);
    return started;
}

/* Let go of all records of a plan, or of those that stand for nothing any more. */
static void sweep(atomr_recorded *p, int all) {
    pthread_mutex_lock(&p->all->lock);
    for (unsigned i = p->n; i-- > 0;)
        if (all || atomic_load(&p->records[i]->state) == GONE) drop(p->all, p, i);
    pthread_mutex_unlock(&p->all->lock);
}

static void refuse(atomr_recorded *p) {
    count(&p->all->refused, 1);
    p->off = ++p->refusals >= ATOMR_RECORD_REFUSALS;
    if (p->off) sweep(p, 1);
}

/* In the lane's thread, when the message that was run is on its way. */
static void capture_wanted(void *context) {
    atomr_recorded *p = context;
    atomr_records *a = p->all;
    const atomr_driver *d = atomr_cuda_driver(a->cuda);
    int prompt = 0;
    CUgraph graph = capture(p, &prompt);
    const unsigned nodes = graph ? nodes_of(d, graph) : 0;
    p->credit--;
    if (nodes) count(&a->captures, 1);
    if (!nodes || !keep(p, graph, nodes, prompt)) {
        if (graph) d->cuGraphDestroy(graph);
        refuse(p);
    }
    pthread_mutex_lock(&a->lock);
    p->capturing = 0;
    pthread_cond_broadcast(&a->done);
    pthread_mutex_unlock(&a->lock);
}

static uint64_t hash_words(uint64_t hash, const uint64_t *words, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

static uint64_t hash_of(const atomr_call *call) {
    const uint64_t hash = hash_words(1, (const uint64_t *)(const void *)call->pointers, call->n_operands);
    return hash_words(hash, call->scalars, call->n_scalars);
}

static record *find(const atomr_recorded *p, const atomr_call *call, uint64_t hash) {
    for (unsigned i = 0; i < p->n; i++) {
        if (p->hashes[i] != hash) continue;
        const uint64_t *key = p->records[i]->key;
        if (memcmp(key, call->pointers, call->n_operands * sizeof *key) == 0 &&
            memcmp(key + call->n_operands, call->scalars, call->n_scalars * sizeof *key) == 0)
            return p->records[i];
    }
    return NULL;
}

/* The records that hold for this message's lane, workspace and memory; 0: it makes none. */
static int is_ready(atomr_recorded *p, const atomr_call *call) {
    if (p->off) return 0;
    if (p->lane < 0 && call->lane < ATOMR_LANES) p->lane = (int)call->lane;
    if ((int)call->lane != p->lane) return 0;
    if (call->workspace != p->workspace || call->workspace_bytes != p->workspace_bytes) {
        sweep(p, 1);
        p->workspace = call->workspace;
        p->workspace_bytes = call->workspace_bytes;
    }
    const uint64_t forgotten = atomic_load_explicit(&p->all->forgotten, memory_order_acquire);
    if (forgotten != p->forgotten) {
        sweep(p, 0);
        p->forgotten = forgotten;
    }
    return 1;
}

/* Launch a message from its record; 0: that was not possible. */
static int replay(atomr_recorded *p, record *r, const atomr_call *call) {
    const CUstream stream = atomr_cuda_stream(p->all->cuda, call->lane);
    if (!stream) return 0;
    if (atomr_cuda_driver(p->all->cuda)->cuGraphLaunch(r->exec, stream) != CUDA_SUCCESS) {
        refuse(p);
        return 0;
    }
    if (r->prompt) *call->prompt = 1;
    r->used = call->ticket;
    _Atomic uint64_t *replays = &p->all->replays[call->lane];
    atomic_store_explicit(replays, atomic_load_explicit(replays, memory_order_relaxed) + 1, memory_order_relaxed);
    if (++p->replays == ATOMR_RECORD_REPLAYS) {
        p->replays = 0;
        p->credit += p->credit < ATOMR_PLAN_RECORDS;
    }
    return 1;
}

/* A message without a record has run: have its tuple captured if it is not the first with it. */
static void consider(atomr_recorded *p, const atomr_call *call, uint64_t hash) {
    uint64_t *place = &p->tuples[hash % TUPLES];
    const int known = *place == hash;
    *place = hash;
    if (!known || !p->credit || !call->after) return;
    memcpy(p->wanted, call->pointers, call->n_operands * sizeof *p->wanted);
    memcpy(p->wanted + call->n_operands, call->scalars, call->n_scalars * sizeof *p->wanted);
    p->wanted_hash = hash;
    p->ticket = call->ticket;
    pthread_mutex_lock(&p->all->lock);
    p->capturing = 1;
    pthread_mutex_unlock(&p->all->lock);
    *call->after = (atomr_after){capture_wanted, p};
}

int atomr_recorded_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_recorded *p = context;
    const int ready = is_ready(p, call);
    uint64_t hash = 0;
    record *r = NULL;
    if (ready) {
        hash = hash_of(call);
        r = find(p, call, hash);
        if (r && atomic_load_explicit(&r->state, memory_order_acquire) == READY && replay(p, r, call)) return ATOMR_OK;
    }
    const int code = p->run(p->context, call, failure); /* should a launch have been refused, this says why */
    if (code != ATOMR_OK || !ready) return code;
    if (call->late && call->late->judge) p->off = 1; /* its info words lie elsewhere each time */
    else if (!r && !p->off) consider(p, call, hash);
    return code;
}

atomr_recorded *atomr_recorded_new(atomr_records *a, atomr_run run, void *context, unsigned n_operands,
                                   unsigned n_scalars) {
    atomr_recorded *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->all = a;
    p->run = run;
    p->context = context;
    p->n_operands = n_operands;
    p->n_scalars = n_scalars;
    p->n_key = n_operands + n_scalars;
    p->lane = -1;
    p->credit = ATOMR_PLAN_RECORDS;
    p->wanted = calloc(p->n_key + 1, sizeof *p->wanted);
    if (p->wanted) return p;
    free(p);
    return NULL;
}

void atomr_recorded_end(atomr_recorded *p) {
    if (!p) return;
    pthread_mutex_lock(&p->all->lock);
    while (p->capturing) pthread_cond_wait(&p->all->done, &p->all->lock); /* its last message has just run */
    while (p->n) drop(p->all, p, p->n - 1);
    while (p->going) pthread_cond_wait(&p->all->done, &p->all->lock);
    pthread_mutex_unlock(&p->all->lock);
    free(p->wanted);
    free(p);
}
