#include "kernel_strings.h"

#include <string.h>

typedef struct {
  const uint8_t *data;
  const int64_t *lengths;
  int64_t count;
} Strings;

/* Read the strings of two operands; 0, or a status for lengths that do not fit the bytes. */
static int32_t read_strings(rt_call *call, int32_t operand, Strings *strings) {
  const rt_array *data = rt_compact(call, operand), *lengths = rt_integers(call, operand + 1);
  if (!data || !lengths) return BYOC_RT_EXECUTION;
  *strings = (Strings){(const uint8_t *)data->data, (const int64_t *)lengths->data, lengths->count};
  int64_t rest = data->count;
  for (int64_t i = 0; i < strings->count; ++i) {
    if (strings->lengths[i] < 0 || strings->lengths[i] > rest)
      return rt_reject(call, "has lengths that do not fit the bytes; expected %lld in all", (long long)data->count);
    rest -= strings->lengths[i];
  }
  return rest ? rt_reject(call, "has lengths that do not fit the bytes; expected %lld in all", (long long)data->count)
              : 0;
}

static uint64_t hash_of(const uint8_t *text, int64_t length) {
  uint64_t hash = (uint64_t)length;
  for (int64_t i = 0; i < length; ++i) hash = (hash ^ text[i]) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

/* Return the slot of a text: of the equal key, or an empty slot. Slots have numbers of keys; -1 for none. */
static int64_t slot_of(const Strings *keys, const int64_t *starts, const int64_t *slots, int64_t num_slots,
                       const uint8_t *text, int64_t length) {
  uint64_t slot = hash_of(text, length) & (uint64_t)(num_slots - 1);
  for (;;) {
    const int64_t key = slots[slot];
    if (key < 0 || (keys->lengths[key] == length && !memcmp(keys->data + starts[key], text, (size_t)length)))
      return (int64_t)slot;
    slot = (slot + 1) & (uint64_t)(num_slots - 1);
  }
}

int32_t rt_run_string_key_index(rt_call *call, const void *context) {
  (void)context;
  Strings texts, keys;
  int32_t status = read_strings(call, 0, &texts);
  if (!status) status = read_strings(call, 2, &keys);
  if (status) return status;
  const rt_array *lengths = rt_operand(call, 1);
  int64_t num_slots = 1;
  while (num_slots <= 2 * keys.count) num_slots *= 2;
  int64_t *starts = rt_scratch(call, keys.count + 1, sizeof *starts), *slots = NULL;
  if (starts) slots = rt_scratch(call, num_slots, sizeof *slots);
  const rt_array *result = slots ? rt_result(call, 0, lengths->rank, lengths->shape) : NULL;
  if (!result) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_slots; ++i) slots[i] = -1;
  starts[0] = 0;
  for (int64_t key = 0; key < keys.count; ++key) {
    const int64_t slot = slot_of(&keys, starts, slots, num_slots, keys.data + starts[key], keys.lengths[key]);
    if (slots[slot] < 0) slots[slot] = key; /* of equal keys, the first counts */
    starts[key + 1] = starts[key] + keys.lengths[key];
  }
  const uint8_t *text = texts.data;
  int64_t *indices = (int64_t *)result->data;
  for (int64_t i = 0; i < texts.count; ++i) {
    const int64_t key = slots[slot_of(&keys, starts, slots, num_slots, text, texts.lengths[i])];
    indices[i] = key < 0 ? keys.count : key;
    text += texts.lengths[i];
  }
  return 0;
}
