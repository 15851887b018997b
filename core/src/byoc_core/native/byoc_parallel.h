/* Loops of generated code on several threads.
 *
 * The threads belong to the system's libgomp (libgomp.so.1). Each calling thread has a team, shared with other OpenMP
 * code of the process. libgomp is not linked, but looked up by the first parallel loop; without libgomp, loops run in
 * the calling thread.
 */
#ifndef BYOC_PARALLEL_H_
#define BYOC_PARALLEL_H_

#include "byoc_ffi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Run the items [begin, end) of a loop; the effect must not depend on the bounds of other calls. */
typedef void (*byoc_range)(int64_t begin, int64_t end, const void *data);

/* Call `range` in the threads of the calling thread's team, on disjoint parts of [0, num_items) beginning at multiples
 * of `grain`; return after all parts. Outside an awake team (see byoc_with_team), the parts depend on the number of
 * threads only; within, a thread may take several pieces. Inside a parallel region, or if there is a single part only,
 * the calling thread runs everything. */
BYOC_LOCAL void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data);

/* Run as byoc_parallel_for if the calling thread's team is awake (see byoc_with_team), else in the calling thread
 * alone: for loops worth a few threads, but not worth waking threads up. */
BYOC_LOCAL void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data);

/* Run a body in the calling thread. */
typedef void (*byoc_body)(void *data);

/* Call `body` once in the calling thread, with the team of this thread kept awake. The team's threads wait for the next
 * loop of `body`, so each loop begins and ends at once; waking a team would take tens of microseconds. The team always
 * has omp_get_max_threads() threads, because libgomp ends threads when a team shrinks and creates threads when a team
 * grows. `work_ps` is the estimated work of the loops, in picoseconds on one thread: little work after a pause is not
 * worth waking the team, and runs in the calling thread. */
BYOC_LOCAL void byoc_with_team(byoc_body body, void *data, double work_ps);

#ifdef __cplusplus
}
#endif
#endif /* BYOC_PARALLEL_H_ */
