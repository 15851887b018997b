/* Loops of generated code on several threads.
 *
 * The threads are those of the system's libgomp (libgomp.so.1), each calling thread's own team, which other OpenMP code of
 * the process shares. It is found when a loop first needs it and is not linked; where there is none, loops run in the
 * calling thread.
 */
#ifndef BYOC_PARALLEL_H_
#define BYOC_PARALLEL_H_

#include "byoc_ffi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does the items [begin, end) of a loop; what it does must not depend on where other calls begin and end. */
typedef void (*byoc_range)(int64_t begin, int64_t end, const void *data);

/* Calls `range` once per thread of the calling thread's team, on neighbouring parts of [0, num_items) that begin at multiples
 * of `grain`, and returns when all are done. The team has omp_get_max_threads() threads, always: libgomp ends threads
 * when a team shrinks and makes them anew when it grows. Inside a parallel region, and where there is one part only, the
 * calling thread does everything. */
BYOC_LOCAL void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data);

/* As byoc_parallel_for where the calling thread's team is awake, see byoc_with_team; elsewhere the calling thread does
 * everything: for loops that are worth a few threads, but not their waking up. */
BYOC_LOCAL void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data);

/* Does something in the calling thread. */
typedef void (*byoc_body)(void *data);

/* Calls `body` once, in the calling thread, whose team stays awake meanwhile: its threads wait for one loop of `body` after
 * another, so that each begins and ends at once, where it would take a team tens of microseconds to wake up. For bodies
 * of several loops with little between them. */
BYOC_LOCAL void byoc_with_team(byoc_body body, void *data);

#ifdef __cplusplus
}
#endif
#endif /* BYOC_PARALLEL_H_ */
