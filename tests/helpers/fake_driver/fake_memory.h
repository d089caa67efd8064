/* What the files about memory share.  All of it is used with the lock held. */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include "fake_driver.h"

/* Physical memory.  Mappings keep it as well as handles do. */
typedef struct physical {
    uint32_t magic;
    unsigned handles, mappings;
    int fd;
    size_t size;
    unsigned device; /* as the machine numbers them */
    bool exportable;
} physical;

typedef struct reservation {
    struct reservation *next;
    char *base;
    size_t size;
    bool whole; /* made by cuMemAlloc or cuIpcOpenMemHandle: reservation, mapping and memory at once */
    bool imported, managed;
} reservation;

typedef struct mapping {
    struct mapping *next;
    char *base;
    size_t size;
    physical *memory;
    int protection;
    unsigned devices; /* which may reach it: bits */
} mapping;

typedef struct pinned {
    struct pinned *next;
    char *base;
    size_t size;
    unsigned flags;
    bool own; /* made by cuMemHostAlloc */
} pinned;

extern reservation *fake_reservations;
extern mapping *fake_mappings;
extern pinned *fake_pins;
extern unsigned fake_working; /* threads that stand for a device now */

static inline char *host(CUdeviceptr p) { return (char *)(uintptr_t)p; }
static inline bool overlaps(const char *a, size_t m, const char *b, size_t n) { return a < b + n && b < a + m; }
static inline bool inside(const char *a, size_t m, const char *b, size_t n) {
    return a >= b && m <= n && a - b <= (ptrdiff_t)(n - m);
}

/* ---- physical.c */

enum { PHYSICAL = 0x66616b65 };
/* New memory of a device of the machine, with one handle. */
CUresult fake_make(size_t size, unsigned device, bool exportable, physical **made);
/* Memory of this machine behind a descriptor; NULL if it is something else.  The descriptor stays the caller's. */
physical *fake_import(int fd, bool exportable);
/* The memory of a handle; NULL if it is none. */
physical *fake_memory_of(CUmemGenericAllocationHandle handle);
/* Let go of memory that nobody has a handle or a mapping of. */
void fake_drop(physical *p);

/* ---- addresses.c */

CUresult fake_reserve(size_t size, size_t alignment, void *hint, reservation **made);
void fake_give_back(reservation *gone);
/* Map all of the memory, for nobody yet; inside a reservation. */
CUresult fake_map(char *at, size_t size, physical *p);
/* Unmap what lies in a range as a whole. */
void fake_unmap(char *at, size_t size);
/* Let a device reach what lies in a range as a whole. */
CUresult fake_allow(char *at, size_t size, CUdevice device, int flags);

#endif
