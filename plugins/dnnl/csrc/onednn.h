/* oneDNN's C API, found at run time: only the functions used here. The values of the API come from the public headers of
 * version 3.2 (dnnl_types.h, dnnl_common_types.h); within version 3 the values do not change. */
#ifndef BYOC_DNNL_ONEDNN_H_
#define BYOC_DNNL_ONEDNN_H_

#include "program.h"

enum { MAX_NDIMS = 12 };

/* The oldest and the first unusable version. */
enum { FIRST_MAJOR = 3, FIRST_MINOR = 2, LAST_MAJOR = 4 };

/* dnnl_format_kind_t, dnnl_query_t, and dnnl_data_type_t. */
enum { FORMAT_KIND_ANY = 1, FORMAT_KIND_BLOCKED = 2 };
enum { FORMAT_TAG_ANY = 1, SCRATCHPAD_USER = 1, CPU_ENGINE = 1, IN_ORDER_STREAM = 1 };
enum {
  QUERY_STRIDES = 14,
  QUERY_SCRATCHPAD_MD = 136,
  QUERY_EXEC_ARG_MD = 255,
  QUERY_NDIMS = 256,
  QUERY_DIMS = 257,
  QUERY_DATA_TYPE = 258,
  QUERY_SUBMEMORY_OFFSET = 259,
  QUERY_PADDED_DIMS = 260,
  QUERY_FORMAT_KIND = 262,
  QUERY_INNER_NBLKS = 263,
  QUERY_INNER_BLKS = 264,
  QUERY_INNER_IDXS = 265
};
enum { FLOAT16 = 1, BFLOAT16, FLOAT32, INT32, INT8, UINT8, NUM_DATA_TYPES };

/* DNNL_ARG_*: arguments of primitives. */
enum {
  ARG_DST = 17,
  ARG_DST_2 = 19,
  ARG_SCRATCHPAD = 80,
  ARG_MULTIPLE_SRC = 1024,
  ARG_SCALES = 4096,
  ARG_ZERO_POINTS = 8192,
  ARG_POST_OP = 32768,
  ARG_SRC_1 = 2
};

typedef struct {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime, gpu_runtime;
} OnednnVersion;

typedef const int64_t *Dims; /* MAX_NDIMS numbers */
typedef const void *Desc;

/* The functions: result, name without `dnnl_`, parameters. */
#define ONEDNN_FUNCTIONS(FUNCTION)                                                                                     \
  FUNCTION(const OnednnVersion *, version, (void))                                                                     \
  FUNCTION(int, get_effective_cpu_isa, (void))                                                                         \
  FUNCTION(int, set_primitive_cache_capacity, (int))                                                                   \
  FUNCTION(int, engine_create, (void **, int, size_t))                                                                 \
  FUNCTION(int, stream_create, (void **, void *, unsigned))                                                            \
  FUNCTION(int, stream_wait, (void *))                                                                                 \
  FUNCTION(int, stream_destroy, (void *))                                                                              \
  FUNCTION(int, memory_create, (void **, void *, void *, void *))                                                      \
  FUNCTION(int, memory_set_data_handle, (void *, void *))                                                              \
  FUNCTION(int, memory_destroy, (void *))                                                                              \
  FUNCTION(int, memory_desc_create_with_strides, (void **, int, Dims, int, Dims))                                      \
  FUNCTION(int, memory_desc_create_with_tag, (void **, int, Dims, int, int))                                           \
  FUNCTION(int, memory_desc_clone, (void **, Desc))                                                                    \
  FUNCTION(int, memory_desc_reshape, (void **, Desc, int, Dims))                                                       \
  FUNCTION(int, memory_desc_create_submemory, (void **, Desc, Dims, Dims))                                             \
  FUNCTION(int, memory_desc_permute_axes, (void **, Desc, const int *))                                                \
  FUNCTION(int, memory_desc_query, (Desc, int, void *))                                                                \
  FUNCTION(int, memory_desc_equal, (Desc, Desc))                                                                       \
  FUNCTION(size_t, memory_desc_get_size, (Desc))                                                                       \
  FUNCTION(int, memory_desc_destroy, (void *))                                                                         \
  FUNCTION(int, primitive_attr_create, (void **))                                                                      \
  FUNCTION(int, primitive_attr_set_scratchpad_mode, (void *, int))                                                     \
  FUNCTION(int, primitive_attr_set_post_ops, (void *, const void *))                                                   \
  FUNCTION(int, primitive_attr_set_scales_mask, (void *, int, int))                                                    \
  FUNCTION(int, primitive_attr_set_zero_points_mask, (void *, int, int))                                               \
  FUNCTION(int, primitive_attr_destroy, (void *))                                                                      \
  FUNCTION(int, post_ops_create, (void **))                                                                            \
  FUNCTION(int, post_ops_append_sum, (void *, float, int32_t, int))                                                    \
  FUNCTION(int, post_ops_append_eltwise, (void *, int, float, float))                                                  \
  FUNCTION(int, post_ops_append_binary, (void *, int, Desc))                                                           \
  FUNCTION(int, post_ops_destroy, (void *))                                                                            \
  FUNCTION(Desc, primitive_desc_query_md, (const void *, int, int))                                                    \
  FUNCTION(int, primitive_desc_next_impl, (void *))                                                                    \
  FUNCTION(int, primitive_desc_destroy, (void *))                                                                      \
  FUNCTION(int, primitive_create, (void **, const void *))                                                             \
  FUNCTION(int, primitive_execute, (void *, void *, int, const Argument *))                                            \
  FUNCTION(int, primitive_destroy, (void *))                                                                           \
  FUNCTION(int, reorder_primitive_desc_create, (void **, Desc, void *, Desc, void *, const void *))                    \
  FUNCTION(int, concat_primitive_desc_create, (void **, void *, Desc, int, int, const Desc *, const void *))           \
  FUNCTION(int, binary_primitive_desc_create, (void **, void *, int, Desc, Desc, Desc, const void *))                  \
  FUNCTION(int, convolution_forward_primitive_desc_create,                                                             \
           (void **, void *, int, int, Desc, Desc, Desc, Desc, Dims, Dims, Dims, Dims, const void *))                  \
  FUNCTION(int, deconvolution_forward_primitive_desc_create,                                                           \
           (void **, void *, int, int, Desc, Desc, Desc, Desc, Dims, Dims, Dims, Dims, const void *))                  \
  FUNCTION(int, eltwise_forward_primitive_desc_create,                                                                 \
           (void **, void *, int, int, Desc, Desc, float, float, const void *))                                        \
  FUNCTION(int, softmax_forward_primitive_desc_create, (void **, void *, int, int, Desc, Desc, int, const void *))     \
  FUNCTION(int, pooling_forward_primitive_desc_create,                                                                 \
           (void **, void *, int, int, Desc, Desc, Dims, Dims, Dims, Dims, Dims, const void *))                        \
  FUNCTION(int, lrn_forward_primitive_desc_create,                                                                     \
           (void **, void *, int, int, Desc, Desc, int64_t, float, float, float, const void *))                        \
  FUNCTION(int, batch_normalization_forward_primitive_desc_create,                                                     \
           (void **, void *, int, Desc, Desc, float, unsigned, const void *))                                          \
  FUNCTION(int, layer_normalization_forward_primitive_desc_create,                                                     \
           (void **, void *, int, Desc, Desc, Desc, float, unsigned, const void *))                                    \
  FUNCTION(int, matmul_primitive_desc_create, (void **, void *, Desc, Desc, Desc, Desc, const void *))                 \
  FUNCTION(int, prelu_forward_primitive_desc_create, (void **, void *, int, Desc, Desc, Desc, const void *))           \
  FUNCTION(int, vanilla_rnn_forward_primitive_desc_create,                                                             \
           (void **, void *, int, int, int, Desc, Desc, Desc, Desc, Desc, Desc, Desc, unsigned, float, float,          \
            const void *))                                                                                             \
  FUNCTION(int, lstm_forward_primitive_desc_create,                                                                    \
           (void **, void *, int, int, Desc, Desc, Desc, Desc, Desc, Desc, Desc, Desc, Desc, Desc, Desc, unsigned,     \
            const void *))                                                                                             \
  FUNCTION(int, gru_forward_primitive_desc_create,                                                                     \
           (void **, void *, int, int, Desc, Desc, Desc, Desc, Desc, Desc, Desc, unsigned, const void *))              \
  FUNCTION(int, lbr_gru_forward_primitive_desc_create,                                                                 \
           (void **, void *, int, int, Desc, Desc, Desc, Desc, Desc, Desc, Desc, unsigned, const void *))              \
  FUNCTION(int, resampling_forward_primitive_desc_create,                                                              \
           (void **, void *, int, int, const float *, Desc, Desc, const void *))                                       \
  FUNCTION(int, reduction_primitive_desc_create, (void **, void *, int, Desc, Desc, float, float, const void *))

/* A loaded library, with the engine of all primitives. */
typedef struct {
#define FUNCTION(result, name, parameters) result(*name) parameters;
  ONEDNN_FUNCTIONS(FUNCTION)
#undef FUNCTION
  void *engine;
  const char *path;
  int version_numbers[3];
  int isa;       /* bits of dnnl_cpu_isa_t */
  Api api;       /* for programs with the threads of the call */
  void (*set_num_threads)(int); /* omp_set_num_threads; NULL for a single-threaded oneDNN */
} Onednn;

/* Returns the library of this process, opened once; NULL after setting an error. */
const Onednn *byoc_open_onednn(void);

/* Returns the number of threads of the calling thread's parallel regions. */
int byoc_num_threads(const Onednn *onednn);

#endif /* BYOC_DNNL_ONEDNN_H_ */
