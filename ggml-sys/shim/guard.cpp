#include "guard.h"

#include <cstdio>
#include <cstring>
#include <exception>

#include "ggml.h"

namespace {

// Thrown out of ggml's abort callback. Copies the text, because ggml's own is on the stack that is unwound.
struct aborted {
    char text[512];
};

// Thrown by ggml_sys_cancel.
struct cancelled {};

// Which aborts on this thread may unwind to the enclosing guarded call.
enum class aborts { none, lone, all };
thread_local aborts may_unwind = aborts::none;

// Files whose code has no other threads at work on its stack: kernels of the CPU don't call it. By the beginnings of their
// names: ggml-backend.cpp and ggml-backend-meta.cpp, but not ggml-backend-reg.cpp, whose registry may be half changed.
const char * const LONE[] = { "ggml-vulkan", "ggml-backend.cpp", "ggml-backend-meta.cpp" };

// Whether an abort comes from such a file, so that unwinding is safe. The text starts with the file and line:
// "/path/ggml-vulkan.cpp:123: ...".
bool is_lone(const char * message) {
    const char * end = message == nullptr ? nullptr : strstr(message, ": ");
    if (end == nullptr) {
        return false;
    }
    const char * name = end;
    while (name > message && name[-1] != '/' && name[-1] != '\\') {
        name--;
    }
    for (const char * file : LONE) {
        if (strncmp(name, file, strlen(file)) == 0 && memchr(name, ':', end - name) != nullptr) {
            return true;
        }
    }
    return false;
}

void copy(char * to, size_t size, const char * from) {
    const size_t n = from == nullptr ? 0 : strnlen(from, size - 1);
    if (n > 0) {
        memcpy(to, from, n);
    }
    to[n] = '\0';
}

void on_abort(const char * message) {
    if (may_unwind == aborts::none || (may_unwind == aborts::lone && !is_lone(message))) {
        // ggml aborts after this, and prints nothing itself if a callback is set.
        fprintf(stderr, "%s\n", message);
        return;
    }
    aborted a;
    copy(a.text, sizeof(a.text), message);
    throw a;
}

// Sets the thread's permission for one call and restores the previous one, however the call ends.
struct permission {
    const aborts before;
    explicit permission(aborts now) : before(may_unwind) { may_unwind = now; }
    ~permission() { may_unwind = before; }
};

int guarded(aborts unwind, ggml_sys_call call, void * data, char * message, size_t size) {
    const permission p(unwind);
    try {
        call(data);
        return GGML_SYS_RETURNED;
    } catch (const aborted & a) {
        copy(message, size, a.text);
        return GGML_SYS_ABORTED;
    } catch (const cancelled &) {
        return GGML_SYS_CANCELLED;
    } catch (const std::exception & e) {
        copy(message, size, e.what());
        return GGML_SYS_EXCEPTION;
    }
    // No catch-all: Rust panics and forced unwinds must pass.
}

} // namespace

void ggml_sys_guard_install(void) {
    ggml_set_abort_callback(on_abort);
}

int ggml_sys_guard(ggml_sys_call call, void * data, char * message, size_t size) {
    return guarded(aborts::all, call, data, message, size);
}

int ggml_sys_guard_compute(ggml_sys_call call, void * data, char * message, size_t size) {
    return guarded(aborts::lone, call, data, message, size);
}

void ggml_sys_cancel(void) {
    throw cancelled();
}
