/* Linked functions, their frames, and the execution of frames. */
#ifndef BYOC_RT_MACHINE_H_
#define BYOC_RT_MACHINE_H_

#include <pthread.h>
#include <stdatomic.h>

#include "artifact.h"
#include "core_abi.h"
#include "mapping.h"
#include "program.h"
#include "openmp.h"

/* An external symbol: the function of a module. */
typedef struct {
  byoc_rt_entry entry;
  const char *type_key; /* of the module's runtime */
} rt_extern;

/* A loaded module. */
typedef struct {
  const rt_module_entry *entry;
  const byoc_rt_runtime *runtime;
  void *module;
} rt_module;

/* The memory of a running call. The tensors of the first registers point to the caller's memory. */
typedef struct rt_frame {
  struct rt_frame *next; /* in the list of unused frames */
  const byoc_rt_function *function;
  byoc_frame frame;
  int64_t *sizes;                      /* the function's table */
  int64_t *view_offsets;               /* by view: bytes from the base */
  int64_t *storage_offsets, *storage_nbytes; /* by storage, from the aligned start of the arena */
  DLManagedTensorVersioned **dynamics; /* by dynamic register; NULL: not defined */
  void **copies;                       /* by parameter: the memory of a copied argument, or NULL */
  const DLTensor **arguments;          /* by parameter: the tensors of the call */
  char *arena;                         /* with room to align the start */
  size_t arena_nbytes;
  int is_laid_out; /* whether registers and arena fit the shapes of the parameters' tensors */
  /* For one instruction at a time: */
  const DLTensor **operands;
  rt_spec *specs;
  DLManagedTensorVersioned **made;
} rt_frame;

/* The unused frames of a function. */
typedef struct {
  _Atomic(rt_frame *) last; /* the frame returned last, or NULL */
  pthread_mutex_t mutex;    /* of the list; never waited for: a forked child may find the mutex locked for good */
  rt_frame *frames;
} rt_frames;

struct byoc_rt_function {
  byoc_rt_program *program;
  const rt_vm_function *vm;
  const char *where; /* the name in errors */
  const int32_t *input_params, *output_results; /* by input and output: all but those of states */
  int32_t num_inputs, num_outputs;
  const byoc_rt_tensor_info *inputs, *outputs, *states; /* of a state: the value before a call */
  byoc_instruction *code; /* by instruction; BYOC_PYTHON: executed by rt_step */
  int32_t *ops;           /* by instruction: the operation of the executor if all operands have memory */
  int32_t *operands;      /* registers, of all instructions */
  int32_t num_operands, max_operands;
  int32_t *argument_views, num_argument_views; /* registers: views of parameters and results */
  rt_frames *frames;
};

struct byoc_rt_program {
  rt_pool *pool;
  rt_mapping mapping;
  rt_weights weights; /* the file with the constants, if not in the artifact */
  rt_artifact artifact;
  rt_constants constants;
  rt_program vm;
  rt_module *modules;
  int32_t num_modules; /* loaded so far */
  rt_extern *externs;
  const DLTensor **vm_constants; /* by constant of the program */
  byoc_rt_function *functions;
  int32_t num_functions; /* with a list of frames so far */
  rt_threads threads;
};

/* Make the linked functions of a program with modules and constants. Return nonzero after setting an error of kind
 * BYOC_RT_LINK: a symbol is missing, defined twice, or does not fit the calls. */
int32_t rt_link(byoc_rt_program *program);

/* Take an unused frame, or make a frame. NULL after setting an error. */
rt_frame *rt_take_frame(const byoc_rt_function *function);

/* Return a frame after a call; free everything belonging to the call. */
void rt_return_frame(rt_frame *frame);

/* Free the unused frames of a function: of all, after the last call. */
void rt_free_frames(rt_frames *frames);

/* Fit a frame to compact arguments, whose addresses are set already: sizes, shapes, arena, views. Return nonzero after
 * setting an error. `inputs` have the dtypes and ranks of the parameters. */
int32_t rt_lay_out(rt_frame *frame, const DLTensor *const *inputs);

/* Point the views of parameters and results to the memory of their bases. */
void rt_point_views(rt_frame *frame);

/* Check the inputs of a call, and point the frame's parameters to them, or to copies. Return nonzero after setting an
 * error. */
int32_t rt_accept(rt_frame *frame, const DLTensor *const *inputs);

/* Check the outputs given by a caller, and that they share no memory with each other or with inputs; the frame is laid
 * out. Return nonzero after setting an error. */
int32_t rt_check_outputs(const rt_frame *frame, const DLTensor *const *inputs, DLTensor *const *outputs);

enum { RT_MAX_CALLS = 64 }; /* inside each other */

/* Run the code of a frame whose parameters and early results have memory; `depth` is the number of calls around. Return
 * nonzero after setting an error. Set the instruction that returns. */
int32_t rt_execute(rt_frame *frame, int depth, const rt_instruction **ret);

/* Take the tensor of a dynamic register out of a frame; NULL after setting an error: never defined. */
DLManagedTensorVersioned *rt_take_dynamic(rt_frame *frame, int32_t number);

/* Execute a single instruction on operands not all of which have memory before the run. Return nonzero after setting an
 * error; else set the next instruction. */
int32_t rt_step(rt_frame *frame, int32_t index, int depth, int32_t *next);

/* Run a single builtin by the executor, on operands with memory. Return 0 if the executor refuses. */
int rt_run_single(const rt_frame *frame, int32_t index);

/* Set the error of a failed instruction: `problem` is the text of the cause. */
int32_t rt_fail_instruction(const rt_frame *frame, int32_t index, int32_t status, const char *problem);

/* Set the error of a copy between tensors of different shapes. */
int32_t rt_fail_copy(const rt_frame *frame, int32_t index);

/* Set the error of an external function that returned `status`. */
int32_t rt_fail_extern(const rt_frame *frame, int32_t index, int32_t status);

/* Check device, dtype, rank and shape of a tensor for a state. Return nonzero after setting an error. */
int32_t rt_check_value(const byoc_rt_function *function, int32_t index, const DLTensor *value);

/* Begin a call of a function with a state: pass the old values to the frame with accepted inputs, lay out the frame, make
 * room for the new values, and pass it to the frame. Return nonzero after setting an error; the state is then as before,
 * but may have more room. */
int32_t rt_begin_state(byoc_rt_state *state, rt_frame *frame);

/* End a call: keep the new values after a status of 0, else refuse further calls. */
void rt_end_state(byoc_rt_state *state, const rt_frame *frame, int32_t status);

/* As byoc_rt_run_state and byoc_rt_run_state_into, for the holder of a state. */
int32_t rt_run_held_state(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                          DLManagedTensorVersioned **results, int32_t num_results);
int32_t rt_run_held_state_into(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                               DLTensor *const *outputs, int32_t num_outputs);

/* Take a state for one call or change at a time. Return nonzero after setting an error: NULL, or in use. */
int32_t rt_hold_state(byoc_rt_state *state);
void rt_release_state(byoc_rt_state *state);

#endif /* BYOC_RT_MACHINE_H_ */
