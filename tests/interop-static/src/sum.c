// C that uses ggml without knowing of Rust.
#include "ggml.h"
#include "ggml-cpu.h"

// Adds two vectors of two numbers by ggml, and returns the sum of all.
float sum_of(const float * a, const float * b) {
    struct ggml_init_params params = { .mem_size = 1 << 20, .mem_buffer = NULL, .no_alloc = false };
    struct ggml_context * ctx = ggml_init(params);
    struct ggml_tensor * x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2);
    struct ggml_tensor * y = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2);
    struct ggml_tensor * total = ggml_sum(ctx, ggml_add(ctx, x, y));
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, total);
    for (int i = 0; i < 2; i++) {
        ((float *) x->data)[i] = a[i];
        ((float *) y->data)[i] = b[i];
    }
    ggml_graph_compute_with_ctx(ctx, graph, 1);
    float result = *(float *) total->data;
    ggml_free(ctx);
    return result;
}
