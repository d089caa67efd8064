/* Faults of the device: signals that a stream's thread gets while it stands for the device. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static __thread sigjmp_buf *home;
static struct sigaction before[65];

CUresult fake_guard(void (*run)(void *), void *argument) {
    sigjmp_buf place;
    const int error = sigsetjmp(place, 1);
    if (error) {
        home = NULL;
        return error;
    }
    home = &place;
    run(argument);
    home = NULL;
    return CUDA_SUCCESS;
}

_Noreturn void fake_raise(int error) {
    if (!home) abort();
    siglongjmp(*home, error);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    if (home) {
        switch (number) {
        case SIGSEGV:
        case SIGBUS: fake_raise(ERROR_ILLEGAL_ADDRESS);
        case SIGILL:
        case SIGTRAP: fake_raise(ERROR_MISALIGNED_ADDRESS); /* the compiler's check, see kernel_shim.py */
        default: {
            static const char text[] = "fake CUDA: a kernel divides by zero, which a GPU would not notice\n";
            if (write(2, text, sizeof text - 1) < 0) abort();
            fake_raise(ERROR_LAUNCH_FAILED);
        }
        }
    }
    /* The processor's own fault: whoever was there before says what happens. */
    const struct sigaction *other = &before[number];
    if (other->sa_flags & SA_SIGINFO) {
        other->sa_sigaction(number, info, context);
    } else if (other->sa_handler != SIG_DFL && other->sa_handler != SIG_IGN) {
        other->sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void fake_catch_signals(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    action.sa_sigaction = on_signal;
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, &before[numbers[i]]);
}
