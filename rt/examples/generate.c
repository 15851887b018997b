/* Continue a text by a decoder that keeps its keys and values from call to call.
 *
 *     cc generate.c $(python -m byoc_rt --cflags --libs) -o generate
 *     ./generate decoder.byoc 16 12 7 301
 *
 * The decoder was compiled with states (`byoc compile decoder.onnx --states detect -o decoder.byoc`). It takes int64
 * `input_ids`, [1, tokens], and its first output holds float32 scores, [1, tokens, vocabulary]. The program reads the
 * ids of the text (12, 7, 301), and prints 16 more: each time the id of the highest score among the ids not yet printed.
 * The first call takes the whole text, each later call the last id alone.
 */
#include <byoc_rt.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *text) {
  fprintf(stderr, "generate: %s\n", text);
  exit(1);
}

/* Return the number of an argument. */
static int64_t read_number(const char *text, int64_t least) {
  char *end;
  const int64_t number = strtoll(text, &end, 10);
  if (!*text || *end || number < least) fail("numbers are expected");
  return number;
}

/* Return whether an id is among the ids printed so far. */
static int is_printed(int64_t id, const int64_t *printed, int64_t num_printed) {
  for (int64_t i = 0; i < num_printed; ++i)
    if (printed[i] == id) return 1;
  return 0;
}

/* Check dtype and rank of the first output. */
static void check_scores(const DLTensor *scores) {
  const DLDataType dtype = scores->dtype;
  if (scores->ndim != 3 || dtype.code != kDLFloat || dtype.bits != 32 || scores->shape[1] < 1)
    fail("the output is no float32 scores, [1, tokens, vocabulary]");
}

/* Return the id with the highest score after the last token; ids printed before do not count. */
static int64_t best_id(const DLTensor *scores, const int64_t *printed, int64_t num_printed) {
  const int64_t vocabulary = scores->shape[2];
  const float *last = (const float *)scores->data + (scores->shape[1] - 1) * vocabulary;
  int64_t best = -1;
  for (int64_t id = 0; id < vocabulary; ++id)
    if ((best < 0 || last[id] > last[best]) && !is_printed(id, printed, num_printed)) best = id;
  if (best < 0) fail("all ids of the vocabulary have been printed");
  return best;
}

/* Run the decoder on new tokens, and return the id of the next token. */
static int64_t next_id(byoc_rt_state *state, int64_t *ids, int64_t count, const int64_t *printed, int64_t num_printed) {
  int64_t shape[2] = {1, count};
  const DLTensor tokens = {.data = ids, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = shape};
  const DLTensor *inputs[] = {&tokens};
  DLManagedTensorVersioned *scores = NULL;
  if (byoc_rt_run_state(state, inputs, 1, &scores, 1)) fail(byoc_rt_last_error());
  check_scores(&scores->dl_tensor);
  const int64_t id = best_id(&scores->dl_tensor, printed, num_printed);
  scores->deleter(scores);
  return id;
}

int main(int argc, char **argv) {
  if (argc < 4) fail("usage: generate MODEL COUNT ID...");
  const int64_t count = read_number(argv[2], 1), num_ids = argc - 3;
  int64_t *ids = calloc((size_t)num_ids, sizeof *ids), *printed = calloc((size_t)count, sizeof *printed);
  if (!ids || !printed) fail("no memory");
  for (int64_t i = 0; i < num_ids; ++i) ids[i] = read_number(argv[3 + i], 0);

  byoc_rt_program *program = NULL;
  byoc_rt_state *state = NULL;
  if (byoc_rt_load(argv[1], NULL, &program)) fail(byoc_rt_last_error());
  const byoc_rt_function *function = byoc_rt_find_function(program, "main");
  if (!function || byoc_rt_new_state(function, NULL, &state)) fail(byoc_rt_last_error());
  if (byoc_rt_num_inputs(function) != 1 || byoc_rt_num_outputs(function) != 1) fail("the model is no decoder");

  printed[0] = next_id(state, ids, num_ids, printed, 0);
  for (int64_t i = 1; i < count; ++i) printed[i] = next_id(state, &printed[i - 1], 1, printed, i);
  for (int64_t i = 0; i < count; ++i) printf("%s%lld", i ? " " : "", (long long)printed[i]);
  printf("\n%lld tokens are kept\n", (long long)byoc_rt_state_length(state));

  byoc_rt_free_state(state);
  byoc_rt_unload(program);
  free(ids);
  free(printed);
  return 0;
}
