#include "dims.h"

#include <stdio.h>
#include <string.h>

#include "dims_table.h"

enum { FIRST_COUNT = 32, MAX_COUNT = INT32_MAX / 4 };

rt_dims *rt_dims_new(rt_pool *pool, int32_t status) {
  rt_dims *dims = rt_take(pool, 1, sizeof *dims);
  if (dims) *dims = (rt_dims){.pool = pool, .status = status};
  return dims;
}

/* Make room for another size. The replaced arrays stay in the pool. */
static int grow(rt_dims *dims) {
  if (dims->count < dims->max_count) return 1;
  if (dims->count > MAX_COUNT) {
    (void)byoc_rt_fail(dims->status, "sizes: a function has too many sizes");
    return 0;
  }
  const int32_t larger = dims->max_count ? 2 * dims->max_count : FIRST_COUNT;
  byoc_size_operation *operations = rt_take(dims->pool, (size_t)larger, sizeof *operations);
  rt_size_info *infos = rt_take(dims->pool, (size_t)larger, sizeof *infos);
  if (!operations || !infos) return 0;
  if (dims->count) {
    memcpy(operations, dims->operations, (size_t)dims->count * sizeof *operations);
    memcpy(infos, dims->infos, (size_t)dims->count * sizeof *infos);
  }
  dims->operations = operations;
  dims->infos = infos;
  dims->max_count = larger;
  return 1;
}

int32_t rt_add_operation(rt_dims *dims, byoc_size_operation operation) {
  if (!grow(dims)) return -1;
  dims->operations[dims->count] = operation;
  return dims->count++;
}

/* ---- The hash table of texts ------------------------------------------------------------------------------------- */

static uint32_t hash_of(rt_text text) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < text.length; ++i) hash = (hash ^ (unsigned char)text.data[i]) * 16777619u;
  return hash;
}

/* Return the slot of a text, or the empty slot for it. */
static int32_t *find_slot(const rt_dims *dims, rt_text text) {
  const uint32_t mask = dims->num_slots - 1;
  for (uint32_t i = hash_of(text) & mask;; i = (i + 1) & mask) {
    int32_t *slot = &dims->slots[i];
    if (!*slot || rt_equals(text, dims->infos[*slot - 1].text)) return slot;
  }
}

/* Keep at least half of the slots empty. */
static int grow_slots(rt_dims *dims) {
  if (2 * (dims->num_texts + 1) <= dims->num_slots) return 1;
  const uint32_t num_slots = dims->num_slots ? 2 * dims->num_slots : 2 * FIRST_COUNT;
  int32_t *old_slots = dims->slots, *slots = rt_take(dims->pool, num_slots, sizeof *slots);
  if (!slots) return 0;
  const uint32_t num_old_slots = dims->num_slots;
  dims->slots = slots;
  dims->num_slots = num_slots;
  for (uint32_t i = 0; i < num_old_slots; ++i)
    if (old_slots[i]) *find_slot(dims, rt_text_of(dims->infos[old_slots[i] - 1].text)) = old_slots[i];
  return 1;
}

static int32_t find_text(const rt_dims *dims, rt_text text) {
  return dims->num_slots ? *find_slot(dims, text) - 1 : -1;
}

/* Give a size its text. */
static int32_t name_size(rt_dims *dims, int32_t size, rt_text text) {
  dims->infos[size].text = rt_copy(dims->pool, text);
  if (!dims->infos[size].text || !grow_slots(dims)) return -1;
  *find_slot(dims, text) = size + 1;
  ++dims->num_texts;
  return size;
}

/* ---- Adding sizes ------------------------------------------------------------------------------------------------ */

int32_t rt_symbol(rt_dims *dims, rt_text name) {
  const int32_t found = find_text(dims, name);
  if (found >= 0 && dims->infos[found].is_symbol) return found;
  int32_t unused;
  if (!name.length || rt_name_length(name) != name.length || rt_is_call_name(name, &unused)) {
    (void)byoc_rt_fail(dims->status, "size `%.*s`: cannot name a symbol", (int)(name.length < 80 ? name.length : 80),
                       name.length ? name.data : "");
    return -1;
  }
  const int32_t symbol = rt_add_operation(dims, (byoc_size_operation){.op = BYOC_SIZE_UNKNOWN});
  int32_t *symbols = rt_take(dims->pool, 1, sizeof *symbols);
  if (symbol < 0 || !symbols) return -1;
  *symbols = symbol;
  dims->infos[symbol] = (rt_size_info){.symbols = symbols, .num_symbols = 1, .is_symbol = 1, .first = symbol};
  return name_size(dims, symbol, name);
}

/* Find the next name of a symbol in a text, from `position` on. */
static int next_name(rt_text text, size_t *position, rt_text *name) {
  while (*position < text.length) {
    int32_t unused;
    const rt_text rest = {text.data + *position, text.length - *position};
    *name = (rt_text){rest.data, rt_name_length(rest)};
    *position += name->length ? name->length : 1;
    if (name->length && !rt_is_call_name(*name, &unused)) return 1;
  }
  return 0;
}

/* Add the symbols of a text before the operations, which then follow each other without symbols in between. Return the
 * symbols, each once, or NULL after setting an error. */
static const int32_t *add_symbols(rt_dims *dims, rt_text text, int32_t *count) {
  size_t num_names = 0, position = 0;
  rt_text name;
  while (next_name(text, &position, &name)) ++num_names;
  int32_t *symbols = rt_take(dims->pool, num_names, sizeof *symbols);
  if (!symbols) return NULL;
  const int32_t stamp = ++dims->num_stamps;
  *count = 0;
  for (position = 0; next_name(text, &position, &name);) {
    const int32_t symbol = rt_symbol(dims, name);
    if (symbol < 0) return NULL;
    if (dims->infos[symbol].stamp == stamp) continue;
    dims->infos[symbol].stamp = stamp;
    symbols[(*count)++] = symbol;
  }
  return symbols;
}

int32_t rt_dim(rt_dims *dims, rt_text text) {
  const int32_t found = find_text(dims, text);
  if (found >= 0) return found;
  int32_t num_symbols;
  const int32_t *symbols = add_symbols(dims, text, &num_symbols);
  if (!symbols) return -1;
  const int32_t first = dims->count, size = rt_parse_dim(dims, text);
  if (size < first) return size; /* an error, or a symbol */
  dims->infos[size] = (rt_size_info){.symbols = symbols, .num_symbols = num_symbols, .first = first};
  return name_size(dims, size, text);
}

int32_t rt_number(rt_dims *dims, int64_t value) {
  char text[24];
  (void)snprintf(text, sizeof text, "%lld", (long long)value);
  return rt_dim(dims, rt_text_of(text));
}

/* ---- Reading sizes ----------------------------------------------------------------------------------------------- */

int32_t rt_num_sizes(const rt_dims *dims) { return dims->count; }

const char *rt_dim_text(const rt_dims *dims, int32_t dim) { return dims->infos[dim].text; }

int rt_is_number(const rt_dims *dims, int32_t dim, int64_t *value) {
  if (dims->operations[dim].op != BYOC_SIZE_CONSTANT) return 0;
  if (value) *value = dims->operations[dim].value;
  return 1;
}

int rt_is_symbol(const rt_dims *dims, int32_t dim) { return dims->infos[dim].is_symbol; }

int32_t rt_symbols_of(const rt_dims *dims, int32_t dim, const int32_t **symbols) {
  *symbols = dims->infos[dim].symbols;
  return dims->infos[dim].num_symbols;
}

void rt_forget_sizes(const rt_dims *dims, int64_t *sizes) {
  for (int32_t i = 0; i < dims->count; ++i) sizes[i] = RT_UNKNOWN;
}

int rt_try_size(const rt_dims *dims, int32_t dim, int64_t *sizes, int64_t *size) {
  const rt_size_info *info = &dims->infos[dim];
  const byoc_size_operation *operations = dims->operations;
  if (operations[dim].op == BYOC_SIZE_CONSTANT) {
    *size = operations[dim].value;
    return 1;
  }
  for (int32_t i = 0; i < info->num_symbols; ++i)
    if (sizes[info->symbols[i]] == RT_UNKNOWN) return 0;
  if (!info->is_symbol &&
      !byoc_compute_sizes(operations + info->first, dim - info->first + 1, info->first, sizes))
    return 0;
  *size = sizes[dim];
  return 1;
}

/* Append the symbols of a size whose values are known: " with n = 2, m = 3". */
static void append_known(rt_line *line, const rt_dims *dims, const int32_t *shape, int32_t ndim, const int64_t *sizes) {
  const char *separator = " with ";
  for (int32_t symbol = 0; sizes && symbol < dims->count; ++symbol) {
    if (!dims->infos[symbol].is_symbol || sizes[symbol] == RT_UNKNOWN) continue;
    int is_used = 0;
    for (int32_t axis = 0; axis < ndim && !is_used; ++axis) {
      const rt_size_info *info = &dims->infos[shape[axis]];
      for (int32_t i = 0; i < info->num_symbols && !is_used; ++i) is_used = info->symbols[i] == symbol;
    }
    if (!is_used) continue;
    rt_append(line, "%s%s = %lld", separator, dims->infos[symbol].text, (long long)sizes[symbol]);
    separator = ", ";
  }
}

void rt_append_spec_shape(rt_line *line, const rt_dims *dims, const rt_spec *spec, const int64_t *sizes) {
  rt_append(line, "[");
  for (int32_t axis = 0; axis < spec->ndim; ++axis)
    rt_append(line, "%s%s", axis ? ", " : "", rt_dim_text(dims, spec->dims[axis]));
  rt_append(line, "]");
  append_known(line, dims, spec->dims, spec->ndim, sizes);
}

RT_COLD static int32_t fail_size(const rt_dims *dims, int32_t dim, const int64_t *sizes, const char *where) {
  const rt_size_info *info = &dims->infos[dim];
  for (int32_t i = 0; i < info->num_symbols; ++i) {
    if (sizes[info->symbols[i]] != RT_UNKNOWN) continue;
    return byoc_rt_fail(BYOC_RT_CALL, "%s: size %s is not determined by the inputs: %s is unknown", where, info->text,
                        dims->infos[info->symbols[i]].text);
  }
  rt_line line = {.length = 0};
  append_known(&line, dims, &dim, 1, sizes);
  return byoc_rt_fail(BYOC_RT_CALL,
                      "%s: size %s cannot be computed%s: a divisor is 0, sizes do not fit, or a number exceeds 64 bits",
                      where, info->text, line.text);
}

int32_t rt_size(const rt_dims *dims, int32_t dim, int64_t *sizes, const char *where, int64_t *size) {
  return rt_try_size(dims, dim, sizes, size) ? 0 : fail_size(dims, dim, sizes, where);
}

int32_t rt_axis_size(const rt_dims *dims, int32_t dim, int64_t *sizes, const char *where, int64_t *size) {
  const int32_t status = rt_size(dims, dim, sizes, where, size);
  if (status || *size >= 0) return status;
  return byoc_rt_fail(BYOC_RT_CALL, "%s: size %s is negative; got %lld", where, rt_dim_text(dims, dim),
                      (long long)*size);
}
