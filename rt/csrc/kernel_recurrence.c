/* Kernels of recurrent layers, computed in float64 and rounded once. */
#include "kernel_recurrence.h"

#include <math.h>

/* A layer in one direction for one sequence. Matrices have a row for each number of each gate. */
typedef struct {
  int64_t num_inputs, hidden, num_gates;
  const double *weight, *recurrence, *bias; /* bias: for the input, then for the state */
  double *gates, *reached;                  /* memory for the numbers of all gates, and of the state */
  int is_relu, is_linear_before_reset;
} layer;

/* Replace the state by the state after a step; `cell` is of long short-term memories. */
typedef void (*step_function)(const layer *l, const double *x, double *state, double *cell);

static double dot(const double *left, const double *right, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += left[i] * right[i];
  return total;
}

static double logistic(double x) {
  const double decay = exp(-fabs(x));
  return (x >= 0 ? 1 : decay) / (1 + decay);
}

/* Return the part of the input in a number of a gate, and the part of a state. */
static double part_of_input(const layer *l, int64_t row, const double *x) {
  return dot(l->weight + row * l->num_inputs, x, l->num_inputs) + l->bias[row];
}

static double part_of_state(const layer *l, int64_t row, const double *state) {
  return dot(l->recurrence + row * l->hidden, state, l->hidden) + l->bias[l->num_gates * l->hidden + row];
}

static void step_rnn(const layer *l, const double *x, double *state, double *cell) {
  (void)cell;
  for (int64_t i = 0; i < l->hidden; ++i) l->gates[i] = part_of_input(l, i, x) + part_of_state(l, i, state);
  for (int64_t i = 0; i < l->hidden; ++i) {
    const double total = l->gates[i];
    state[i] = !l->is_relu ? tanh(total) : total > 0 || total != total ? total : 0;
  }
}

/* The gates are update, reset, hidden. */
static void step_gru(const layer *l, const double *x, double *state, double *cell) {
  (void)cell;
  const int64_t size = l->hidden;
  for (int64_t i = 0; i < 2 * size; ++i) l->gates[i] = logistic(part_of_input(l, i, x) + part_of_state(l, i, state));
  const double *reset = l->gates + size;
  if (l->is_linear_before_reset) {
    for (int64_t i = 0; i < size; ++i) l->gates[2 * size + i] = reset[i] * part_of_state(l, 2 * size + i, state);
  } else {
    for (int64_t i = 0; i < size; ++i) l->reached[i] = reset[i] * state[i];
    for (int64_t i = 0; i < size; ++i) l->gates[2 * size + i] = part_of_state(l, 2 * size + i, l->reached);
  }
  for (int64_t i = 0; i < size; ++i) {
    const double update = l->gates[i], new = tanh(part_of_input(l, 2 * size + i, x) + l->gates[2 * size + i]);
    state[i] = (1 - update) * new + update * state[i];
  }
}

/* The gates are input, output, forget, cell. */
static void step_lstm(const layer *l, const double *x, double *state, double *cell) {
  const int64_t size = l->hidden;
  for (int64_t i = 0; i < 4 * size; ++i) l->gates[i] = part_of_input(l, i, x) + part_of_state(l, i, state);
  for (int64_t i = 0; i < size; ++i) {
    const double enter = l->gates[i], leave = l->gates[size + i], keep = l->gates[2 * size + i];
    cell[i] = logistic(keep) * cell[i] + logistic(enter) * tanh(l->gates[3 * size + i]);
    state[i] = logistic(leave) * tanh(cell[i]);
  }
}

/* The operands as float64, and the results. */
typedef struct {
  const rt_array *x, *operands[6], *lengths; /* weight, recurrence, bias, initial states; NULL: all steps */
  int64_t steps, batch, directions, hidden;
  rt_array *results[3];
  double *values[3];
} recurrence;

enum { FORWARD, REVERSE, BIDIRECTIONAL };

static int32_t check_operands(rt_call *call, const recurrence *r, int64_t num_gates, int32_t num_states) {
  static const char *const names[] = {"weight", "recurrence", "bias", "initial_h", "initial_c"};
  const int64_t width = rt_product(num_gates, r->hidden), num_inputs = r->x->shape[2];
  const int64_t weight[] = {r->directions, width, num_inputs}, state[] = {r->directions, width, r->hidden};
  const int64_t bias[] = {r->directions, rt_product(2, width)}, initial[] = {r->directions, r->batch, r->hidden};
  const int64_t *const shapes[] = {weight, state, bias, initial, initial};
  for (int32_t i = 0; i < 3 + num_states; ++i) {
    const int32_t status = rt_check_shape(call, names[i], r->operands[i], i == 2 ? 2 : 3, shapes[i]);
    if (status) return status;
  }
  if (!r->lengths) return 0;
  const int32_t status = rt_check_shape(call, "lengths", r->lengths, 1, &r->batch);
  const int64_t *lengths = (const int64_t *)r->lengths->data;
  for (int64_t i = 0; i < r->lengths->count && !status; ++i)
    if (lengths[i] < 0 || lengths[i] > r->steps)
      return rt_reject(call, "a length does not fit the steps; got %lld, expected 0 to %lld", (long long)lengths[i],
                       (long long)r->steps);
  return status;
}

static int32_t read_recurrence(rt_call *call, int64_t num_gates, int32_t num_states, recurrence *r) {
  const int32_t num_operands = 4 + num_states;
  r->x = rt_converted(call, 0, RT_T_F64);
  if (!r->x) return BYOC_RT_EXECUTION;
  for (int32_t i = 1; i < num_operands; ++i) {
    r->operands[i - 1] = rt_converted(call, i, RT_T_F64);
    if (!r->operands[i - 1]) return BYOC_RT_EXECUTION;
  }
  if (r->x->rank != 3 || r->operands[1]->rank != 3 || rt_num_operands(call) > num_operands + 1)
    return rt_reject(call, "an operand has the wrong rank, or there are too many operands");
  if (rt_num_operands(call) > num_operands) {
    r->lengths = rt_integers(call, num_operands);
    if (!r->lengths) return BYOC_RT_EXECUTION;
  }
  r->steps = r->x->shape[0];
  r->batch = r->x->shape[1];
  r->directions = rt_integer(call, "direction") == BIDIRECTIONAL ? 2 : 1;
  r->hidden = r->operands[1]->shape[2];
  const int32_t status = check_operands(call, r, num_gates, num_states);
  if (status) return status;
  const int64_t every[] = {r->steps, r->directions, r->batch, r->hidden};
  for (int32_t i = 0; i <= num_states; ++i) {
    r->results[i] = rt_result(call, i, i ? 3 : 4, i ? every + 1 : every);
    r->values[i] = r->results[i] ? (double *)rt_open(call, r->results[i], RT_T_F64) : NULL;
    if (!r->values[i]) return BYOC_RT_EXECUTION;
  }
  return 0;
}

/* Run the steps of a sequence in a direction; beyond the end of the sequence, hidden states are 0. */
static void run_sequence(const recurrence *r, const layer *l, step_function step, int64_t direction, int64_t item,
                         int is_backwards, double *state, double *cell) {
  const int64_t length = r->lengths ? ((const int64_t *)r->lengths->data)[item] : r->steps;
  for (int64_t i = 0; i < r->steps; ++i) {
    const int64_t time = is_backwards ? r->steps - 1 - i : i;
    double *hidden = r->values[0] + ((time * r->directions + direction) * r->batch + item) * r->hidden;
    if (time < length) step(l, (const double *)r->x->data + (time * r->batch + item) * l->num_inputs, state, cell);
    for (int64_t k = 0; k < r->hidden; ++k) hidden[k] = time < length ? state[k] : 0;
  }
}

static int32_t run(rt_call *call, int64_t num_gates, int32_t num_states, step_function step, layer l) {
  recurrence r = {0};
  const int32_t status = read_recurrence(call, num_gates, num_states, &r);
  if (status) return status;
  const int64_t width = num_gates * r.hidden;
  l.num_gates = num_gates;
  l.hidden = r.hidden;
  l.num_inputs = r.x->shape[2];
  l.gates = rt_scratch(call, width, sizeof *l.gates);
  l.reached = rt_scratch(call, r.hidden, sizeof *l.reached);
  if (!l.gates || !l.reached) return BYOC_RT_MEMORY;
  for (int64_t direction = 0; direction < r.directions && r.batch && r.hidden; ++direction) {
    l.weight = (const double *)r.operands[0]->data + direction * width * l.num_inputs;
    l.recurrence = (const double *)r.operands[1]->data + direction * width * r.hidden;
    l.bias = (const double *)r.operands[2]->data + direction * 2 * width;
    const int is_backwards = rt_integer(call, "direction") == REVERSE || direction == 1;
    for (int64_t item = 0; item < r.batch; ++item) {
      double *states[2] = {NULL, NULL};
      for (int32_t i = 0; i < num_states; ++i) { /* the last states are computed in their results */
        const int64_t first = (direction * r.batch + item) * r.hidden;
        states[i] = r.values[1 + i] + first;
        for (int64_t k = 0; k < r.hidden; ++k) states[i][k] = ((const double *)r.operands[3 + i]->data)[first + k];
      }
      run_sequence(&r, &l, step, direction, item, is_backwards, states[0], states[1]);
    }
  }
  for (int32_t i = 0; i <= num_states; ++i) rt_close(r.results[i], RT_T_F64, (const char *)r.values[i]);
  return 0;
}

int32_t rt_run_rnn(rt_call *call, const void *context) {
  (void)context;
  return run(call, 1, 1, step_rnn, (layer){.is_relu = rt_integer(call, "activation") == 1});
}

int32_t rt_run_gru(rt_call *call, const void *context) {
  (void)context;
  const int is_linear_before_reset = rt_integer(call, "linear_before_reset") != 0;
  return run(call, 3, 1, step_gru, (layer){.is_linear_before_reset = is_linear_before_reset});
}

int32_t rt_run_lstm(rt_call *call, const void *context) {
  (void)context;
  return run(call, 4, 2, step_lstm, (layer){0});
}
