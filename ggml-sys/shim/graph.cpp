// Contains no code: compilation fails if graph.h differs from the layout of ggml's graphs.
#include "graph.h"

#include <cstddef>

#include "ggml-impl.h"

#define SAME(ours, theirs) \
    static_assert(offsetof(ggml_sys_cgraph, ours) == (theirs), "ggml_cgraph differs from graph.h")
#define FIELD(name)                                                                              \
    SAME(name, offsetof(ggml_cgraph, name));                                                     \
    static_assert(sizeof(ggml_sys_cgraph::name) == sizeof(ggml_cgraph::name), "a field of another size")
#define TABLE(ours, theirs)                                                                       \
    SAME(ours, offsetof(ggml_cgraph, visited_hash_set) + offsetof(ggml_hash_set, theirs));        \
    static_assert(sizeof(ggml_sys_cgraph::ours) == sizeof(ggml_hash_set::theirs), "a field of another size")

FIELD(size);
FIELD(n_nodes);
FIELD(n_leafs);
FIELD(nodes);
FIELD(grads);
FIELD(grad_accs);
FIELD(leafs);
FIELD(use_counts);
TABLE(hash_size, size);
TABLE(hash_used, used);
TABLE(hash_keys, keys);
FIELD(order);
FIELD(uid);
static_assert(sizeof(ggml_sys_cgraph) == sizeof(ggml_cgraph), "ggml_cgraph differs from graph.h");
