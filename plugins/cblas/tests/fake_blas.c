/* A slow CBLAS for tests, with the thread functions of OpenBLAS or MKL. PREFIX and the functions are macros. A LOCKED
 * library holds a lock in each product for about a millisecond. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(name) JOIN(PREFIX, JOIN(name, SUFFIX))
#ifdef LOCKED
#include <poll.h>
#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void enter(void) {
  pthread_mutex_lock(&lock);
  poll(0, 0, 1);
}
static void leave(void) { pthread_mutex_unlock(&lock); }
#else
static void enter(void) {}
static void leave(void) {}
#endif
static int threads = 8;
int fake_threads_during_call;
int fake_threads(void) { return threads; }
#ifdef OPENBLAS
int NAME(openblas_get_num_threads)(void) { return threads; }
void NAME(openblas_set_num_threads)(int number) { threads = number; }
const char *NAME(openblas_get_config)(void) { return CONFIG; }
#endif
#ifdef MKL
int MKL_Set_Num_Threads_Local(int number) {
  int before = threads;
  threads = number;
  return before;
}
#endif
#define PRODUCTS(REAL, gemm, gemv)                                                                                   \
  void NAME(gemm)(int order, int ta, int tb, int m, int n, int k, REAL alpha, const REAL *a, int lda, const REAL *b, \
                  int ldb, REAL beta, REAL *c, int ldc) {                                                            \
    enter();                                                                                                         \
    fake_threads_during_call = threads;                                                                              \
    for (int i = 0; i < m; ++i)                                                                                      \
      for (int j = 0; j < n; ++j) {                                                                                  \
        REAL sum = 0;                                                                                                \
        for (int l = 0; l < k; ++l)                                                                                  \
          sum += (ta == 111 ? a[(long)i * lda + l] : a[(long)l * lda + i]) *                                         \
                 (tb == 111 ? b[(long)l * ldb + j] : b[(long)j * ldb + l]);                                          \
        c[(long)i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[(long)i * ldc + j]);                          \
      }                                                                                                              \
    (void)order;                                                                                                     \
    leave();                                                                                                         \
  }                                                                                                                  \
  void NAME(gemv)(int order, int ta, int m, int n, REAL alpha, const REAL *a, int lda, const REAL *x, int incx,      \
                  REAL beta, REAL *y, int incy) {                                                                    \
    fake_threads_during_call = threads;                                                                              \
    for (int i = 0; i < (ta == 111 ? m : n); ++i) {                                                                  \
      REAL sum = 0;                                                                                                  \
      for (int l = 0; l < (ta == 111 ? n : m); ++l)                                                                  \
        sum += (ta == 111 ? a[(long)i * lda + l] : a[(long)l * lda + i]) * x[(long)l * incx];                        \
      y[(long)i * incy] = alpha * sum + beta * y[(long)i * incy];                                                    \
    }                                                                                                                \
    (void)order;                                                                                                     \
  }
PRODUCTS(float, cblas_sgemm, cblas_sgemv)
#ifndef SINGLE_ONLY
PRODUCTS(double, cblas_dgemm, cblas_dgemv)
#endif
