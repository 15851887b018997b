/* The calling thread alone computes: byoc's threads share the work. No other code of the process uses this copy of
 * OpenBLAS, so the setting stays. */
int PREFIX_openblas_get_num_threads(void);
void PREFIX_openblas_set_num_threads(int num_threads);
static int byoc_cblas_enter(void) {
  if (PREFIX_openblas_get_num_threads() != 1) PREFIX_openblas_set_num_threads(1);
  return 0;
}
static void byoc_cblas_leave(int state) { (void)state; }
