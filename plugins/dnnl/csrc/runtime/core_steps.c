/* Steps other than primitives in a stored plan:
 *
 *     check LOCATION COUNT WIDTH LIMIT
 *     compute FUNCTION SOURCE TARGET ROWS COLUMNS
 *     pool SOURCE TARGET IS_SIGNED IMAGES CHANNELS AXIS AXIS    each AXIS: SIZE COUNT WINDOW STRIDE DILATION BEFORE
 *     quantise SOURCE TARGET IS_SIGNED IMAGES CHANNELS PIXELS SCALE ZERO_POINT
 *     multiply SOURCE WORDS SCALES ZEROS TARGET ROWS DEPTH COLUMNS BLOCK_SIZE NUM_BITS MAX_LANES HAS_ZEROS
 */
#include <string.h>

#include "host.h"
#include "stored.h"
#include "vector_functions.h"

static int32_t read_int(Reader *reader, int64_t least, int64_t most, int32_t *number) {
  int64_t found;
  if (byoc_read_number(reader, least, most, &found)) return -1;
  *number = (int32_t)found;
  return 0;
}

static int32_t read_location(Reader *reader, int32_t *location) { return read_int(reader, 0, INT32_MAX, location); }
static int32_t read_flag(Reader *reader, int32_t *flag) { return read_int(reader, 0, 1, flag); }

static int32_t read_size(Reader *reader, int64_t *size) { return byoc_read_number(reader, 0, INT64_MAX, size); }

static int32_t read_check(Reader *reader, Step *step) {
  if (read_location(reader, &step->check.location) || read_size(reader, &step->check.count) ||
      read_int(reader, 0, INT32_MAX, &step->check.width) || read_int(reader, 0, INT32_MAX, &step->check.limit))
    return -1;
  return 0;
}

/* Returns the function of a name for the best instructions of this processor, or NULL. */
static VectorFunction find_function(const char *name) {
  const byoc_vector_function *tables[BYOC_MAX_VECTOR_TABLES];
  const int count = byoc_find_vector_tables(tables);
  for (int i = 0; i < BYOC_NUM_VECTOR_FUNCTIONS; ++i)
    if (i != BYOC_MULTIPLY_ADDS && !strcmp(name, byoc_vector_names[i])) return tables[count - 1][i];
  return NULL;
}

static int32_t read_compute(Reader *reader, Step *step) {
  char name[MAX_WORD_NBYTES];
  if (byoc_read_word(reader, name)) return -1;
  step->compute.function = find_function(name);
  if (!step->compute.function) {
    (void)byoc_host_fail(BYOC_RT_UNSUPPORTED, "%s, stored plans, line %lld: there is no function `%s`", reader->where,
                         (long long)reader->line, name);
    return -1;
  }
  if (read_location(reader, &step->compute.source) || read_location(reader, &step->compute.target) ||
      read_size(reader, &step->compute.rows) || byoc_read_number(reader, 0, INT32_MAX, &step->compute.columns))
    return -1;
  return 0;
}

static int32_t read_axis(Reader *reader, PoolAxis *axis) {
  int64_t *const numbers[] = {&axis->size, &axis->count, &axis->window, &axis->stride, &axis->dilation, &axis->before};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
    if (read_size(reader, numbers[i])) return -1;
  return 0;
}

static int32_t read_pool(Reader *reader, Step *step) {
  Pooling *pooling = &step->pool.pooling;
  if (read_location(reader, &step->pool.source) || read_location(reader, &step->pool.target) ||
      read_flag(reader, &pooling->is_signed) || read_size(reader, &pooling->images) ||
      read_size(reader, &pooling->channels) || read_axis(reader, &pooling->axes[0]) ||
      read_axis(reader, &pooling->axes[1]))
    return -1;
  return 0;
}

static int32_t read_quantise(Reader *reader, Step *step) {
  Quantisation *q = &step->quantise.quantisation;
  if (read_location(reader, &step->quantise.source) || read_location(reader, &step->quantise.target) ||
      read_flag(reader, &q->is_signed) || read_size(reader, &q->images) || read_size(reader, &q->channels) ||
      read_size(reader, &q->pixels) || byoc_read_float(reader, &q->scale) ||
      read_int(reader, INT8_MIN, UINT8_MAX, &q->zero_point))
    return -1;
  return 0;
}

static int32_t read_multiply(Reader *reader, Step *step) {
  WeightProduct *p = &step->multiply.product;
  if (read_location(reader, &step->multiply.source) || read_location(reader, &step->multiply.words) ||
      read_location(reader, &step->multiply.scales) || read_location(reader, &step->multiply.zeros) ||
      read_location(reader, &step->multiply.target) || read_size(reader, &p->rows) || read_size(reader, &p->depth) ||
      read_size(reader, &p->columns) || read_size(reader, &p->block_size) ||
      read_int(reader, 0, INT32_MAX, &p->num_bits) || read_int(reader, 0, INT32_MAX, &p->max_lanes) ||
      read_flag(reader, &p->has_zeros))
    return -1;
  return 0;
}

int32_t byoc_read_core_step(Reader *reader, const char *word, Step *step) {
  static const struct {
    const char *word;
    int32_t op;
    int32_t (*read)(Reader *reader, Step *step);
  } kinds[] = {{"check", CHECK, read_check},
               {"compute", COMPUTE, read_compute},
               {"pool", POOL, read_pool},
               {"quantise", QUANTISE, read_quantise},
               {"multiply", MULTIPLY, read_multiply}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (strcmp(word, kinds[i].word)) continue;
    step->op = kinds[i].op;
    return kinds[i].read(reader, step);
  }
  return 1;
}

/* An operand: bytes read or written from the beginning of the memory. */
typedef struct {
  int32_t location, alignment, is_written;
  int64_t nbytes; /* -1: out of range */
} Operand;

enum { MAX_OPERANDS = 5 };

/* Multiplies numbers of at least 0; -1 at an overflow, or of -1. */
static int64_t times(int64_t a, int64_t b) { return a < 0 || b < 0 || (b && a > INT64_MAX / b) ? -1 : a * b; }

static int32_t find_product_operands(const Step *step, Operand *operands) {
  const WeightProduct *p = &step->multiply.product;
  const int64_t per_word = 32 / p->num_bits, blocks = (p->depth + p->block_size - 1) / p->block_size;
  const int64_t columns = times((p->columns + BYOC_PANEL_COLUMNS - 1) / BYOC_PANEL_COLUMNS, BYOC_PANEL_COLUMNS);
  const int64_t parameters = times(columns, blocks), words = (p->block_size + per_word - 1) / per_word;
  operands[0] = (Operand){step->multiply.source, 4, 0, times(times(p->rows, p->depth), 4)};
  operands[1] = (Operand){step->multiply.words, 4, 0, times(times(parameters, words), 4)};
  operands[2] = (Operand){step->multiply.scales, 4, 0, times(parameters, 4)};
  operands[3] = (Operand){step->multiply.zeros, 1, 0, p->has_zeros ? parameters : 0};
  operands[4] = (Operand){step->multiply.target, 4, 1, times(times(p->rows, p->columns), 4)};
  return 5;
}

/* Sets the operands of a step without faults, and returns their number. */
static int32_t find_operands(const Step *step, Operand *operands) {
  if (step->op == CHECK) {
    operands[0] = (Operand){step->check.location, step->check.width, 0, times(step->check.count, step->check.width)};
    return 1;
  }
  if (step->op == COMPUTE) {
    const int64_t nbytes = times(times(step->compute.rows, step->compute.columns ? step->compute.columns : 1), 4);
    operands[0] = (Operand){step->compute.source, 4, 0, nbytes};
    operands[1] = (Operand){step->compute.target, 4, 1, nbytes};
    return 2;
  }
  if (step->op == POOL) {
    const Pooling *p = &step->pool.pooling;
    const int64_t bytes = times(p->images, p->channels);
    operands[0] = (Operand){step->pool.source, 1, 0, times(times(bytes, p->axes[0].size), p->axes[1].size)};
    operands[1] = (Operand){step->pool.target, 1, 1, times(times(bytes, p->axes[0].count), p->axes[1].count)};
    return 2;
  }
  if (step->op == QUANTISE) {
    const Quantisation *q = &step->quantise.quantisation;
    const int64_t count = times(times(q->images, q->channels), q->pixels);
    operands[0] = (Operand){step->quantise.source, 4, 0, times(count, 4)};
    operands[1] = (Operand){step->quantise.target, 1, 1, count};
    return 2;
  }
  return find_product_operands(step, operands);
}

int32_t byoc_check_operands(const Reader *reader, const Program *program, const Step *step, const Memory *memories) {
  Operand operands[MAX_OPERANDS];
  const char *fault = byoc_find_fault(program, step);
  if (fault) return byoc_damaged(reader, fault);
  const int32_t count = find_operands(step, operands);
  for (int32_t i = 0; i < count; ++i) {
    const Memory *memory = &memories[operands[i].location];
    if (operands[i].nbytes < 0 || operands[i].nbytes > memory->nbytes || operands[i].alignment > memory->alignment)
      return byoc_damaged(reader, "a step reaches beyond an operand");
    if (operands[i].is_written && !memory->is_writable) return byoc_damaged(reader, "a step writes a constant");
  }
  return 0;
}
