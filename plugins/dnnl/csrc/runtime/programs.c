/* The programs of plans, by number of threads: made once, and found without a lock. */
#include <stdlib.h>

#include "host.h"
#include "stored.h"

static StoredProgram *find(const Plan *plan, int32_t num_threads) {
  StoredProgram *program = atomic_load_explicit(&plan->programs, memory_order_acquire);
  while (program && program->num_threads != num_threads) program = program->next;
  return program;
}

/* Makes a program with the number of threads set: oneDNN plans primitives for the calling thread's number. */
static int32_t build(Module *module, const Region *region, const Plan *plan, StoredProgram *stored) {
  const Onednn *onednn = module->onednn;
  const int number = plan->is_serial ? 1 : stored->num_threads;
  const int saved = byoc_num_threads(onednn);
  if (onednn->set_num_threads) onednn->set_num_threads(number);
  const int32_t status = byoc_build_program(module, region, plan, stored);
  if (onednn->set_num_threads) onednn->set_num_threads(saved);
  return status;
}

static StoredProgram *make(Module *module, const Region *region, Plan *plan, int32_t num_threads) {
  StoredProgram *stored = calloc(1, sizeof *stored);
  if (!stored) {
    (void)byoc_host_fail(BYOC_RT_MEMORY, "%s: no memory is left for a program", module->where);
    return NULL;
  }
  stored->num_threads = num_threads;
  if (build(module, region, plan, stored)) {
    byoc_free_program(stored);
    return NULL;
  }
  stored->next = atomic_load_explicit(&plan->programs, memory_order_relaxed);
  atomic_store_explicit(&plan->programs, stored, memory_order_release);
  return stored;
}

StoredProgram *byoc_program_for(Module *module, const Region *region, Plan *plan, int32_t num_threads) {
  if (plan->is_serial) num_threads = plan->num_threads; /* one program for all calls */
  if (!module->onednn->set_num_threads) num_threads = 1;
  StoredProgram *program = find(plan, num_threads);
  if (program) return program;
  byoc_enter_onednn(); /* before the mutex: a fork waits outside, so the mutex is free in the child */
  (void)pthread_mutex_lock(module->mutex);
  program = find(plan, num_threads); /* another thread may have made it */
  if (!program) program = make(module, region, plan, num_threads);
  (void)pthread_mutex_unlock(module->mutex);
  byoc_leave_onednn();
  return program;
}
