/* Regions and plans of a text:
 *
 *     byoc-dnnl-plans 1
 *     library MAJOR MINOR PATCH ISA
 *     region NAME NUM_INPUTS NUM_OUTPUTS
 *     plan NUM_THREADS IS_SERIAL ARENA_NBYTES
 *     tensor CODE BITS NDIM SIZE...        for each argument
 *     ...
 *     end
 *
 * A region has any number of plans, and is followed by the next region.
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "stored.h"

enum { TEXT_VERSION = 1, MAX_TENSORS = 1 << 16, MAX_THREADS = 1 << 16, MAX_BITS = 64, MAX_CODE = 6 };

static const int64_t MAX_NBYTES = INT64_C(1) << 46;

static void *no_memory(const Reader *reader) {
  (void)byoc_host_fail(BYOC_RT_MEMORY, "%s: no memory is left for stored plans", reader->where);
  return NULL;
}

static int32_t fail_machine(const Module *module, const int64_t *version, int64_t isa) {
  const int *own = module->onednn->version_numbers;
  return byoc_host_fail(
      BYOC_RT_LINK,
      "%s: the stored plans are for oneDNN %d.%d.%d with the instructions %#llx, but `%s` is oneDNN %d.%d.%d with %#llx. "
      "Compile the model with this library on such a machine; or, for fewer instructions, with the environment variable "
      "ONEDNN_MAX_CPU_ISA",
      module->where, (int)version[0], (int)version[1], (int)version[2], (unsigned long long)isa, module->onednn->path,
      own[0], own[1], own[2], (unsigned long long)module->onednn->isa);
}

static int32_t read_library(const Module *module, Reader *reader) {
  int64_t version[3], isa;
  if (byoc_expect(reader, "library")) return -1;
  for (int i = 0; i < 3; ++i)
    if (byoc_read_number(reader, 0, INT16_MAX, &version[i])) return -1;
  if (byoc_read_number(reader, 0, INT32_MAX, &isa) || byoc_end_line(reader)) return -1;
  const int *own = module->onednn->version_numbers;
  const int is_same = version[0] == own[0] && version[1] == own[1] && version[2] == own[2];
  return is_same && isa == module->onednn->isa ? 0 : fail_machine(module, version, isa);
}

static int32_t read_tensor(Reader *reader, Tensor *tensor) {
  int64_t code, bits, ndim;
  if (byoc_expect(reader, "tensor") || byoc_read_number(reader, 0, MAX_CODE, &code) ||
      byoc_read_number(reader, 8, MAX_BITS, &bits) ||
      byoc_read_numbers(reader, 0, MAX_TENSOR_NDIM, 1, INT32_MAX, &ndim, tensor->shape))
    return -1;
  tensor->dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
  tensor->ndim = (int32_t)ndim;
  tensor->nbytes = bits / 8;
  for (int64_t axis = 0; axis < ndim; ++axis) {
    if (tensor->shape[axis] > MAX_NBYTES / tensor->nbytes) return byoc_damaged(reader, "a tensor is too large");
    tensor->nbytes *= tensor->shape[axis];
  }
  return byoc_end_line(reader);
}

/* Moves behind the line `end`. */
static int32_t skip_body(Reader *reader) {
  for (;;) {
    const char *line = reader->next, *newline = memchr(line, '\n', (size_t)(reader->end - line));
    if (!newline) return byoc_damaged(reader, "the plan does not end");
    reader->next = newline + 1;
    ++reader->line;
    if (newline - line == 3 && !memcmp(line, "end", 3)) return 0;
  }
}

static int32_t read_plan(Reader *reader, const Region *region, Plan *plan) {
  int64_t num_threads, is_serial;
  const int32_t num_tensors = region->num_inputs + region->num_outputs;
  if (byoc_read_number(reader, 1, MAX_THREADS, &num_threads) || byoc_read_number(reader, 0, 1, &is_serial) ||
      byoc_read_number(reader, 0, MAX_NBYTES, &plan->arena_nbytes) || byoc_end_line(reader))
    return -1;
  if (plan->arena_nbytes % ALIGNMENT) return byoc_damaged(reader, "the memory of intermediates is not aligned");
  plan->num_threads = (int32_t)num_threads;
  plan->is_serial = (int32_t)is_serial;
  plan->tensors = calloc((size_t)num_tensors + 1, sizeof *plan->tensors);
  if (!plan->tensors) return no_memory(reader), -1;
  for (int32_t i = 0; i < num_tensors; ++i)
    if (read_tensor(reader, &plan->tensors[i])) return -1;
  plan->body = *reader;
  return skip_body(reader);
}

static int32_t read_region(Reader *reader, Region *region) {
  int64_t num_inputs, num_outputs;
  if (byoc_read_word(reader, region->name) || byoc_read_number(reader, 0, MAX_TENSORS, &num_inputs) ||
      byoc_read_number(reader, 1, MAX_TENSORS, &num_outputs) || byoc_end_line(reader))
    return -1;
  /* No more arguments than the text has room for. */
  if (num_inputs + num_outputs > reader->end - reader->next + MAX_TENSOR_NDIM)
    return byoc_damaged(reader, "a region has too many arguments");
  region->num_inputs = (int32_t)num_inputs;
  region->num_outputs = (int32_t)num_outputs;
  return 0;
}

int32_t byoc_read_regions(Module *module, Reader *reader) {
  int64_t version;
  if (byoc_expect(reader, "byoc-dnnl-plans") || byoc_read_number(reader, 0, INT32_MAX, &version)) return -1;
  if (version != TEXT_VERSION) return byoc_damaged(reader, "a version unknown to this library");
  if (byoc_end_line(reader) || read_library(module, reader)) return -1;
  Region **next_region = &module->regions, *region = NULL;
  Plan **next_plan = NULL;
  while (!byoc_is_at_end(reader)) {
    char word[MAX_WORD_NBYTES];
    if (byoc_read_word(reader, word)) return -1;
    if (!strcmp(word, "region")) {
      if (!(region = calloc(1, sizeof *region))) return no_memory(reader), -1;
      *next_region = region;
      next_region = &region->next;
      next_plan = &region->plans;
      region->module = module;
      if (read_region(reader, region)) return -1;
    } else if (region && !strcmp(word, "plan")) {
      Plan *plan = calloc(1, sizeof *plan);
      if (!plan) return no_memory(reader), -1;
      *next_plan = plan;
      next_plan = &plan->next;
      if (read_plan(reader, region, plan)) return -1;
    } else {
      return byoc_damaged(reader, "an unknown word");
    }
  }
  return 0;
}

void byoc_free_regions(Module *module) {
  for (Region *region = module->regions, *next_region; region; region = next_region) {
    next_region = region->next;
    for (Plan *plan = region->plans, *next_plan; plan; plan = next_plan) {
      next_plan = plan->next;
      for (StoredProgram *program = atomic_load(&plan->programs), *next; program; program = next) {
        next = program->next;
        byoc_free_program(program);
      }
      free(plan->tensors);
      free(plan);
    }
    free(region);
  }
}
