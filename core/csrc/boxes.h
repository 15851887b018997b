/* Non-maximum suppression: the choice among overlapping boxes.
 *
 * Areas and overlaps are computed in the type of the boxes, each step rounded as by numpy, because comparisons decide
 * the result. Independent of Python.
 */
#ifndef BYOC_BOXES_H_
#define BYOC_BOXES_H_

#include <stddef.h>
#include <stdint.h>

/* Boxes `(images, boxes, 4)` and scores `(images, classes, boxes)`, both float, or both double. */
typedef struct {
  const void *boxes, *scores;
  int is_double;
  int is_centre; /* whether boxes are a centre and two sizes; else two opposite corners */
  int64_t num_images, num_classes, num_boxes;
  int64_t max_boxes; /* chosen boxes of a class of an image, at most */
  double overlap;     /* the share of the area covered by two boxes from which on the later box is left out */
  double least_score; /* boxes without a score above are left out */
} byoc_box_choice;

/* Takes a chosen box; another result than 0 ends the choice. */
typedef int (*byoc_box_taker)(void *context, int64_t image, int64_t class, int64_t box);

/* Return the bytes of scratch memory of a choice, aligned as by malloc. */
size_t byoc_box_scratch_nbytes(int64_t num_boxes, int is_double);

/* Choose boxes by image, class and falling score, of equal scores the first box first. Return the last result of the
 * taker, 0 without boxes. */
int byoc_choose_boxes(const byoc_box_choice *choice, void *scratch, byoc_box_taker take, void *context);

#endif
