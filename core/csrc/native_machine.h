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
#define BYOC_NATIVE_MACHINE_VERSION 1
#define BYOC_NATIVE_MACHINE_SYMBOL "byoc_native_machine_table"

/* A result: a tensor of DLPack with its memory. Only the machine knows the structure. */
struct DLManagedTensorVersioned;

/* A check during long calls: called about ten times a second by the calling thread. Nonzero ends the call, with an
 * error. */
typedef struct {
  int32_t (*check)(void *context);
  void *context;
} byoc_pause;

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
  /* Return the tensor of a result: compact. */
  const DLTensor *(*tensor_of)(const struct DLManagedTensorVersioned *result);
  void (*release)(struct DLManagedTensorVersioned *result);
  /* Return the text of the last error of this thread; never NULL; valid until the next error. */
  const char *(*last_error)(void);
} byoc_native_machine;

typedef const byoc_native_machine *(*byoc_native_machine_function)(void);

#endif /* BYOC_NATIVE_MACHINE_H_ */
