/* The calling thread alone computes: byoc's threads share the work. Other code of the process may use this OpenBLAS, so
 * the last call under way restores the number of threads. */
#include <stdatomic.h>
int PREFIX_openblas_get_num_threads(void);
void PREFIX_openblas_set_num_threads(int num_threads);
static atomic_flag byoc_cblas_lock = ATOMIC_FLAG_INIT;
static int byoc_cblas_calls, byoc_cblas_before;
/* Held inside byoc_enter_library only, so never during a fork. */
static void byoc_cblas_take_lock(void) {
  while (atomic_flag_test_and_set_explicit(&byoc_cblas_lock, memory_order_acquire)) {
  }
}
static int byoc_cblas_enter(void) {
  byoc_cblas_take_lock();
  if (byoc_cblas_calls++ == 0) {
    byoc_cblas_before = PREFIX_openblas_get_num_threads();
    if (byoc_cblas_before != 1) PREFIX_openblas_set_num_threads(1);
  }
  atomic_flag_clear_explicit(&byoc_cblas_lock, memory_order_release);
  return 0;
}
static void byoc_cblas_leave(int state) {
  (void)state;
  byoc_cblas_take_lock();
  if (--byoc_cblas_calls == 0 && byoc_cblas_before != 1) PREFIX_openblas_set_num_threads(byoc_cblas_before);
  atomic_flag_clear_explicit(&byoc_cblas_lock, memory_order_release);
}
