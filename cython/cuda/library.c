#define _GNU_SOURCE
#include "cuda/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text that is written piece by piece; what has no room is left out. */
typedef struct {
    char *text;
    size_t size, used;
} message;

__attribute__((format(printf, 2, 3))) static void add(message *m, const char *format, ...) {
    va_list values;
    va_start(values, format);
    const int n = vsnprintf(m->text + m->used, m->size - m->used, format, values);
    va_end(values);
    if (n > 0) m->used = m->used + (size_t)n < m->size ? m->used + (size_t)n : m->size - 1;
}

static void *open_any(const atomr_library_info *info, message *why) {
    for (const char *const *soname = info->sonames; *soname; soname++) {
        void *const handle = dlopen(*soname, RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
    }
    const char *const reason = dlerror(); /* of the last one: the first may just be the other major version */
    add(why, "%s is not installed: tried ", info->title);
    for (const char *const *soname = info->sonames; *soname; soname++)
        add(why, "%s%s", soname == info->sonames ? "" : soname[1] ? ", " : " and ", *soname);
    add(why, " (%s); %s", reason ? reason : "no reason given", info->help);
    return NULL;
}

static void *open_file(const atomr_library_info *info, const char *path, message *why) {
    const char *const named = getenv(info->environment);
    if (named && *named) path = named;
    if (!path || !*path) return open_any(info, why);
    void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) add(why, "%s cannot be opened: %s; %s", info->title, dlerror(), info->help);
    return handle;
}

static const char *file_of(void *handle) {
    struct link_map *map = NULL;
    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "";
}

static void refuse(const atomr_library_info *info, void *const *found, const char *file, size_t version,
                   message *why) {
    enum { NAMED = 24 }; /* a file that lacks more is another library altogether */
    unsigned missing = 0;
    add(why, "%s", file);
    if (version) add(why, ", version %zu,", version);
    add(why, " cannot be used as %s: it lacks ", info->title);
    for (unsigned i = 0; i < info->n_needed; i++)
        if (!found[i] && missing++ < NAMED) add(why, "%s%s", missing > 1 ? ", " : "", info->functions[i]);
    if (missing > NAMED) add(why, " and %u more", missing - NAMED);
    add(why, "; %s", info->help);
}

/* Bind all functions of an open file, and keep it; 0: it lacks some. */
static int bind(atomr_library *l, void *handle, message *why) {
    const atomr_library_info *info = l->info;
    const unsigned n = info->n_needed + info->n_optional;
    void **const found = calloc(n, sizeof *found);
    if (!found) {
        add(why, "no host memory for the functions of %s", info->title);
        return 0;
    }
    int complete = 1;
    for (unsigned i = 0; i < n; i++) {
        found[i] = dlsym(handle, info->functions[i]);
        complete = complete && (found[i] || i >= info->n_needed);
    }
    const size_t version = info->version ? info->version(found) : 0;
    if (complete) {
        memcpy(l->table, found, n * sizeof *found);
        l->handle = handle;
        l->version = version;
        snprintf(l->file, sizeof l->file, "%s", file_of(handle));
    } else {
        refuse(info, found, file_of(handle), version, why);
    }
    free(found);
    return complete;
}

const void *atomr_library_open(atomr_library *l, const char *path, char *why, size_t size) {
    message said = {why, size, 0};
    why[0] = 0;
    pthread_mutex_lock(&l->lock);
    int open = l->handle != NULL;
    if (!open) {
        void *const handle = open_file(l->info, path, &said);
        open = handle && bind(l, handle, &said);
        if (handle && !open) dlclose(handle);
    }
    pthread_mutex_unlock(&l->lock);
    return open ? l->table : NULL;
}
