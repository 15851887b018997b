/* Programs made of stored plans. The lines of a plan, beside descriptions and primitives:
 *
 *     constant DIGEST
 *     pack PRIMITIVE LOCATION DESC
 *     location argument INDEX DESC
 *     location constant INDEX DESC
 *     location packed INDEX DESC
 *     location arena OFFSET NBYTES DESC
 *     execute PRIMITIVE COUNT (ARGUMENT LOCATION FINGERPRINT)...
 *
 * A fingerprint is that of the layout required by the primitive when the plan was made. If the layouts on this machine
 * are the same, the whole plan holds. All memory of a step is checked: the text may be damaged.
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "layout.h"
#include "stored.h"

enum { MAX_ARGUMENTS = MAX_SOURCES + MAX_POST_OPS + 2 * MAX_SCALES + 16 };

/* Scratch memory of a step: the argument to be completed when all locations are known. */
typedef struct {
  int32_t argument;
  Desc desc;
} Scratch;

/* A program being made. */
typedef struct {
  Reader reader;
  Module *module;
  const Region *region;
  const Plan *plan;
  StoredProgram *stored;
  Memory *memories; /* of the locations */
  const DLTensor **constants;
  const PackedConstant **packed;
  Scratch *scratch;
  int32_t num_constants, num_packed, num_scratch;
  int64_t scratch_nbytes; /* the most of a step */
} Building;

static int64_t nbytes_of(const DLTensor *tensor) {
  int64_t nbytes = (tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) nbytes *= tensor->shape[axis];
  return nbytes;
}

static void *data_of(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

/* ---- Constants --------------------------------------------------------------------------------------------------- */

static int32_t read_constant(Building *self) {
  char digest[MAX_WORD_NBYTES];
  if (byoc_read_word(&self->reader, digest)) return -1;
  const DLTensor *tensor = byoc_cite_constant(self->module, digest);
  if (!tensor) return -1;
  const DLTensor **constants = byoc_reserve(self->constants, self->num_constants, sizeof *constants);
  if (!constants) return -1;
  self->constants = constants;
  constants[self->num_constants++] = tensor;
  return 0;
}

/* Checks that an argument of a primitive lies within memory. */
static int32_t check_extent(const Building *self, Desc desc, int64_t nbytes) {
  Layout layout;
  if (!byoc_query_layout(self->module->onednn, desc, &layout))
    return byoc_damaged(&self->reader, "a layout is out of range");
  const int64_t extent = layout.rank ? byoc_extent(&layout) : 0;
  return extent < 0 || extent > nbytes ? byoc_damaged(&self->reader, "an operand is too small") : 0;
}

static int32_t read_primitive_number(Building *self, StoredPrimitive **primitive) {
  Objects *objects = &self->stored->objects;
  int64_t number;
  if (byoc_read_number(&self->reader, 0, objects->num_primitives - 1, &number)) return -1;
  *primitive = &objects->primitives[number];
  return 0;
}

static int32_t read_pack(Building *self) {
  enum { SRC = 1 };
  const Onednn *onednn = self->module->onednn;
  const Program *program = &self->stored->program;
  StoredPrimitive *primitive;
  Desc target;
  Layout layout;
  int64_t number;
  if (read_primitive_number(self, &primitive) ||
      byoc_read_number(&self->reader, 0, program->num_locations - 1, &number) ||
      byoc_read_desc_number(&self->reader, &self->stored->objects, 0, &target))
    return -1;
  /* A constant is packed with two arguments, and found again by its layouts alone. */
  if (!primitive->is_reorder || primitive->num_post_ops || primitive->num_scales || primitive->num_zero_points)
    return byoc_damaged(&self->reader, "a plain reorder is expected");
  const Location *source = &program->locations[number];
  if (source->kind != CONSTANT) return byoc_damaged(&self->reader, "a constant is expected");
  if (!byoc_query_layout(onednn, target, &layout)) return byoc_damaged(&self->reader, "a layout is out of range");
  if (check_extent(self, onednn->primitive_desc_query_md(primitive->desc, QUERY_EXEC_ARG_MD, SRC),
                   self->memories[number].nbytes) ||
      check_extent(self, onednn->primitive_desc_query_md(primitive->desc, QUERY_EXEC_ARG_MD, ARG_DST),
                   byoc_extent(&layout)))
    return -1;
  const PackedConstant *made = byoc_pack_constant(self->module, &self->reader, primitive,
                                                  (const void *)(uintptr_t)source->value, source->desc, target);
  if (!made) return -1;
  const PackedConstant **packed = byoc_reserve(self->packed, self->num_packed, sizeof *packed);
  if (!packed) return -1;
  self->packed = packed;
  packed[self->num_packed++] = made;
  return 0;
}

/* ---- Locations --------------------------------------------------------------------------------------------------- */

static int32_t read_argument_memory(Building *self, Location *location, Memory *memory) {
  const Region *region = self->region;
  if (byoc_read_number(&self->reader, 0, region->num_inputs + region->num_outputs - 1, &location->value)) return -1;
  const Tensor *tensor = &self->plan->tensors[location->value];
  location->kind = ARGUMENT;
  *memory = (Memory){tensor->nbytes, tensor->dtype.bits / 8, location->value >= region->num_inputs};
  return 0;
}

static int32_t read_constant_memory(Building *self, Location *location, Memory *memory) {
  int64_t index;
  if (byoc_read_number(&self->reader, 0, self->num_constants - 1, &index)) return -1;
  location->kind = CONSTANT;
  location->value = (int64_t)(intptr_t)data_of(self->constants[index]);
  *memory = (Memory){nbytes_of(self->constants[index]), ALIGNMENT, 0};
  return 0;
}

static int32_t read_packed_memory(Building *self, Location *location, Memory *memory) {
  int64_t index;
  if (byoc_read_number(&self->reader, 0, self->num_packed - 1, &index)) return -1;
  location->kind = CONSTANT;
  location->value = (int64_t)(intptr_t)self->packed[index]->memory;
  *memory = (Memory){self->packed[index]->nbytes, ALIGNMENT, 0};
  return 0;
}

static int32_t read_arena_memory(Building *self, Location *location, Memory *memory) {
  int64_t nbytes;
  if (byoc_read_number(&self->reader, 0, self->plan->arena_nbytes, &location->value) ||
      byoc_read_number(&self->reader, 0, self->plan->arena_nbytes - location->value, &nbytes))
    return -1;
  if (location->value % ALIGNMENT) return byoc_damaged(&self->reader, "an intermediate is not aligned");
  location->kind = ARENA;
  *memory = (Memory){nbytes, ALIGNMENT, 1};
  return 0;
}

/* Adds a location; the memory is known to hold the description. */
static int32_t add_location(Building *self, Location location, Memory memory) {
  Program *program = &self->stored->program;
  Location *locations = byoc_reserve(program->locations, program->num_locations, sizeof *locations);
  if (!locations) return -1;
  program->locations = locations;
  Memory *memories = byoc_reserve(self->memories, program->num_locations, sizeof *memories);
  if (!memories) return -1;
  self->memories = memories;
  memories[program->num_locations] = memory;
  locations[program->num_locations++] = location;
  return 0;
}

static int32_t read_location(Building *self) {
  static const struct {
    const char *word;
    int32_t (*read)(Building *self, Location *location, Memory *memory);
  } kinds[] = {{"argument", read_argument_memory},
               {"constant", read_constant_memory},
               {"packed", read_packed_memory},
               {"arena", read_arena_memory}};
  char word[MAX_WORD_NBYTES];
  Location location = {0};
  Memory memory;
  Layout layout;
  Desc desc;
  size_t i = 0;
  if (byoc_read_word(&self->reader, word)) return -1;
  while (i < sizeof kinds / sizeof *kinds && strcmp(word, kinds[i].word)) ++i;
  if (i == sizeof kinds / sizeof *kinds) return byoc_damaged(&self->reader, "an unknown kind of memory");
  if (kinds[i].read(self, &location, &memory) ||
      byoc_read_desc_number(&self->reader, &self->stored->objects, 0, &desc))
    return -1;
  if (!byoc_query_layout(self->module->onednn, desc, &layout))
    return byoc_damaged(&self->reader, "a layout is out of range");
  const int64_t extent = byoc_extent(&layout);
  if (extent < 0 || extent > memory.nbytes || byoc_itemsize(layout.dtype) > memory.alignment)
    return byoc_damaged(&self->reader, "a tensor lies outside its memory");
  location.desc = (void *)(uintptr_t)desc;
  return add_location(self, location, memory);
}

/* ---- Primitives -------------------------------------------------------------------------------------------------- */

static int is_written(int64_t argument) { return argument >= ARG_DST && argument <= ARG_DST_2; }

static int32_t fail_fingerprint(const Building *self) {
  return byoc_host_fail(
      BYOC_RT_LINK,
      "%s: the stored plan of region `%s` for %d threads does not hold: for %d threads oneDNN takes other layouts on "
      "this machine. Store plans made with this number of threads (option `stored_plans` of dnnl), or run with %d",
      self->reader.where, self->region->name, (int)self->plan->num_threads, (int)self->stored->num_threads,
      (int)self->plan->num_threads);
}

/* Returns whether oneDNN may write a result by instructions that fault outside of multiples of 64 bytes: resampling of
 * tensors larger than a core's share of the third cache. Virtual machines of many cores may state small shares. */
static int needs_alignment(const Building *self, const StoredPrimitive *primitive, int64_t argument) {
  enum { SRC = 1, MOST_UNALIGNED_NBYTES = 1 << 14 };
  if (!primitive->is_resampling || argument != ARG_DST) return 0;
  const Onednn *onednn = self->module->onednn;
  int64_t nbytes = 0;
  const int32_t arguments[] = {SRC, ARG_DST};
  for (int32_t i = 0; i < 2; ++i) {
    Layout layout;
    if (!byoc_query_layout(onednn, onednn->primitive_desc_query_md(primitive->desc, QUERY_EXEC_ARG_MD, arguments[i]),
                           &layout))
      return 1;
    nbytes += layout.nbytes;
  }
  return nbytes > MOST_UNALIGNED_NBYTES;
}

/* Checks a location as an argument of a primitive. */
static int32_t check_argument(const Building *self, const StoredPrimitive *primitive, int64_t argument,
                              int64_t location, int64_t fingerprint) {
  const Onednn *onednn = self->module->onednn;
  const Memory *memory = &self->memories[location];
  Desc desc = onednn->primitive_desc_query_md(primitive->desc, QUERY_EXEC_ARG_MD, (int)argument);
  Layout layout;
  if (!byoc_query_layout(onednn, desc, &layout)) return byoc_damaged(&self->reader, "a layout is out of range");
  if (byoc_fingerprint(&layout) != fingerprint) return fail_fingerprint(self);
  if (check_extent(self, desc, memory->nbytes)) return -1;
  const int64_t alignment = needs_alignment(self, primitive, argument) ? ALIGNMENT : byoc_itemsize(layout.dtype);
  if (layout.rank && (alignment > memory->alignment || layout.offset * byoc_itemsize(layout.dtype) % alignment))
    return byoc_damaged(&self->reader, "an operand is not aligned");
  if (is_written(argument) && !memory->is_writable)
    return byoc_damaged(&self->reader, "a step writes a constant or an input");
  return 0;
}

/* Returns the memory of an argument of a step, or NULL. */
static const Memory *find_memory(const Building *self, const Step *step, int64_t argument) {
  const Argument *arguments = self->stored->program.arguments + step->execute.first;
  for (int32_t i = 0; i < step->execute.count; ++i)
    if (arguments[i].number == argument) return &self->memories[(intptr_t)arguments[i].memory];
  return NULL;
}

/* Returns the number of scales of an argument: the product of the sizes of the axes in the mask; -1 if too many. */
static int64_t count_scales(const Building *self, const StoredPrimitive *primitive, int32_t argument, int32_t mask) {
  Layout layout;
  Desc desc = self->module->onednn->primitive_desc_query_md(primitive->desc, QUERY_EXEC_ARG_MD, argument);
  if (!byoc_query_layout(self->module->onednn, desc, &layout) || mask >> layout.rank) return -1;
  int64_t count = 1;
  for (int64_t axis = 0; axis < layout.rank; ++axis) {
    if (!(mask >> axis & 1)) continue;
    if (layout.sizes[axis] < 1 || layout.sizes[axis] > INT32_MAX / count) return -1;
    count *= layout.sizes[axis];
  }
  return count;
}

/* Checks the arguments required by the attributes of a primitive. */
static int32_t check_attributes(const Building *self, const StoredPrimitive *primitive, const Step *step) {
  enum { SCALE_NBYTES = 4 };
  const Memory *memory;
  for (int32_t i = 0; i < primitive->num_scales; ++i) {
    const int32_t argument = primitive->scales[i].argument;
    const int64_t count = count_scales(self, primitive, argument, primitive->scales[i].mask);
    memory = find_memory(self, step, ARG_SCALES | argument);
    if (!memory || count < 0 || memory->nbytes < SCALE_NBYTES * count || memory->alignment < SCALE_NBYTES)
      return byoc_damaged(&self->reader, "scales are missing or too few");
  }
  for (int32_t i = 0; i < primitive->num_zero_points; ++i) {
    memory = find_memory(self, step, ARG_ZERO_POINTS | primitive->zero_points[i]);
    if (!memory || memory->nbytes < SCALE_NBYTES || memory->alignment < SCALE_NBYTES)
      return byoc_damaged(&self->reader, "a zero point is missing");
  }
  for (int32_t i = 0; i < primitive->num_post_ops; ++i) {
    if (!primitive->operands[i]) continue;
    memory = find_memory(self, step, (ARG_POST_OP * (i + 1)) | ARG_SRC_1);
    if (!memory) return byoc_damaged(&self->reader, "the operand of a post-op is missing");
    if (check_extent(self, primitive->operands[i], memory->nbytes)) return -1;
  }
  return 0;
}

static int32_t add_argument(Building *self, int32_t number, intptr_t location) {
  Program *program = &self->stored->program;
  Argument *arguments = byoc_reserve(program->arguments, program->num_arguments, sizeof *arguments);
  if (!arguments) return -1;
  program->arguments = arguments;
  arguments[program->num_arguments++] = (Argument){number, (void *)location};
  return 0;
}

/* Adds the scratch memory of a step, if any, as the last argument. */
static int32_t add_scratch(Building *self, const StoredPrimitive *primitive, Step *step) {
  Layout layout;
  Desc desc = self->module->onednn->primitive_desc_query_md(primitive->desc, QUERY_SCRATCHPAD_MD, 0);
  if (!byoc_query_layout(self->module->onednn, desc, &layout))
    return byoc_damaged(&self->reader, "a layout is out of range");
  if (!layout.nbytes) return 0;
  if (layout.nbytes > self->scratch_nbytes) self->scratch_nbytes = layout.nbytes;
  Scratch *scratch = byoc_reserve(self->scratch, self->num_scratch, sizeof *scratch);
  if (!scratch) return -1;
  self->scratch = scratch;
  scratch[self->num_scratch++] = (Scratch){self->stored->program.num_arguments, desc};
  ++step->execute.count;
  return add_argument(self, ARG_SCRATCHPAD, 0);
}

static int32_t read_execute(Building *self, Step *step) {
  const Program *program = &self->stored->program;
  StoredPrimitive *primitive;
  int64_t count, argument, location, fingerprint;
  if (read_primitive_number(self, &primitive) || byoc_read_number(&self->reader, 1, MAX_ARGUMENTS, &count)) return -1;
  step->op = EXECUTE;
  step->execute.first = program->num_arguments;
  for (int64_t i = 0; i < count; ++i) {
    if (byoc_read_number(&self->reader, 1, INT32_MAX, &argument) ||
        byoc_read_number(&self->reader, 0, program->num_locations - 1, &location) ||
        byoc_read_number(&self->reader, 0, INT64_MAX, &fingerprint) ||
        check_argument(self, primitive, argument, location, fingerprint) ||
        add_argument(self, (int32_t)argument, (intptr_t)location))
      return -1;
  }
  step->execute.count = (int32_t)count;
  if (check_attributes(self, primitive, step) || add_scratch(self, primitive, step) ||
      byoc_create_primitive(&self->reader, self->module->onednn, primitive))
    return -1;
  step->execute.primitive = primitive->primitive;
  return 0;
}

static int32_t add_step(Building *self, const Step *step) {
  Program *program = &self->stored->program;
  Step *steps = byoc_reserve(program->steps, program->num_steps, sizeof *steps);
  if (!steps) return -1;
  program->steps = steps;
  steps[program->num_steps++] = *step;
  return 0;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

static int32_t read_step(Building *self, const char *word) {
  Step step = {0};
  int32_t outcome;
  if (!strcmp(word, "execute")) {
    outcome = read_execute(self, &step);
  } else {
    outcome = byoc_read_core_step(&self->reader, word, &step);
    if (outcome > 0) return byoc_damaged(&self->reader, "an unknown word");
    if (!outcome) outcome = byoc_check_operands(&self->reader, &self->stored->program, &step, self->memories);
  }
  return outcome ? outcome : add_step(self, &step);
}

static int32_t read_line(Building *self, const char *word) {
  const int32_t outcome = byoc_read_desc(&self->reader, &self->stored->objects, word);
  if (outcome <= 0) return outcome;
  if (!strcmp(word, "primitive")) return byoc_read_primitive(&self->reader, &self->stored->objects);
  if (!strcmp(word, "constant")) return read_constant(self);
  if (!strcmp(word, "pack")) return read_pack(self);
  if (!strcmp(word, "location")) return read_location(self);
  return read_step(self, word);
}

/* Completes the scratch memory of all steps: behind the intermediates. */
static int32_t finish(Building *self) {
  Program *program = &self->stored->program;
  const int64_t start = self->plan->arena_nbytes; /* a multiple of the alignment */
  if (self->scratch_nbytes > INT64_MAX - start) return byoc_damaged(&self->reader, "scratch memory is too large");
  program->arena_nbytes = start + self->scratch_nbytes;
  for (int32_t i = 0; i < self->num_scratch; ++i) {
    const Location location = {(void *)(uintptr_t)self->scratch[i].desc, ARENA, start};
    program->arguments[self->scratch[i].argument].memory = (void *)(intptr_t)program->num_locations;
    if (add_location(self, location, (Memory){self->scratch_nbytes, ALIGNMENT, 1})) return -1;
  }
  for (int32_t i = 0; i < program->num_steps; ++i) {
    const char *fault = byoc_find_fault(program, &program->steps[i]);
    if (fault) return byoc_damaged(&self->reader, fault);
  }
  return 0;
}

static int32_t read_body(Building *self) {
  char word[MAX_WORD_NBYTES];
  for (;;) {
    if (byoc_read_word(&self->reader, word)) return -1;
    if (!strcmp(word, "end")) return finish(self);
    if (read_line(self, word) || byoc_end_line(&self->reader)) return -1;
  }
}

int32_t byoc_build_program(Module *module, const Region *region, const Plan *plan, StoredProgram *stored) {
  Building self = {.reader = plan->body, .module = module, .region = region, .plan = plan, .stored = stored};
  const Onednn *onednn = module->onednn;
  stored->objects.onednn = onednn;
  stored->program.api = onednn->api;
  stored->program.engine = onednn->engine;
  stored->program.num_tensors = region->num_inputs + region->num_outputs;
  if (plan->is_serial) stored->program.api.set_num_threads = onednn->set_num_threads;
  const int32_t outcome = read_body(&self);
  free(self.memories);
  free(self.constants);
  free(self.packed);
  free(self.scratch);
  return outcome;
}

void byoc_free_program(StoredProgram *stored) {
  Program *program = &stored->program;
  for (Frame *frame = program->frames, *next; frame; frame = next) {
    next = frame->next;
    byoc_free_frame(program, frame);
  }
  byoc_free_objects(&stored->objects);
  free(program->locations);
  free(program->steps);
  free(program->arguments);
  free(stored);
}
