/* Classify texts by an encoder.
 *
 *     cc classify.c $(python -m byoc_rt --cflags --libs) -o classify
 *     ./classify encoder.byoc ids.bin 2 7
 *
 * ids.bin holds int64 numbers: the ids of 2 texts of length 7, text after text; 0 is padding. The model takes
 * `input_ids`, `attention_mask` and `token_type_ids`, each [texts, length], and returns float32 tensors. The last one
 * holds the scores, [texts, labels]. With --maps behind, the files mapped by the process are printed at the end.
 */
#include <byoc_rt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *text) {
  fprintf(stderr, "classify: %s\n", text);
  exit(1);
}

static int64_t *allocate(int64_t count) {
  int64_t *numbers = calloc((size_t)count, sizeof(int64_t));
  if (!numbers) fail("no memory");
  return numbers;
}

static int64_t *read_ids(const char *path, int64_t count) {
  int64_t *ids = allocate(count);
  FILE *file = fopen(path, "rb");
  if (!file || fread(ids, sizeof(int64_t), (size_t)count, file) != (size_t)count) fail("the ids cannot be read");
  fclose(file);
  return ids;
}

/* Return the number of the index-th argument: a size of at least 1. */
static int64_t read_size(char **arguments, int index) {
  char *end;
  const int64_t size = strtoll(arguments[index], &end, 10);
  if (*end || size < 1 || size > 1 << 20) fail("a number of texts or a length is expected");
  return size;
}

static int64_t count_elements(const DLTensor *tensor) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) count *= tensor->shape[axis];
  return count;
}

/* Print the name, the shape and all numbers of a result; nine digits give back each float32. */
static void print_result(const char *name, const DLTensor *result) {
  const float *numbers = result->data;
  printf("%s", name);
  for (int32_t axis = 0; axis < result->ndim; ++axis) printf(" %lld", (long long)result->shape[axis]);
  printf("\n");
  for (int64_t i = 0, count = count_elements(result); i < count; ++i) printf("%s%.9g", i ? " " : "", numbers[i]);
  printf("\n");
}

static void print_labels(const DLTensor *scores) {
  const int64_t num_labels = scores->shape[scores->ndim - 1];
  const float *row = scores->data;
  for (int64_t text = 0; text < scores->shape[0]; ++text, row += num_labels) {
    int64_t best = 0;
    for (int64_t label = 1; label < num_labels; ++label)
      if (row[label] > row[best]) best = label;
    printf("text %lld: label %lld\n", (long long)text, (long long)best);
  }
}

static void print_maps(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  if (!maps) fail("/proc/self/maps cannot be read");
  for (int byte; (byte = getc(maps)) != EOF;) putchar(byte);
  fclose(maps);
}

enum { NUM_INPUTS = 3, MAX_RESULTS = 8 };

int main(int argc, char **argv) {
  const int prints_maps = argc == 6 && !strcmp(argv[5], "--maps");
  if (argc != 5 && !prints_maps) fail("usage: classify MODEL IDS TEXTS LENGTH [--maps]");

  byoc_rt_program *program = NULL;
  if (byoc_rt_load(argv[1], NULL, &program)) fail(byoc_rt_last_error());
  const byoc_rt_function *function = byoc_rt_find_function(program, "main");
  if (!function) fail(byoc_rt_last_error());
  const int32_t num_results = byoc_rt_num_outputs(function);
  if (byoc_rt_num_inputs(function) != NUM_INPUTS || num_results > MAX_RESULTS) fail("the model is no encoder of texts");

  int64_t shape[2] = {read_size(argv, 3), read_size(argv, 4)};
  const int64_t count = shape[0] * shape[1];
  int64_t *ids = read_ids(argv[2], count), *mask = allocate(count), *segments = allocate(count);
  for (int64_t i = 0; i < count; ++i) mask[i] = ids[i] != 0;

  DLTensor tensors[NUM_INPUTS];
  const DLTensor *inputs[NUM_INPUTS];
  for (int32_t i = 0; i < NUM_INPUTS; ++i) {
    const char *name = byoc_rt_input(function, i)->name;
    int64_t *data = !strcmp(name, "input_ids") ? ids : !strcmp(name, "attention_mask") ? mask : segments;
    tensors[i] = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = shape};
    inputs[i] = &tensors[i];
  }

  DLManagedTensorVersioned *results[MAX_RESULTS];
  if (byoc_rt_run(function, inputs, NUM_INPUTS, results, num_results)) fail(byoc_rt_last_error());
  for (int32_t i = 0; i < num_results; ++i) print_result(byoc_rt_output(function, i)->name, &results[i]->dl_tensor);
  print_labels(&results[num_results - 1]->dl_tensor);
  if (prints_maps) print_maps();

  for (int32_t i = 0; i < num_results; ++i) results[i]->deleter(results[i]);
  byoc_rt_unload(program);
  free(ids);
  free(mask);
  free(segments);
  return 0;
}
