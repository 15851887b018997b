/* The interface between the C extension and a native machine: a library that runs the functions of artifacts.
 *
 * The library exports BYOC_NATIVE_MACHINE_SYMBOL, a function without arguments returning a `byoc_native_machine`. All
 * functions may be called by any number of threads at once. Functions returning int32_t return 0, or nonzero after
 * setting the error of the calling thread.
 */
#ifndef BYOC_NATIVE_MACHINE_H_
#define BYOC_NATIVE_MACHINE_H_

#include <stddef.h>
#include <stdint.h>

#include "byoc_ffi.h"

/* The version of this interface: grows with each incompatible change. */
#define BYOC_NATIVE_MACHINE_VERSION 2
#define BYOC_NATIVE_MACHINE_SYMBOL "byoc_native_machine_table"

/* A result: a tensor of DLPack with its memory. Only the machine knows the structure. */
struct DLManagedTensorVersioned;

/* A check during long calls: called about ten times a second by the calling thread. Nonzero ends the call, with an
 * error. */
typedef struct {
  int32_t (*check)(void *context);
  void *context;
} byoc_pause;

/* Options of a state. */
typedef struct {
  int64_t capacity;         /* the rows of each moving length for which room is made at once */
  int64_t limit;            /* the maximum rows of each moving length */
  const uint8_t *overwrites; /* by value: whether calls overwrite elements of the old value; read by new_state alone */
} byoc_state_options;

/* The rows of the longest moving length, the bytes of all buffers, and the bytes copied to larger buffers. */
typedef struct {
  int64_t length, nbytes, moved_nbytes;
} byoc_state_size;

/* A value kept from call to call, in a compact buffer of the caller with room for more rows. */
typedef struct {
  DLTensor buffer; /* aligned for the elements */
  int64_t rows;    /* in use; only of a value with a moving length */
  void (*release)(void *context); /* called once, by any thread, after the last use of the buffer */
  void *context;
} byoc_state_value;

/* Returned by a call of a state, without an error set: nothing has run, because another call is under way, or the
 * values have been taken. */
enum { BYOC_STATE_UNAVAILABLE = INT32_MAX };

/* The values taken out of a state. */
typedef enum {
  BYOC_TAKEN_VALUES,  /* one buffer for each value */
  BYOC_TAKEN_NONE,    /* there are none before the first call */
  BYOC_TAKEN_SPOILED, /* a call did not end, and left no values; or the values have been taken already */
} byoc_taken;

typedef struct {
  int32_t version; /* BYOC_NATIVE_MACHINE_VERSION; stands first in all versions */
  /* Load a shared library with the native half of a runtime. */
  int32_t (*add_runtime)(const char *path);
  /* Load an artifact. The data, aligned to 64 bytes, stays until the program is unloaded. */
  int32_t (*load)(const void *data, size_t nbytes, void **program);
  /* Unload a program, after all calls and after the release of all results. */
  void (*unload)(void *program);
  /* Find a function of a program, valid as long as the program. */
  int32_t (*find_function)(void *program, const char *name, int32_t *num_inputs, int32_t *num_outputs,
                           const void **function);
  /* Run a function on inputs, without side effects on an error. The number of threads is OpenMP's, of the calling
   * thread. Inputs are in memory of the host. `run` makes the results; on an error none is made. `run_into` fills
   * compact outputs sharing no memory with each other or with an input. */
  int32_t (*run)(const void *function, const DLTensor *const *inputs, int32_t num_inputs,
                 struct DLManagedTensorVersioned **results, int32_t num_results, const byoc_pause *pause);
  int32_t (*run_into)(const void *function, const DLTensor *const *inputs, int32_t num_inputs,
                      DLTensor *const *outputs, int32_t num_outputs, const byoc_pause *pause);
  /* Make a state of a function with states: the values kept from call to call, in the order of the program. A state is
   * freed before the program is unloaded. */
  int32_t (*new_state)(const void *function, const byoc_state_options *options, void **state);
  void (*free_state)(void *state);
  /* Run the function of a state, as `run` and `run_into`. After an error the values are the values before the call; if
   * `pause` has ended the call, there are none, and the state is spoiled. Return BYOC_STATE_UNAVAILABLE during another
   * call. */
  int32_t (*run_state)(void *state, const DLTensor *const *inputs, int32_t num_inputs,
                       struct DLManagedTensorVersioned **results, int32_t num_results, const byoc_pause *pause);
  int32_t (*run_state_into)(void *state, const DLTensor *const *inputs, int32_t num_inputs, DLTensor *const *outputs,
                            int32_t num_outputs, const byoc_pause *pause);
  /* Measure a state, perhaps during a call. */
  byoc_state_size (*measure_state)(const void *state);
  /* Take the buffers of all values, and the rows in use of moving lengths; the state is unavailable until values are
   * given. An error during a call. */
  int32_t (*take_values)(void *state, struct DLManagedTensorVersioned **buffers, int64_t *rows, byoc_taken *taken);
  /* Give values to a state without values; NULL: the next call is the first. After an error nothing is released. */
  int32_t (*give_values)(void *state, const byoc_state_value *values);
  /* Return the tensor of a result or a buffer: compact. */
  const DLTensor *(*tensor_of)(const struct DLManagedTensorVersioned *result);
  void (*release)(struct DLManagedTensorVersioned *result);
  /* Return the text of the last error of this thread; never NULL; valid until the next error. */
  const char *(*last_error)(void);
} byoc_native_machine;

typedef const byoc_native_machine *(*byoc_native_machine_function)(void);

#endif /* BYOC_NATIVE_MACHINE_H_ */
