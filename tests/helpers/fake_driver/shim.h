/* What a kernel's source needs to be C11 for this processor: put in front of it, see kernel_shim.py.
 *
 * The threads of a block run one after the other.  Where a kernel synchronises them they are fibers, which change at
 * each SYNC().  The blocks of a cluster are as one block here: SYNC() waits for all of them, they have their shared
 * arrays in common, and only their indices tell them apart.  One launch at a time runs in a module: the built-in
 * variables and shared arrays are the module's. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define KERNEL static void
#define DEVICE static inline __attribute__((unused))
#define OUTLINE static __attribute__((unused, noinline))
#define SHARED static
#define ALIGNED(n) __attribute__((aligned(n)))
#define SYNC() fake_sync()
#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define AWAIT_LAUNCH()
#define ALLOW_LAUNCH()
#define __global__
typedef struct {
    float x, y;
} float2;
typedef struct {
    double x, y;
} double2;
#define __device__
#define __forceinline__ inline
#define __cudart_builtin__
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __syncthreads() fake_sync()
#define __threadfence_system() FENCE()
#define __threadfence() FENCE()

typedef struct { unsigned int x, y, z; } fake_dim;
static fake_dim threadIdx, blockIdx, blockDim, gridDim;

/* What the fake driver does for a kernel; without it a fault ends the process. */
struct fake_hooks {
  void (*fault)(int error);
  void (*sleep)(unsigned int nanoseconds);
  void (*condition)(unsigned long long handle, unsigned int value);
};
const struct fake_hooks *fake_hooks;
DEVICE void fake_fault(int error) {
  if (fake_hooks) fake_hooks->fault(error);
  abort();
}
DEVICE void fake_sleep(unsigned int nanoseconds) {
  if (fake_hooks) fake_hooks->sleep(nanoseconds);
}
__attribute__((unused)) void cudaGraphSetConditional(unsigned long long handle, unsigned int value) {
  fake_hooks->condition(handle, value);
}
DEVICE uint64_t fake_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#define __trap() fake_fault(719)
#define __nanosleep(n) fake_sleep(n)
#define __assertfail(...) fake_fault(710)
#define assert(x) ((x) ? (void)0 : fake_fault(710))

DEVICE float __uint_as_float(unsigned int b) { float x; memcpy(&x, &b, 4); return x; }
DEVICE unsigned int __float_as_uint(float x) { unsigned int b; memcpy(&b, &x, 4); return b; }
DEVICE float __int_as_float(int b) { float x; memcpy(&x, &b, 4); return x; }
DEVICE int __float_as_int(float x) { int b; memcpy(&b, &x, 4); return b; }
DEVICE double __longlong_as_double(long long b) { double x; memcpy(&x, &b, 8); return x; }
DEVICE long long __double_as_longlong(double x) { long long b; memcpy(&b, &x, 8); return b; }

/* Fibers: made once a module with ucontext, then changed by jumps, which need no system call. */
enum { FAKE_BLOCKS = 8, FAKE_BLOCK = 1024, FAKE_THREADS = FAKE_BLOCKS * FAKE_BLOCK, FAKE_STACK = 65536 };
static struct {
  ucontext_t start, origin;
  sigjmp_buf home, at[FAKE_THREADS];
  char *stacks[FAKE_BLOCKS]; /* of so many fibers each, made when they are */
  unsigned int made, current, left;
  bool done[FAKE_THREADS];
  void (*body)(void **);
  void **arguments;
} fake;

static void fake_leave(void) {
  if (!sigsetjmp(fake.at[fake.current], 0)) siglongjmp(fake.home, 1);
}
__attribute__((unused)) static void fake_sync(void) { fake_leave(); }
static void fake_fiber(void) {
  for (;;) { /* one turn a block: it begins when the block does */
    fake_leave();
    fake.body(fake.arguments);
    fake.done[fake.current] = true;
  }
}
static void fake_switch(unsigned int t) {
  fake.current = t;
  if (sigsetjmp(fake.home, 0)) return;
  if (t < fake.made) siglongjmp(fake.at[t], 1);
  fake.made = t + 1;
  getcontext(&fake.start);
  char **stacks = &fake.stacks[t / FAKE_BLOCK];
  if (!*stacks)
    *stacks = mmap(NULL, (size_t)FAKE_STACK * FAKE_BLOCK, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  fake.start.uc_stack.ss_sp = *stacks + (size_t)FAKE_STACK * (t % FAKE_BLOCK);
  fake.start.uc_stack.ss_size = FAKE_STACK;
  fake.start.uc_link = NULL;
  makecontext(&fake.start, fake_fiber, 0);
  swapcontext(&fake.origin, &fake.start);
}
__attribute__((destructor, unused)) static void fake_end(void) {
  for (unsigned int i = 0; i < FAKE_BLOCKS; i++)
    if (fake.stacks[i]) munmap(fake.stacks[i], (size_t)FAKE_STACK * FAKE_BLOCK);
}

/* Become thread `t` of the blocks from `first` on, along x. */
static void fake_place(unsigned int first, unsigned int t) {
  const unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
  blockIdx.x = first + t / threads;
  t %= threads;
  threadIdx.x = t % blockDim.x;
  threadIdx.y = t / blockDim.x % blockDim.y;
  threadIdx.z = t / blockDim.x / blockDim.y;
}
static void fake_block(unsigned int first, unsigned int threads, bool together) {
  if (!together) {
    for (unsigned int t = 0; t < threads; t++) fake_place(first, t), fake.body(fake.arguments);
    return;
  }
  for (unsigned int t = fake.made; t < threads; t++) fake_switch(t);
  memset(fake.done, 0, threads);
  for (unsigned int left = threads; left;)
    for (unsigned int t = 0; t < threads; t++)
      if (!fake.done[t]) {
        fake_place(first, t);
        fake_switch(t);
        left -= fake.done[t];
      }
}
__attribute__((unused)) static void fake_run(void (*body)(void **), bool together, unsigned int cluster,
                                             void **arguments, const unsigned int *grid, const unsigned int *block) {
  fake.body = body, fake.arguments = arguments;
  gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = grid[2];
  blockDim.x = block[0], blockDim.y = block[1], blockDim.z = block[2];
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (unsigned int x = 0; x < grid[0]; x += cluster)
        fake_block(x, cluster * block[0] * block[1] * block[2], together);
}

/* What a module exports: its kernels, the last one without a name. */
struct fake_kernel {
  const char *name;
  void (*launch)(void **arguments, const unsigned int *grid, const unsigned int *block);
  unsigned int n;
  const unsigned int *sizes; /* of the arguments, bytes */
};
