/* Pairwise coupling of REAL probabilities of COUNT classes, computed in double; see coupling_kernel.py. */

/* Fill the matrix and the shares of a sample from its pairs. */
static void COUPLING_start(const REAL *pairs, double *matrix, double *shares) {
  const double least = 1e-7, most = 1 - 1e-7;
  for (int64_t i = 0; i < COUNT; ++i) {
    shares[i] = 1.0 / COUNT;
    matrix[i * COUNT + i] = 0.0;
  }
  for (int64_t i = 0; i < COUNT; ++i) {
    for (int64_t j = i + 1; j < COUNT; ++j) {
      const double pair = (double)*pairs++, wins = pair < least ? least : pair > most ? most : pair, losses = 1 - wins;
      matrix[i * COUNT + j] = matrix[j * COUNT + i] = -losses * wins;
      matrix[i * COUNT + i] += losses * losses;
      matrix[j * COUNT + j] += wins * wins;
    }
  }
}

/* Compute products of matrix and shares, and their total. Return whether the error asks for another round; NaN never. */
static int COUPLING_is_open(const double *matrix, const double *shares, double *products, double *total) {
  *total = 0.0;
  for (int64_t i = 0; i < COUNT; ++i) {
    products[i] = 0.0;
    for (int64_t j = 0; j < COUNT; ++j) products[i] += matrix[i * COUNT + j] * shares[j];
    *total += shares[i] * products[i];
  }
  int is_open = 0;
  for (int64_t i = 0; i < COUNT; ++i) {
    const double error = fabs(products[i] - *total);
    if (error != error) return 0;
    is_open |= error >= 0.005 / COUNT;
  }
  return is_open;
}

/* Improve the shares of all classes once. */
static void COUPLING_improve(const double *matrix, double *shares, double *products, double total) {
  for (int64_t i = 0; i < COUNT; ++i) {
    const double pivot = matrix[i * COUNT + i], step = (total - products[i]) / pivot, scale = 1 + step;
    shares[i] += step;
    total = (total + step * (step * pivot + 2 * products[i])) / (scale * scale);
    for (int64_t j = 0; j < COUNT; ++j) {
      products[j] = (products[j] + step * matrix[i * COUNT + j]) / scale;
      shares[j] /= scale;
    }
  }
}

/* `scratch` has COUNT * (COUNT + 2) elements. */
static void COUPLING_run(const REAL *pairs, double *scratch, REAL *out, int64_t num_samples) {
  double *matrix = scratch, *shares = matrix + COUNT * COUNT, *products = shares + COUNT, total;
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    COUPLING_start(pairs + sample * (COUNT * (COUNT - 1) / 2), matrix, shares);
    for (int64_t round = 0; round < (COUNT > 100 ? COUNT : 100); ++round) {
      if (!COUPLING_is_open(matrix, shares, products, &total)) break;
      COUPLING_improve(matrix, shares, products, total);
    }
    for (int64_t i = 0; i < COUNT; ++i) out[sample * COUNT + i] = (REAL)shares[i];
  }
}
