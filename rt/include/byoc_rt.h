/* The C runtime of byoc: loads artifacts (.byoc) and runs their functions, without Python.
 *
 *     byoc_rt_program *program = NULL;
 *     if (byoc_rt_load("model.byoc", NULL, &program)) die(byoc_rt_last_error());
 *     const byoc_rt_function *function = byoc_rt_find_function(program, "main");
 *     DLManagedTensorVersioned *result = NULL;
 *     if (byoc_rt_run(function, inputs, 1, &result, 1)) die(byoc_rt_last_error());
 *     ...
 *     result->deleter(result);
 *     byoc_rt_unload(program);
 *
 * Tensors are tensors of DLPack 1.x (https://dmlc.github.io/dlpack). Each function returning int32_t returns a
 * byoc_rt_status: 0, or the kind of an error with a text in byoc_rt_last_error. Loading runs the native code in the
 * artifact: load files of trusted origin only. All functions may be called by any number of threads at once, except
 * that a program is unloaded once, after all calls and after the release of all results.
 */
#ifndef BYOC_RT_H_
#define BYOC_RT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(BYOC_RT_BUILDS)
#define BYOC_RT_API __attribute__((visibility("default")))
#else
#define BYOC_RT_API
#endif

/* DLPack 1.x; include <dlpack/dlpack.h> first to use its definitions. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 0
enum { kDLCPU = 1 };
typedef struct {
  int32_t device_type, device_id;
} DLDevice;
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: compact, row-major */
  uint64_t byte_offset;
} DLTensor;
typedef struct {
  uint32_t major, minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif

/* An argument of the safe-call convention of the TVM FFI ABI: a tag and eight bytes. */
#ifndef TVM_FFI_C_API_H_
enum { kTVMFFINone = 0, kTVMFFIDLTensorPtr = 7, kTVMFFITensor = 70 };
typedef struct TVMFFIAny {
  int32_t type_index;
  uint32_t zero_padding;
  union {
    int64_t v_int64;
    double v_float64;
    void *v_ptr;
  };
} TVMFFIAny;
#endif

typedef enum byoc_rt_status {
  BYOC_RT_OK = 0,
  BYOC_RT_ARTIFACT = 1,    /* no artifact, a damaged one, or one of a newer format */
  BYOC_RT_LINK = 2,        /* a runtime, symbol or constant is missing, or does not fit this machine */
  BYOC_RT_CALL = 3,        /* an argument of a call does not fit; nothing has run */
  BYOC_RT_EXECUTION = 4,   /* a callee failed */
  BYOC_RT_MEMORY = 5,      /* memory cannot be allocated */
  BYOC_RT_UNSUPPORTED = 6, /* the artifact needs something absent from this runtime */
} byoc_rt_status;

/* The version of this interface: grows with each incompatible change. */
#define BYOC_RT_ABI_VERSION 1
BYOC_RT_API int32_t byoc_rt_abi_version(void);

/* Return the text of the last error of this thread, ended by a NUL; never NULL; valid until the next error. */
BYOC_RT_API const char *byoc_rt_last_error(void);

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

typedef struct byoc_rt_program byoc_rt_program;
typedef struct byoc_rt_function byoc_rt_function;

/* Options of loading; zeros are the defaults. `struct_size` is sizeof(byoc_rt_options). */
typedef struct byoc_rt_options {
  size_t struct_size;
  int32_t num_threads; /* of each call, including the calling thread; 0: the number of the process (OpenMP's) */
  const char *weights; /* the file with the constants of an artifact without constants (`byoc weights share`); NULL:
                        * `weights.byocw` beside the artifact, if constants are missing there */
} byoc_rt_options;

/* Load an artifact: map the file, check its digests, and load the libraries inside. `options` may be NULL. The file of
 * weights is mapped until the program is unloaded; programs share its pages. */
BYOC_RT_API int32_t byoc_rt_load(const char *path, const byoc_rt_options *options, byoc_rt_program **program);

/* Load an artifact from memory; the memory stays unchanged until the program is unloaded. Memory not aligned to 64
 * bytes is copied. */
BYOC_RT_API int32_t byoc_rt_load_bytes(const void *data, size_t nbytes, const byoc_rt_options *options,
                                       byoc_rt_program **program);

/* Free a program; NULL is ignored. */
BYOC_RT_API void byoc_rt_unload(byoc_rt_program *program);

/* ---- Functions --------------------------------------------------------------------------------------------------- */

BYOC_RT_API int32_t byoc_rt_num_functions(const byoc_rt_program *program);
BYOC_RT_API const byoc_rt_function *byoc_rt_function_at(const byoc_rt_program *program, int32_t index);

/* Return a function by name, or NULL after setting an error naming the functions. */
BYOC_RT_API const byoc_rt_function *byoc_rt_find_function(const byoc_rt_program *program, const char *name);

/* An input or output. Each axis has a text (`dims`): a number, a symbol, or an expression of symbols (`2*n + 1`). */
typedef struct byoc_rt_tensor_info {
  const char *name;
  DLDataType dtype;
  int32_t ndim;
  const int64_t *shape; /* -1: the size differs from call to call */
  const char *const *dims;
} byoc_rt_tensor_info;

BYOC_RT_API const char *byoc_rt_function_name(const byoc_rt_function *function);
BYOC_RT_API int32_t byoc_rt_num_inputs(const byoc_rt_function *function);
BYOC_RT_API int32_t byoc_rt_num_outputs(const byoc_rt_function *function);
BYOC_RT_API const byoc_rt_tensor_info *byoc_rt_input(const byoc_rt_function *function, int32_t index);
BYOC_RT_API const byoc_rt_tensor_info *byoc_rt_output(const byoc_rt_function *function, int32_t index);

/* Run a function on inputs in order. Inputs may have strides, and are copied if not compact or not aligned for their
 * elements. Each result is a new tensor, aligned to 64 bytes, to be released by its deleter; on an error none is
 * made. */
BYOC_RT_API int32_t byoc_rt_run(const byoc_rt_function *function, const DLTensor *const *inputs, int32_t num_inputs,
                                DLManagedTensorVersioned **results, int32_t num_results);

/* Run a function and fill compact outputs of the results' dtypes and shapes, sharing no memory with each other or with
 * an input. A result of a size known only after the run is copied into its output. */
BYOC_RT_API int32_t byoc_rt_run_into(const byoc_rt_function *function, const DLTensor *const *inputs,
                                     int32_t num_inputs, DLTensor *const *outputs, int32_t num_outputs);

/* ---- States ------------------------------------------------------------------------------------------------------ */

/* The values that a function with states keeps from call to call: one sequence of a model, such as one text. Several
 * states serve several sequences with one set of weights. The first call decides the sizes. A moving length grows in a
 * buffer with room for more rows; without room, the buffer is replaced by one of twice the rows. A state serves one call
 * at a time; a second call at the same time is an error. If a call fails after the function has started, the values may
 * be of neither call, and further calls are errors until the state is reset or restored. */
typedef struct byoc_rt_state byoc_rt_state;

/* Options of a state; zeros are the defaults. `struct_size` is sizeof(byoc_rt_state_options). */
typedef struct byoc_rt_state_options {
  size_t struct_size;
  int64_t capacity; /* the rows of each moving length for which room is made at once */
  int64_t limit;    /* the maximum rows of each moving length; 0: 2^31 - 1 */
} byoc_rt_state_options;

/* The states of a function: name, dtype and shape of the value before a call. They are no inputs and no outputs. */
BYOC_RT_API int32_t byoc_rt_num_states(const byoc_rt_function *function);
BYOC_RT_API const byoc_rt_tensor_info *byoc_rt_state_info(const byoc_rt_function *function, int32_t index);

/* Make a state of a function; after the program is unloaded, the state may be freed only. `options` may be NULL. */
BYOC_RT_API int32_t byoc_rt_new_state(const byoc_rt_function *function, const byoc_rt_state_options *options,
                                      byoc_rt_state **state);
BYOC_RT_API void byoc_rt_free_state(byoc_rt_state *state);

/* Return the function of a state; NULL after setting an error. */
BYOC_RT_API const byoc_rt_function *byoc_rt_state_function(const byoc_rt_state *state);

/* Run the function of a state, as byoc_rt_run and byoc_rt_run_into; inputs and outputs are without states. */
BYOC_RT_API int32_t byoc_rt_run_state(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                                      DLManagedTensorVersioned **results, int32_t num_results);
BYOC_RT_API int32_t byoc_rt_run_state_into(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                                           DLTensor *const *outputs, int32_t num_outputs);

/* Return the rows of the moving lengths: of the longest, if several; during a call, the rows before the call. */
BYOC_RT_API int64_t byoc_rt_state_length(const byoc_rt_state *state);

/* Return a value, compact, to be read until the next use of the state; NULL after setting an error: before the first
 * call there is no value. */
BYOC_RT_API const DLTensor *byoc_rt_state_value(byoc_rt_state *state, int32_t index);

/* Return to the values before the first call; the next call decides the sizes anew. */
BYOC_RT_API int32_t byoc_rt_reset_state(byoc_rt_state *state);

/* Replace all values by copies of tensors of any strides, such as values saved before. On an error the state stays. */
BYOC_RT_API int32_t byoc_rt_restore_state(byoc_rt_state *state, const DLTensor *const *values, int32_t num_values);

/* Make an independent state with copies of the values; only the rows in use are copied. */
BYOC_RT_API int32_t byoc_rt_fork_state(byoc_rt_state *state, byoc_rt_state **fork);

/* ---- Native halves of runtimes ----------------------------------------------------------------------------------- */

/* The resources of a runtime while a module is loaded. */
typedef struct byoc_rt_payload {
  const char *where;    /* the origin, for errors */
  const uint8_t *data;  /* the payload, mapped; valid until the module is unloaded */
  size_t nbytes;
  int32_t format;       /* the newest version among the payloads of the runtime in the artifact */
  void *context;
  /* Return a constant by digest, valid until the module is unloaded, or NULL after setting an error. */
  const DLTensor *(*constant)(void *context, const char *digest);
} byoc_rt_payload;

/* Receives the results of a function whose results have sizes only known to the function. */
typedef struct byoc_rt_results byoc_rt_results;

/* Make result `index`, a compact tensor aligned to 64 bytes, with undefined content. Return NULL after setting an
 * error. */
BYOC_RT_API DLTensor *byoc_rt_new_result(byoc_rt_results *results, int32_t index, DLDataType dtype, int32_t ndim,
                                         const int64_t *shape);

/* A function of a module. Exactly one of `fill` and `make` is given. Any number of threads may call a function at once.
 * Arguments are aligned for their elements, and compact unless the function takes strides; inputs are read-only. The
 * function checks all sizes, and dtypes and ranks not stated in `inputs` and `outputs`: a program may be damaged. */
typedef struct byoc_rt_entry {
  size_t struct_size; /* set by the caller: sizeof(byoc_rt_entry) */
  void *context;
  /* Fill outputs: `args` are inputs, then outputs, each a DLTensor* (safe-call convention of the TVM FFI ABI). */
  int32_t (*fill)(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);
  /* Make each result by byoc_rt_new_result. */
  int32_t (*make)(void *context, const DLTensor *const *inputs, int32_t num_inputs, byoc_rt_results *results,
                  int32_t num_results);
  /* Return the text of the error in this thread after a nonzero status of `fill` or `make`; NULL: a text was set by
   * byoc_rt_fail. */
  const char *(*explain)(void *context, int32_t status);
  int32_t num_inputs, num_outputs;
  /* The types of inputs and outputs, compared with the program while the program is loaded (dtypes, ranks, and sizes
   * known on both sides); valid until the module is unloaded. NULL: not compared. */
  const byoc_rt_tensor_info *inputs, *outputs;
  int32_t takes_strides;   /* whether arguments may have strides */
  int32_t takes_workspace; /* whether `fill` takes scratch memory behind the outputs, if planned by the program: a
                            * tensor uint8 of one axis, aligned to 64 bytes */
} byoc_rt_entry;

/* The native half of a runtime: makes modules of the payloads of its type key. */
typedef struct byoc_rt_runtime {
  size_t struct_size;   /* sizeof(byoc_rt_runtime) */
  int32_t abi_version;  /* BYOC_RT_ABI_VERSION */
  const char *type_key; /* of the modules, as in the artifact */
  int32_t min_format, max_format; /* readable versions of the payload */
  /* Make a module; return nonzero after byoc_rt_fail. Nothing of the payload may run before `find`. */
  int32_t (*load)(const byoc_rt_payload *payload, void **module);
  void (*unload)(void *module);
  /* Find a function; return nonzero after byoc_rt_fail. */
  int32_t (*find)(void *module, const char *symbol, byoc_rt_entry *entry);
} byoc_rt_runtime;

/* Add a runtime; the structure stays valid for the process. A type key added twice keeps its first runtime. */
BYOC_RT_API int32_t byoc_rt_add_runtime(const byoc_rt_runtime *runtime);

/* Load a shared library with a native half, and add its runtime. The library exports the function below. The libraries
 * in the environment variable BYOC_RT_RUNTIMES (paths separated by colons) are added before the first program is
 * loaded. */
BYOC_RT_API int32_t byoc_rt_load_runtime(const char *path);
#define BYOC_RT_RUNTIME_SYMBOL "byoc_rt_runtime_v1"
typedef const byoc_rt_runtime *(*byoc_rt_runtime_function)(void);

/* Set the error of this thread and return `status`; the text is formatted as by printf. */
BYOC_RT_API int32_t byoc_rt_fail(int32_t status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#ifdef __cplusplus
}
#endif
#endif /* BYOC_RT_H_ */
