/* The shared memory between a sender (the parent) and the lanes (the worker).
 *
 * Two regions, each written by one process only and sealed against writable maps elsewhere:
 *   P, the parent's: rings, doorbells, the tickets somebody waits for, slot generations.
 *   W, the worker's: progress of every lane, error rings, what its threads are doing.
 * No pointers, no locks, fixed sizes.  Each field names its writer by the region it lies in.
 */
#ifndef ATOMR_SHM_H
#define ATOMR_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/stamps.h"

#define ATOMR_MAGIC_P 0x50524d4fu /* "OMRP" */
#define ATOMR_MAGIC_W 0x57524d4fu
#define ATOMR_ABI 9u /* bump on any change of this file, or of the page in meeting.h */

#define ATOMR_CELL_WORDS 32u      /* one cell: 256 bytes */
#define ATOMR_HEAD_WORDS 4u       /* of them, the header of a message */
#define ATOMR_MIN_CELLS 32u       /* cells of the smallest mailbox: it has room for each message without bound arrays */
#define ATOMR_MAX_CELLS 416u      /* cells of the longest message */
#define ATOMR_MAX_OPERANDS 240u   /* that a caller gives */
#define ATOMR_MAX_BOUND 4096u     /* arrays that a plan adds to each of its messages */
#define ATOMR_MESSAGE_OPERANDS (ATOMR_MAX_OPERANDS + ATOMR_MAX_BOUND + 1u) /* and a block of temporaries */
#define ATOMR_MAX_SCALARS 64u
#define ATOMR_SUBSCRIBERS 16u     /* eventfds that a worker may signal */
#define ATOMR_ERRORS 32u          /* entries of a lane's error ring */
#define ATOMR_ERROR_TEXT 960u
#define ATOMR_MAX_SEGMENTS 4096u
#define ATOMR_POISON_MIRROR 1024u
#define ATOMR_ACQUITTED 64u
#define ATOMR_INFOS 64u          /* messages of a lane whose outcome is open */
#define ATOMR_INFO_WORDS 4u      /* of one such message, or of one such step of a program */
#define ATOMR_INFO_STEPS 15u     /* such steps of a program */
#define ATOMR_INFO_ROOM 64u      /* words of a message: of these steps, and which of them have run */
#define ATOMR_SPANS 2048u         /* entries of a lane's ring of spans */

/* How an operation uses an operand.  HOST: memory that the processor writes as well, without any message; that one
 * failed to write it says nothing of what is in it later, and leaves no poison. */
enum { ATOMR_READ = 1, ATOMR_WRITE = 2, ATOMR_OVERWRITE = 4, ATOMR_HOST = 8 };

/* Why a ticket failed; the Python classes of errors.py. */
enum atomr_code {
    ATOMR_OK = 0,
    ATOMR_LIBRARY_ERROR = 1,
    ATOMR_UNSUPPORTED = 2,
    ATOMR_INVALID_REQUEST = 3,
    ATOMR_OUT_OF_MEMORY = 4,
    ATOMR_DEPENDENCY_FAILED = 5, /* never stored alone: an error whose `inherited` is 1 */
    ATOMR_STALE_RESTARTED = 6,
    ATOMR_STALE_TORN = 7,
    ATOMR_STALE_ROLLED_BACK = 8,
    ATOMR_DEVICE_FAULT = 9,
    ATOMR_DEVICE_LOST = 10,
    ATOMR_ACTOR_STOPPED = 11,
    ATOMR_CODES
};

/* One operand of a message, three words: where it lies, which slot it is, how it is used. */
typedef struct {
    uint32_t segment, access;
    uint64_t offset;
    uint32_t slot, generation;
} atomr_operand;

/* Of a message.  ASKED: somebody has its reply, and likely waits for it.  KEYED: its scalars begin with the words of
 * meeting.h, and its lane meets those of other ranks before it runs. */
enum { ATOMR_ASKED = 1, ATOMR_KEYED = 2 };

/* The header of a message, in its first cell; deps, operands, scalars follow as words. */
typedef struct {
    uint64_t ticket;
    uint32_t plan;
    uint32_t epoch;   /* generation of the device for which its handles were checked */
    uint16_t n_cells, n_operands;
    uint8_t n_deps, n_scalars;
    uint8_t refusal;  /* an atomr_code: resolve as failed, run nothing */
    uint8_t flags;    /* ATOMR_ASKED, ATOMR_KEYED */
    uint64_t order;   /* place in the order of all sends of this device */
} atomr_head;

typedef union {
    atomr_head head;
    uint64_t words[ATOMR_CELL_WORDS];
} atomr_cell;

_Static_assert(sizeof(atomr_cell) == 256, "a cell is 256 bytes");
_Static_assert(sizeof(atomr_head) == ATOMR_HEAD_WORDS * 8, "header size");
_Static_assert(sizeof(atomr_operand) == 24, "operand size");
_Static_assert(ATOMR_INFO_STEPS * ATOMR_INFO_WORDS < ATOMR_INFO_ROOM, "info words of a program");
_Static_assert(ATOMR_HEAD_WORDS + ATOMR_LANES + 3 * ATOMR_MESSAGE_OPERANDS + ATOMR_MAX_SCALARS <=
                   ATOMR_MAX_CELLS * ATOMR_CELL_WORDS, "the longest message");
_Static_assert(ATOMR_HEAD_WORDS + ATOMR_LANES + 3 * ATOMR_MAX_OPERANDS + ATOMR_MAX_SCALARS <=
                   ATOMR_MIN_CELLS * ATOMR_CELL_WORDS, "the longest message without bound arrays");

/* The parent's side of one lane.  Hot words on cache lines of their own. */
typedef struct {
    _Alignas(64) _Atomic uint64_t tail;      /* cells published so far */
    _Alignas(64) _Atomic uint64_t wake_at;   /* the lowest open ticket that anybody waits for */
    _Atomic uint64_t rewake;                 /* bumped when `wake_at` moved past somebody who may still sleep */
    _Atomic uint64_t sub_wanted[ATOMR_SUBSCRIBERS];
    _Alignas(64) _Atomic uint32_t doorbell;  /* futex: bumped to wake a parked lane */
    _Atomic uint32_t errors_taken;           /* entries of the error ring that the parent has read */
    _Atomic uint64_t awake_until;            /* CLOCK_MONOTONIC, ns: till then the lane looks for messages before it parks */
    uint64_t base_cell, base_ticket;         /* where a new worker starts; written while none runs */
} atomr_plane;

typedef struct {
    uint32_t magic, abi;
    uint64_t nbytes;
    uint32_t cells;         /* of each ring; a power of two */
    uint32_t slots;
    uint64_t lanes_at, rings_at, slots_at; /* byte offsets */
    _Atomic uint32_t epoch; /* generation of the device */
    _Atomic uint32_t traced; /* how many traces run: while any does, lanes note the spans of their messages */
    _Atomic uint32_t watched; /* a watchdog measures how long each message runs: no completion waits for a later one */
} atomr_pheader;

/* An entry of a lane's error ring, written before the ticket's completion is. */
typedef struct {
    uint64_t ticket;
    uint64_t cause_ticket;
    uint32_t cause_lane;
    uint32_t code;      /* atomr_code */
    int32_t status;     /* the library's */
    uint32_t inherited; /* 1: this message did not run, since an operand was poisoned by the cause */
    uint32_t plan, cause_plan; /* of this message, and of the cause: for the text of the error */
    char lib[16], name[64];
    char text[ATOMR_ERROR_TEXT - 16 - 64 - 16];
} atomr_error;

_Static_assert(sizeof(atomr_error) == 984, "error entry size");

/* From when to when a lane worked at a message (CLOCK_MONOTONIC); on a GPU, was launching it. */
typedef struct {
    _Atomic uint64_t ticket, began_ns, ended_ns;
} atomr_span;

typedef struct {
    _Alignas(64) _Atomic uint64_t claimed;   /* the highest ticket whose run may have begun */
    _Atomic uint64_t started_ns;             /* CLOCK_MONOTONIC at the last claim */
    _Alignas(64) _Atomic uint64_t completed; /* every ticket up to here is resolved */
    /* While the outcome of a message is open, the device writes here; the worker then judges it, and writes the above. */
    _Alignas(64) _Atomic uint64_t arrived;
    _Atomic int32_t infos[ATOMR_INFOS][ATOMR_INFO_ROOM]; /* info words of such messages, written by the device */
    _Alignas(64) _Atomic uint32_t wake_seq;  /* futex: bumped to wake parked waiters of the parent */
    _Atomic uint32_t parked;                 /* the lane thread sleeps on its doorbell */
    _Atomic uint32_t errors;                 /* entries written to the error ring so far */
    _Atomic uint32_t state;                  /* 0 no thread, 1 running, 2 ended */
    _Alignas(64) _Atomic uint64_t messages, failed, busy_ns, parks;
    atomr_error ring[ATOMR_ERRORS];
    _Atomic uint64_t n_spans; /* entries written to `spans` so far; the oldest are overwritten, whoever reads them or not */
    atomr_span spans[ATOMR_SPANS];
} atomr_wlane;

enum { ATOMR_NOTE_NONE = 0, ATOMR_NOTE_BEGUN = 1, ATOMR_NOTE_WHOLE = 2 };

/* Why the worker ends: written once, before it does, by the thread that met the error first. */
typedef struct {
    _Atomic uint32_t state; /* ATOMR_NOTE_... */
    int32_t code;           /* the library's number of the error */
    char lib[16], name[64];
    char text[256];         /* what it means, and what was being done */
} atomr_fault_note;

typedef struct {
    uint32_t magic, abi;
    uint64_t nbytes;
    uint64_t lanes_at;      /* ATOMR_W_LANES_AT; for a check when the region is mapped, and for nothing else */
    uint32_t pid, pad;
    _Atomic uint64_t control_busy; /* nonzero while the control thread works; watchdogs pause */
    /* Allocations that hold nothing (slot << 32 | generation, 0: free), for whoever comes after a crash. */
    _Atomic uint32_t poison_overflow; /* how many more there are than fit below */
    _Atomic uint64_t poisoned[ATOMR_POISON_MIRROR];
    /* Plans on probation that have completed a message while nothing else ran: see probation.c. */
    _Atomic uint32_t n_acquitted;
    _Atomic uint32_t acquitted[ATOMR_ACQUITTED];
    atomr_fault_note fault;
    _Atomic uint64_t beat; /* written by an idle device, as a sign of life */
} atomr_wheader;

/* Fixed, and never read from the region: a worker that went wild could point the parent anywhere. */
#define ATOMR_W_LANES_AT ((sizeof(atomr_wheader) + 4095u) & ~(uint64_t)4095u)

static inline atomr_plane *atomr_plane_at(void *p, unsigned lane) {
    return (atomr_plane *)((char *)p + ((atomr_pheader *)p)->lanes_at) + lane;
}
static inline atomr_cell *atomr_ring_at(void *p, unsigned lane) {
    const atomr_pheader *h = (const atomr_pheader *)p;
    return (atomr_cell *)((char *)p + h->rings_at) + (uint64_t)lane * h->cells;
}
static inline _Atomic uint32_t *atomr_generations(void *p) {
    return (_Atomic uint32_t *)((char *)p + ((atomr_pheader *)p)->slots_at);
}
static inline atomr_wlane *atomr_wlane_at(void *w, unsigned lane) {
    return (atomr_wlane *)((char *)w + ATOMR_W_LANES_AT) + lane;
}

uint64_t atomr_p_bytes(uint32_t cells, uint32_t slots);
uint64_t atomr_w_bytes(void);
void atomr_p_init(void *p, uint32_t cells, uint32_t slots);
void atomr_w_init(void *w);

/* memfd_create + size; sealed so that nobody else can map it writable once `atomr_memfd_seal` ran. */
int atomr_memfd(const char *name, uint64_t nbytes);
int atomr_memfd_seal(int fd);
/* Nonzero when it is at least so large and can never shrink: reading it then cannot raise SIGBUS. */
int atomr_memfd_is_safe(int fd, uint64_t nbytes);
/* The same for memory that both sides write: its size is fixed, and it takes no more seals. */
int atomr_memfd_fix(int fd);
int atomr_memfd_is_fixed(int fd, uint64_t nbytes);

/* Have the pages there before the first message needs them; a kernel that cannot is no error. */
void atomr_populate(void *start, uint64_t nbytes, int writable);

/* Shared futexes: both work on a page that is mapped read only. */
int atomr_futex_wait(const _Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
void atomr_futex_wake(const _Atomic uint32_t *word);

uint64_t atomr_now_ns(void);
/* How many processors this process may use; 1 if the system does not say. */
int atomr_processors(void);

static inline void atomr_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
