/* The layout of ggml's graphs, which ggml keeps private: with it the safe layer fills one itself, in the one pass that it
 * needs in any case. graph.cpp makes sure that it is ggml's. */
#ifndef GGML_SYS_GRAPH_H
#define GGML_SYS_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "ggml.h"

/* `struct ggml_cgraph`, its `struct ggml_hash_set` unfolded. A tensor's place in the table is its address, less the lowest
 * four bits, modulo the table's size, or the next one after that which was free. */
struct ggml_sys_cgraph {
    int size;                          /* places in `nodes` and in `leafs` */
    int n_nodes;
    int n_leafs;
    struct ggml_tensor ** nodes;
    struct ggml_tensor ** grads;
    struct ggml_tensor ** grad_accs;
    struct ggml_tensor ** leafs;
    int32_t * use_counts;              /* for each place of the table */
    size_t hash_size;                  /* places in the table */
    uint32_t * hash_used;              /* a bit for each place */
    struct ggml_tensor ** hash_keys;
    int order;
    uint64_t uid;
};

#endif
