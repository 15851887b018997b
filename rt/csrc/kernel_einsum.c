/* The kernel of Einstein sums, by plain loops over all labels. */
#include <string.h>

#include "kernel_attention.h"

/* Labels: the letters, then the hidden axes of `...`, counted from the last. */
enum { LETTERS = 52, MAX_LABELS = LETTERS + RT_MAX_RANK };

/* The labels of the axes of a term. */
typedef struct {
  int32_t count;
  int32_t labels[2 * RT_MAX_RANK];
} term;

static int32_t fail_equation(const rt_call *call) {
  return rt_reject(call, "attribute `equation` is malformed or does not fit");
}

static int32_t label_of(char letter) {
  if (letter >= 'a' && letter <= 'z') return letter - 'a';
  if (letter >= 'A' && letter <= 'Z') return 26 + letter - 'A';
  return -1;
}

/* Read a term of an equation without spaces up to `end`; `hidden` axes stand for `...`, or are set by the rank if
 * negative. */
static int read_term(const char *at, const char *end, int32_t rank, int32_t hidden, term *t) {
  int32_t letters = 0;
  int has_dots = 0;
  for (const char *letter = at; letter < end; ++letter) letters += *letter != '.';
  if (hidden < 0) hidden = rank - letters;
  t->count = 0;
  while (at < end) {
    if (*at == '.') {
      if (has_dots || end - at < 3 || at[1] != '.' || at[2] != '.' || hidden < 0) return 0;
      if (t->count + hidden > 2 * RT_MAX_RANK) return 0;
      for (int32_t i = hidden - 1; i >= 0; --i) t->labels[t->count++] = LETTERS + i;
      has_dots = 1;
      at += 3;
    } else {
      const int32_t label = label_of(*at++);
      if (label < 0 || t->count == 2 * RT_MAX_RANK) return 0;
      t->labels[t->count++] = label;
    }
  }
  return 1;
}

/* An equation at the sizes of a call. */
typedef struct {
  int32_t num_operands;
  const rt_array **operands; /* compact, of a wide type */
  int64_t *strides;          /* of operand i along label l, in elements: strides[i * MAX_LABELS + l] */
  int64_t sizes[MAX_LABELS]; /* of the labels; -1: unused */
  int32_t uses[MAX_LABELS];
  term result;
  int32_t num_axes;
  int32_t axes[MAX_LABELS]; /* labels of the result, then of the sum */
} sum_of_products;

static int32_t add_operand(rt_call *call, sum_of_products *s, int32_t index, const term *t) {
  const rt_array *x = s->operands[index];
  int64_t stride = 1;
  if (t->count != x->rank) return fail_equation(call);
  for (int32_t axis = x->rank - 1; axis >= 0; --axis) {
    const int32_t label = t->labels[axis];
    const int64_t size = x->shape[axis];
    if (s->sizes[label] >= 0 && s->sizes[label] != size && s->sizes[label] != 1 && size != 1)
      return rt_reject(call, "operand %d: axis %d has size %lld, expected %lld", (int)index, (int)axis, (long long)size,
                       (long long)s->sizes[label]);
    if (s->sizes[label] < 0 || s->sizes[label] == 1) s->sizes[label] = size;
    ++s->uses[label];
    if (size != 1) s->strides[index * MAX_LABELS + label] += stride;
    if (x->count) stride *= size;
  }
  return 0;
}

/* Copy the equation without spaces. Return the start of the result, or NULL; `end` is set to the end of the
 * operands. */
static char *compact_equation(char *text, const char *equation, char **end) {
  char *at = text;
  for (; *equation; ++equation)
    if (*equation != ' ') *at++ = *equation;
  *at = 0;
  char *arrow = strstr(text, "->");
  *end = arrow ? arrow : at;
  return arrow ? arrow + 2 : NULL;
}

static int32_t read_equation(rt_call *call, sum_of_products *s) {
  const char *equation = rt_attribute(call, "equation")->text;
  char *text = rt_scratch(call, (int64_t)strlen(equation) + 1, 1), *end = NULL;
  if (!text) return BYOC_RT_MEMORY;
  const char *right = compact_equation(text, equation, &end), *at = text;
  int32_t most_hidden = 0;
  int has_dots = 0;
  for (int32_t i = 0; i < s->num_operands; ++i) {
    const char *stop = memchr(at, ',', (size_t)(end - at));
    if ((stop == NULL) != (i == s->num_operands - 1)) return fail_equation(call);
    if (!stop) stop = end;
    term t;
    if (!read_term(at, stop, s->operands[i]->rank, -1, &t)) return fail_equation(call);
    int32_t hidden = 0;
    for (int32_t k = 0; k < t.count; ++k) hidden += t.labels[k] >= LETTERS;
    if (hidden > most_hidden) most_hidden = hidden;
    has_dots |= memchr(at, '.', (size_t)(stop - at)) != NULL;
    const int32_t status = add_operand(call, s, i, &t);
    if (status) return status;
    at = stop + 1;
  }
  if (right) {
    if (!read_term(right, right + strlen(right), 0, most_hidden, &s->result)) return fail_equation(call);
  } else { /* the hidden axes, then labels used once, in order of the characters: upper case first */
    for (int32_t i = most_hidden - 1; has_dots && i >= 0; --i) s->result.labels[s->result.count++] = LETTERS + i;
    for (int32_t i = 0; i < LETTERS; ++i)
      if (s->uses[(i + 26) % LETTERS] == 1) s->result.labels[s->result.count++] = (i + 26) % LETTERS;
  }
  return 0;
}

/* Order the labels: of the result, then the others. */
static int32_t order_labels(rt_call *call, sum_of_products *s) {
  uint8_t is_placed[MAX_LABELS] = {0};
  for (int32_t i = 0; i < s->result.count; ++i) {
    const int32_t label = s->result.labels[i];
    if (s->sizes[label] < 0 || is_placed[label]) return fail_equation(call);
    is_placed[label] = 1;
    s->axes[s->num_axes++] = label;
  }
  for (int32_t label = 0; label < MAX_LABELS; ++label)
    if (s->sizes[label] >= 0 && !is_placed[label]) s->axes[s->num_axes++] = label;
  return 0;
}

static void add_product(const sum_of_products *s, rt_type type, const int64_t *offsets, char *sum) {
  if (type == RT_T_F64) {
    double product = 1;
    for (int32_t i = 0; i < s->num_operands; ++i) product *= ((const double *)s->operands[i]->data)[offsets[i]];
    *(double *)sum += product;
  } else {
    uint64_t product = 1;
    for (int32_t i = 0; i < s->num_operands; ++i) product *= ((const uint64_t *)s->operands[i]->data)[offsets[i]];
    *(uint64_t *)sum += product;
  }
}

/* Fill the result: walk over all labels; every label of the sum belongs to the same element. */
static void fill_sums(const sum_of_products *s, rt_type type, int64_t *offsets, int64_t count, char *sums) {
  int64_t index[MAX_LABELS] = {0}, terms = 1;
  for (int32_t i = s->result.count; i < s->num_axes; ++i) terms *= s->sizes[s->axes[i]];
  memset(sums, 0, (size_t)count * 8);
  for (int32_t i = 0; i < s->num_operands; ++i) offsets[i] = 0;
  for (int64_t element = 0; element < count; ++element) {
    for (int64_t t = 0; t < terms; ++t) {
      add_product(s, type, offsets, sums + (size_t)element * 8);
      for (int32_t i = s->num_axes - 1; i >= 0; --i) {
        const int32_t label = s->axes[i];
        const int is_done = ++index[i] == s->sizes[label];
        const int64_t steps = is_done ? 1 - s->sizes[label] : 1;
        for (int32_t k = 0; k < s->num_operands; ++k) offsets[k] += steps * s->strides[k * MAX_LABELS + label];
        if (!is_done) break;
        index[i] = 0;
      }
    }
  }
}

int32_t rt_run_einsum(rt_call *call, const void *context) {
  (void)context;
  const int32_t count = rt_num_operands(call);
  sum_of_products s = {.num_operands = count};
  if (!count) return rt_reject(call, "multiplies no operands");
  const rt_type type = rt_wide_type(rt_operand(call, 0)->type);
  s.operands = rt_scratch(call, count, sizeof *s.operands);
  s.strides = rt_scratch(call, count, MAX_LABELS * (int64_t)sizeof *s.strides);
  int64_t *offsets = rt_scratch(call, count, sizeof *offsets);
  if (!s.operands || !s.strides || !offsets) return BYOC_RT_MEMORY;
  memset(s.strides, 0, (size_t)count * MAX_LABELS * sizeof *s.strides);
  for (int32_t label = 0; label < MAX_LABELS; ++label) s.sizes[label] = -1;
  int is_empty = 0;
  for (int32_t i = 0; i < count; ++i) {
    s.operands[i] = rt_converted(call, i, type);
    if (!s.operands[i]) return BYOC_RT_EXECUTION;
    is_empty |= s.operands[i]->count == 0;
  }
  int32_t status = read_equation(call, &s);
  if (!status) status = order_labels(call, &s);
  if (status) return status;
  int64_t shape[2 * RT_MAX_RANK];
  for (int32_t i = 0; i < s.result.count; ++i) shape[i] = s.sizes[s.result.labels[i]];
  rt_array *result = rt_result(call, 0, s.result.count, shape);
  char *sums = result ? rt_open(call, result, type) : NULL;
  if (!sums) return BYOC_RT_EXECUTION;
  if (result->count && is_empty) memset(sums, 0, (size_t)result->count * 8);
  if (result->count && !is_empty) fill_sums(&s, type, offsets, result->count, sums);
  rt_close(result, type, sums);
  return 0;
}
