#include "boxes.h"

#include <stdlib.h>

/* A box with a score above the least. */
typedef struct {
  double score;
  int64_t box; /* -1: overlaps a chosen box */
} candidate;

/* The steps for a type: minimum and maximum (NaN if either is NaN), corners of boxes, and the test of an overlap. */
#define DEFINE_STEPS(T)                                                                                              \
  static T least_##T(T x, T y) { return x <= y || x != x ? x : y; }                                                  \
  static T greatest_##T(T x, T y) { return x >= y || x != x ? x : y; }                                               \
                                                                                                                     \
  /* Store the lower and the upper corner, and the area. */                                                          \
  static void find_corners_##T(const T *boxes, int64_t count, int is_centre, T *corners, T *areas) {                 \
    for (int64_t i = 0; i < count; ++i, boxes += 4, corners += 4) {                                                  \
      for (int axis = 0; axis < 2; ++axis) {                                                                         \
        T first = boxes[axis], second = boxes[2 + axis];                                                             \
        if (is_centre) {                                                                                             \
          const T half = second / 2, low = first - half, high = first + half;                                        \
          first = low;                                                                                               \
          second = high;                                                                                             \
        }                                                                                                            \
        corners[axis] = least_##T(first, second);                                                                    \
        corners[2 + axis] = greatest_##T(first, second);                                                             \
      }                                                                                                              \
      const T height = corners[2] - corners[0], width = corners[3] - corners[1];                                     \
      areas[i] = height * width;                                                                                     \
    }                                                                                                                \
  }                                                                                                                  \
                                                                                                                     \
  /* Return whether two boxes share more than a part of the area covered by both. */                                 \
  static int overlaps_##T(const T *a, const T *b, T area_a, T area_b, T part) {                                      \
    T sides[2];                                                                                                      \
    for (int axis = 0; axis < 2; ++axis) {                                                                           \
      const T side = least_##T(a[2 + axis], b[2 + axis]) - greatest_##T(a[axis], b[axis]);                           \
      sides[axis] = greatest_##T(side, 0);                                                                           \
    }                                                                                                                \
    const T common = sides[0] * sides[1], both = area_a + area_b;                                                    \
    const T covered = both - common;                                                                                 \
    if (!(common > 0 && area_a > 0 && area_b > 0 && covered > 0)) return 0;                                          \
    const T share = common / covered;                                                                                \
    return share > part;                                                                                             \
  }                                                                                                                  \
                                                                                                                     \
  /* Leave out the boxes behind the first that overlap it. */                                                        \
  static void suppress_##T(const T *corners, const T *areas, candidate *found, int64_t count, T part) {              \
    const int64_t best = found[0].box;                                                                               \
    for (int64_t i = 1; i < count; ++i) {                                                                            \
      const int64_t box = found[i].box;                                                                              \
      if (box >= 0 && overlaps_##T(corners + 4 * best, corners + 4 * box, areas[best], areas[box], part))            \
        found[i].box = -1;                                                                                           \
    }                                                                                                                \
  }                                                                                                                  \
                                                                                                                     \
  static int64_t find_candidates_##T(const T *scores, int64_t count, double least_score, candidate *found) {         \
    int64_t num_found = 0;                                                                                           \
    for (int64_t i = 0; i < count; ++i)                                                                              \
      if (scores[i] > least_score) found[num_found++] = (candidate){scores[i], i};                                   \
    return num_found;                                                                                                \
  }

DEFINE_STEPS(float)
DEFINE_STEPS(double)

/* Order by falling score, then by number: no two candidates are equal. */
static int compare(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->score != b->score) return a->score > b->score ? -1 : 1;
  return a->box < b->box ? -1 : 1;
}

size_t byoc_box_scratch_nbytes(int64_t num_boxes, int is_double) {
  return (size_t)num_boxes * (sizeof(candidate) + 5 * (is_double ? sizeof(double) : sizeof(float)));
}

int byoc_choose_boxes(const byoc_box_choice *choice, void *scratch, byoc_box_taker take, void *context) {
  const int64_t num_boxes = choice->num_boxes;
  const size_t nbytes = choice->is_double ? sizeof(double) : sizeof(float);
  candidate *found = scratch;
  void *corners = found + num_boxes, *areas = (char *)corners + (size_t)(4 * num_boxes) * nbytes;
  for (int64_t image = 0; image < choice->num_images; ++image) {
    const void *boxes = (const char *)choice->boxes + (size_t)(image * num_boxes * 4) * nbytes;
    if (choice->is_double)
      find_corners_double(boxes, num_boxes, choice->is_centre, corners, areas);
    else
      find_corners_float(boxes, num_boxes, choice->is_centre, corners, areas);
    for (int64_t class = 0; class < choice->num_classes; ++class) {
      const void *scores =
          (const char *)choice->scores + (size_t)((image * choice->num_classes + class) * num_boxes) * nbytes;
      const int64_t count = choice->is_double ? find_candidates_double(scores, num_boxes, choice->least_score, found)
                                              : find_candidates_float(scores, num_boxes, choice->least_score, found);
      if (count > 1) qsort(found, (size_t)count, sizeof *found, compare);
      int64_t num_chosen = 0;
      for (int64_t i = 0; i < count && num_chosen < choice->max_boxes; ++i) {
        if (found[i].box < 0) continue;
        const int status = take(context, image, class, found[i].box);
        if (status) return status;
        ++num_chosen;
        if (choice->is_double)
          suppress_double(corners, areas, found + i, count - i, choice->overlap);
        else
          suppress_float(corners, areas, found + i, count - i, (float)choice->overlap);
      }
    }
  }
  return 0;
}
