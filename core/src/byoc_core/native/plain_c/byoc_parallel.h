/* Loops of generated code, run by the calling thread. */
#ifndef BYOC_PARALLEL_H_
#define BYOC_PARALLEL_H_

#include "byoc_ffi.h"

typedef void (*byoc_range)(int64_t begin, int64_t end, const void *data);
typedef void (*byoc_body)(void *data);

/* Run all items of a loop. */
static inline void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  (void)grain;
  range(0, num_items, data);
}
static inline void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  (void)grain;
  range(0, num_items, data);
}
static inline void byoc_with_team(byoc_body body, void *data, double work_ps) {
  (void)work_ps;
  body(data);
}

#endif /* BYOC_PARALLEL_H_ */
