#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomr_driver table;
static int loaded;

static int bind(void *library, const char *name, void *into, char *why, size_t size, int *missing) {
    void *symbol = dlsym(library, name);
    if (symbol) {
        memcpy(into, &symbol, sizeof symbol);
        return 0;
    }
    const size_t used = strlen(why);
    snprintf(why + used, size - used, "%s%s", *missing ? ", " : "libcuda.so.1 is too old for this library; it lacks ",
             name);
    ++*missing;
    return 1;
}

const atomr_driver *atomr_driver_load(char *why, size_t size) {
    pthread_mutex_lock(&lock);
    why[0] = 0;
    if (!loaded) {
        const char *path = getenv("ATOMR_NATIVE_CUDA");
        void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            snprintf(why, size, "the CUDA driver is not installed: %s", dlerror());
        } else {
            int missing = 0;
#define F(name, arguments) bind(library, #name, &table.name, why, size, &missing);
            ATOMR_DRIVER_FUNCTIONS(F)
#undef F
            loaded = !missing;
        }
    }
    pthread_mutex_unlock(&lock);
    return loaded ? &table : NULL;
}
