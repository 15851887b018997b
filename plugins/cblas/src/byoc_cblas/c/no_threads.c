/* The library has no known setting for the number of threads. */
static int byoc_cblas_enter(void) { return 0; }
static void byoc_cblas_leave(int state) { (void)state; }
