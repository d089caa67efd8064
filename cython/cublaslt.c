#define _GNU_SOURCE
#include "cublaslt.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomr_cublaslt table;
static int loaded;

static const char *const packages = "pip install nvidia-cublas (CUDA 13) or nvidia-cublas-cu12 (CUDA 12)";

static void *open_library(const char *path, char *why, size_t size) {
    static const char *const sonames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const char *const forced = getenv("ATOMR_NATIVE_CUBLASLT");
    if (forced && *forced) path = forced;
    if (path && *path) {
        void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) snprintf(why, size, "cuBLASLt cannot be opened: %s; %s", dlerror(), packages);
        return library;
    }
    for (unsigned i = 0; i < sizeof sonames / sizeof *sonames; i++) {
        void *const library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    snprintf(why, size, "cuBLASLt is not installed: tried libcublasLt.so.13 and libcublasLt.so.12; %s", packages);
    return NULL;
}

static void bind(void *library, const char *name, void *into, char *missing, size_t size) {
    void *const symbol = dlsym(library, name);
    if (symbol) {
        memcpy(into, &symbol, sizeof symbol);
        return;
    }
    const size_t used = strlen(missing);
    snprintf(missing + used, size - used, "%s%s", used ? ", " : "", name);
}

/* Fill `t` and say which functions the library lacks. */
static void bind_all(void *library, atomr_cublaslt *t, char *missing, size_t size) {
#define F(result, name, arguments) bind(library, #name, &t->name, missing, size);
    ATOMR_CUBLASLT_FUNCTIONS(F)
#undef F
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map)
        snprintf(t->file, sizeof t->file, "%s", map->l_name);
    if (t->cublasLtGetVersion) t->version = t->cublasLtGetVersion();
}

const atomr_cublaslt *atomr_cublaslt_load(const char *path, char *why, size_t size) {
    pthread_mutex_lock(&lock);
    why[0] = 0;
    if (!loaded) {
        void *const library = open_library(path, why, size);
        if (library) {
            char missing[1024] = "";
            memset(&table, 0, sizeof table);
            bind_all(library, &table, missing, sizeof missing);
            loaded = !missing[0];
            if (!loaded) {
                snprintf(why, size, "%s, version %zu, is no cuBLASLt of CUDA 12 or 13; it lacks %s; %s", table.file,
                         table.version, missing, packages);
                dlclose(library);
            }
        }
    }
    const int ready = loaded;
    pthread_mutex_unlock(&lock);
    return ready ? &table : NULL;
}
