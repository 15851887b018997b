/* Loops of generated code on several threads.
 *
 * The threads belong to the system's libgomp (libgomp.so.1): each calling thread has a team, shared with other OpenMP code
 * of the process. The first loop looks up libgomp, without linking; without libgomp, loops run in the calling thread.
 */
#ifndef BYOC_PARALLEL_H_
#define BYOC_PARALLEL_H_

#include "byoc_ffi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Run the items [begin, end) of a loop. Results must not depend on the bounds of other calls. */
typedef void (*byoc_range)(int64_t begin, int64_t end, const void *data);

/* Call `range` once per thread of the calling thread's team, on neighbouring parts of [0, num_items) beginning at multiples
 * of `grain`, and return after the last. The team always has omp_get_max_threads() threads, because libgomp ends threads
 * of a shrinking team and starts new threads for a growing team. Inside a parallel region, and with a single part, the
 * calling thread does everything. */
BYOC_LOCAL void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data);

/* Like byoc_parallel_for if the calling thread's team is awake (byoc_with_team); otherwise the calling thread does
 * everything: for loops with enough work for several threads, but not for waking threads. */
BYOC_LOCAL void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data);

/* A function run in the calling thread. */
typedef void (*byoc_body)(void *data);

/* Call `body` once in the calling thread, with the team awake: the threads spin between the loops of `body`, so each loop
 * begins and ends at once; waking a team takes tens of microseconds. For bodies of several loops with little code between
 * the loops. */
BYOC_LOCAL void byoc_with_team(byoc_body body, void *data);

#ifdef __cplusplus
}
#endif
#endif /* BYOC_PARALLEL_H_ */
