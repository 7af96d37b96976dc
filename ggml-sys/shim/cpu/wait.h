// Included before ggml's C files for the CPU on Linux: threads that wait for each other in `ggml_barrier` sleep after a while.
//
// ggml's spin until the last thread comes. Beside other work that last thread may have no processor, and those that spin
// take the processor from it: a graph of small operations became slower by a hundred times and more.
//
// How long a thread spins depends on whether the system has lately taken the processor from it. Without that, waits are short
// or for long operations, and a sleep would make them longer. With it, a thread sleeps almost at once, so that it has most of its
// share of the processor left when it wakes up. The short slice that it has meanwhile makes the system prefer it then.
//
// Three names become macros. `ggml_thread_cpu_relax` is one pause. Its definition, which has the parameter list `(void)`,
// becomes that of `ggml_sys_pause`; a call becomes a call of that and, in `ggml_barrier`, of `ggml_sys_wait`. What adds to
// `n_barrier_passed` lets the others pass, and wakes them. CMakeLists.txt leaves this file out if ggml's source has other names.

#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// How long a thread spins at least, and at most. Threads of operations that are divided well wait for less than the latter.
#define GGML_SYS_SPIN_LEAST_NS 5000
#define GGML_SYS_SPIN_MOST_NS 200000
// Since when the processor must not have been taken away.
#define GGML_SYS_QUIET_NS 10000000
// The slice of a thread that sleeps, which is the shortest that Linux gives.
#define GGML_SYS_SLICE_NS 100000
// Pauses between two looks at the clock.
#define GGML_SYS_PAUSES 64

// Threads that sleep in a barrier, or are about to.
static atomic_int ggml_sys_sleepers __attribute__((unused));

// The kernel's `struct sched_attr`, which older C libraries lack.
struct ggml_sys_schedule {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

// Gives this thread another slice, and returns the one that it had, which is 0 if the kernel or the policy knows none.
static inline uint64_t ggml_sys_slice(uint64_t nanoseconds) {
    struct ggml_sys_schedule own = { .size = sizeof own };
    // The usual policy is 0.
    if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0 || own.policy != 0 || own.runtime == 0) {
        return 0;
    }
    const uint64_t before = own.runtime;
    own.size = sizeof own;
    own.runtime = nanoseconds;
    syscall(SYS_sched_setattr, 0, &own, 0);
    return before;
}

// Sleeps until the number isn't that any more.
static inline void ggml_sys_sleep(atomic_int * number, int is) {
    const uint64_t slice = ggml_sys_slice(GGML_SYS_SLICE_NS);
    // Who changes the number looks at the sleepers afterwards, and the kernel at the number: one of them sees the other.
    atomic_fetch_add(&ggml_sys_sleepers, 1);
    syscall(SYS_futex, number, FUTEX_WAIT_PRIVATE, is, NULL, NULL, 0);
    atomic_fetch_sub(&ggml_sys_sleepers, 1);
    if (slice != 0) {
        ggml_sys_slice(slice);
    }
}

static inline long long ggml_sys_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Whether the system has lately taken the processor from this thread.
static inline int ggml_sys_disturbed(long long now) {
    static _Thread_local struct {
        long taken;
        long long at;
    } own;

    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    if (used.ru_nivcsw != own.taken) {
        own.taken = used.ru_nivcsw;
        own.at = now;
    }
    return now - own.at < GGML_SYS_QUIET_NS;
}

// One pause of a wait for this number to be another.
static inline void ggml_sys_wait(atomic_int * number, int is) {
    static _Thread_local struct {
        const void * number;
        int is;
        unsigned pauses;
        long long start;
    } own;

    if (own.number != number || own.is != is) {
        own.number = number;
        own.is = is;
        own.pauses = 0;
    }
    if (++own.pauses % GGML_SYS_PAUSES != 0) {
        return;
    }
    // Most waits are over before the first look.
    const long long now = ggml_sys_now();
    if (own.pauses == GGML_SYS_PAUSES) {
        own.start = now;
    }
    const long long waited = now - own.start;
    if (waited >= GGML_SYS_SPIN_LEAST_NS && (waited >= GGML_SYS_SPIN_MOST_NS || ggml_sys_disturbed(now))) {
        ggml_sys_sleep(number, is);
    }
}

// One pause of a wait for the next graph. Returns whether to sleep instead, as ggml's threads do after some time.
static inline int ggml_sys_poll(void) {
    static _Thread_local unsigned pauses;

    return ++pauses % GGML_SYS_PAUSES == 0 && ggml_sys_disturbed(ggml_sys_now());
}

// Adds, as ggml does to atomic numbers, and wakes who sleeps until this one changes.
static inline int ggml_sys_add(atomic_int * number, int more, memory_order order, int wakes) {
    const int before = atomic_fetch_add_explicit(number, more, order);
    if (wakes && atomic_load(&ggml_sys_sleepers) != 0) {
        syscall(SYS_futex, number, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    }
    return before;
}

#undef atomic_fetch_add_explicit
#define atomic_fetch_add_explicit(number, more, order) \
    ggml_sys_add(number, more, order, __builtin_strcmp(#number, "&tp->n_barrier_passed") == 0)

// What other functions than `ggml_barrier` see by these names, and don't use.
static struct ggml_threadpool * const tp __attribute__((unused)) = NULL;
static const int n_passed __attribute__((unused)) = 0;

#define GGML_SYS_RELAX_void ggml_sys_pause(void)
#define GGML_SYS_RELAX_                                                                             \
    {                                                                                               \
        ggml_sys_pause();                                                                           \
        if (__builtin_strcmp(__func__, "ggml_barrier") == 0) {                                      \
            ggml_sys_wait(&tp->n_barrier_passed, n_passed);                                         \
        } else if (__builtin_strcmp(__func__, "ggml_graph_compute_poll_for_work") == 0 && ggml_sys_poll()) { \
            break;                                                                                  \
        }                                                                                           \
    }
#define ggml_thread_cpu_relax(...) GGML_SYS_RELAX_##__VA_ARGS__
