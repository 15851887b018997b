/* Calls a function of an artifact many times, and prints the nanoseconds of a call.
 *
 *     machine_calls ARTIFACT FUNCTION NUM_CALLS [SIZE ...]
 *
 * Inputs are ones; an axis of a size that differs from call to call has the sizes given, by default 3, in turns. Prints
 * the time with new results, then into kept outputs.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "byoc_rt.h"

enum { MAX_TENSORS = 64, MAX_NDIM = 64, NUM_ROUNDS = 7 };

static void require(int condition, const char *problem) {
  if (condition) return;
  fprintf(stderr, "%s\n", problem);
  exit(1);
}

static double now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* A tensor with memory of ones. */
typedef struct {
  DLTensor tensor;
  int64_t shape[MAX_NDIM];
} owned_tensor;

static void fill(owned_tensor *owned, const byoc_rt_tensor_info *info, int64_t size) {
  size_t count = 1;
  const size_t itemsize = (size_t)(info->dtype.bits + 7) / 8;
  for (int32_t axis = 0; axis < info->ndim; ++axis) {
    owned->shape[axis] = info->shape[axis] < 0 ? size : info->shape[axis];
    count *= (size_t)owned->shape[axis];
  }
  char *data = malloc(count * itemsize + 1);
  require(data != NULL, "no memory");
  for (size_t i = 0; i < count; ++i) {
    memset(data + i * itemsize, 0, itemsize);
    if (info->dtype.code == kDLFloat && itemsize == 4) memcpy(data + i * itemsize, &(float){1}, 4);
    if (info->dtype.code != kDLFloat) data[i * itemsize] = 1;
  }
  owned->tensor = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = info->ndim, .dtype = info->dtype,
                             .shape = owned->shape};
}

static int compare(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* The calls to make. */
typedef struct {
  const byoc_rt_function *function;
  int32_t num_inputs, num_outputs, num_sizes;
  owned_tensor *inputs; /* by size, then by input */
  DLTensor outputs[MAX_TENSORS];
  DLManagedTensorVersioned *results[MAX_TENSORS];
} calls;

static void release(calls *self) {
  for (int32_t i = 0; i < self->num_outputs; ++i) self->results[i]->deleter(self->results[i]);
}

static void call(calls *self, int32_t size, int into) {
  const DLTensor *inputs[MAX_TENSORS];
  DLTensor *outputs[MAX_TENSORS];
  for (int32_t i = 0; i < self->num_inputs; ++i) inputs[i] = &self->inputs[size * self->num_inputs + i].tensor;
  for (int32_t i = 0; i < self->num_outputs; ++i) outputs[i] = &self->outputs[i];
  const int32_t status =
      into ? byoc_rt_run_into(self->function, inputs, self->num_inputs, outputs, self->num_outputs)
           : byoc_rt_run(self->function, inputs, self->num_inputs, self->results, self->num_outputs);
  require(!status, byoc_rt_last_error());
}

/* Return the nanoseconds of a call. */
static double measure(calls *self, int num_calls, int into) {
  double times[NUM_ROUNDS];
  for (int round = 0; round < NUM_ROUNDS; ++round) {
    const double start = now_ns();
    for (int i = 0; i < num_calls; ++i) {
      call(self, i % self->num_sizes, into);
      if (!into) release(self);
    }
    times[round] = (now_ns() - start) / num_calls;
  }
  qsort(times, NUM_ROUNDS, sizeof *times, compare);
  return times[NUM_ROUNDS / 2];
}

int main(int argc, char **argv) {
  require(argc >= 4, "machine_calls ARTIFACT FUNCTION NUM_CALLS [SIZE ...]");
  byoc_rt_program *program = NULL;
  require(!byoc_rt_load(argv[1], NULL, &program), byoc_rt_last_error());
  calls self = {.function = byoc_rt_find_function(program, argv[2])};
  require(self.function != NULL, byoc_rt_last_error());
  self.num_inputs = byoc_rt_num_inputs(self.function);
  self.num_outputs = byoc_rt_num_outputs(self.function);
  self.num_sizes = argc > 4 ? argc - 4 : 1;
  require(self.num_inputs <= MAX_TENSORS && self.num_outputs <= MAX_TENSORS, "too many inputs or outputs");
  const int32_t num_tensors = self.num_sizes * self.num_inputs;
  self.inputs = calloc((size_t)num_tensors + 1, sizeof *self.inputs);
  require(self.inputs != NULL, "no memory");
  for (int32_t i = 0; i < num_tensors; ++i)
    fill(&self.inputs[i], byoc_rt_input(self.function, i % self.num_inputs),
         argc > 4 ? atoll(argv[4 + i / self.num_inputs]) : 3);
  const int num_calls = atoi(argv[3]);
  printf("%.0f ns with new results\n", measure(&self, num_calls, 0));
  call(&self, 0, 0);
  DLManagedTensorVersioned *kept[MAX_TENSORS];
  for (int32_t i = 0; i < self.num_outputs; ++i) {
    kept[i] = self.results[i];
    self.outputs[i] = kept[i]->dl_tensor;
  }
  if (self.num_sizes == 1) printf("%.0f ns into outputs\n", measure(&self, num_calls, 1));
  for (int32_t i = 0; i < self.num_outputs; ++i) kept[i]->deleter(kept[i]);
  for (int32_t i = 0; i < num_tensors; ++i) free(self.inputs[i].tensor.data);
  free(self.inputs);
  byoc_rt_unload(program);
  return 0;
}
