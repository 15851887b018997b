#include "kernel_walk.h"

void rt_walk(int num, char *const *data, const int64_t *const *strides, int32_t rank, const int64_t *shape,
             rt_inner inner, const void *context) {
  int64_t sizes[RT_MAX_RANK + 1], steps[RT_MAX_WALKED][RT_MAX_RANK + 1], index[RT_MAX_RANK + 1] = {0};
  char *at[RT_MAX_WALKED];
  int32_t count = 0; /* of joined axes */
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] == 0) return;
    if (shape[axis] == 1) continue;
    int joins = count > 0;
    for (int k = 0; k < num && joins; ++k) joins = steps[k][count - 1] == strides[k][axis] * shape[axis];
    if (joins)
      sizes[count - 1] *= shape[axis];
    else
      sizes[count++] = shape[axis];
    for (int k = 0; k < num; ++k) steps[k][count - 1] = strides[k][axis];
  }
  if (!count) {
    sizes[count++] = 1;
    for (int k = 0; k < num; ++k) steps[k][0] = 0;
  }
  int64_t inner_steps[RT_MAX_WALKED] = {0};
  for (int k = 0; k < num; ++k) {
    at[k] = data[k];
    inner_steps[k] = steps[k][count - 1];
  }
  for (;;) {
    inner(context, at, inner_steps, sizes[count - 1]);
    int32_t axis = count - 2;
    for (; axis >= 0; --axis) {
      for (int k = 0; k < num; ++k) at[k] += steps[k][axis];
      if (++index[axis] < sizes[axis]) break;
      for (int k = 0; k < num; ++k) at[k] -= steps[k][axis] * sizes[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}
