/* Opening a shared library at run time: the one loader, for the driver and for every library of NVIDIA's.
 *
 * A library is described by an atomr_library_info and becomes a table of function pointers.  The table is complete or
 * the library is refused: one message names the missing functions, the file, its version and the package that helps.
 * A library is opened once in a process and stays open; a file that is refused is closed.  Thread-safe.  Needs no GPU.
 */
#ifndef ATOMR_LIBRARY_H
#define ATOMR_LIBRARY_H

#include <pthread.h>
#include <stddef.h>

typedef struct {
    const char *title;              /* the library's name in messages */
    const char *environment;        /* a variable that names the only file to try, before any path */
    const char *help;               /* what to install; the end of each message */
    const char *const *sonames;     /* tried in this order when no file is named; NULL ends them */
    const char *const *functions;   /* in the order of the table's members: the needed ones, then the optional ones */
    unsigned n_needed, n_optional;
    size_t (*version)(const void *table); /* of a table that may lack functions; 0: unknown.  NULL: never known */
} atomr_library_info;

typedef struct {
    const atomr_library_info *info;
    void *table;          /* a struct of n_needed + n_optional function pointers; an optional one may stay NULL */
    pthread_mutex_t lock;
    void *handle;         /* NULL: not open yet */
    size_t version;       /* these two once it is open */
    char file[1024];      /* what was opened, as the dynamic loader names it */
} atomr_library;

#define ATOMR_LIBRARY(info, table) {&(info), &(table), PTHREAD_MUTEX_INITIALIZER, NULL, 0, ""}

/* The table, bound at the first call that succeeds; later calls return it whatever their `path`.
 *
 * What is opened: the file that the environment names, else `path` unless it is NULL or empty, else the first soname
 * that opens.  NULL, with a reason in `why`, if none opens, or if functions are missing. */
const void *atomr_library_open(atomr_library *, const char *path, char *why, size_t size);

#endif
