/* The calling thread alone computes: byoc's threads share the work. The setting belongs to the calling thread. */
int MKL_Set_Num_Threads_Local(int num_threads);
static int byoc_cblas_enter(void) { return MKL_Set_Num_Threads_Local(1); }
static void byoc_cblas_leave(int state) { (void)MKL_Set_Num_Threads_Local(state); }
