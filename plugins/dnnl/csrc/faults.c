/* Faults of steps whose numbers come from outside: from Python, or from a file. */
#include "program.h"

static int is_location(const Program *program, int32_t index) { return index >= 0 && index < program->num_locations; }

static const char *find_execute_fault(const Program *program, const Step *step) {
  if (!step->execute.primitive) return "a step has no primitive";
  for (int32_t i = step->execute.first; i < step->execute.first + step->execute.count; ++i) {
    const int64_t location = (int64_t)(intptr_t)program->arguments[i].memory;
    if (location < 0 || location >= program->num_locations || !program->locations[location].desc)
      return "an argument has no location with a description";
  }
  return NULL;
}

static const char *find_check_fault(const Program *program, const Step *step) {
  if (!is_location(program, step->check.location) || step->check.count < 0 || step->check.limit < 0 ||
      (step->check.width != 2 && step->check.width != 4))
    return "a check has no location, or its numbers are out of range";
  return NULL;
}

static const char *find_compute_fault(const Program *program, const Step *step) {
  const int64_t rows = step->compute.rows, columns = step->compute.columns;
  if (!step->compute.function || !is_location(program, step->compute.source) ||
      !is_location(program, step->compute.target) || rows < 0 || columns < 0 ||
      (columns && rows > INT64_MAX / columns))
    return "a step has no function or operand, or its numbers are out of range";
  return NULL;
}

static const char *find_axis_fault(const PoolAxis *axis) {
  const int64_t numbers_above_0[] = {axis->size, axis->count, axis->window, axis->stride, axis->dilation};
  for (size_t i = 0; i < sizeof numbers_above_0 / sizeof *numbers_above_0; ++i)
    if (numbers_above_0[i] < 1 || numbers_above_0[i] > INT32_MAX) return "a size of pooling is out of range";
  return axis->before < 0 || axis->before > INT32_MAX ? "a padding of pooling is out of range" : NULL;
}

static const char *find_pool_fault(const Program *program, const Step *step) {
  const Pooling *pooling = &step->pool.pooling;
  if (!is_location(program, step->pool.source) || !is_location(program, step->pool.target) || pooling->images < 1 ||
      pooling->channels < 1 || pooling->images > INT32_MAX || pooling->channels > INT32_MAX)
    return "a pooling has no operand, or its numbers are out of range";
  const char *fault = find_axis_fault(&pooling->axes[0]);
  if (!fault) fault = find_axis_fault(&pooling->axes[1]);
  if (fault) return fault;
  const int64_t most = INT32_MAX / pooling->channels; /* bytes of a row: products with other numbers do not overflow */
  return pooling->axes[1].size > most || pooling->axes[1].count > most ? "a row of pooling is too long" : NULL;
}

static const char *find_quantise_fault(const Program *program, const Step *step) {
  const Quantisation *q = &step->quantise.quantisation;
  const int least = q->is_signed ? INT8_MIN : 0, most = q->is_signed ? INT8_MAX : UINT8_MAX;
  if (!is_location(program, step->quantise.source) || !is_location(program, step->quantise.target) || q->images < 1 ||
      q->channels < MIN_QUANTISED_CHANNELS || q->channels > MAX_QUANTISED_CHANNELS || q->pixels < 1 ||
      q->pixels > INT64_MAX / MAX_QUANTISED_CHANNELS / q->images || q->zero_point < least || q->zero_point > most)
    return "a quantisation has no operand, or its numbers are out of range";
  return NULL;
}

/* Without zero points, `zeros` is any location. */
static const char *find_multiply_fault(const Program *program, const Step *step) {
  const WeightProduct *p = &step->multiply.product;
  const int32_t locations[] = {step->multiply.source, step->multiply.words, step->multiply.scales,
                               step->multiply.zeros, step->multiply.target};
  for (size_t i = 0; i < sizeof locations / sizeof *locations; ++i)
    if (!is_location(program, locations[i])) return "a product has no operand";
  if (p->rows < 0 || p->depth < 1 || p->columns < 1 || p->depth > INT32_MAX || p->columns > INT32_MAX ||
      p->rows > INT32_MAX || p->block_size < 1 || p->block_size > p->depth || (p->num_bits != 4 && p->num_bits != 8))
    return "the numbers of a product are out of range";
  return NULL;
}

const char *byoc_find_fault(const Program *program, const Step *step) {
  if (step->op == EXECUTE) return find_execute_fault(program, step);
  if (step->op == CHECK) return find_check_fault(program, step);
  if (step->op == COMPUTE) return find_compute_fault(program, step);
  if (step->op == POOL) return find_pool_fault(program, step);
  if (step->op == QUANTISE) return find_quantise_fault(program, step);
  return step->op == MULTIPLY ? find_multiply_fault(program, step) : "the kind of a step is unknown";
}
