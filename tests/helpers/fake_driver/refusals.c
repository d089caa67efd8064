/* Calls that fail on demand: a file with lines "function error times", shared by all processes of a test. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

CUresult fake_refusal(const char *function) {
    const char *path = getenv("FAKE_CUDA_REFUSE");
    const int fd = path && *path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return CUDA_SUCCESS;
    flock(fd, LOCK_EX);
    char before[4096], after[8192], name[64];
    const ssize_t size = read(fd, before, sizeof before - 1);
    before[size > 0 ? size : 0] = 0;
    CUresult result = CUDA_SUCCESS;
    size_t used = 0;
    for (char *rest = before, *line; (line = strsep(&rest, "\n"));) {
        int error, times;
        if (sscanf(line, "%63s %d %d", name, &error, &times) != 3 || times <= 0) continue;
        if (!result && strcmp(name, function) == 0) {
            result = error;
            if (--times == 0) continue;
        }
        used += (size_t)snprintf(after + used, sizeof after - used, "%s %d %d\n", name, error, times);
    }
    if (result && (ftruncate(fd, 0) != 0 || pwrite(fd, after, used, 0) != (ssize_t)used)) abort();
    close(fd);
    return result;
}
