#include "kernel_order.h"

#include <string.h>

int rt_compare_rows(rt_type wide, const char *left, const char *right, int64_t length) {
  for (int64_t i = 0; i < length; ++i) {
    int order;
    if (wide == RT_T_F64) {
      const double x = ((const double *)left)[i], y = ((const double *)right)[i];
      order = x < y ? -1 : x > y ? 1 : (x != x) - (y != y);
    } else if (wide == RT_T_U64) {
      const uint64_t x = ((const uint64_t *)left)[i], y = ((const uint64_t *)right)[i];
      order = (x > y) - (x < y);
    } else {
      const int64_t x = ((const int64_t *)left)[i], y = ((const int64_t *)right)[i];
      order = (x > y) - (x < y);
    }
    if (order) return order;
  }
  return 0;
}

void rt_sort_rows(rt_type wide, const char *rows, int64_t length, int descending, int64_t *order, int64_t *buffer,
                  int64_t count) {
  const size_t nbytes = (size_t)length * 8;
  int64_t *from = order, *to = buffer;
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  /* Merge sorted runs of `width` numbers, from one list to the other. */
  for (int64_t width = 1; width < count; width *= 2) {
    for (int64_t start = 0; start < count; start += 2 * width) {
      const int64_t middle = start + width < count ? start + width : count;
      const int64_t end = middle + width < count ? middle + width : count;
      int64_t left = start, right = middle;
      for (int64_t i = start; i < end; ++i) {
        int takes_right = left == middle;
        if (!takes_right && right < end) {
          const int compared =
              rt_compare_rows(wide, rows + (size_t)from[left] * nbytes, rows + (size_t)from[right] * nbytes, length);
          takes_right = descending ? compared < 0 : compared > 0;
        }
        to[i] = takes_right ? from[right++] : from[left++];
      }
    }
    int64_t *const swap = from;
    from = to;
    to = swap;
  }
  if (from != order && count) memcpy(order, from, (size_t)count * sizeof *order);
}

/* The sorted orders of all lines of operand 0 along an axis. */
typedef struct {
  const rt_array *x; /* compact */
  const char *rows;  /* the lines, of type `wide` */
  rt_type wide;
  int64_t num_rows, length, inner;
  int64_t *order, *buffer; /* of a line */
} lines;

static int32_t read_lines(rt_call *call, int32_t axis, lines *l) {
  uint8_t is_last[RT_MAX_RANK] = {0};
  int64_t outer;
  is_last[axis] = 1;
  l->x = rt_compact(call, 0);
  if (!l->x) return BYOC_RT_EXECUTION;
  l->wide = rt_wide_type(l->x->type);
  l->rows = rt_rows(call, 0, l->wide, is_last, &l->num_rows, &l->length);
  l->order = rt_scratch(call, l->x->shape[axis], sizeof *l->order);
  l->buffer = rt_scratch(call, l->x->shape[axis], sizeof *l->buffer);
  rt_split_axis(l->x, axis, &outer, &l->inner);
  return l->rows && l->order && l->buffer ? 0 : BYOC_RT_EXECUTION;
}

static void sort_line(const lines *l, int64_t row, int descending) {
  rt_sort_rows(l->wide, l->rows + (size_t)(row * l->length) * 8, 1, descending, l->order, l->buffer, l->length);
}

/* Store the elements at the first `count` numbers of the order, and the numbers; either array may be NULL. */
static void store_line(const lines *l, int64_t row, int64_t count, const rt_array *elements, const rt_array *numbers) {
  const size_t nbytes = (size_t)rt_type_nbytes(l->x->type);
  const int64_t outer = row / l->inner, inner = row % l->inner;
  for (int64_t i = 0; i < count; ++i) {
    const size_t target = (size_t)((outer * count + i) * l->inner + inner);
    const size_t source = (size_t)((outer * l->length + l->order[i]) * l->inner + inner);
    if (elements) memcpy(elements->data + target * nbytes, l->x->data + source * nbytes, nbytes);
    if (numbers) ((int64_t *)numbers->data)[target] = l->order[i];
  }
}

static int32_t run_sort(rt_call *call, int gives_numbers) {
  lines l;
  const int32_t axis = rt_axis(call, "axis", rt_operand(call, 0)->rank);
  if (axis < 0 || read_lines(call, axis, &l)) return BYOC_RT_EXECUTION;
  const rt_array *result = rt_result(call, 0, l.x->rank, l.x->shape);
  if (!result) return BYOC_RT_EXECUTION;
  for (int64_t row = 0; row < l.num_rows && l.length; ++row) {
    sort_line(&l, row, rt_integer(call, "descending") != 0);
    store_line(&l, row, l.length, gives_numbers ? NULL : result, gives_numbers ? result : NULL);
  }
  return 0;
}

int32_t rt_run_sort(rt_call *call, const void *context) {
  (void)context;
  return run_sort(call, 0);
}

int32_t rt_run_argsort(rt_call *call, const void *context) {
  (void)context;
  return run_sort(call, 1);
}

int32_t rt_run_topk(rt_call *call, const void *context) {
  (void)context;
  lines l;
  const int32_t axis = rt_axis(call, "axis", rt_operand(call, 0)->rank);
  if (axis < 0 || read_lines(call, axis, &l)) return BYOC_RT_EXECUTION;
  const int64_t k = rt_integer(call, "k");
  int64_t shape[RT_MAX_RANK];
  memcpy(shape, l.x->shape, sizeof shape);
  if (k < 0 || k > shape[axis])
    return rt_reject(call, "attribute `k` is out of range for the axis; got %lld, expected 0 to %lld", (long long)k,
                     (long long)shape[axis]);
  shape[axis] = k;
  const rt_array *elements = rt_result(call, 0, l.x->rank, shape);
  const rt_array *numbers = elements ? rt_result(call, 1, l.x->rank, shape) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  const int is_sorted = rt_integer(call, "sorted") != 0;
  for (int64_t row = 0; row < l.num_rows && elements->count; ++row) {
    sort_line(&l, row, rt_integer(call, "largest") != 0);
    if (!is_sorted) { /* numbers in ascending order: mark the chosen numbers */
      memset(l.buffer, 0, (size_t)l.length * sizeof *l.buffer);
      for (int64_t i = 0; i < k; ++i) l.buffer[l.order[i]] = 1;
      for (int64_t i = 0, next = 0; i < l.length; ++i)
        if (l.buffer[i]) l.order[next++] = i;
    }
    store_line(&l, row, k, elements, numbers);
  }
  return 0;
}

/* ---- Distinct slices --------------------------------------------------------------------------------------------- */

/* Groups of equal slices: the first slice of each group and the number of slices, and the group of each slice. */
typedef struct {
  int64_t count, *first, *counts, *group;
} groups;

static void find_groups(rt_type wide, const char *rows, int64_t length, int64_t num_rows, const int64_t *order,
                        groups *g) {
  const size_t nbytes = (size_t)length * 8;
  g->count = 0;
  for (int64_t i = 0; i < num_rows; ++i) {
    const int is_new = !i || rt_compare_rows(wide, rows + (size_t)order[i - 1] * nbytes,
                                             rows + (size_t)order[i] * nbytes, length);
    if (is_new) {
      g->first[g->count] = order[i];
      g->counts[g->count++] = 0;
    }
    ++g->counts[g->count - 1];
    g->group[order[i]] = g->count - 1;
  }
}

/* Number the groups by their first slices. `renumbered` and `buffer` are memory for as many numbers as groups. */
static void order_by_appearance(groups *g, int64_t num_rows, int64_t *renumbered, int64_t *buffer) {
  int64_t next = 0;
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t old = g->group[i];
    if (g->first[old] == i) renumbered[old] = next++;
    g->group[i] = renumbered[old];
  }
  for (int64_t i = 0; i < g->count; ++i) buffer[renumbered[i]] = g->counts[i];
  memcpy(g->counts, buffer, (size_t)g->count * sizeof *buffer);
  for (int64_t i = 0; i < g->count; ++i) buffer[renumbered[i]] = g->first[i];
  memcpy(g->first, buffer, (size_t)g->count * sizeof *buffer);
}

static int32_t return_groups(rt_call *call, const rt_array *x, int32_t axis, const groups *g, int64_t num_rows) {
  const int64_t *const numbers[] = {g->first, g->group, g->counts};
  int64_t shape[RT_MAX_RANK], outer, inner;
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = g->count;
  const rt_array *slices = rt_result(call, 0, x->rank, shape);
  if (!slices) return BYOC_RT_EXECUTION;
  if (slices->count) {
    rt_split_axis(x, axis, &outer, &inner);
    const size_t nbytes = (size_t)(inner * rt_type_nbytes(x->type));
    char *target = slices->data;
    for (int64_t row = 0; row < outer; ++row)
      for (int64_t i = 0; i < g->count; ++i, target += nbytes)
        memcpy(target, x->data + (size_t)(row * x->shape[axis] + g->first[i]) * nbytes, nbytes);
  }
  for (int32_t k = 0; k < 3; ++k) {
    const int64_t count = k == 1 ? num_rows : g->count;
    const rt_array *result = rt_result(call, k + 1, 1, &count);
    if (!result) return BYOC_RT_EXECUTION;
    if (count) memcpy(result->data, numbers[k], (size_t)count * sizeof(int64_t));
  }
  return 0;
}

int32_t rt_run_unique(rt_call *call, const void *context) {
  (void)context;
  const rt_array *operand = rt_compact(call, 0);
  if (!operand) return BYOC_RT_EXECUTION;
  rt_array x = *operand;
  int32_t axis = 0;
  uint8_t is_last[RT_MAX_RANK];
  if (rt_attribute(call, "axis")->is_none) {
    (void)rt_describe(&x, operand->data, operand->type, 1, &operand->count);
    memset(is_last, 0, sizeof is_last);
  } else {
    axis = rt_axis(call, "axis", x.rank);
    if (axis < 0) return BYOC_RT_EXECUTION;
    memset(is_last, 1, sizeof is_last);
    is_last[axis] = 0;
  }
  int64_t num_rows, length;
  const rt_type wide = rt_wide_type(x.type);
  const char *rows = rt_rows(call, 0, wide, is_last, &num_rows, &length);
  const int64_t count = x.shape[axis];
  groups g = {0, rt_scratch(call, count, 8), rt_scratch(call, count, 8), rt_scratch(call, count, 8)};
  int64_t *order = rt_scratch(call, count, 8), *buffer = rt_scratch(call, count, 8);
  if (!rows || !g.first || !g.counts || !g.group || !order || !buffer) return BYOC_RT_EXECUTION;
  rt_sort_rows(wide, rows, length, 0, order, buffer, num_rows);
  find_groups(wide, rows, length, num_rows, order, &g);
  if (!rt_integer(call, "sorted")) order_by_appearance(&g, num_rows, order, buffer);
  return return_groups(call, &x, axis, &g, num_rows);
}
