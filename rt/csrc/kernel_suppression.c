/* The kernel of non-maximum suppression: narrow floats are computed as float32, as by numpy. */
#include <string.h>

#include "boxes.h"
#include "kernel_select.h"

/* The chosen boxes so far: rows of batch, class and box. */
typedef struct {
  rt_call *call;
  int64_t *rows;
  int64_t count, capacity;
} choices;

static int add_choice(void *context, int64_t batch, int64_t class, int64_t box) {
  choices *found = context;
  if (found->count == found->capacity) {
    const int64_t capacity = 2 * found->capacity + 64;
    int64_t *rows = rt_scratch(found->call, capacity, 3 * sizeof *rows);
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

static int32_t check_operands(rt_call *call) {
  const rt_array *boxes = rt_operand(call, 0), *scores = rt_operand(call, 1);
  if (boxes->rank != 3 || scores->rank != 3) return rt_reject(call, "an operand has another rank than 3");
  const int64_t shape[] = {scores->shape[0], scores->shape[2], 4};
  return rt_check_shape(call, "boxes", boxes, 3, shape);
}

int32_t rt_run_non_max_suppression(rt_call *call, const void *context) {
  (void)context;
  const rt_type work = rt_working_type(rt_operand(call, 0)->type);
  byoc_box_choice choice = {.is_double = work == RT_T_F64, .is_centre = rt_integer(call, "center_point_box") != 0};
  int32_t status = check_operands(call);
  if (!status) status = rt_scalar_integer(call, 2, &choice.max_boxes);
  if (!status) status = rt_scalar_real(call, 3, &choice.overlap);
  if (!status) status = rt_scalar_real(call, 4, &choice.least_score);
  if (status) return status;
  const rt_array *boxes = rt_converted(call, 0, work), *scores = rt_converted(call, 1, work);
  if (!boxes || !scores) return BYOC_RT_EXECUTION;
  choice.boxes = boxes->data;
  choice.scores = scores->data;
  choice.num_images = scores->shape[0];
  choice.num_classes = scores->shape[1];
  choice.num_boxes = scores->shape[2];
  void *scratch = rt_scratch(call, 1, (int64_t)byoc_box_scratch_nbytes(choice.num_boxes, choice.is_double));
  if (!scratch) return BYOC_RT_MEMORY;
  choices found = {.call = call};
  status = (int32_t)byoc_choose_boxes(&choice, scratch, add_choice, &found);
  if (status) return status;
  const int64_t shape[] = {found.count, 3};
  const rt_array *result = rt_result(call, 0, 2, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (found.count) memcpy(result->data, found.rows, (size_t)found.count * 3 * sizeof *found.rows);
  return 0;
}
