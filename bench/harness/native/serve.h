/* What the programs of this folder share: contenders that answer on request, so that whoever asks decides the order.
 *
 * A request is a line "NAME COUNT" on standard input.  The answer is one line of JSON: {"us": microseconds for each of
 * COUNT operations}, {"unavailable": why this cannot run here}, or, for COUNT 0, which only prepares, {"ready": true}.
 * Whatever else goes wrong ends the program with a line on standard error.
 */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include "cuda/driver.h"

typedef struct {
    const char *name;
    const char *(*prepare)(void); /* before the first run; NULL, or why it cannot run here.  May be NULL */
    void (*run)(int n);           /* `n` operations, and the waiting that is part of what is measured */
    void (*settle)(void);         /* wait for all that is left, before and after, untimed */
} contender;

_Noreturn void die(const char *what, int code);
void ok(CUresult result, const char *what);
/* Load a kernel from a file of machine code. */
CUfunction load_kernel(const atomr_driver *driver, const char *path, const char *function);
/* Answer until standard input ends; a list ends with a nameless contender. */
int serve(const contender *const lists[], int n);

#endif
