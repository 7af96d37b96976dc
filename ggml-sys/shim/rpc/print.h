/* Included before each file of ggml's RPC backend. Its server prints on the standard output, which belongs to the program:
 * what it prints goes to ggml's log instead. Only calls are replaced, so that attributes that name printf stay. */
#ifndef GGML_SYS_RPC_PRINT_H
#define GGML_SYS_RPC_PRINT_H

#include <cstdio>

#include "ggml-impl.h"

#define printf(...) ggml_log_internal(GGML_LOG_LEVEL_INFO, __VA_ARGS__)

#endif
