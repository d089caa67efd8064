/* cuLaunchKernel of kernels with more and fewer arguments.
 *
 * Setting: arguments, a file with a line for each kernel: IMAGE FUNCTION BLOCK ARGUMENT..., where pN is the address of
 * array N, and anything else eight bytes in hexadecimal. */
#include "loops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 5, WORDS = 320, ARRAYS = 16, LINE = 16384 };

static struct {
    CUfunction function;
    unsigned block;
    uint64_t words[WORDS];
    void *arguments[WORDS];
} kernels[KERNELS];
static CUdeviceptr arrays[ARRAYS];
static int n_kernels;

static uint64_t argument(const char *text) {
    enum { BYTES = 4096 };
    if (*text != 'p') return strtoull(text, NULL, 16);
    const int array = atoi(text + 1);
    if (array < 0 || array >= ARRAYS) die(text, array);
    if (!arrays[array]) arrays[array] = device_memory(BYTES);
    return arrays[array];
}

static void add(char *line) {
    const char *image = strtok(line, " \n"), *function = strtok(NULL, " \n"), *block = strtok(NULL, " \n");
    if (!block || n_kernels == KERNELS) die("the list of kernels", n_kernels);
    const int at = n_kernels++;
    kernels[at].function = load_kernel(driver, image, function);
    kernels[at].block = (unsigned)atoi(block);
    int n = 0;
    for (const char *text; (text = strtok(NULL, " \n")); n++) {
        if (n == WORDS) die("a kernel's arguments", n);
        kernels[at].words[n] = argument(text);
        kernels[at].arguments[n] = &kernels[at].words[n];
    }
}

static const char *prepare(int kernel) {
    const char *list = setting("arguments");
    if (!n_kernels && list) {
        char line[LINE];
        FILE *file = fopen(list, "r");
        if (!file) die(list, 0);
        while (fgets(line, sizeof line, file)) add(line);
        fclose(file);
    }
    return kernel < n_kernels ? NULL : "no such kernel in the list";
}

static void launch(int kernel, int n) {
    for (int i = 0; i < n; i++)
        ok(driver->cuLaunchKernel(kernels[kernel].function, 1, 1, 1, kernels[kernel].block, 1, 1, 0, streams[0],
                                  kernels[kernel].arguments, NULL), "cuLaunchKernel");
}

static void sustained(int kernel, int n) {
    launch(kernel, n);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static const char *prepare_overlapping(int kernel) {
    const char *why = can_overlap();
    return why ? why : prepare(kernel);
}

static void overlapping(int kernel, int n) {
    for (int i = 0; i < n; i++)
        launch_overlapping(kernels[kernel].function, kernels[kernel].block, streams[0], kernels[kernel].arguments);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

/* A contender is a function of the number of launches alone: three for each kernel of the list. */
#define LOOPS(kernel)                                                                                                  \
    static const char *prepare_##kernel(void) { return prepare(kernel); }                                              \
    static const char *prepare_overlapping_##kernel(void) { return prepare_overlapping(kernel); }                      \
    static void launch_##kernel(int n) { launch(kernel, n); }                                                          \
    static void overlapping_##kernel(int n) { overlapping(kernel, n); }                                                \
    static void sustained_##kernel(int n) { sustained(kernel, n); }
LOOPS(0)
LOOPS(1)
LOOPS(2)
LOOPS(3)
LOOPS(4)

#define CONTENDERS(kernel)                                                                                             \
    {"arguments-" #kernel, prepare_##kernel, launch_##kernel, synchronize},                                            \
    {"arguments-" #kernel "-sustained", prepare_##kernel, sustained_##kernel, synchronize},                            \
    {"arguments-" #kernel "-overlapping", prepare_overlapping_##kernel, overlapping_##kernel, synchronize}
static const contender loops[] = {
    CONTENDERS(0), CONTENDERS(1), CONTENDERS(2), CONTENDERS(3), CONTENDERS(4), {0},
};
ADD_CONTENDERS(loops)
