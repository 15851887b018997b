/* Frames: memories and arguments of a single call, and the loop over the steps. No Python here. */
#include "program.h"

#include <stdlib.h>

enum { IN_ORDER = 1 };

static int fail(Failure *failure, int32_t operation, int32_t step, int32_t status) {
  *failure = (Failure){operation, step, status};
  return FAILED;
}

void byoc_free_frame(const Program *program, Frame *frame) {
  for (int32_t i = 0; i < program->num_locations; ++i)
    if (frame->memories[i]) (void)program->api.destroy_memory(frame->memories[i]);
  if (frame->stream) (void)program->api.destroy_stream(frame->stream);
  free(frame);
}

Frame *byoc_make_frame(const Program *program, Failure *failure) {
  const size_t num_locations = (size_t)program->num_locations, num_arguments = (size_t)program->num_arguments;
  Frame *frame = calloc(1, sizeof *frame + num_locations * (sizeof(char *) + sizeof(void *)) +
                               num_arguments * sizeof(Argument));
  if (!frame) {
    (void)fail(failure, IN_ALLOCATION, 0, 0);
    return NULL;
  }
  frame->arguments = (Argument *)(frame + 1);
  frame->addresses = (char **)(frame->arguments + num_arguments);
  frame->memories = (void **)(frame->addresses + num_locations);
  int status = program->api.create_stream(&frame->stream, program->engine, IN_ORDER);
  if (status) {
    frame->stream = NULL;
    (void)fail(failure, IN_CREATE_STREAM, 0, status);
  }
  for (size_t i = 0; i < num_locations && !status; ++i) {
    const Location *location = &program->locations[i];
    if (location->kind == CONSTANT) frame->addresses[i] = (char *)(uintptr_t)location->value;
    if (!location->desc) continue;
    status = program->api.create_memory(&frame->memories[i], location->desc, program->engine, frame->addresses[i]);
    if (status) {
      frame->memories[i] = NULL;
      (void)fail(failure, IN_CREATE_MEMORY, 0, status);
    }
  }
  if (status) {
    byoc_free_frame(program, frame);
    return NULL;
  }
  for (size_t i = 0; i < num_arguments; ++i) {
    const Argument *argument = &program->arguments[i];
    frame->arguments[i] = (Argument){argument->number, frame->memories[(uintptr_t)argument->memory]};
  }
  return frame;
}

/* Sets the addresses of arguments and arena locations to the memory of this call. */
static int set_addresses(const Program *program, Frame *frame, void *const *tensors, char *arena,
                         Failure *failure) {
  for (int32_t i = 0; i < program->num_locations; ++i) {
    const Location *location = &program->locations[i];
    if (location->kind == CONSTANT) continue;
    char *address = location->kind == ARGUMENT ? tensors[location->value] : arena + location->value;
    if (address == frame->addresses[i]) continue;
    if (location->desc) {
      const int status = program->api.set_address(frame->memories[i], address);
      if (status) return fail(failure, IN_SET_ADDRESS, 0, status);
    }
    frame->addresses[i] = address;
  }
  return DONE;
}

struct run {
  const Program *program;
  Frame *frame;
  Failure *failure;
};

static int run_step(const struct run *run, int32_t index) {
  const Api *api = &run->program->api;
  const Step *step = &run->program->steps[index];
  const Frame *frame = run->frame;
  if (step->op == CHECK) {
    const int is_held = byoc_check(api, frame->addresses[step->check.location], step->check.count, step->check.width,
                                   step->check.limit);
    return is_held ? DONE : STOPPED;
  }
  if (step->op == COMPUTE) {
    byoc_compute(api, step->compute.function, (const float *)frame->addresses[step->compute.source],
                 (float *)frame->addresses[step->compute.target], step->compute.rows, step->compute.columns);
    return DONE;
  }
  if (step->op == POOL) {
    byoc_pool(api, &step->pool.pooling, frame->addresses[step->pool.source], frame->addresses[step->pool.target]);
    return DONE;
  }
  if (step->op == QUANTISE) {
    byoc_quantise(api, &step->quantise.quantisation, (const float *)frame->addresses[step->quantise.source],
                  frame->addresses[step->quantise.target]);
    return DONE;
  }
  if (step->op == MULTIPLY) {
    const WeightOperands operands = {(const float *)frame->addresses[step->multiply.source],
                                     (const int32_t *)frame->addresses[step->multiply.words],
                                     (const float *)frame->addresses[step->multiply.scales],
                                     (const int8_t *)frame->addresses[step->multiply.zeros],
                                     (float *)frame->addresses[step->multiply.target]};
    byoc_multiply(api, &step->multiply.product, &operands);
    return DONE;
  }
  const int status = api->execute(step->execute.primitive, frame->stream, step->execute.count,
                                  frame->arguments + step->execute.first);
  return status ? fail(run->failure, IN_EXECUTE, index, status) : DONE;
}

/* Primitives of the processor are done when `execute` returns, so a part ends there. */
static int run_steps(void *data) {
  const struct run *run = data;
  const Program *program = run->program;
  const Parts *parts = atomic_load_explicit(&program->parts, memory_order_acquire);
  for (int32_t i = 0; i < program->num_steps; ++i) {
    byoc_let_forks_pass();
    const int outcome = run_step(run, i);
    if (parts) parts->marker(parts->texts[2 * i], parts->texts[2 * i + 1]);
    if (outcome != DONE) return outcome;
  }
  const int status = program->api.wait(run->frame->stream);
  return status ? fail(run->failure, IN_WAIT, 0, status) : DONE;
}

int byoc_run_frame(const Program *program, Frame *frame, void *const *tensors, char *arena, Failure *failure) {
  if (set_addresses(program, frame, tensors, arena, failure) != DONE) return FAILED;
  const Api *api = &program->api;
  struct run run = {program, frame, failure};
  if (!api->set_num_threads) return api->run_team ? api->run_team(run_steps, &run) : run_steps(&run);
  /* Some primitives query OpenMP at run time, regardless of the number of threads at creation. */
  const int saved_num_threads = api->max_threads ? api->max_threads() : 1;
  if (saved_num_threads == 1) return run_steps(&run);
  api->set_num_threads(1);
  const int outcome = run_steps(&run);
  api->set_num_threads(saved_num_threads);
  return outcome;
}
