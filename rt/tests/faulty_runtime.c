/* The native half of a runtime whose functions break the contract of byoc_rt.h, by name. */
#include <byoc_rt.h>
#include <string.h>

static const DLDataType float32 = {kDLFloat, 32, 1}, int8 = {kDLInt, 8, 1};

/* Make result 0 as a copy of input 0. */
static int32_t make_copy(byoc_rt_results *results, const DLTensor *input, DLDataType dtype, int32_t ndim) {
  DLTensor *result = byoc_rt_new_result(results, 0, dtype, ndim, input->shape);
  if (!result) return BYOC_RT_MEMORY;
  int64_t nbytes = (dtype.bits + 7) / 8;
  for (int32_t axis = 0; axis < ndim; ++axis) nbytes *= input->shape[axis];
  memcpy(result->data, input->data, (size_t)nbytes);
  return 0;
}

static int32_t make(void *context, const DLTensor *const *inputs, int32_t num_inputs, byoc_rt_results *results,
                    int32_t num_results) {
  const char *name = context;
  const int64_t negative = -1, huge[] = {INT64_MAX, 2};
  (void)num_inputs, (void)num_results;
  if (!strcmp(name, "good")) return make_copy(results, inputs[0], float32, 2);
  if (!strcmp(name, "twice"))
    return make_copy(results, inputs[0], int8, 1) ? BYOC_RT_MEMORY : make_copy(results, inputs[0], float32, 2);
  if (!strcmp(name, "nothing")) return 0;
  if (!strcmp(name, "other_dtype")) return make_copy(results, inputs[0], int8, 2);
  if (!strcmp(name, "other_rank")) return make_copy(results, inputs[0], float32, 1);
  if (!strcmp(name, "silent")) return 5;
  if (!strcmp(name, "explained")) return byoc_rt_fail(BYOC_RT_MEMORY, "the %s has failed", name);
  if (!strcmp(name, "failing_late")) {
    (void)make_copy(results, inputs[0], float32, 2);
    return byoc_rt_fail(BYOC_RT_EXECUTION, "late");
  }
  if (!strcmp(name, "no_result")) return byoc_rt_new_result(results, 1, float32, 0, NULL) ? 0 : BYOC_RT_EXECUTION;
  if (!strcmp(name, "negative")) return byoc_rt_new_result(results, 0, float32, 1, &negative) ? 0 : BYOC_RT_MEMORY;
  return byoc_rt_new_result(results, 0, float32, 2, huge) ? 0 : BYOC_RT_MEMORY;
}

static int32_t load(const byoc_rt_payload *payload, void **module) {
  static char name[64];
  if (payload->nbytes >= sizeof name) return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is too long", payload->where);
  memcpy(name, payload->data, payload->nbytes);
  name[payload->nbytes] = '\0';
  *module = name;
  return 0;
}

static void unload(void *module) { (void)module; }

static int32_t find(void *module, const char *symbol, byoc_rt_entry *entry) {
  (void)symbol;
  entry->context = module;
  entry->num_inputs = entry->num_outputs = 1;
  if (strcmp(module, "no_function")) entry->make = make;
  return 0;
}

__attribute__((visibility("default"))) const byoc_rt_runtime *byoc_rt_runtime_v1(void) {
  static const byoc_rt_runtime runtime = {.struct_size = sizeof runtime,
                                          .abi_version = BYOC_RT_ABI_VERSION,
                                          .type_key = "faulty",
                                          .min_format = 1,
                                          .max_format = 3,
                                          .load = load,
                                          .unload = unload,
                                          .find = find};
  return &runtime;
}
