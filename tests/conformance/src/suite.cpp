// ggml's tests of operations as a library. Their source is included, so that cases can be run one by one, and its calls
// of two functions go to Rust.

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstring>

// Quantises some blocks and repeats them: some types take minutes to quantise what the largest cases ask for. A prime
// number of blocks, so that neighbouring rows differ.
static size_t suite_quantize(ggml_type type, const float * from, void * to, int64_t start, int64_t rows, int64_t row,
                             const float * imatrix) {
    const int64_t some   = std::min<int64_t>(rows, 251);
    const size_t  size   = ggml_row_size(type, row);
    char *        result = static_cast<char *>(to) + start / row * size;
    ggml_quantize_chunk(type, from, to, start, some, row, imatrix);
    for (int64_t i = some; i < rows; i++) {
        memcpy(result + i * size, result + i % some * size, size);
    }
    return rows * size;
}

extern "C" {
bool suite_supports(ggml_backend_t backend, const ggml_tensor * op);
bool suite_compare(ggml_backend_t first, ggml_backend_t second, ggml_cgraph * graph, ggml_backend_eval_callback callback,
                   void * data, const ggml_tensor * const * nodes, size_t n_nodes);
}

#define ggml_quantize_chunk suite_quantize
#define ggml_backend_supports_op suite_supports
#define ggml_backend_compare_graph_backend suite_compare
#define main suite_main
#include "test-backend-ops.cpp"
#undef main

namespace {

std::vector<std::unique_ptr<test_case>> & cases() {
    static auto all = make_test_cases_eval();
    return all;
}

struct silent : printer {
    void print_test_result(const test_result &) override {}
};

}  // namespace

extern "C" {

size_t suite_len() {
    return cases().size();
}

// Runs a case: -1 if the filter leaves it out, 0 if it failed, 1 if it passed, 2 if a device doesn't support it.
int suite_run(size_t i, ggml_backend_t first, ggml_backend_t second, const char * filter) {
    silent   output;
    test_case & test = *cases().at(i);
    test.sentinels.clear();  // of the last run
    switch (test.eval(first, second, filter, &output)) {
        case test_status_t::SKIPPED:       return -1;
        case test_status_t::FAIL:          return 0;
        case test_status_t::OK:            return 1;
        case test_status_t::NOT_SUPPORTED: return 2;
    }
    return 0;
}

// What the case is called. The operation is known after it was run.
void suite_name(size_t i, void (*give)(void *, const char *), void * data) {
    test_case & test = *cases().at(i);
    give(data, (test.current_op_name + "(" + test.vars() + ")").c_str());
}
}
