/* Mailboxes of actors written in Python, and the outcomes that askers wait for.
 *
 * A mailbox is two queues of pointers, one for system messages, which overtake, and one for the user's: many
 * threads put, one thread takes.  The consumer spins for a moment, then parks; producers of a full mailbox park
 * too.  What the pointers mean is the caller's business; nothing here knows Python, or waits while it holds
 * the lock.
 */
#ifndef ATOMR_ACTOR_MAILBOX_H
#define ATOMR_ACTOR_MAILBOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { ATOMR_PUT = 0, ATOMR_NO_ROOM, ATOMR_SHUT, ATOMR_EVICTED, ATOMR_NO_MEMORY };
enum { ATOMR_NOTHING = 0, ATOMR_USER, ATOMR_SYSTEM };
/* Whether a message heeds the bound; the last ones come even while the mailbox is shut to users' messages. */
enum { ATOMR_BOUNDED = 0, ATOMR_BEYOND, ATOMR_LATE };
enum { ATOMR_READY = 0, ATOMR_TIMED_OUT, ATOMR_SIGNAL };

typedef struct {
    void **items;
    uint32_t size, head; /* size: of `items`, a power of two, or 0 */
} atomr_deque;

typedef struct {
    pthread_mutex_t lock;
    atomr_deque user, system;
    uint32_t capacity;                 /* of the user's queue; 0: no bound */
    int shut_user, shut_system;        /* nothing is taken in any more */
    _Atomic uint32_t n_user, n_system; /* written under the lock */
    _Atomic uint32_t suspended;        /* only system messages are taken; written by the consumer */
    _Atomic uint32_t bell;             /* futex of the consumer */
    _Atomic uint32_t parked;           /* the consumer waits for `bell`, or for `event_fd` */
    _Atomic uint32_t room;             /* futex of producers */
    _Atomic uint32_t n_waiting;        /* producers that wait for it */
    _Atomic uint32_t watched;          /* somebody wants to be told of room otherwise */
    _Atomic uint32_t off;              /* bumped by an asker that has let go of what the consumer needs next */
    _Atomic uint32_t idle;             /* the consumer is inside of `atomr_mailbox_wait` */
    int event_fd;                      /* of an event loop in which the consumer waits, or -1 */
    uint32_t seen_off;
} atomr_mailbox;

/* 0, or an errno. */
int atomr_mailbox_init(atomr_mailbox *m, uint32_t capacity);
void atomr_mailbox_destroy(atomr_mailbox *m);

/* Put behind the others.  ATOMR_PUT, ATOMR_NO_ROOM, ATOMR_SHUT or ATOMR_NO_MEMORY; with `evict`, a full mailbox gives its
 * oldest in `*evicted` instead, and ATOMR_EVICTED. */
int atomr_mailbox_put(atomr_mailbox *m, void *item, int bound, int evict, void **evicted);
/* Put before the others, whatever the bound, and also when shut to new ones. */
int atomr_mailbox_put_back(atomr_mailbox *m, void *item);
int atomr_mailbox_put_system(atomr_mailbox *m, void *item);

/* Take one.  `*room` becomes 1 when somebody who `watched` is to be told of room. */
int atomr_mailbox_take(atomr_mailbox *m, void **item, int *room);

/* Take a user's message whether or not it is suspended, from any thread; NULL when there is none. */
void *atomr_mailbox_take_user(atomr_mailbox *m);

/* Wait until there is something to take.  Spins for `spin_ns`, then parks; a negative timeout is for ever. */
int atomr_mailbox_wait(atomr_mailbox *m, int64_t timeout_ns, uint64_t spin_ns);
/* For a consumer in an event loop: 1 if there is something to take; else `event_fd` is signalled when there will be. */
int atomr_mailbox_arm(atomr_mailbox *m);

/* A producer waits for room: ATOMR_READY is a hint to try again. */
int atomr_mailbox_await_room(atomr_mailbox *m, int64_t timeout_ns);

/* Nothing is taken in any more; what is there stays. */
void atomr_mailbox_shut(atomr_mailbox *m, int system);
/* Signal this eventfd instead of the futex; -1 ends that, and from then on the descriptor may be closed. */
void atomr_mailbox_watch(atomr_mailbox *m, int event_fd);

static inline uint32_t atomr_mailbox_depth(const atomr_mailbox *m) {
    return atomic_load_explicit(&m->n_user, memory_order_relaxed);
}
static inline void atomr_mailbox_want_room(atomr_mailbox *m) { atomic_store(&m->watched, 1u); }
static inline void atomr_mailbox_suspend(atomr_mailbox *m, int yes) { atomic_store(&m->suspended, yes ? 1u : 0u); }

/* What one asker, or several, wait for.  `word`: 0 open, 1 resolved, 2 open and somebody is parked. */
typedef struct {
    _Atomic uint32_t claimed;
    _Atomic uint32_t word;
    _Atomic(void *) waiters; /* a stack of callbacks, or ATOMR_OUTCOME_DONE */
} atomr_outcome;

#define ATOMR_OUTCOME_DONE ((void *)1)

/* 1 for who may resolve it. */
static inline int atomr_outcome_claim(atomr_outcome *o) { return atomic_exchange(&o->claimed, 1u) == 0; }
/* After the value is in place; 1 when somebody is parked, and `atomr_outcome_wake` is due. */
static inline int atomr_outcome_publish(atomr_outcome *o) { return atomic_exchange(&o->word, 1u) == 2; }
static inline int atomr_outcome_done(atomr_outcome *o) {
    return atomic_load_explicit(&o->word, memory_order_acquire) == 1;
}
void atomr_outcome_wake(atomr_outcome *o);
/* `m`, if any: the mailbox whose consumer will resolve it. */
int atomr_outcome_wait(atomr_outcome *o, atomr_mailbox *m, int64_t timeout_ns, uint64_t spin_ns);

/* Callbacks: `*next` is where the entry keeps the rest of the stack.  0 when it is resolved already. */
static inline int atomr_outcome_add(atomr_outcome *o, void *entry, void **next) {
    void *head = atomic_load(&o->waiters);
    do {
        if (head == ATOMR_OUTCOME_DONE) return 0;
        *next = head;
    } while (!atomic_compare_exchange_weak(&o->waiters, &head, entry));
    return 1;
}
/* Takes the stack; entries added later are refused. */
static inline void *atomr_outcome_close(atomr_outcome *o) {
    void *head = atomic_exchange(&o->waiters, ATOMR_OUTCOME_DONE);
    return head == ATOMR_OUTCOME_DONE ? (void *)0 : head;
}

#endif
