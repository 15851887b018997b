/* Random numbers: the streams of numpy's RandomState, the Mersenne Twister MT19937 (M. Matsumoto and T. Nishimura,
 * 1998), and Marsaglia's polar method for normal numbers. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "kernel_random.h"

enum { NUM_WORDS = 624, OFFSET = 397 };

typedef struct {
  uint32_t words[NUM_WORDS];
  int position;
} twister;

static void seed_by_number(twister *t, uint32_t seed) {
  t->words[0] = seed;
  for (uint32_t i = 1; i < NUM_WORDS; ++i)
    t->words[i] = 1812433253u * (t->words[i - 1] ^ (t->words[i - 1] >> 30)) + i;
  t->position = NUM_WORDS;
}

static void seed_by_words(twister *t, const int64_t *key, int64_t length) {
  seed_by_number(t, 19650218u);
  uint32_t *words = t->words;
  int64_t at = 1, from = 0;
  for (int64_t rounds = length > NUM_WORDS ? length : NUM_WORDS; rounds; --rounds) {
    words[at] = (words[at] ^ ((words[at - 1] ^ (words[at - 1] >> 30)) * 1664525u)) + (uint32_t)key[from] +
                (uint32_t)from;
    if (++at == NUM_WORDS) {
      words[0] = words[NUM_WORDS - 1];
      at = 1;
    }
    if (++from == length) from = 0;
  }
  for (int rounds = NUM_WORDS - 1; rounds; --rounds) {
    words[at] = (words[at] ^ ((words[at - 1] ^ (words[at - 1] >> 30)) * 1566083941u)) - (uint32_t)at;
    if (++at == NUM_WORDS) {
      words[0] = words[NUM_WORDS - 1];
      at = 1;
    }
  }
  words[0] = 0x80000000u;
}

static void renew(twister *t) {
  for (int i = 0; i < NUM_WORDS; ++i) {
    const uint32_t next = t->words[(i + 1) % NUM_WORDS];
    const uint32_t bits = (t->words[i] & 0x80000000u) | (next & 0x7fffffffu);
    t->words[i] = t->words[(i + OFFSET) % NUM_WORDS] ^ (bits >> 1) ^ (next & 1 ? 0x9908b0dfu : 0);
  }
  t->position = 0;
}

static uint32_t next_word(twister *t) {
  if (t->position == NUM_WORDS) renew(t);
  uint32_t word = t->words[t->position++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

/* Return a number from 0 to 1, 1 excluded, of 53 bits. */
static double next_real(twister *t) {
  const uint32_t high = next_word(t) >> 5, low = next_word(t) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

/* Store two numbers of the normal distribution, in order. */
static void next_normals(twister *t, double *numbers) {
  double x, y, square;
  do {
    x = 2.0 * next_real(t) - 1.0;
    y = 2.0 * next_real(t) - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double scale = sqrt(-2.0 * log(square) / square);
  numbers[0] = scale * y;
  numbers[1] = scale * x;
}

static int32_t seed_twister(rt_call *call, twister *t) {
  const rt_array *seed = rt_integers(call, 0);
  if (!seed) return BYOC_RT_EXECUTION;
  const int64_t *words = (const int64_t *)seed->data;
  int is_valid = seed->count > 0 && seed->rank <= 1;
  for (int64_t i = 0; i < seed->count; ++i) is_valid &= words[i] >= 0 && words[i] <= UINT32_MAX;
  if (!is_valid) return rt_reject(call, "has an invalid seed; expected words from 0 to 2**32-1");
  if (seed->count == 1)
    seed_by_number(t, (uint32_t)words[0]);
  else
    seed_by_words(t, words, seed->count);
  return 0;
}

/* Return the neighbour of a number of a float type, towards another number. */
static double neighbour(rt_type type, double value, double target) {
  if (value == target) return value;
  if (type == RT_T_F64) return nextafter(value, target);
  if (type == RT_T_F32) return (double)nextafterf((float)value, (float)target);
  uint16_t code;
  rt_convert(type, (char *)&code, 0, RT_T_F64, (const char *)&value, 0, 1);
  /* The codes of positive numbers ascend; of negative numbers, the codes without the sign. */
  if ((code & 0x7fff) == 0)
    code = target < 0 ? 0x8001 : 1;
  else
    code = (uint16_t)(code + ((value < target) == (value > 0) ? 1 : -1));
  rt_convert(RT_T_F64, (char *)&value, 0, type, (const char *)&code, 0, 1);
  return value;
}

static int32_t run_numbers(rt_call *call, int is_normal, double offset, double scale, double end) {
  twister t;
  const rt_attr *shape = rt_attribute(call, "shape");
  const int32_t status = seed_twister(call, &t);
  if (status) return status;
  rt_array *result = rt_result(call, 0, shape->count, shape->integers);
  double *numbers = result ? (double *)rt_open(call, result, RT_T_F64) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  double pair[2] = {0, 0};
  for (int64_t i = 0; i < result->count; ++i) {
    if (is_normal && i % 2 == 0) next_normals(&t, pair);
    const double product = (is_normal ? pair[i % 2] : next_real(&t)) * scale;
    numbers[i] = product + offset;
  }
  if (!is_normal && scale != 0) { /* a number rounded to the end becomes the number before */
    const double rounded_end = rt_rounded(result->type, end);
    const double before = neighbour(result->type, rounded_end, rt_rounded(result->type, offset));
    for (int64_t i = 0; i < result->count; ++i)
      if (rt_rounded(result->type, numbers[i]) == rounded_end) numbers[i] = before;
  }
  rt_close(result, RT_T_F64, (const char *)numbers);
  return 0;
}

int32_t rt_run_random_uniform(rt_call *call, const void *context) {
  (void)context;
  const double low = rt_real(call, "low"), high = rt_real(call, "high");
  return run_numbers(call, 0, low, high - low, high);
}

int32_t rt_run_random_normal(rt_call *call, const void *context) {
  (void)context;
  return run_numbers(call, 1, rt_real(call, "mean"), rt_real(call, "scale"), 0);
}

int32_t rt_run_random_seed(rt_call *call, const void *context) {
  (void)context;
  uint32_t words[4];
  const int64_t count = 4;
  const int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  size_t done = 0;
  while (file >= 0 && done < sizeof words) {
    const ssize_t found = read(file, (char *)words + done, sizeof words - done);
    if (found <= 0 && errno != EINTR) break;
    if (found > 0) done += (size_t)found;
  }
  if (file >= 0) close(file);
  if (done < sizeof words) return rt_reject(call, "the operating system gives no random numbers");
  const rt_array *result = rt_result(call, 0, 1, &count);
  if (!result) return BYOC_RT_EXECUTION;
  for (int i = 0; i < 4; ++i) ((int64_t *)result->data)[i] = words[i];
  return 0;
}
