/* Convolutions of REAL as products of matrices: the patches of an image under the filter become a matrix (im2col).
 *
 * A block of neighbouring output pixels is expanded and multiplied at a time, so that the patches stay in the cache.
 * Threads work on different blocks, each with patches of its own. */
struct byoc_cblas_conv_REAL {
  const REAL *x, *weight, *bias;
  REAL *patches, *out;
  int64_t images, channels, height, width; /* of the input */
  int64_t filters, out_height, out_width, groups;
  int64_t kernel_height, kernel_width, stride_h, stride_w, top, left, dilation_h, dilation_w;
  int64_t block, lanes; /* pixels of a block; patches for this number of threads */
  int channels_last, filters_last, relu;
};

/* Write the patches of the pixels [first, last) of an image and a group, for images in NCHW: a row for each tap of a
 * channel, a column for each pixel. `x` is the first channel of the group, `taps_last` the order of the rows: channel,
 * tap; else tap, channel. */
static void byoc_cblas_expand_rows_REAL(const struct byoc_cblas_conv_REAL *v, const REAL *restrict x, int64_t first,
                                       int64_t last, REAL *restrict patches) {
  const int64_t channels = v->channels / v->groups, taps = v->kernel_height * v->kernel_width, pixels = last - first;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t row = v->filters_last ? tap * channels + c : c * taps + tap;
      const int64_t down = tap / v->kernel_width * v->dilation_h - v->top;
      const int64_t right = tap % v->kernel_width * v->dilation_w - v->left;
      REAL *restrict target = patches + row * pixels;
      for (int64_t pixel = first; pixel < last;) {
        const int64_t oh = pixel / v->out_width, ow = pixel % v->out_width;
        const int64_t count = byoc_min(v->out_width - ow, last - pixel), h = oh * v->stride_h + down;
        pixel += count;
        if (h < 0 || h >= v->height) {
          for (int64_t i = 0; i < count; ++i) *target++ = 0;
          continue;
        }
        /* The columns [begin, end) of the output read the image, the others the border. */
        const REAL *restrict source = x + (c * v->height + h) * v->width;
        const int64_t begin = byoc_min(ow + count, byoc_max(ow, byoc_floordiv(-right + v->stride_w - 1, v->stride_w)));
        const int64_t end = byoc_max(begin, byoc_min(ow + count, byoc_floordiv(v->width - 1 - right, v->stride_w) + 1));
        for (int64_t i = ow; i < begin; ++i) *target++ = 0;
        if (v->stride_w == 1) {
          memcpy(target, source + begin + right, (size_t)(end - begin) * sizeof(REAL));
          target += end - begin;
        } else {
          for (int64_t i = begin; i < end; ++i) *target++ = source[i * v->stride_w + right];
        }
        for (int64_t i = end; i < ow + count; ++i) *target++ = 0;
      }
    }
  }
}

/* Write the same patches for images in NHWC: a row for each pixel, a column for each tap of a channel. */
static void byoc_cblas_expand_columns_REAL(const struct byoc_cblas_conv_REAL *v, const REAL *restrict x, int64_t first,
                                          int64_t last, REAL *restrict patches) {
  const int64_t channels = v->channels / v->groups, taps = v->kernel_height * v->kernel_width;
  for (int64_t pixel = first; pixel < last; ++pixel) {
    const int64_t oh = pixel / v->out_width, ow = pixel % v->out_width;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t h = oh * v->stride_h + tap / v->kernel_width * v->dilation_h - v->top;
      const int64_t w = ow * v->stride_w + tap % v->kernel_width * v->dilation_w - v->left;
      const int inside = h >= 0 && h < v->height && w >= 0 && w < v->width;
      const REAL *restrict source = inside ? x + (h * v->width + w) * v->channels : x;
      REAL *restrict target = patches + (pixel - first) * channels * taps + (v->filters_last ? tap * channels : tap);
      const int64_t step = v->filters_last ? 1 : taps;
      if (inside && step == 1) {
        memcpy(target, source, (size_t)channels * sizeof(REAL));
      } else {
        for (int64_t c = 0; c < channels; ++c) target[c * step] = inside ? source[c] : 0;
      }
    }
  }
}

/* Compute a block of output pixels of an image and a group. */
static void byoc_cblas_conv_block_REAL(const struct byoc_cblas_conv_REAL *v, int64_t number, REAL *patches) {
  const int64_t pixels = v->out_height * v->out_width, blocks = (pixels - 1) / v->block + 1;
  const int64_t group = number / blocks % v->groups, image = number / blocks / v->groups;
  const int64_t first = number % blocks * v->block, last = byoc_min(pixels, first + v->block);
  const int64_t channels = v->channels / v->groups, filters = v->filters / v->groups;
  const int64_t k = channels * v->kernel_height * v->kernel_width, area = v->height * v->width;
  /* Filters in OIHW are a matrix (filters, k), filters in HWIO a matrix (k, filters). */
  const REAL *weight = v->weight + group * filters * (v->filters_last ? 1 : k);
  const int64_t weight_stride = v->filters_last ? v->filters : k;
  const REAL *bias = v->bias ? v->bias + group * filters : NULL;
  const REAL *x = v->x + image * v->channels * area + group * channels * (v->channels_last ? 1 : area);
  if (v->channels_last) {
    const REAL *a = x + first * v->channels;
    if (patches) {
      byoc_cblas_expand_columns_REAL(v, x, first, last, patches);
      a = patches;
    }
    REAL *out = v->out + (image * pixels + first) * v->filters + group * filters;
    const struct byoc_cblas_product_REAL product = {
        a,   weight, NULL, bias, out, patches ? k : v->channels, weight_stride, v->filters, last - first, filters, k, 0,
        !v->filters_last, v->relu};
    byoc_cblas_multiply_REAL(&product);
  } else {
    const REAL *b = x + first;
    if (patches) {
      byoc_cblas_expand_rows_REAL(v, x, first, last, patches);
      b = patches;
    }
    REAL *out = v->out + (image * v->filters + group * filters) * pixels + first;
    const struct byoc_cblas_product_REAL product = {
        weight, b, bias, NULL, out, weight_stride, patches ? last - first : area, pixels, filters, last - first, k,
        v->filters_last, 0, v->relu};
    byoc_cblas_multiply_REAL(&product);
  }
}

static int64_t byoc_cblas_conv_blocks_REAL(const struct byoc_cblas_conv_REAL *v) {
  return v->images * v->groups * ((v->out_height * v->out_width - 1) / v->block + 1);
}

static void byoc_cblas_conv_lanes_REAL(int64_t begin, int64_t end, const void *data) {
  const struct byoc_cblas_conv_REAL *v = (const struct byoc_cblas_conv_REAL *)data;
  const int64_t k = v->channels / v->groups * v->kernel_height * v->kernel_width, blocks = byoc_cblas_conv_blocks_REAL(v);
  REAL *patches = v->patches ? v->patches + begin * k * v->block : NULL;
  for (int64_t number = blocks * begin / v->lanes; number < blocks * end / v->lanes; ++number) {
    byoc_cblas_conv_block_REAL(v, number, patches);
  }
}

/* Convolve images, add a bias (filters) or NULL, apply ReLU. `patches` has room for `lanes` blocks, or is NULL if the
 * filter has a single tap, strides 1 and no border. Return 1 if a size has more than 31 bits. */
static int byoc_cblas_conv_REAL(const REAL *x, const REAL *weight, const REAL *bias, REAL *patches, REAL *out,
                               int64_t images, int64_t channels, int64_t height, int64_t width, int64_t filters,
                               int64_t out_height, int64_t out_width, int64_t groups, int64_t kernel_height,
                               int64_t kernel_width, int64_t stride_h, int64_t stride_w, int64_t top, int64_t left,
                               int64_t dilation_h, int64_t dilation_w, int64_t block, int64_t lanes, int channels_last,
                               int filters_last, int relu) {
  if (images == 0 || filters == 0 || out_height <= 0 || out_width <= 0) return 0;
  const struct byoc_cblas_conv_REAL v = {x,        weight,     bias,       patches, out,           images,       channels,
                                        height,   width,      filters,    out_height, out_width,  groups,       kernel_height,
                                        kernel_width, stride_h, stride_w, top,     left,          dilation_h,   dilation_w,
                                        block,    lanes,      channels_last, filters_last, relu};
  const int64_t k = channels / groups * kernel_height * kernel_width, pixels = out_height * out_width;
  const int64_t sizes[] = {channels, filters, height * width, pixels, k};
  for (int i = 0; i < 5; ++i) {
    if (sizes[i] > INT32_MAX) return 1;
  }
  if (byoc_cblas_conv_blocks_REAL(&v) >= 4) {
    const double work_ps = (double)images * byoc_cblas_work_REAL(filters, pixels, k);
    byoc_cblas_for_REAL(lanes, 1, byoc_cblas_conv_lanes_REAL, &v, work_ps);
  } else { /* the products use all threads */
    byoc_cblas_conv_lanes_REAL(0, lanes, &v);
  }
  return 0;
}
