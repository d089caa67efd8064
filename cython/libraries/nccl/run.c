#include "libraries/nccl/run.h"

#include <math.h>
#include <string.h>

#include "runtime/failure.h"

const atomr_field atomr_nccl_call_fields[] = {
    ATOMR_NCCL_CALL_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_nccl_constants[] = {
    ATOMR_NCCL_CONSTANTS(ATOMR_CONSTANT) ATOMR_NCCL_KINDS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

int atomr_nccl_check(const atomr_nccl_message *m, atomr_failure *failure) {
    for (unsigned i = 0; i < m->n_calls; i++) {
        const atomr_nccl_call *const c = &m->calls[i];
        const int64_t places[] = {c->x, c->out, c->factor};
        int good = c->kind >= ATOMR_NCCL_ALL_REDUCE && c->kind <= ATOMR_NCCL_CLOSE_WINDOW && c->count >= 1 && c->peer >= 0;
        for (int k = 0; k < 3; k++) good = good && places[k] >= -1 && places[k] < (int64_t)m->n_operands;
        good = good && c->number >= -1 && c->number < (int64_t)m->n_scalars && c->x_offset >= 0 && c->out_offset >= 0;
        good = good && (c->x >= 0 || c->kind == ATOMR_NCCL_BROADCAST || c->kind == ATOMR_NCCL_RECEIVE);
        good = good && (c->out >= 0 || c->kind == ATOMR_NCCL_BROADCAST || c->kind == ATOMR_NCCL_REDUCE ||
                        c->kind == ATOMR_NCCL_SEND || c->kind >= ATOMR_NCCL_OPEN_WINDOW);
        good = good && (c->x >= 0 || c->out >= 0);
        if (!good) return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a collective");
    }
    return ATOMR_OK;
}

/* The bits of a number in a binary format with `digits` bits after the point; `least` is the exponent of its smallest
 * normal number, `most` its largest finite one. */
static uint32_t encode(double x, int digits, int exponents, double most, int saturates) {
    const int bias = (1 << (exponents - 1)) - 1, least = 1 - bias;
    const uint32_t sign = signbit(x) ? 1u << (digits + exponents) : 0;
    double a = fabs(x);
    int e = 0;
    if (a > 0) frexp(a, &e);
    e = a > 0 && e - 1 > least ? e - 1 : least;
    const double unit = ldexp(1, e - digits);
    a = nearbyint(a / unit) * unit; /* to nearest, ties to even: the processor's mode */
    if (a > most && saturates) a = most;
    if (a > most) return sign | (uint32_t)(((1 << exponents) - 1) << digits);
    if (a < ldexp(1, least)) return sign | (uint32_t)(a / ldexp(1, least - digits));
    frexp(a, &e);
    e--;
    return sign | (uint32_t)(e + bias) << digits | (uint32_t)((a / ldexp(1, e) - 1) * ldexp(1, digits));
}

void atomr_nccl_element(ncclDataType_t type, double x, void *element) {
    const double narrow = (double)(float)x;
    const int64_t whole = x >= 0x1p63 || x < -0x1p63 ? 0 : (int64_t)x;
    uint32_t bits;
    switch (type) {
    case ncclInt8: case ncclUint8: *(int8_t *)element = (int8_t)whole; break;
    case ncclInt32: case ncclUint32: *(int32_t *)element = (int32_t)whole; break;
    case ncclInt64: *(int64_t *)element = whole; break;
    case ncclUint64: *(uint64_t *)element = x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)whole; break;
    case ncclFloat32: *(float *)element = (float)x; break;
    case ncclFloat64: *(double *)element = x; break;
    case ncclFloat16:
        bits = isnan(x) ? 0x7e00 : encode(x, 10, 5, 65504, 0);
        *(uint16_t *)element = (uint16_t)bits;
        break;
    case ncclBfloat16:
        bits = isnan(x) ? 0x7fc0 : encode(narrow, 7, 8, 0x1.fep127, 0);
        *(uint16_t *)element = (uint16_t)bits;
        break;
    case ncclFloat8e5m2:
        bits = isnan(x) ? 0x7e : encode(narrow, 2, 5, 57344, 1);
        *(uint8_t *)element = (uint8_t)bits;
        break;
    default: /* e4m3: exponent 15 is used, but for NaN */
        bits = isnan(x) ? 0x7f : encode(narrow, 3, 4, 448, 1);
        *(uint8_t *)element = (uint8_t)bits;
    }
}

/* The factor of a call as an operation of this communicator. */
static ncclResult_t factor_of(const atomr_nccl_table *t, const atomr_nccl_call *c, const atomr_call *call,
                              ncclComm_t comm, ncclRedOp_t *op) {
    double number;
    uint64_t element = 0;
    if (c->factor >= 0)
        return t->ncclRedOpCreatePreMulSum(op, call->pointers[c->factor], (ncclDataType_t)c->dtype, ncclScalarDevice,
                                           comm);
    memcpy(&number, &call->scalars[c->number], sizeof number);
    atomr_nccl_element((ncclDataType_t)c->dtype, number, &element);
    return t->ncclRedOpCreatePreMulSum(op, &element, (ncclDataType_t)c->dtype, ncclScalarHostImmediate, comm);
}

static ncclResult_t issue(const atomr_nccl_message *m, const atomr_nccl_call *c, const atomr_call *call, ncclRedOp_t op,
                          ncclComm_t comm, CUstream stream) {
    const atomr_nccl_table *const t = atomr_nccl_table_of(m->connection);
    char *out = c->out < 0 ? NULL : (char *)call->pointers[c->out] + c->out_offset;
    const char *x = c->x < 0 ? out : (const char *)call->pointers[c->x] + c->x_offset;
    const size_t n = (size_t)c->count;
    const ncclDataType_t type = (ncclDataType_t)c->dtype;
    const int peer = (int)c->peer;
    switch (c->kind) {
    case ATOMR_NCCL_ALL_REDUCE: return t->ncclAllReduce(x, out, n, type, op, comm, stream);
    case ATOMR_NCCL_REDUCE: return t->ncclReduce(x, out, n, type, op, peer, comm, stream);
    case ATOMR_NCCL_BROADCAST: return t->ncclBroadcast(x, out ? out : (void *)x, n, type, peer, comm, stream);
    case ATOMR_NCCL_ALL_GATHER: return t->ncclAllGather(x, out, n, type, comm, stream);
    case ATOMR_NCCL_REDUCE_SCATTER: return t->ncclReduceScatter(x, out, n, type, op, comm, stream);
    case ATOMR_NCCL_SEND: return t->ncclSend(x, n, type, peer, comm, stream);
    case ATOMR_NCCL_RECEIVE: return t->ncclRecv(out, n, type, peer, comm, stream);
    case ATOMR_NCCL_ALL_TO_ALL:
        return t->ncclAlltoAll ? t->ncclAlltoAll(x, out, n, type, comm, stream) : ncclInvalidUsage;
    case ATOMR_NCCL_OPEN_WINDOW: return atomr_nccl_open_window(m->connection, comm, (void *)x, n);
    default: return atomr_nccl_close_window(m->connection, comm, x);
    }
}

static int is_good(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }

enum { OPS = 64 }; /* factors of a message: it has no more scalars, or operands in their place */

/* All calls, in one group, since parts of a message may wait for each other. */
static ncclResult_t issue_all(const atomr_nccl_table *t, const atomr_nccl_message *m, const atomr_call *call,
                              ncclComm_t comm, CUstream stream, ncclRedOp_t *made, unsigned *n_made) {
    ncclRedOp_t ops[OPS];
    for (unsigned i = 0, k = 0; i < m->n_calls; i++) {
        const atomr_nccl_call *const c = &m->calls[i];
        if (c->factor < 0 && c->number < 0) continue;
        if (k == OPS) return ncclInvalidArgument;
        const ncclResult_t status = factor_of(t, c, call, comm, &ops[k]);
        if (status != ncclSuccess) return status;
        made[k] = ops[k];
        *n_made = ++k;
    }
    ncclResult_t status = m->n_calls > 1 ? t->ncclGroupStart() : ncclSuccess, last = ncclSuccess;
    if (status != ncclSuccess) return status;
    for (unsigned i = 0, k = 0; i < m->n_calls && is_good(status); i++) {
        const atomr_nccl_call *const c = &m->calls[i];
        const int scaled = c->factor >= 0 || c->number >= 0;
        status = issue(m, c, call, scaled ? ops[k] : (ncclRedOp_t)c->op, comm, stream);
        k += (unsigned)scaled;
    }
    if (m->n_calls > 1) last = t->ncclGroupEnd(); /* also after a failure: else the thread stays in the group */
    return !is_good(status) || m->n_calls == 1 ? status : last;
}

int atomr_nccl_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_nccl_message *const m = context;
    atomr_nccl_connection *const c = m->connection;
    const atomr_nccl_table *const t = atomr_nccl_table_of(c);
    const uint64_t sequence = call->scalars[ATOMR_KEY_SEQUENCE];
    if (!m->connects && (!m->n_calls || !atomr_nccl_has_met(c, sequence))) return ATOMR_OK; /* nothing moves */
    int code = atomr_nccl_connect(c, sequence, failure);
    if (code != ATOMR_OK || !m->n_calls) return code;
    const CUstream stream = atomr_cuda_stream(atomr_nccl_cuda_of(c), call->lane);
    ncclRedOp_t made[OPS];
    unsigned n_made = 0;
    ncclComm_t comm;
    code = atomr_nccl_begin(c, sequence, &comm, failure);
    if (code != ATOMR_OK) return code;
    const ncclResult_t status = stream ? issue_all(t, m, call, comm, stream, made, &n_made) : ncclUnhandledCudaError;
    code = atomr_nccl_end(c, sequence, status, "a collective", failure);
    if (code != ATOMR_OK) return code;
    atomr_nccl_judge_late(c, call);
    if (!n_made) return code;
    /* They may go as soon as the calls that use them have been taken. */
    if (atomr_nccl_begin(c, sequence, &comm, failure) != ATOMR_OK) return ATOMR_OK; /* broken: `judge` says so */
    ncclResult_t dropped = ncclSuccess;
    for (unsigned i = 0; i < n_made; i++) {
        const ncclResult_t one = t->ncclRedOpDestroy(made[i], comm);
        if (!is_good(one)) dropped = one;
    }
    code = atomr_nccl_end(c, sequence, dropped, "ncclRedOpDestroy", failure);
    return code;
}
