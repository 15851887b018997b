/* Recognise an image by a network compiled for byoc-dnnl, in several threads at once.
 *
 *     cc recognise.c -pthread $(python -m byoc_rt --cflags --libs) -o recognise
 *     BYOC_RT_RUNTIMES="$(python -m byoc_rt --runtimes)" ./recognise model.byoc image.bin 4
 *
 * The model has a single input of fixed sizes, and image.bin holds its float32 numbers. Each of 4 threads runs the
 * network, and all must give the same bits. The numbers of all results are printed, a result a line. With --maps behind,
 * the files mapped by the process are printed at the end.
 */
#include <byoc_rt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 64, MAX_RESULTS = 8, NUM_CALLS = 3 };

typedef struct {
  const byoc_rt_function *function;
  const DLTensor *image;
  DLManagedTensorVersioned *results[MAX_RESULTS]; /* of the last call */
  int32_t num_results;
  char error[512]; /* empty: no error */
} worker;

static void fail(const char *text) {
  fprintf(stderr, "recognise: %s\n", text);
  exit(1);
}

static size_t count_elements(int32_t ndim, const int64_t *shape) {
  size_t count = 1;
  for (int32_t axis = 0; axis < ndim; ++axis) count *= (size_t)shape[axis];
  return count;
}

static float *read_image(const char *path, const byoc_rt_tensor_info *info) {
  for (int32_t axis = 0; axis < info->ndim; ++axis)
    if (info->shape[axis] < 0) fail("an input of fixed sizes is expected");
  const size_t count = count_elements(info->ndim, info->shape);
  float *numbers = malloc(count * sizeof *numbers);
  FILE *file = fopen(path, "rb");
  if (!numbers || !file || fread(numbers, sizeof *numbers, count, file) != count) fail("the image cannot be read");
  fclose(file);
  return numbers;
}

static void release(worker *worker) {
  for (int32_t i = 0; i < worker->num_results; ++i) {
    if (worker->results[i]) worker->results[i]->deleter(worker->results[i]);
    worker->results[i] = NULL;
  }
}

static void *work(void *data) {
  worker *worker = data;
  for (int call = 0; call < NUM_CALLS && !*worker->error; ++call) {
    release(worker);
    if (byoc_rt_run(worker->function, &worker->image, 1, worker->results, worker->num_results))
      snprintf(worker->error, sizeof worker->error, "%s", byoc_rt_last_error());
  }
  return NULL;
}

static void compare(const worker *first, const worker *other) {
  for (int32_t i = 0; i < first->num_results; ++i) {
    const DLTensor *a = &first->results[i]->dl_tensor, *b = &other->results[i]->dl_tensor;
    if (memcmp(a->data, b->data, count_elements(a->ndim, a->shape) * sizeof(float))) fail("two threads differ");
  }
}

static void print_results(const worker *worker) {
  for (int32_t i = 0; i < worker->num_results; ++i) {
    const DLTensor *result = &worker->results[i]->dl_tensor;
    const float *numbers = result->data;
    const size_t count = count_elements(result->ndim, result->shape);
    for (size_t k = 0; k < count; ++k) printf("%s%.9g", k ? " " : "", numbers[k]);
    printf("\n");
  }
}

static void print_maps(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  if (!maps) fail("/proc/self/maps cannot be read");
  for (int byte; (byte = getc(maps)) != EOF;) putchar(byte);
  fclose(maps);
}

int main(int argc, char **argv) {
  const int prints_maps = argc == 5 && !strcmp(argv[4], "--maps");
  const int num_threads = argc == 4 || prints_maps ? atoi(argv[3]) : 0;
  if (num_threads < 1 || num_threads > MAX_THREADS) fail("usage: recognise MODEL IMAGE THREADS [--maps]");

  byoc_rt_program *program = NULL;
  if (byoc_rt_load(argv[1], NULL, &program)) fail(byoc_rt_last_error());
  const byoc_rt_function *function = byoc_rt_find_function(program, "main");
  if (!function) fail(byoc_rt_last_error());
  const int32_t num_results = byoc_rt_num_outputs(function);
  if (byoc_rt_num_inputs(function) != 1 || num_results > MAX_RESULTS) fail("the model recognises no images");

  const byoc_rt_tensor_info *info = byoc_rt_input(function, 0);
  float *numbers = read_image(argv[2], info);
  const DLTensor image = {.data = numbers,
                          .device = {kDLCPU, 0},
                          .ndim = info->ndim,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = (int64_t *)info->shape};

  static worker workers[MAX_THREADS];
  pthread_t threads[MAX_THREADS];
  for (int i = 0; i < num_threads; ++i) {
    workers[i] = (worker){.function = function, .image = &image, .num_results = num_results};
    if (pthread_create(&threads[i], NULL, work, &workers[i])) fail("a thread cannot be started");
  }
  for (int i = 0; i < num_threads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < num_threads; ++i)
    if (*workers[i].error) fail(workers[i].error);
  for (int i = 1; i < num_threads; ++i) compare(&workers[0], &workers[i]);
  print_results(&workers[0]);
  if (prints_maps) print_maps();

  for (int i = 0; i < num_threads; ++i) release(&workers[i]);
  byoc_rt_unload(program);
  free(numbers);
  return 0;
}
