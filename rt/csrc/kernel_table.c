#include <stddef.h>
#include <string.h>

#include "kernel_arithmetic.h"
#include "kernel_attention.h"
#include "kernel_columns.h"
#include "kernel_conv.h"
#include "kernel_image.h"
#include "kernel_index.h"
#include "kernel_linear.h"
#include "kernel_movement.h"
#include "kernel_norm.h"
#include "kernel_op.h"
#include "kernel_order.h"
#include "kernel_pool.h"
#include "kernel_quantize.h"
#include "kernel_random.h"
#include "kernel_recurrence.h"
#include "kernel_reduce.h"
#include "kernel_select.h"
#include "kernel_spectral.h"
#include "kernel_strings.h"
#include "kernel_unary.h"

static const rt_op OPS[] = {
#define OP(...) {__VA_ARGS__},
#include "kernel_table.h"
#undef OP
};

const rt_op *rt_find_op(const char *name) {
  for (size_t i = 0; i < sizeof OPS / sizeof *OPS; ++i)
    if (!strcmp(name, OPS[i].name)) return &OPS[i];
  return NULL;
}
