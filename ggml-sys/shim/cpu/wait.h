// Included before ggml's C files for the CPU: threads that wait for each other in `ggml_barrier` sleep after a while.
//
// ggml's spin until the last thread comes. Beside other work that last thread may have no processor, and those that spin
// take the processor from it: a graph of small operations became slower by a hundred times and more. A thread that sleeps
// gives its processor away, and the system prefers it when it wakes up.
//
// ggml calls `ggml_thread_cpu_relax` for one pause. Its definition, which has the parameter list `(void)`, becomes that of
// `ggml_sys_pause`. A call becomes a call of that and, in `ggml_barrier`, of `ggml_sys_wait`. The barrier's variable
// `n_passed` counts the barriers that were passed before, so it tells one wait from the next. CMakeLists.txt leaves this file
// out if ggml's source has no such variable.

#pragma once

#include <time.h>

// How long a thread spins before it sleeps. Threads of operations that are divided well wait for less.
#define GGML_SYS_SPIN_NS 200000
// How long it sleeps. Linux adds up to 50 microseconds.
#define GGML_SYS_SLEEP_NS 20000
// Pauses between two looks at the clock.
#define GGML_SYS_PAUSES 64

// What other functions than `ggml_barrier` see by this name, and don't use.
static const int n_passed __attribute__((unused)) = 0;

static inline void ggml_sys_wait(int passed) {
    static _Thread_local struct {
        int passed;
        unsigned pauses;
        struct timespec start;
    } wait;

    if (wait.passed != passed) {
        wait.passed = passed;
        wait.pauses = 0;
    }
    if (wait.pauses++ % GGML_SYS_PAUSES != 0) {
        return;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (wait.pauses == 1) {
        wait.start = now;
    }
    const long long waited = (now.tv_sec - wait.start.tv_sec) * 1000000000LL + (now.tv_nsec - wait.start.tv_nsec);
    if (waited >= GGML_SYS_SPIN_NS) {
        const struct timespec sleep = { 0, GGML_SYS_SLEEP_NS };
        nanosleep(&sleep, NULL);
        // The clock is looked at after the next pause.
        wait.pauses = GGML_SYS_PAUSES;
    }
}

#define GGML_SYS_RELAX_void ggml_sys_pause(void)
#define GGML_SYS_RELAX_                                         \
    do {                                                        \
        ggml_sys_pause();                                       \
        if (__builtin_strcmp(__func__, "ggml_barrier") == 0) {  \
            ggml_sys_wait(n_passed);                   \
        }                                                       \
    } while (0)
#define ggml_thread_cpu_relax(...) GGML_SYS_RELAX_##__VA_ARGS__
