/* The only C++ of this project: what Rust cannot do itself, which is to catch a C++ exception, and to leave an
 * assertion of ggml's without ending the process. Every call of the safe layer into ggml goes through one of the two
 * functions below. */
#ifndef GGML_SYS_GUARD_H
#define GGML_SYS_GUARD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a guarded call ended with. */
#define GGML_SYS_RETURNED  0 /* it returned */
#define GGML_SYS_ABORTED   1 /* ggml was about to abort: an assertion, or GGML_ABORT */
#define GGML_SYS_EXCEPTION 2 /* a C++ exception left it */
#define GGML_SYS_CANCELLED 3 /* a callback called ggml_sys_cancel */

typedef void (*ggml_sys_call)(void * data);

/* Makes ggml's abort callback the one of this file. Call it once, before the first guarded call: ggml keeps the
 * callback in an unsynchronised global. */
void ggml_sys_guard_install(void);

/* Runs call(data) and says how it ended. Unless it returned, `message` holds the reason, cut to `size` bytes with the
 * closing NUL; `size` must be at least 1. An abort on a thread that is not inside a guarded call still ends the
 * process: threads of ggml's own cannot be unwound. */
int ggml_sys_guard(ggml_sys_call call, void * data, char * message, size_t size);

/* The same for a call that runs kernels: exceptions are caught, but an abort of a CPU's is final, because worker threads
 * still use the caller's stack and an OpenMP team cannot be left. One of Vulkan's is not: it runs on the caller's thread
 * only. */
int ggml_sys_guard_compute(ggml_sys_call call, void * data, char * message, size_t size);

/* Leaves the innermost guarded call of this thread, from a callback that C would not let stop it. The frames in between
 * must be free of locks. Does not return. */
void ggml_sys_cancel(void);

#ifdef __cplusplus
}
#endif

#endif
