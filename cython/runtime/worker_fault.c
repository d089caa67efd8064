/* What a worker does about a fault of its device: it says why, in its memory, and ends. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/lane_private.h"

enum { BEGUN = 1, WRITTEN = 2 };

void atomr_worker_outlive(atomr_worker *k, int eventfd) {
    k->outlives = 1;
    k->fault_fd = eventfd;
}

int atomr_worker_has_faulted(const atomr_worker *k) { return atomic_load(&k->faulted) != 0; }

static void write_note(atomr_worker *k, const char *what) {
    atomr_fault_note *note = &((atomr_wheader *)k->w)->fault;
    atomr_device_error e;
    memset(&e, 0, sizeof e);
    if (k->backend.explain) k->backend.explain(k->backend.self, &e);
    atomic_store_explicit(&note->state, ATOMR_NOTE_BEGUN, memory_order_relaxed);
    note->code = e.code;
    memcpy(note->lib, e.lib, sizeof note->lib - 1);
    memcpy(note->name, e.name, sizeof note->name - 1);
    const size_t n = strnlen(e.text, sizeof e.text - 1);
    memcpy(note->text, e.text, n);
    snprintf(note->text + n, sizeof note->text - n, "%s(met when %.40s)", n ? " " : "", what);
    atomic_store(&note->state, ATOMR_NOTE_WHOLE);
}

/* Everything that this process could still do with the device fails, so it goes without asking it.  Not by `_exit`: a
 * debugger shall stop here.  A core file would be large, and show nothing of the GPU. */
static void end_process(void) {
    signal(SIGABRT, SIG_DFL);
    prctl(PR_SET_DUMPABLE, 0);
    abort();
}

void atomr_worker_fault(atomr_worker *k, const char *what) {
    int nobody = 0;
    if (atomic_compare_exchange_strong(&k->faulted, &nobody, BEGUN)) {
        write_note(k, what);
        if (!k->outlives) end_process();
        atomic_store(&k->faulted, WRITTEN);
        atomic_store(&k->stopping, 1);
        atomr_open_gate(k);
        const uint64_t one = 1;
        if (atomic_load(&k->joining)) return; /* whoever would be told is ending it */
        if (k->fault_fd >= 0 && write(k->fault_fd, &one, sizeof one) < 0) return; /* full: it is awake already */
    } else if (!k->outlives) {
        sleep(10); /* whoever writes the note ends the process, unless the driver hangs when asked for the reason */
        end_process();
    }
}

void atomr_worker_end(atomr_worker *k, const char *what) {
    if (k->outlives) {
        atomr_worker_fault(k, what);
        return;
    }
    fprintf(stderr, "atomr: the worker ends when %s\n", what);
    fflush(stderr);
    kill(getpid(), SIGKILL);
}
