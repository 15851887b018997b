/* Products of matrices of REAL, by one BLAS thread for each thread of byoc.
 *
 * The BLAS runs in the calling thread alone. byoc's own threads share large products: each computes neighbouring rows
 * or columns. All matrices are in row-major order; a stride is the distance of two rows in elements. */
void CBLAS_gemm(int order, int transpose_a, int transpose_b, int m, int n, int k, REAL alpha, const REAL *a, int lda,
                const REAL *b, int ldb, REAL beta, REAL *c, int ldc);
void CBLAS_gemv(int order, int transpose_a, int m, int n, REAL alpha, const REAL *a, int lda, const REAL *x, int incx,
                REAL beta, REAL *y, int incy);

/* C = A B (m x k by k x n), plus a bias, then ReLU. A transposed factor is stored as k x m, or as n x k. The bias has an
 * element for each row (of m) or for each column (of n), or is NULL. */
struct byoc_cblas_product_REAL {
  const REAL *a, *b, *row_bias, *column_bias;
  REAL *c;
  int64_t lda, ldb, ldc, m, n, k;
  int transpose_a, transpose_b, relu;
};

static int byoc_cblas_fits_REAL(const struct byoc_cblas_product_REAL *p) {
  const int64_t sizes[] = {p->lda, p->ldb, p->ldc, p->m, p->n, p->k};
  for (int i = 0; i < 6; ++i) {
    if (sizes[i] > INT32_MAX) return 0;
  }
  return 1;
}

static void byoc_cblas_epilogue_REAL(const struct byoc_cblas_product_REAL *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  if (!p->row_bias && !p->column_bias && !p->relu) return;
  const int64_t n = n1 - n0;
  for (int64_t i = m0; i < m1; ++i) {
    REAL *restrict row = p->c + i * p->ldc + n0;
    if (p->column_bias) {
      const REAL *restrict bias = p->column_bias + n0;
      for (int64_t j = 0; j < n; ++j) row[j] += bias[j];
    } else if (p->row_bias) {
      const REAL bias = p->row_bias[i];
      for (int64_t j = 0; j < n; ++j) row[j] += bias;
    }
    if (p->relu) {
      for (int64_t j = 0; j < n; ++j) row[j] = row[j] < 0 ? 0 : row[j]; /* NaN stays NaN */
    }
  }
}

/* Compute the rows [m0, m1) and columns [n0, n1) of C. */
static void byoc_cblas_part_REAL(const struct byoc_cblas_product_REAL *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
  const int m = (int)(m1 - m0), n = (int)(n1 - n0), k = (int)p->k;
  const int lda = (int)p->lda, ldb = (int)p->ldb, ldc = (int)p->ldc;
  if (m == 0 || n == 0) return;
  const REAL *a = p->a + (p->transpose_a ? m0 : m0 * p->lda);
  const REAL *b = p->b + (p->transpose_b ? n0 * p->ldb : n0);
  REAL *c = p->c + m0 * p->ldc + n0;
  if (k == 0 || m == 1 || n == 1) { /* for gemv: beta = 0 need not clear NaN in every BLAS */
    for (int i = 0; i < m; ++i) memset(c + i * p->ldc, 0, (size_t)n * sizeof(REAL));
  }
  if (k != 0) {
    byoc_enter_library();
    const int state = byoc_cblas_enter();
    if (m == 1) {
      const int step = p->transpose_a ? lda : 1;
      if (p->transpose_b) {
        CBLAS_gemv(ROW_MAJOR, PLAIN, n, k, 1, b, ldb, a, step, 0, c, 1);
      } else {
        CBLAS_gemv(ROW_MAJOR, TRANSPOSED, k, n, 1, b, ldb, a, step, 0, c, 1);
      }
    } else if (n == 1) {
      const int step = p->transpose_b ? 1 : ldb;
      if (p->transpose_a) {
        CBLAS_gemv(ROW_MAJOR, TRANSPOSED, k, m, 1, a, lda, b, step, 0, c, ldc);
      } else {
        CBLAS_gemv(ROW_MAJOR, PLAIN, m, k, 1, a, lda, b, step, 0, c, ldc);
      }
    } else {
      CBLAS_gemm(ROW_MAJOR, p->transpose_a ? TRANSPOSED : PLAIN, p->transpose_b ? TRANSPOSED : PLAIN, m, n, k, 1, a, lda,
                 b, ldb, 0, c, ldc);
    }
    byoc_cblas_leave(state);
    byoc_leave_library();
  }
  byoc_cblas_epilogue_REAL(p, m0, m1, n0, n1);
}

static void byoc_cblas_rows_REAL(int64_t begin, int64_t end, const void *data) {
  const struct byoc_cblas_product_REAL *p = (const struct byoc_cblas_product_REAL *)data;
  byoc_cblas_part_REAL(p, begin, end, 0, p->n);
}

static void byoc_cblas_columns_REAL(int64_t begin, int64_t end, const void *data) {
  const struct byoc_cblas_product_REAL *p = (const struct byoc_cblas_product_REAL *)data;
  byoc_cblas_part_REAL(p, 0, p->m, begin, end);
}

/* Run a loop on several threads if its estimated work of some picoseconds is enough. */
static void byoc_cblas_for_REAL(int64_t num_items, int64_t grain, byoc_range range, const void *data, double work_ps) {
  if (work_ps >= WAKING_PS) {
    byoc_parallel_for(num_items, grain, range, data);
  } else if (work_ps >= SHARING_PS) {
    byoc_share_for(num_items, grain, range, data);
  } else if (num_items > 0) {
    range(0, num_items, data);
  }
}

/* About 100 GFLOPS in float32 for products of matrices; a product with a vector waits for 10 GB/s of memory. */
static double byoc_cblas_work_REAL(int64_t m, int64_t n, int64_t k) {
  const double bytes = (double)sizeof(REAL);
  return (m == 1 || n == 1 ? 100.0 : 5.0) * bytes * (double)m * (double)n * (double)k;
}

static void byoc_cblas_multiply_REAL(const struct byoc_cblas_product_REAL *p) {
  const double work_ps = byoc_cblas_work_REAL(p->m, p->n, p->k);
  if (p->m >= p->n) {
    byoc_cblas_for_REAL(p->m, 48, byoc_cblas_rows_REAL, p, work_ps);
  } else {
    byoc_cblas_for_REAL(p->n, 48, byoc_cblas_columns_REAL, p, work_ps);
  }
}

struct byoc_cblas_batch_REAL {
  struct byoc_cblas_product_REAL product;
  int64_t stride_a, stride_b, stride_c;
};

static void byoc_cblas_matrices_REAL(int64_t begin, int64_t end, const void *data) {
  const struct byoc_cblas_batch_REAL *batch = (const struct byoc_cblas_batch_REAL *)data;
  for (int64_t i = begin; i < end; ++i) {
    struct byoc_cblas_product_REAL product = batch->product;
    product.a += i * batch->stride_a;
    product.b += i * batch->stride_b;
    product.c += i * batch->stride_c;
    byoc_cblas_multiply_REAL(&product);
  }
}

/* Multiply stacks of matrices: a (count, m, k), b (count, k, n), or (count, n, k) if transposed, into c (count, m, n).
 * An operand with a stride of 0 is a single matrix. The bias (n) or NULL is added to each row. Return 1 if a size has
 * more than 31 bits. */
static int byoc_cblas_matmul_REAL(const REAL *a, const REAL *b, const REAL *bias, REAL *c, int64_t count, int64_t stride_a,
                                 int64_t stride_b, int64_t m, int64_t n, int64_t k, int transpose_b, int relu) {
  if (stride_b == 0 && (stride_a != 0 || count == 1)) { /* a product of a taller matrix */
    m *= count;
    count = 1;
  }
  const struct byoc_cblas_batch_REAL batch = {
      {a, b, NULL, bias, c, k > 1 ? k : 1, transpose_b ? (k > 1 ? k : 1) : (n > 1 ? n : 1), n > 1 ? n : 1, m, n, k, 0,
       transpose_b, relu},
      stride_a,
      stride_b,
      m * n};
  if (!byoc_cblas_fits_REAL(&batch.product)) return 1;
  if (count >= 4) {
    byoc_cblas_for_REAL(count, 1, byoc_cblas_matrices_REAL, &batch, (double)count * byoc_cblas_work_REAL(m, n, k));
  } else {
    byoc_cblas_matrices_REAL(0, count, &batch);
  }
  return 0;
}
