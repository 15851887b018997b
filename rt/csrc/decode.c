#include <string.h>

#include "dtypes.h"
#include "status.h"
#include "program.h"

enum { MAX_NUMBER_NBYTES = 9, MAX_COUNT = INT32_MAX / 8 };
static const char MAGIC[8] = "BYOC-VM";

/* The state of reading. After an error, all functions return zeros: the status is looked at where counts are used. */
typedef struct {
  rt_pool *pool;
  const uint8_t *data;
  size_t nbytes, position;
  const char *where;
  int has_views, has_states;
  int32_t status;
} reader;

static void fail(reader *self, const char *problem) {
  if (!self->status)
    self->status = byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: bytecode, byte %zu: %s", self->where,
                                self->position,
                                problem);
}

/* Record the error already set by a function called. */
static void fail_below(reader *self) {
  if (!self->status) self->status = rt_error_status();
}

/* Read an unsigned LEB128 number in shortest form. */
static int64_t number(reader *self) {
  uint64_t value = 0;
  for (int i = 0; i < MAX_NUMBER_NBYTES && !self->status; ++i) {
    if (self->position == self->nbytes) {
      fail(self, "the program ends too early");
      return 0;
    }
    const uint8_t byte = self->data[self->position++];
    value |= (uint64_t)(byte & 0x7F) << (7 * i);
    if (byte >= 0x80) continue;
    if (i && !byte) fail(self, "a number is not in shortest form");
    return self->status ? 0 : (int64_t)value;
  }
  fail(self, "a number is too large");
  return 0;
}

/* Read an index below INT32_MAX; larger numbers become INT32_MAX, refused by all checks. */
static int32_t index_number(reader *self) {
  const int64_t value = number(self);
  return value < INT32_MAX ? (int32_t)value : INT32_MAX;
}

/* Read the length of a sequence, bounded by the rest of the program. */
static int32_t count(reader *self) {
  const int64_t value = number(self);
  if (self->status || (value <= MAX_COUNT && (uint64_t)value <= self->nbytes - self->position)) return (int32_t)value;
  fail(self, "a sequence is longer than the program");
  return 0;
}

static void *take(reader *self, int32_t length, size_t nbytes) {
  void *memory = self->status ? NULL : rt_take(self->pool, (size_t)length, nbytes);
  if (!memory) fail_below(self);
  return memory;
}

static rt_text text(reader *self) {
  const int64_t length = number(self);
  if (!self->status && (uint64_t)length > self->nbytes - self->position) fail(self, "the program ends too early");
  if (self->status) return (rt_text){"", 0};
  const rt_text found = {(const char *)self->data + self->position, (size_t)length};
  self->position += (size_t)length;
  if (!rt_is_utf8(found)) fail(self, "a text is not UTF-8");
  return found;
}

/* Read a text without NUL as a string. */
static const char *string(reader *self) {
  const rt_text found = text(self);
  if (!self->status && found.length && memchr(found.data, 0, found.length)) fail(self, "a name contains a zero byte");
  const char *copy = self->status ? NULL : rt_copy(self->pool, found);
  if (!copy) fail_below(self);
  return copy ? copy : "";
}

static DLDataType dtype(reader *self) {
  DLDataType found = {kDLUInt, 8, 1};
  const rt_text name = text(self);
  if (!self->status && !rt_find_dtype(name, &found)) fail(self, "unknown dtype");
  return found;
}

static int32_t dim(reader *self, rt_dims *dims) {
  const rt_text found = text(self);
  const int32_t size = self->status ? 0 : rt_dim(dims, found);
  if (size >= 0) return size;
  fail(self, byoc_rt_last_error());
  return 0;
}

static const int32_t *dim_sequence(reader *self, rt_dims *dims, int32_t *length) {
  *length = count(self);
  int32_t *found = take(self, *length, sizeof *found);
  for (int32_t i = 0; i < *length && !self->status; ++i) found[i] = dim(self, dims);
  return found;
}

static const int32_t *index_sequence(reader *self, int32_t *length) {
  *length = count(self);
  int32_t *found = take(self, *length, sizeof *found);
  for (int32_t i = 0; i < *length && !self->status; ++i) found[i] = index_number(self);
  return found;
}

/* Read dtype and shape. */
static void tensor(reader *self, rt_dims *dims, rt_register *out) {
  out->spec.dtype = dtype(self);
  out->itemsize = rt_itemsize(out->spec.dtype);
  out->spec.dims = dim_sequence(self, dims, &out->spec.ndim);
  if (out->spec.ndim > RT_MAX_NDIM) fail(self, "a register has too many axes");
}

static void read_spec(reader *self, rt_dims *dims, rt_register *out) {
  out->spec.name = string(self);
  tensor(self, dims, out);
}

static void read_planned(reader *self, rt_dims *dims, rt_register *out) {
  out->owner = index_number(self);
  out->offset = number(self);
  tensor(self, dims, out);
}

static void read_dynamic(reader *self, rt_dims *dims, rt_register *out) {
  tensor(self, dims, out);
  out->num_binds = count(self);
  int32_t *binds = take(self, out->num_binds, sizeof *binds);
  for (int32_t i = 0; i < out->num_binds && !self->status; ++i) {
    const rt_text name = text(self);
    binds[i] = self->status ? 0 : rt_symbol(dims, name);
    if (binds[i] < 0) fail(self, byoc_rt_last_error());
  }
  out->binds = binds;
}

static void read_view(reader *self, rt_dims *dims, rt_register *out) {
  out->owner = index_number(self);
  out->view_offset = dim(self, dims);
  tensor(self, dims, out);
  const int64_t has_strides = number(self);
  if (has_strides > 1) fail(self, "the flag for the strides of a view is neither 0 nor 1");
  if (has_strides != 1 || self->status) return;
  int32_t num_strides;
  out->strides = dim_sequence(self, dims, &num_strides);
  if (num_strides != out->spec.ndim) fail(self, "a view has another number of strides than axes");
}

static void instruction(reader *self, rt_instruction *out) {
  out->opcode = index_number(self);
  switch (out->opcode) {
    case RT_CALL:
      out->call_kind = index_number(self);
      if (out->call_kind >= RT_NUM_CALL_KINDS) fail(self, "unknown call kind");
      out->callee = index_number(self);
      out->args = index_sequence(self, &out->num_args);
      out->results = index_sequence(self, &out->num_results);
      break;
    case RT_RET:
      out->args = index_sequence(self, &out->num_args);
      break;
    case RT_GOTO:
      out->target = index_number(self);
      break;
    case RT_IF: {
      int32_t *condition = take(self, 1, sizeof *condition);
      if (condition) *condition = index_number(self);
      out->args = condition;
      out->num_args = 1;
      out->target = index_number(self);
      break;
    }
    default:
      fail(self, "unknown opcode");
  }
}

typedef void (*register_reader)(reader *self, rt_dims *dims, rt_register *out);

/* Read a group of registers; NULL without memory. */
static rt_register *read_group(reader *self, rt_dims *dims, rt_register_kind kind, register_reader read,
                               int32_t *length) {
  *length = count(self);
  rt_register *group = take(self, *length, sizeof *group);
  for (int32_t i = 0; i < *length && !self->status; ++i) {
    group[i].kind = kind;
    read(self, dims, &group[i]);
  }
  return group;
}

static void read_constant_index(reader *self, rt_dims *dims, rt_register *out) {
  (void)dims;
  out->owner = index_number(self);
}

/* Read a number written as the number plus 1; -1 for none. */
static int32_t optional_number(reader *self) { return index_number(self) - 1; }

static void read_states(reader *self, rt_vm_function *out) {
  out->num_states = count(self);
  rt_state_slot *states = take(self, out->num_states, sizeof *states);
  for (int32_t i = 0; i < out->num_states && !self->status; ++i) {
    states[i].param = index_number(self);
    states[i].result = index_number(self);
    states[i].initial = optional_number(self);
    states[i].axis = optional_number(self);
  }
  out->states = states;
}

static void read_code(reader *self, rt_vm_function *out) {
  out->num_instructions = count(self);
  rt_instruction *code = take(self, out->num_instructions, sizeof *code);
  for (int32_t i = 0; i < out->num_instructions && !self->status; ++i) instruction(self, &code[i]);
  out->code = code;
}

/* Join the groups of registers. */
static void join_groups(reader *self, rt_vm_function *out, rt_register *const *groups) {
  const int32_t lengths[] = {out->num_params,  out->num_results,  out->num_constants,
                             out->num_tensors, out->num_dynamics, out->num_views};
  int64_t total = 0;
  for (int i = 0; i < 6; ++i) total += lengths[i];
  if (total > MAX_COUNT) fail(self, "a function has too many registers");
  out->num_registers = (int32_t)total;
  out->registers = take(self, out->num_registers, sizeof *out->registers);
  rt_spec *specs = take(self, out->num_params + out->num_results, sizeof *specs);
  if (self->status) return;
  int32_t firsts[6], next = 0;
  for (int i = 0; i < 6; ++i) {
    firsts[i] = next;
    if (lengths[i]) memcpy(out->registers + next, groups[i], (size_t)lengths[i] * sizeof **groups);
    next += lengths[i];
  }
  out->first_result = firsts[1];
  out->first_constant = firsts[2];
  out->first_tensor = firsts[3];
  out->first_dynamic = firsts[4];
  out->first_view = firsts[5];
  for (int32_t i = 0; i < out->num_params + out->num_results; ++i) specs[i] = out->registers[i].spec;
  out->params = specs;
  out->results = specs + out->num_params;
}

static void read_function(reader *self, rt_vm_function *out) {
  rt_register *groups[6] = {NULL};
  rt_dims *dims = self->status ? NULL : rt_dims_new(self->pool, BYOC_RT_ARTIFACT);
  if (!dims) {
    fail_below(self);
    return;
  }
  out->dims = dims;
  out->name = string(self);
  groups[0] = read_group(self, dims, RT_PARAM, read_spec, &out->num_params);
  groups[1] = read_group(self, dims, RT_RESULT, read_spec, &out->num_results);
  groups[2] = read_group(self, dims, RT_CONSTANT, read_constant_index, &out->num_constants);
  out->storages = dim_sequence(self, dims, &out->num_storages);
  groups[3] = read_group(self, dims, RT_TENSOR, read_planned, &out->num_tensors);
  groups[4] = read_group(self, dims, RT_DYNAMIC, read_dynamic, &out->num_dynamics);
  read_code(self, out);
  if (self->has_views) groups[5] = read_group(self, dims, RT_VIEW, read_view, &out->num_views);
  if (self->has_states) read_states(self, out);
  if (!self->status) join_groups(self, out, groups);
}

static void read_constant(reader *self, rt_constant_ref *out) {
  out->digest = string(self);
  out->dtype = dtype(self);
  out->ndim = count(self);
  if (out->ndim > RT_MAX_NDIM) fail(self, "a constant has too many axes");
  int64_t *shape = take(self, out->ndim, sizeof *shape);
  for (int32_t axis = 0; axis < out->ndim && !self->status; ++axis) shape[axis] = number(self);
  out->shape = shape;
}

static void read_program(reader *self, rt_program *out) {
  out->num_externs = count(self);
  const char **externs = take(self, out->num_externs, sizeof *externs);
  for (int32_t i = 0; i < out->num_externs && !self->status; ++i) externs[i] = string(self);
  out->externs = externs;
  out->num_constants = count(self);
  rt_constant_ref *constants = take(self, out->num_constants, sizeof *constants);
  for (int32_t i = 0; i < out->num_constants && !self->status; ++i) read_constant(self, &constants[i]);
  out->constants = constants;
  out->num_functions = count(self);
  out->functions = take(self, out->num_functions, sizeof *out->functions);
  for (int32_t i = 0; i < out->num_functions && !self->status; ++i) read_function(self, &out->functions[i]);
  if (self->position != self->nbytes) fail(self, "bytes after the end of the program");
}

int32_t rt_decode_program(rt_pool *pool, const uint8_t *data, size_t nbytes, const char *where, rt_program *program) {
  reader self = {.pool = pool, .data = data, .nbytes = nbytes, .position = sizeof MAGIC + 2, .where = where};
  if (nbytes < self.position || memcmp(data, MAGIC, sizeof MAGIC))
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: bytecode: is not a VM program", where);
  const int version = data[sizeof MAGIC] | data[sizeof MAGIC + 1] << 8;
  if (version >= RT_PROGRAM_WITH_DOMAINS && version <= RT_PROGRAM_WITH_POOLS)
    return byoc_rt_fail(BYOC_RT_UNSUPPORTED,
                        "%s: keeps tensors in the memory of a device, and this runtime knows none. Run the artifact by "
                        "byoc-core.",
                        where);
  if (version < RT_PLAIN_PROGRAM || version > RT_PROGRAM_WITH_STATES)
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: is malformed: bytecode: has another format version; got %d, expected %d to %d. "
                        "Use a byoc-rt as new as the byoc-core that made the program, or build the model again.",
                        where, version, RT_PLAIN_PROGRAM, RT_PROGRAM_WITH_STATES);
  self.has_views = version >= RT_PROGRAM_WITH_VIEWS;
  self.has_states = version >= RT_PROGRAM_WITH_STATES;
  read_program(&self, program);
  program->version = version;
  return self.status;
}
