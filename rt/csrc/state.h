/* The structure of states, for the files that define its functions. */
#ifndef BYOC_RT_STATE_H_
#define BYOC_RT_STATE_H_

#include <stdatomic.h>

#include "machine.h"
#include "native_machine.h"

/* A value in a buffer with room for more rows of a moving length. */
typedef struct {
  DLManagedTensorVersioned *buffer;
  DLTensor value;      /* the rows in use */
  char *saved;         /* the value before the call under way, if calls overwrite it; or NULL */
  size_t saved_nbytes; /* of the memory */
} kept_value;

struct byoc_rt_state {
  const byoc_rt_function *function;
  int64_t capacity, limit;
  atomic_int holder; /* the process with a call or change under way (process.h), or 0 */
  _Atomic(int64_t) length; /* rows of the longest moving length, read during calls too */
  _Atomic(int64_t) nbytes, moved_nbytes; /* of all buffers; copied to larger buffers */
  int has_values; /* a call or a restoration has ended */
  int is_spoiled; /* a call failed, and the values may be of neither call */
  int is_taken;   /* the values have been taken, and none given */
  int is_safe;    /* a failed call leaves the values before the call */
  int32_t num_values;
  uint8_t *overwrites; /* by state of a safe state: whether calls overwrite elements of the old value */
  kept_value *values; /* by state of the function; the shapes of all values lie behind */
};

/* Make a state; `overwrites` is NULL if a failed call spoils the state. NULL after setting an error. */
byoc_rt_state *rt_make_state(const byoc_rt_function *function, int64_t capacity, int64_t limit,
                             const uint8_t *overwrites);

/* Put a value of a shape, with undefined elements, into a buffer; free the older buffer. */
void rt_place_value(byoc_rt_state *state, int32_t index, DLManagedTensorVersioned *buffer, const int64_t *shape);

/* Free all buffers; the program may be unloaded already. */
void rt_free_values(byoc_rt_state *state);

/* Find the rows of the moving lengths: of the longest, if several. */
void rt_set_length(byoc_rt_state *state);

/* Return the bytes of a value. */
size_t rt_value_nbytes(const DLTensor *value);

/* Save the values that a call of a safe state overwrites; return nonzero after setting an error. */
int32_t rt_save_values(byoc_rt_state *state);

/* Return to the values before a failed call of a safe state. */
void rt_return_to_saved(byoc_rt_state *state);

/* Take all buffers out of a state, and the rows in use of moving lengths. Return nonzero after setting an error: a call
 * is under way. */
int32_t rt_take_values(byoc_rt_state *state, DLManagedTensorVersioned **buffers, int64_t *rows, byoc_taken *taken);

/* Give values to a state without values; NULL: the next call is the first. Return nonzero after setting an error. */
int32_t rt_give_values(byoc_rt_state *state, const byoc_state_value *values);

#endif /* BYOC_RT_STATE_H_ */
