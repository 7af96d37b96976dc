//! C functions without a counterpart here, and what to use instead.
//!
//! Written by `cargo xtask coverage` from `docs/omitted.toml`. Do not edit.
//!
//! The search of these docs finds this page by the full name of each function.
//!
//! # ggml.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_set_abort_callback` | *internal:* `Error::Ggml`: the guard sets it, and turns assertions into errors |
//! | `ggml_abort` | *Rust has it:* `panic!` |
//! | `ggml_fp16_to_fp32` | *Rust has it:* `half::f16` |
//! | `ggml_fp32_to_fp16` | *Rust has it:* `half::f16` |
//! | `ggml_fp32_to_bf16` | *Rust has it:* `half::bf16` |
//! | `ggml_bf16_to_fp32` | *Rust has it:* `half::bf16` |
//! | `ggml_fp32_to_bf16_row` | *redundant:* `Quantize::quantize`, or `half::slice` |
//! | `ggml_guid_matches` | *redundant:* `Backend::device`: handles of devices can be compared |
//! | `ggml_time_init` | *Rust has it:* `std::time::Instant` |
//! | `ggml_time_ms` | *Rust has it:* `std::time::Instant` |
//! | `ggml_time_us` | *Rust has it:* `std::time::Instant` |
//! | `ggml_cycles` | *Rust has it:* `std::time::Instant` |
//! | `ggml_cycles_per_ms` | *Rust has it:* `std::time::Instant` |
//! | `ggml_fopen` | *Rust has it:* `std::fs::File` |
//! | `ggml_print_object` | *debugging of C:* `Context`'s and `Tensor`'s `Debug` |
//! | `ggml_print_objects` | *debugging of C:* `Context`'s and `Tensor`'s `Debug` |
//! | `ggml_type_sizef` | *deprecated:* `DType::type_size` and `DType::block_size` |
//! | `ggml_is_empty` | *redundant:* nothing: no tensor has a dimension of 0 |
//! | `ggml_get_no_alloc` | *internal:* nothing: contexts never hold data |
//! | `ggml_set_no_alloc` | *internal:* nothing: contexts never hold data |
//! | `ggml_get_mem_buffer` | *raw memory:* `Context::used_mem` and `Context::mem_size` |
//! | `ggml_get_max_tensor_size` | *redundant:* `Tensor::nbytes` over `Weights::iter` or `Graph::nodes` |
//! | `ggml_new_buffer` | *raw memory:* `WeightsBuilder::place_state` |
//! | `ggml_view_tensor` | *unsound:* `Context::view`: the view it makes does not know its source, so graphs would miss it |
//! | `ggml_get_data` | *raw memory:* `Tensor::read`, `Run::get` |
//! | `ggml_get_data_f32` | *raw memory:* `Tensor::read`, `Run::get` |
//! | `ggml_format_name` | *Rust has it:* `Tensor::named` with `format!` |
//! | `ggml_prec_get_acc` | *redundant:* the options that the product or the attention was made with |
//! | `ggml_prec_get_src` | *redundant:* the options that the product was made with |
//! | `ggml_flash_attn_ext_get_prec` | *redundant:* the options that the attention was made with |
//! | `ggml_flash_attn_back` | *unsound:* attention of products and `Context::soft_max_ext`: it only asserts, in this version |
//! | `ggml_build_forward_select` | *not yet:* a graph for each choice |
//! | `ggml_build_forward_order` | *internal:* `Context::graph`: the order of outputs is that of the graph |
//! | `ggml_graph_dup` | *internal:* `Context::graph` again: graphs are frozen |
//! | `ggml_graph_cpy` | *internal:* `Context::graph` again: graphs are frozen |
//! | `ggml_graph_reset` | *internal:* `OptContext::reset` |
//! | `ggml_graph_clear` | *internal:* `Context::graph` again: graphs are frozen |
//! | `ggml_graph_size` | *internal:* `Graph::n_nodes`: a graph has room for what it holds |
//! | `ggml_graph_add_node` | *internal:* `Context::graph` with all outputs: graphs are frozen |
//! | `ggml_graph_overhead` | *internal:* nothing: graphs take what they need |
//! | `ggml_graph_overhead_custom` | *internal:* nothing: graphs take what they need |
//! | `ggml_graph_get_grad_acc` | *internal:* `OptContext::grad_acc` |
//! | `ggml_log_get` | *internal:* the `log` crate: ggml's lines have the target `ggml` |
//! | `ggml_log_set` | *internal:* the `log` crate: ggml's lines have the target `ggml` |
//! | `ggml_set_zero` | *redundant:* `State::set`, `Context::fill` |
//! | `ggml_quantize_free` | *unsound:* nothing: it frees tables that other threads may be using |
//! | `ggml_threadpool_params_match` | *redundant:* `Backend::threads` |
//!
//! # ggml-backend.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_backend_buffer_get_base` | *raw memory:* `Tensor::read`, `State::set` |
//! | `ggml_backend_buffer_init_tensor` | *internal:* `WeightsBuilder::place`: placing a tensor makes it ready |
//! | `ggml_backend_buffer_reset` | *internal:* nothing: allocators reset their buffers |
//! | `ggml_backend_tensor_copy_n` | *not yet:* `Weights::copy`, likewise |
//! | `ggml_backend_guid` | *redundant:* `Backend::device`: handles of devices can be compared |
//! | `ggml_backend_tensor_set_n` | *not yet:* `Weights::set`, a tensor at a time: only CUDA and Metal transfer several at once |
//! | `ggml_backend_tensor_get_n` | *not yet:* `Weights::read_bytes`, likewise |
//! | `ggml_backend_device_register` | *unsound:* `rpc::connect`, `Registry::load`: it keeps any pointer to a device for ever |
//! | `ggml_backend_sched_split_graph` | *internal:* `Sched::reserve` and `Sched::alloc`, which split; `Run::splits` |
//! | `ggml_backend_sched_set_copy_callback` | *internal:* nothing: runs copy only the experts that are used |
//! | `ggml_backend_sched_set_realloc_callback` | *debugging of C:* `Sched::plans` before and after `Sched::alloc` |
//! | `ggml_backend_view_init` | *internal:* nothing: views get memory with their graph |
//!
//! # ggml-backend-impl.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_op_alloc_size_may_expand` | *internal:* `driver::Driver::alloc_size`: a driver's answer is limited to what ggml allows |
//! | `ggml_backend_buffer_init` | *internal:* `driver::Driver::allocate`: a driver's buffers are made of what it returns |
//! | `ggml_backend_multi_buffer_alloc_buffer` | *internal:* `WeightsBuilder::place`: weights lie in several buffers where one is too small |
//! | `ggml_backend_buffer_is_multi_buffer` | *internal:* `WeightsBuilder::place`: no buffer here consists of others |
//! | `ggml_backend_meta_n_backends` | *internal:* `meta::MetaDevice::members` |
//! | `ggml_backend_meta_simple_backend` | *internal:* `Backend::set_threads`: sets those of a meta device's members |
//!
//! # ggml-cpu.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_new_i32` | *raw memory:* `Context::input`, or `WeightsBuilder` and `Weights::set` |
//! | `ggml_new_f32` | *raw memory:* `Context::input`, or `WeightsBuilder` and `Weights::set` |
//! | `ggml_get_type_traits_cpu` | *internal:* `Quantize::quantize`, `Context::mul_mat`: its functions trust their caller |
//! | `ggml_cpu_init` | *internal:* `Device::all`, which starts all backends |
//! | `ggml_backend_is_cpu` | *redundant:* `Backend::device` and `Device::device_type` |
//! | `ggml_backend_cpu_reg` | *redundant:* `Device::cpu` and `Device::registry` |
//! | `ggml_cpu_fp32_to_fp32` | *Rust has it:* `slice::copy_from_slice` |
//! | `ggml_cpu_fp32_to_i32` | *Rust has it:* `as i32` |
//!
//! # gguf.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `gguf_free` | *internal:* nothing: `Reader` and `Writer` are dropped |
//! | `gguf_get_val_data` | *raw memory:* `Reader::get`: a `Value` has its type |
//! | `gguf_set_tensor_type` | *redundant:* `Writer::declare` with that type |
//!
//! # ggml-opt.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_opt_static_graphs` | *redundant:* nothing: `OptGraphs` are used as often as one likes |
//!
//! # ggml-rpc.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_backend_is_rpc` | *redundant:* `Backend::device` and `Connection::devices` |
//! | `ggml_backend_rpc_reg` | *redundant:* `rpc::connect`; it has no devices, and aborts when it is asked for one |
//!
//! # ggml-blas.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_backend_is_blas` | *redundant:* `Backend::device` and `Device::registry` |
//! | `ggml_backend_blas_reg` | *redundant:* `Device::by_name` and `Device::registry` |
//!
//! # ggml-vulkan.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_backend_is_vk` | *redundant:* `Backend::device` and `Device::registry` |
//! | `ggml_backend_vk_reg` | *redundant:* `Registry::by_name` |
//!
//! # ggml-cuda.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_backend_is_cuda` | *redundant:* `Backend::device` and `Device::registry` |
//! | `ggml_backend_cuda_allreduce_tensor` | *deprecated:* nothing: it is declared, and defined nowhere |
//! | `ggml_backend_cuda_get_device_count` | *redundant:* `Registry::devices` |
//! | `ggml_backend_cuda_reg` | *redundant:* `Registry::by_name` |
//!
//! # ggml-metal.h
//!
//! | C | what to use instead |
//! |---|---|
//! | `ggml_backend_is_metal` | *redundant:* `Backend::device` and `Device::registry` |
//! | `ggml_backend_metal_set_abort_callback` | *unsound:* nothing: it is asked during a capture only, and what it stops stays half queued |
//! | `ggml_backend_metal_reg` | *redundant:* `Registry::by_name` |

#![doc(alias = "ggml_set_abort_callback")]
#![doc(alias = "ggml_abort")]
#![doc(alias = "ggml_fp16_to_fp32")]
#![doc(alias = "ggml_fp32_to_fp16")]
#![doc(alias = "ggml_fp32_to_bf16")]
#![doc(alias = "ggml_bf16_to_fp32")]
#![doc(alias = "ggml_fp32_to_bf16_row")]
#![doc(alias = "ggml_guid_matches")]
#![doc(alias = "ggml_time_init")]
#![doc(alias = "ggml_time_ms")]
#![doc(alias = "ggml_time_us")]
#![doc(alias = "ggml_cycles")]
#![doc(alias = "ggml_cycles_per_ms")]
#![doc(alias = "ggml_fopen")]
#![doc(alias = "ggml_print_object")]
#![doc(alias = "ggml_print_objects")]
#![doc(alias = "ggml_type_sizef")]
#![doc(alias = "ggml_is_empty")]
#![doc(alias = "ggml_get_no_alloc")]
#![doc(alias = "ggml_set_no_alloc")]
#![doc(alias = "ggml_get_mem_buffer")]
#![doc(alias = "ggml_get_max_tensor_size")]
#![doc(alias = "ggml_new_buffer")]
#![doc(alias = "ggml_view_tensor")]
#![doc(alias = "ggml_get_data")]
#![doc(alias = "ggml_get_data_f32")]
#![doc(alias = "ggml_format_name")]
#![doc(alias = "ggml_prec_get_acc")]
#![doc(alias = "ggml_prec_get_src")]
#![doc(alias = "ggml_flash_attn_ext_get_prec")]
#![doc(alias = "ggml_flash_attn_back")]
#![doc(alias = "ggml_build_forward_select")]
#![doc(alias = "ggml_build_forward_order")]
#![doc(alias = "ggml_graph_dup")]
#![doc(alias = "ggml_graph_cpy")]
#![doc(alias = "ggml_graph_reset")]
#![doc(alias = "ggml_graph_clear")]
#![doc(alias = "ggml_graph_size")]
#![doc(alias = "ggml_graph_add_node")]
#![doc(alias = "ggml_graph_overhead")]
#![doc(alias = "ggml_graph_overhead_custom")]
#![doc(alias = "ggml_graph_get_grad_acc")]
#![doc(alias = "ggml_log_get")]
#![doc(alias = "ggml_log_set")]
#![doc(alias = "ggml_set_zero")]
#![doc(alias = "ggml_quantize_free")]
#![doc(alias = "ggml_threadpool_params_match")]
#![doc(alias = "ggml_backend_buffer_get_base")]
#![doc(alias = "ggml_backend_buffer_init_tensor")]
#![doc(alias = "ggml_backend_buffer_reset")]
#![doc(alias = "ggml_backend_tensor_copy_n")]
#![doc(alias = "ggml_backend_guid")]
#![doc(alias = "ggml_backend_tensor_set_n")]
#![doc(alias = "ggml_backend_tensor_get_n")]
#![doc(alias = "ggml_backend_device_register")]
#![doc(alias = "ggml_backend_sched_split_graph")]
#![doc(alias = "ggml_backend_sched_set_copy_callback")]
#![doc(alias = "ggml_backend_sched_set_realloc_callback")]
#![doc(alias = "ggml_backend_view_init")]
#![doc(alias = "ggml_op_alloc_size_may_expand")]
#![doc(alias = "ggml_backend_buffer_init")]
#![doc(alias = "ggml_backend_multi_buffer_alloc_buffer")]
#![doc(alias = "ggml_backend_buffer_is_multi_buffer")]
#![doc(alias = "ggml_backend_meta_n_backends")]
#![doc(alias = "ggml_backend_meta_simple_backend")]
#![doc(alias = "ggml_new_i32")]
#![doc(alias = "ggml_new_f32")]
#![doc(alias = "ggml_get_type_traits_cpu")]
#![doc(alias = "ggml_cpu_init")]
#![doc(alias = "ggml_backend_is_cpu")]
#![doc(alias = "ggml_backend_cpu_reg")]
#![doc(alias = "ggml_cpu_fp32_to_fp32")]
#![doc(alias = "ggml_cpu_fp32_to_i32")]
#![doc(alias = "gguf_free")]
#![doc(alias = "gguf_get_val_data")]
#![doc(alias = "gguf_set_tensor_type")]
#![doc(alias = "ggml_opt_static_graphs")]
#![doc(alias = "ggml_backend_is_rpc")]
#![doc(alias = "ggml_backend_rpc_reg")]
#![doc(alias = "ggml_backend_is_blas")]
#![doc(alias = "ggml_backend_blas_reg")]
#![doc(alias = "ggml_backend_is_vk")]
#![doc(alias = "ggml_backend_vk_reg")]
#![doc(alias = "ggml_backend_is_cuda")]
#![doc(alias = "ggml_backend_cuda_allreduce_tensor")]
#![doc(alias = "ggml_backend_cuda_get_device_count")]
#![doc(alias = "ggml_backend_cuda_reg")]
#![doc(alias = "ggml_backend_is_metal")]
#![doc(alias = "ggml_backend_metal_set_abort_callback")]
#![doc(alias = "ggml_backend_metal_reg")]
