/* The kernel of non-maximum suppression. Areas and overlaps are computed in the type of the boxes, float32 for narrow
 * floats: each step is rounded as by numpy, because comparisons decide the result. */
#include <string.h>

#include "kernel_order.h"
#include "kernel_select.h"

/* The chosen boxes so far: rows of batch, class and box. */
typedef struct {
  int64_t *rows;
  int64_t count, capacity;
} choices;

static int32_t add_choice(rt_call *call, choices *found, int64_t batch, int64_t class, int64_t box) {
  if (found->count == found->capacity) {
    const int64_t capacity = 2 * found->capacity + 64;
    int64_t *rows = rt_scratch(call, capacity, 3 * sizeof *rows);
    if (!rows) return BYOC_RT_MEMORY;
    if (found->count) memcpy(rows, found->rows, (size_t)found->count * 3 * sizeof *rows);
    found->rows = rows;
    found->capacity = capacity;
  }
  int64_t *row = found->rows + 3 * found->count++;
  row[0] = batch;
  row[1] = class;
  row[2] = box;
  return 0;
}

/* The steps for a type: minimum and maximum (NaN if either is NaN), corners of boxes, and the test of an overlap. */
#define DEFINE_STEPS(T)                                                                              \
  static T least_##T(T x, T y) { return x <= y || x != x ? x : y; }                                  \
  static T greatest_##T(T x, T y) { return x >= y || x != x ? x : y; }                               \
                                                                                                     \
  /* Store the lower and the upper corner, and the area. */                                          \
  static void find_corners_##T(const T *boxes, int64_t count, int is_centre, T *corners, T *areas) { \
    for (int64_t i = 0; i < count; ++i, boxes += 4, corners += 4) {                                  \
      for (int axis = 0; axis < 2; ++axis) {                                                         \
        T first = boxes[axis], second = boxes[2 + axis];                                             \
        if (is_centre) {                                                                             \
          const T half = second / 2, low = first - half, high = first + half;                        \
          first = low;                                                                               \
          second = high;                                                                             \
        }                                                                                            \
        corners[axis] = least_##T(first, second);                                                    \
        corners[2 + axis] = greatest_##T(first, second);                                             \
      }                                                                                              \
      const T height = corners[2] - corners[0], width = corners[3] - corners[1];                     \
      areas[i] = height * width;                                                                     \
    }                                                                                                \
  }                                                                                                  \
                                                                                                     \
  /* Return whether two boxes share more than a part of the area covered by both. */                 \
  static int overlaps_##T(const T *a, const T *b, T area_a, T area_b, T part) {                      \
    T sides[2];                                                                                      \
    for (int axis = 0; axis < 2; ++axis) {                                                           \
      const T side = least_##T(a[2 + axis], b[2 + axis]) - greatest_##T(a[axis], b[axis]);           \
      sides[axis] = greatest_##T(side, 0);                                                           \
    }                                                                                                \
    const T common = sides[0] * sides[1], both = area_a + area_b;                                    \
    const T covered = both - common;                                                                 \
    if (!(common > 0 && area_a > 0 && area_b > 0 && covered > 0)) return 0;                          \
    const T share = common / covered;                                                                \
    return share > part;                                                                             \
  }                                                                                                  \
                                                                                                     \
  /* Mark in `order` by -1 the boxes behind the first that overlap it. */                            \
  static void suppress_##T(const T *corners, const T *areas, int64_t *order, int64_t count, T part) { \
    const int64_t best = order[0];                                                                   \
    for (int64_t i = 1; i < count; ++i) {                                                            \
      const int64_t box = order[i];                                                                  \
      if (box >= 0 && overlaps_##T(corners + 4 * best, corners + 4 * box, areas[best], areas[box], part)) \
        order[i] = -1;                                                                               \
    }                                                                                                \
  }

DEFINE_STEPS(float)
DEFINE_STEPS(double)

typedef struct {
  rt_type work;
  const char *boxes, *scores; /* of type `work` */
  char *corners, *areas;      /* of the boxes of an image */
  double *keys;               /* negative scores */
  int64_t *order, *buffer;
  int64_t num_boxes, max_boxes;
  double overlap, least_score;
} suppression;

static double score_at(const suppression *s, int64_t index) {
  return s->work == RT_T_F32 ? (double)((const float *)s->scores)[index] : ((const double *)s->scores)[index];
}

/* Choose boxes of a class of an image; `scores` is the number of the first score. */
static int32_t choose(rt_call *call, const suppression *s, int64_t batch, int64_t class, int64_t scores,
                      choices *found) {
  for (int64_t i = 0; i < s->num_boxes; ++i) s->keys[i] = -score_at(s, scores + i);
  rt_sort_rows(RT_T_F64, (const char *)s->keys, 1, 0, s->order, s->buffer, s->num_boxes);
  int64_t count = 0, num_chosen = 0;
  for (int64_t i = 0; i < s->num_boxes; ++i)
    if (score_at(s, scores + s->order[i]) > s->least_score) s->order[count++] = s->order[i];
  for (int64_t i = 0; i < count && num_chosen < s->max_boxes; ++i) {
    if (s->order[i] < 0) continue;
    const int32_t status = add_choice(call, found, batch, class, s->order[i]);
    if (status) return status;
    ++num_chosen;
    if (s->work == RT_T_F32)
      suppress_float((const float *)s->corners, (const float *)s->areas, s->order + i, count - i, (float)s->overlap);
    else
      suppress_double((const double *)s->corners, (const double *)s->areas, s->order + i, count - i, s->overlap);
  }
  return 0;
}

static int32_t check_operands(rt_call *call) {
  const rt_array *boxes = rt_operand(call, 0), *scores = rt_operand(call, 1);
  if (boxes->rank != 3 || scores->rank != 3) return rt_reject(call, "an operand has another rank than 3");
  const int64_t shape[] = {scores->shape[0], scores->shape[2], 4};
  return rt_check_shape(call, "boxes", boxes, 3, shape);
}

int32_t rt_run_non_max_suppression(rt_call *call, const void *context) {
  (void)context;
  suppression s = {.work = rt_working_type(rt_operand(call, 0)->type)};
  int32_t status = check_operands(call);
  if (!status) status = rt_scalar_integer(call, 2, &s.max_boxes);
  if (!status) status = rt_scalar_real(call, 3, &s.overlap);
  if (!status) status = rt_scalar_real(call, 4, &s.least_score);
  if (status) return status;
  const rt_array *boxes = rt_converted(call, 0, s.work), *scores = rt_converted(call, 1, s.work);
  if (!boxes || !scores) return BYOC_RT_EXECUTION;
  const int64_t num_images = scores->shape[0], num_classes = scores->shape[1], nbytes = rt_type_nbytes(s.work);
  s.num_boxes = scores->shape[2];
  s.boxes = boxes->data;
  s.scores = scores->data;
  s.corners = rt_scratch(call, s.num_boxes, 4 * nbytes);
  s.areas = rt_scratch(call, s.num_boxes, nbytes);
  s.keys = rt_scratch(call, s.num_boxes, sizeof *s.keys);
  s.order = rt_scratch(call, s.num_boxes, sizeof *s.order);
  s.buffer = rt_scratch(call, s.num_boxes, sizeof *s.buffer);
  if (!s.corners || !s.areas || !s.keys || !s.order || !s.buffer) return BYOC_RT_MEMORY;
  choices found = {0};
  const int is_centre = rt_integer(call, "center_point_box") != 0;
  for (int64_t image = 0; image < num_images && s.num_boxes; ++image) {
    const char *own = s.boxes + (size_t)(image * s.num_boxes * 4 * nbytes);
    if (s.work == RT_T_F32)
      find_corners_float((const float *)own, s.num_boxes, is_centre, (float *)s.corners, (float *)s.areas);
    else
      find_corners_double((const double *)own, s.num_boxes, is_centre, (double *)s.corners, (double *)s.areas);
    for (int64_t class = 0; class < num_classes && !status; ++class)
      status = choose(call, &s, image, class, (image * num_classes + class) * s.num_boxes, &found);
    if (status) return status;
  }
  const int64_t shape[] = {found.count, 3};
  const rt_array *result = rt_result(call, 0, 2, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (found.count) memcpy(result->data, found.rows, (size_t)found.count * 3 * sizeof *found.rows);
  return 0;
}
