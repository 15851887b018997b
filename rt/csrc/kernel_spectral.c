#include "kernel_spectral.h"

#include <math.h>
#include <string.h>

typedef struct {
  double real, imaginary;
} complex_number;

/* Return the product with a root; the root 1 changes nothing, infinite numbers included. */
static complex_number turned(complex_number x, const complex_number *roots, int64_t root) {
  if (!root) return x;
  const complex_number y = roots[root];
  return (complex_number){x.real * y.real - x.imaginary * y.imaginary, x.real * y.imaginary + x.imaginary * y.real};
}

/* A transform of `count` numbers: roots[k] is exp(-2 pi i k / count), conjugated for the inverse. */
typedef struct {
  int64_t count;
  complex_number *roots, *buffer; /* buffer: for the largest prime factor */
} transform;

static int64_t smallest_factor(int64_t count) {
  for (int64_t factor = 2; factor * factor <= count; ++factor)
    if (count % factor == 0) return factor;
  return count;
}

static int64_t largest_factor(int64_t count) {
  int64_t factor = 1;
  while (count > 1) {
    factor = smallest_factor(count);
    count /= factor;
  }
  return factor;
}

/* Transform `count` numbers, `step` apart, to consecutive numbers: the parts of every `factor`-th number first,
 * which are then combined (J. W. Cooley and J. W. Tukey, 1965). Cost: the count times the sum of its prime factors. */
static void compute_transform(const transform *t, const complex_number *source, int64_t step, complex_number *target,
                              int64_t count) {
  if (count == 1) {
    target[0] = source[0];
    return;
  }
  const int64_t factor = smallest_factor(count), part = count / factor, turn = t->count / count;
  for (int64_t r = 0; r < factor; ++r)
    compute_transform(t, source + r * step, step * factor, target + r * part, part);
  for (int64_t k = 0; k < part; ++k) {
    for (int64_t r = 0; r < factor; ++r)
      t->buffer[r] = turned(target[r * part + k], t->roots, r * k * turn);
    for (int64_t q = 0; q < factor; ++q) {
      complex_number sum = t->buffer[0];
      for (int64_t r = 1; r < factor; ++r) {
        const complex_number term = turned(t->buffer[r], t->roots, r * q % factor * part * turn);
        sum.real += term.real;
        sum.imaginary += term.imaginary;
      }
      target[q * part + k] = sum;
    }
  }
}

static int32_t new_transform(rt_call *call, int64_t count, int is_inverse, transform *t) {
  t->count = count;
  t->roots = rt_scratch(call, count, sizeof *t->roots);
  t->buffer = rt_scratch(call, largest_factor(count), sizeof *t->buffer);
  if (!t->roots || !t->buffer) return BYOC_RT_MEMORY;
  for (int64_t k = 0; k < count; ++k) {
    const double angle = 2 * 3.14159265358979323846 * (double)k / (double)count;
    t->roots[k] = (complex_number){cos(angle), is_inverse ? sin(angle) : -sin(angle)};
  }
  return 0;
}

/* The attributes and sizes of a call. */
typedef struct {
  int64_t count; /* of the transform */
  int64_t size;  /* of the axis of the operand */
  int64_t parts; /* 1: real numbers, 2: complex numbers */
  int64_t result_size, result_parts;
  int is_inverse, is_onesided;
} dft_sizes;

static int32_t read_sizes(rt_call *call, const rt_array *x, int32_t axis, dft_sizes *d) {
  const rt_attr *length = rt_attribute(call, "length");
  d->is_inverse = rt_integer(call, "inverse") != 0;
  d->is_onesided = rt_integer(call, "onesided") != 0;
  d->size = x->shape[axis];
  d->parts = x->shape[x->rank - 1];
  if (axis == x->rank - 1) return rt_reject(call, "transforms the axis of real and imaginary parts");
  if (d->parts != 1 && d->parts != 2)
    return rt_reject(call, "has a last axis of a wrong size; got %lld, expected 1 (real) or 2 (complex)",
                     (long long)d->parts);
  if (d->is_onesided && !d->is_inverse && d->parts == 2)
    return rt_reject(call, "is one-sided with a complex signal; expected a real signal");
  const int gives_reals = d->is_inverse && d->is_onesided;
  d->count = !length->is_none ? length->integer : gives_reals && d->size <= INT32_MAX ? 2 * (d->size - 1) : d->size;
  if (d->count < 1 || d->count > INT32_MAX)
    return rt_reject(call, "has a length out of range; got %lld", (long long)d->count);
  d->result_size = d->is_onesided && !d->is_inverse ? d->count / 2 + 1 : d->count;
  d->result_parts = gives_reals ? 1 : 2;
  return 0;
}

/* Read a line of numbers, `step` numbers apart, cut or padded with zeros to the length; a one-sided spectrum is
 * completed. */
static void read_line(const dft_sizes *d, const double *source, int64_t step, complex_number *line) {
  const int completes = d->is_inverse && d->is_onesided;
  const int64_t given = completes ? d->count / 2 + 1 : d->count;
  for (int64_t i = 0; i < given; ++i) {
    const double *number = source + i * step * d->parts;
    line[i] = (complex_number){i < d->size ? number[0] : 0, i < d->size && d->parts == 2 ? number[1] : 0};
  }
  if (!completes) return;
  line[0].imaginary = 0;
  if (d->count % 2 == 0) line[d->count / 2].imaginary = 0;
  for (int64_t i = given; i < d->count; ++i)
    line[i] = (complex_number){line[d->count - i].real, -line[d->count - i].imaginary};
}

int32_t rt_run_dft(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_converted(call, 0, RT_T_F64);
  if (!x) return BYOC_RT_EXECUTION;
  const int32_t axis = rt_axis(call, "axis", x->rank);
  dft_sizes d = {0};
  if (axis < 0 || read_sizes(call, x, axis, &d)) return BYOC_RT_EXECUTION;
  int64_t shape[RT_MAX_RANK], outer = 1, inner = 1;
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = d.result_size;
  shape[x->rank - 1] = d.result_parts;
  rt_array *result = rt_result(call, 0, x->rank, shape);
  double *numbers = result ? (double *)rt_open(call, result, RT_T_F64) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  transform t;
  complex_number *line = rt_scratch(call, d.count, sizeof *line), *spectrum = rt_scratch(call, d.count, sizeof *line);
  if (!line || !spectrum || new_transform(call, d.count, d.is_inverse, &t)) return BYOC_RT_MEMORY;
  for (int32_t i = 0; i < axis; ++i) outer *= shape[i];
  for (int32_t i = axis + 1; i < x->rank - 1; ++i) inner *= shape[i];
  const double scale = d.is_inverse ? 1 / (double)d.count : 1;
  for (int64_t row = 0; row < outer; ++row) {
    for (int64_t column = 0; column < inner; ++column) {
      read_line(&d, (const double *)x->data + (row * d.size * inner + column) * d.parts, inner, line);
      compute_transform(&t, line, 1, spectrum, d.count);
      if (d.parts == 1) { /* a real signal has two real numbers in the spectrum */
        spectrum[0].imaginary = 0;
        if (d.count % 2 == 0) spectrum[d.count / 2].imaginary = 0;
      }
      for (int64_t i = 0; i < d.result_size; ++i) {
        double *number = numbers + ((row * d.result_size + i) * inner + column) * d.result_parts;
        number[0] = spectrum[i].real * scale;
        if (d.result_parts == 2) number[1] = spectrum[i].imaginary * scale;
      }
    }
  }
  rt_close(result, RT_T_F64, (const char *)numbers);
  return 0;
}

/* ---- Determinant ------------------------------------------------------------------------------------------------- */

/* Return the determinant of a matrix by elimination with the largest pivot of a column; changes the matrix. */
static double determinant(double *matrix, int64_t size) {
  double product = 1;
  for (int64_t column = 0; column < size; ++column) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < size; ++row)
      if (fabs(matrix[row * size + column]) > fabs(matrix[pivot * size + column])) pivot = row;
    product *= matrix[pivot * size + column];
    if (matrix[pivot * size + column] == 0) continue;
    if (pivot != column) {
      product = -product;
      for (int64_t k = 0; k < size; ++k) {
        const double swap = matrix[column * size + k];
        matrix[column * size + k] = matrix[pivot * size + k];
        matrix[pivot * size + k] = swap;
      }
    }
    for (int64_t row = column + 1; row < size; ++row) {
      const double factor = matrix[row * size + column] / matrix[column * size + column];
      for (int64_t k = column; k < size; ++k) matrix[row * size + k] -= factor * matrix[column * size + k];
    }
  }
  return product;
}

int32_t rt_run_det(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  if (x->rank < 2 || x->shape[x->rank - 1] != x->shape[x->rank - 2])
    return rt_reject(call, "the operand is no stack of square matrices");
  rt_array *result = rt_result(call, 0, x->rank - 2, x->shape);
  double *found = result ? (double *)rt_open(call, result, RT_T_F64) : NULL;
  uint8_t is_last[RT_MAX_RANK] = {0};
  is_last[x->rank - 1] = is_last[x->rank - 2] = 1;
  int64_t num_rows, length;
  double *matrices = found ? rt_take_rows(call, 0, is_last, &num_rows, &length) : NULL;
  if (!matrices) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_rows; ++i) found[i] = determinant(matrices + i * length, x->shape[x->rank - 1]);
  rt_close(result, RT_T_F64, (const char *)found);
  return 0;
}
