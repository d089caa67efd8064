#include "cuda/handles.h"

#include <string.h>

#include "runtime/failure.h"

static int make(const atomr_handle_kind *kind, atomr_cuda *cuda, CUstream stream, void **handle,
                atomr_failure *failure) {
    int code = kind->create(cuda, handle, failure);
    if (code != ATOMR_OK || !kind->set_stream) return code;
    code = kind->set_stream(*handle, stream, failure);
    if (code != ATOMR_OK) kind->destroy(*handle);
    return code;
}

int atomr_handles_get(atomr_handles *h, const atomr_handle_kind *kind, atomr_cuda *cuda, CUstream stream, void **handle,
                      atomr_failure *failure) {
    const unsigned n = atomic_load_explicit(&h->n, memory_order_relaxed); /* this thread's own */
    for (unsigned i = 0; i < n; i++) {
        if (h->kinds[i] != kind) continue;
        if (!h->handles[i]) {
            const int code = make(kind, cuda, stream, handle, failure);
            if (code != ATOMR_OK) return code;
            h->handles[i] = *handle;
        }
        *handle = h->handles[i];
        return ATOMR_OK;
    }
    if (n == ATOMR_HANDLES)
        return atomr_refused(failure, ATOMR_UNSUPPORTED, "a lane with handles of %u libraries; %s is one too many", n,
                             kind->library);
    const int code = make(kind, cuda, stream, handle, failure);
    if (code != ATOMR_OK) return code;
    h->kinds[n] = kind;
    h->handles[n] = *handle;
    atomic_store_explicit(&h->n, n + 1, memory_order_release);
    return ATOMR_OK;
}

int atomr_handles_point(atomr_handles *h, CUstream stream, atomr_failure *failure) {
    int result = ATOMR_OK;
    for (unsigned i = 0, n = atomic_load_explicit(&h->n, memory_order_relaxed); i < n; i++) {
        if (!h->handles[i] || !h->kinds[i]->set_stream) continue;
        const int code = h->kinds[i]->set_stream(h->handles[i], stream, failure);
        if (code == ATOMR_OK) continue;
        h->kinds[i]->destroy(h->handles[i]);
        h->handles[i] = NULL;
        result = code;
    }
    return result;
}

void atomr_handles_end(atomr_handles *h) {
    for (unsigned i = atomic_exchange(&h->n, 0); i-- > 0;)
        if (h->handles[i]) h->kinds[i]->destroy(h->handles[i]);
}

unsigned atomr_handles_count(atomr_handles *h, atomr_handle_count *counts, unsigned n) {
    const unsigned made = atomic_load_explicit(&h->n, memory_order_acquire);
    for (unsigned i = 0; i < made; i++) {
        unsigned at = 0;
        while (at < n && strcmp(counts[at].library, h->kinds[i]->library) != 0) at++;
        if (at == n && n == ATOMR_HANDLES) continue;
        if (at == n) counts[n++] = (atomr_handle_count){h->kinds[i]->library, 0};
        counts[at].count++;
    }
    return n;
}
