/* Primitives in a stored plan:
 *
 *     primitive KIND PASSED POST_OPS... SCALES... ZERO_POINTS... PARAMETER...
 *
 * PASSED is the number of oneDNN's implementations passed over. POST_OPS is a count, then for each post-op the algorithm
 * (0: the sum), alpha, beta, and the description of the operand or -1. SCALES is a count, then for each argument its
 * number and its mask; ZERO_POINTS is a count, then arguments. Parameters are those of the C API in order, without engine
 * and attributes.
 */
#include <string.h>

#include "host.h"
#include "layout.h"
#include "objects.h"

enum { MAX_NUMBERS = 8, MAX_FLOATS = 4, MAX_DIMS = 5, MAX_PASSED = 64, MAX_PADDING = 1 << 20, ALGORITHM_SUM = 0, INFERENCE = 96 };

/* The parameters of a kind, by type, in the order of the C API. */
typedef struct {
  int64_t numbers[MAX_NUMBERS];
  float floats[MAX_FLOATS];
  int64_t dims[MAX_DIMS][MAX_NDIMS];
  Desc descs[MAX_SOURCES + 1];
  int64_t num_sources;
} Parameters;

#define CREATE(name)                                                                                        \
  static int create_##name(const Onednn *onednn, void **desc, const Parameters *p, const void *attributes)
#define N(i) ((int)p->numbers[i])
#define D(i) (p->descs[i])

CREATE(reorder) {
  return onednn->reorder_primitive_desc_create(desc, D(0), onednn->engine, D(1), onednn->engine, attributes);
}

CREATE(concat) {
  if (p->numbers[0] != p->num_sources || p->numbers[1] >= MAX_NDIMS) return -1;
  return onednn->concat_primitive_desc_create(desc, onednn->engine, D(0), N(0), N(1), &p->descs[1], attributes);
}

CREATE(binary) {
  return onednn->binary_primitive_desc_create(desc, onednn->engine, N(0), D(0), D(1), D(2), attributes);
}

CREATE(convolution) {
  return onednn->convolution_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), D(2), D(3),
                                                           p->dims[0], p->dims[1], p->dims[2], p->dims[3],
                                                           attributes);
}

CREATE(deconvolution) {
  return onednn->deconvolution_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), D(2), D(3),
                                                             p->dims[0], p->dims[1], p->dims[2], p->dims[3],
                                                             attributes);
}

CREATE(eltwise) {
  return onednn->eltwise_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), p->floats[0],
                                                       p->floats[1], attributes);
}

CREATE(softmax) {
  return onednn->softmax_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), N(2), attributes);
}

CREATE(pooling) {
  return onednn->pooling_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), p->dims[0],
                                                       p->dims[1], p->dims[2], p->dims[3], p->dims[4], attributes);
}

CREATE(lrn) {
  return onednn->lrn_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), p->numbers[2],
                                                   p->floats[0], p->floats[1], p->floats[2], attributes);
}

CREATE(batch_normalization) {
  return onednn->batch_normalization_forward_primitive_desc_create(desc, onednn->engine, N(0), D(0), D(1),
                                                                   p->floats[0], (unsigned)N(1), attributes);
}

CREATE(layer_normalization) {
  return onednn->layer_normalization_forward_primitive_desc_create(desc, onednn->engine, N(0), D(0), D(1), NULL,
                                                                   p->floats[0], (unsigned)N(1), attributes);
}

CREATE(matmul) {
  return onednn->matmul_primitive_desc_create(desc, onednn->engine, D(0), D(1), D(2), D(3), attributes);
}

CREATE(prelu) {
  return onednn->prelu_forward_primitive_desc_create(desc, onednn->engine, N(0), D(0), D(1), D(2), attributes);
}

CREATE(vanilla_rnn) {
  return onednn->vanilla_rnn_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), N(2), D(0), D(1), D(2),
                                                           D(3), D(4), D(5), D(6), (unsigned)N(3), p->floats[0],
                                                           p->floats[1], attributes);
}

CREATE(lstm) {
  return onednn->lstm_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), D(2), D(3), D(4),
                                                    NULL, NULL, D(5), D(6), D(7), D(8), (unsigned)N(2), attributes);
}

CREATE(gru) {
  return onednn->gru_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), D(2), D(3), D(4),
                                                   D(5), D(6), (unsigned)N(2), attributes);
}

CREATE(lbr_gru) {
  return onednn->lbr_gru_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), D(0), D(1), D(2), D(3), D(4),
                                                       D(5), D(6), (unsigned)N(2), attributes);
}

CREATE(resampling) {
  return onednn->resampling_forward_primitive_desc_create(desc, onednn->engine, N(0), N(1), NULL, D(0), D(1),
                                                          attributes);
}

CREATE(reduction) {
  return onednn->reduction_primitive_desc_create(desc, onednn->engine, N(0), D(0), D(1), p->floats[0], p->floats[1],
                                                 attributes);
}

#undef CREATE
#undef N
#undef D

/* Letters of parameters: `k` a number, `i` the kind of propagation, always inference, since primitives for training write
 * more arguments, `f` a float, `d` a description, `o` a description or none, `l` descriptions with their count, `n` none;
 * lists of numbers: `s` from 1, `p` from 0, `q` also negative.
 *
 * Letters of ranks, for each description: `r` the rank of the first, `w` that rank or one more, else the rank itself.
 * oneDNN does not look at all ranks. */
static const struct kind {
  const char *name, *parameters, *ranks;
  int64_t least_rank, most_rank; /* of the first description */
  int (*create)(const Onednn *onednn, void **desc, const Parameters *p, const void *attributes);
} kinds[] = {
    {"reorder", "dd", "rr", 1, MAX_NDIMS, create_reorder},
    {"concat", "dkkl", "r", 1, MAX_NDIMS, create_concat},
    {"binary", "kddd", "rrr", 1, MAX_NDIMS, create_binary},
    {"convolution", "ikddodspqq", "rw1r", 3, 5, create_convolution},
    {"deconvolution", "ikddodspqq", "rw1r", 3, 5, create_deconvolution},
    {"eltwise", "ikddff", "rr", 1, MAX_NDIMS, create_eltwise},
    {"softmax", "ikddk", "rr", 1, MAX_NDIMS, create_softmax},
    {"pooling", "ikddsspqq", "rr", 3, 5, create_pooling},
    {"lrn", "ikddkfff", "rr", 2, 5, create_lrn},
    {"batch_normalization", "iddfk", "rr", 2, 5, create_batch_normalization},
    {"layer_normalization", "iddnfk", "rr", 2, 5, create_layer_normalization},
    {"matmul", "ddod", "rrrr", 2, MAX_NDIMS, create_matmul},
    {"prelu", "iddd", "rrr", 1, MAX_NDIMS, create_prelu},
    {"vanilla_rnn", "ikkdddddd" "o" "kff", "3455434", 3, 3, create_vanilla_rnn},
    {"lstm", "ikddddd" "nn" "ddoo" "k", "344554344", 3, 3, create_lstm},
    {"gru", "ikdddddd" "o" "k", "3455434", 3, 3, create_gru},
    {"lbr_gru", "ikdddddd" "o" "k", "3455434", 3, 3, create_lbr_gru},
    {"resampling", "ikndd", "rr", 3, 5, create_resampling},
    {"reduction", "kddff", "rr", 1, MAX_NDIMS, create_reduction},
};

static int64_t rank_of(const Objects *objects, Desc desc) {
  Layout layout;
  return byoc_query_layout(objects->onednn, desc, &layout) ? layout.rank : 0;
}

static int32_t check_ranks(const Reader *reader, const Objects *objects, const struct kind *kind, const Parameters *p) {
  const int64_t first = rank_of(objects, p->descs[0]);
  int is_right = first >= kind->least_rank && first <= kind->most_rank;
  for (int32_t i = 0; kind->ranks[i] && is_right; ++i) {
    const char letter = kind->ranks[i];
    const int64_t rank = p->descs[i] ? rank_of(objects, p->descs[i]) : 0;
    if (!p->descs[i]) continue;
    is_right = letter == 'r' ? rank == first : letter == 'w' ? rank - first <= 1 && rank >= first : rank == letter - '0';
  }
  for (int64_t i = 0; i < p->num_sources && is_right; ++i) is_right = rank_of(objects, p->descs[1 + i]) == first;
  return is_right ? 0 : byoc_damaged(reader, "a primitive has tensors of other ranks");
}

static int32_t check_operands(const Reader *reader, const Objects *objects, const StoredPrimitive *primitive,
                              const Parameters *p) {
  for (int32_t i = 0; i < primitive->num_post_ops; ++i)
    if (primitive->operands[i] && rank_of(objects, primitive->operands[i]) != rank_of(objects, p->descs[0]))
      return byoc_damaged(reader, "a post-op has an operand of another rank");
  return 0;
}

/* Reads numbers into an array filled up with the least number. */
static int32_t read_dims(Reader *reader, int64_t least, int64_t *dims) {
  int64_t count;
  if (byoc_read_numbers(reader, 0, MAX_NDIMS, least, MAX_PADDING, &count, dims)) return -1;
  for (int64_t i = count; i < MAX_NDIMS; ++i) dims[i] = least > 0 ? least : 0;
  return 0;
}

static int32_t read_sources(Reader *reader, const Objects *objects, Parameters *p, int32_t first) {
  if (byoc_read_number(reader, 1, MAX_SOURCES, &p->num_sources)) return -1;
  for (int64_t i = 0; i < p->num_sources; ++i)
    if (byoc_read_desc_number(reader, objects, 0, &p->descs[first + i])) return -1;
  return 0;
}

static int32_t read_none(Reader *reader) {
  int64_t none;
  return byoc_read_number(reader, -1, -1, &none);
}

static int32_t read_parameters(Reader *reader, const Objects *objects, const char *letters, Parameters *p) {
  int32_t num_numbers = 0, num_floats = 0, num_dims = 0, num_descs = 0, status = 0;
  memset(p, 0, sizeof *p);
  for (const char *letter = letters; *letter && !status; ++letter) {
    if (*letter == 'k') status = byoc_read_number(reader, 0, INT32_MAX, &p->numbers[num_numbers++]);
    if (*letter == 'i') status = byoc_read_number(reader, INFERENCE, INFERENCE, &p->numbers[num_numbers++]);
    if (*letter == 'f') status = byoc_read_float(reader, &p->floats[num_floats++]);
    if (*letter == 'd') status = byoc_read_desc_number(reader, objects, 0, &p->descs[num_descs++]);
    if (*letter == 'o') status = byoc_read_desc_number(reader, objects, 1, &p->descs[num_descs++]);
    if (*letter == 'l') status = read_sources(reader, objects, p, num_descs);
    if (*letter == 'n') status = read_none(reader);
    if (*letter == 's') status = read_dims(reader, 1, p->dims[num_dims++]);
    if (*letter == 'p') status = read_dims(reader, 0, p->dims[num_dims++]);
    if (*letter == 'q') status = read_dims(reader, -MAX_PADDING, p->dims[num_dims++]);
  }
  return status;
}

static int32_t read_post_op(Reader *reader, const Objects *objects, StoredPrimitive *primitive, void *post_ops) {
  const Onednn *onednn = objects->onednn;
  int64_t algorithm;
  float alpha, beta;
  Desc operand;
  if (byoc_read_number(reader, 0, INT32_MAX, &algorithm) || byoc_read_float(reader, &alpha) ||
      byoc_read_float(reader, &beta) || byoc_read_desc_number(reader, objects, 1, &operand))
    return -1;
  primitive->operands[primitive->num_post_ops++] = operand;
  int status;
  if (algorithm == ALGORITHM_SUM)
    status = onednn->post_ops_append_sum(post_ops, 1.0f, 0, 0);
  else if (operand)
    status = onednn->post_ops_append_binary(post_ops, (int)algorithm, operand);
  else
    status = onednn->post_ops_append_eltwise(post_ops, (int)algorithm, alpha, beta);
  return status ? byoc_refused(reader, "a post-op", status) : 0;
}

static int32_t read_post_ops(Reader *reader, const Objects *objects, StoredPrimitive *primitive, void *attributes) {
  const Onednn *onednn = objects->onednn;
  int64_t count;
  void *post_ops = NULL;
  if (byoc_read_number(reader, 0, MAX_POST_OPS, &count)) return -1;
  int status = onednn->post_ops_create(&post_ops);
  if (status) return byoc_refused(reader, "post-ops", status);
  int32_t outcome = 0;
  for (int64_t i = 0; i < count && !outcome; ++i) outcome = read_post_op(reader, objects, primitive, post_ops);
  if (!outcome && (status = onednn->primitive_attr_set_post_ops(attributes, post_ops)))
    outcome = byoc_refused(reader, "post-ops", status);
  (void)onednn->post_ops_destroy(post_ops);
  return outcome;
}

static int32_t read_scaling(Reader *reader, const Objects *objects, StoredPrimitive *primitive, void *attributes) {
  const Onednn *onednn = objects->onednn;
  int64_t count, argument, mask;
  if (byoc_read_number(reader, 0, MAX_SCALES, &count)) return -1;
  for (int64_t i = 0; i < count; ++i) {
    if (byoc_read_number(reader, 1, ARG_SCALES - 1, &argument) || byoc_read_number(reader, 0, (1 << MAX_NDIMS) - 1, &mask))
      return -1;
    const int status = onednn->primitive_attr_set_scales_mask(attributes, (int)argument, (int)mask);
    if (status) return byoc_refused(reader, "scales", status);
    primitive->scales[primitive->num_scales].argument = (int32_t)argument;
    primitive->scales[primitive->num_scales++].mask = (int32_t)mask;
  }
  if (byoc_read_number(reader, 0, MAX_SCALES, &count)) return -1;
  for (int64_t i = 0; i < count; ++i) {
    if (byoc_read_number(reader, 1, ARG_SCALES - 1, &argument)) return -1;
    const int status = onednn->primitive_attr_set_zero_points_mask(attributes, (int)argument, 0);
    if (status) return byoc_refused(reader, "zero points", status);
    primitive->zero_points[primitive->num_zero_points++] = (int32_t)argument;
  }
  return 0;
}

static int32_t create_desc(Reader *reader, const Objects *objects, const struct kind *kind, int64_t passed,
                           const void *attributes, StoredPrimitive *primitive) {
  Parameters parameters;
  if (read_parameters(reader, objects, kind->parameters, &parameters) ||
      check_ranks(reader, objects, kind, &parameters) || check_operands(reader, objects, primitive, &parameters))
    return -1;
  int status = kind->create(objects->onednn, &primitive->desc, &parameters, attributes);
  if (status || !primitive->desc) return byoc_refused(reader, kind->name, status);
  for (int64_t i = 0; i < passed && !status; ++i) status = objects->onednn->primitive_desc_next_impl(primitive->desc);
  return status ? byoc_refused(reader, kind->name, status) : 0;
}

static int32_t read_with_attributes(Reader *reader, const Objects *objects, const struct kind *kind, void *attributes,
                                    StoredPrimitive *primitive) {
  int64_t passed;
  const int status = objects->onednn->primitive_attr_set_scratchpad_mode(attributes, SCRATCHPAD_USER);
  if (status) return byoc_refused(reader, "scratch memory", status);
  if (byoc_read_number(reader, 0, MAX_PASSED, &passed) || read_post_ops(reader, objects, primitive, attributes) ||
      read_scaling(reader, objects, primitive, attributes))
    return -1;
  return create_desc(reader, objects, kind, passed, attributes, primitive);
}

static int32_t find_kind(const Reader *reader, const char *word, const struct kind **kind) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
    if (!strcmp(word, kinds[i].name)) return *kind = &kinds[i], 0;
  return byoc_host_fail(BYOC_RT_UNSUPPORTED, "%s, stored plans, line %lld: there is no primitive `%s`", reader->where,
                        (long long)reader->line, word);
}

int32_t byoc_read_primitive(Reader *reader, Objects *objects) {
  char word[MAX_WORD_NBYTES];
  const struct kind *kind = NULL;
  if (byoc_read_word(reader, word) || find_kind(reader, word, &kind)) return -1;
  StoredPrimitive *primitives = byoc_reserve(objects->primitives, objects->num_primitives, sizeof *primitives);
  if (!primitives) return -1;
  objects->primitives = primitives;
  StoredPrimitive primitive = {.is_reorder = kind->create == create_reorder,
                               .is_resampling = kind->create == create_resampling};
  void *attributes = NULL;
  const int status = objects->onednn->primitive_attr_create(&attributes);
  if (status) return byoc_refused(reader, "attributes", status);
  const int32_t outcome = read_with_attributes(reader, objects, kind, attributes, &primitive);
  (void)objects->onednn->primitive_attr_destroy(attributes);
  if (!outcome)
    primitives[objects->num_primitives++] = primitive;
  else if (primitive.desc)
    (void)objects->onednn->primitive_desc_destroy(primitive.desc);
  return outcome;
}

int32_t byoc_create_primitive(const Reader *reader, const Onednn *onednn, StoredPrimitive *primitive) {
  if (primitive->primitive) return 0;
  const int status = onednn->primitive_create(&primitive->primitive, primitive->desc);
  return status ? byoc_refused(reader, "a primitive", status) : 0;
}
