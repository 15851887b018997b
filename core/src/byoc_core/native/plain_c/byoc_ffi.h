/* Support of generated functions in exported C: no error texts, no tensors of a foreign interface, no heap.
 *
 * This header takes the place of the header of the same name for shared libraries. A failing check makes the calling
 * function return -1.
 */
#ifndef BYOC_FFI_H_
#define BYOC_FFI_H_

#include <stddef.h>
#include <stdint.h>

#include "byoc_sizes.h"

#if defined(__GNUC__) && !defined(_WIN32)
#define BYOC_EXPORT __attribute__((visibility("hidden")))
#else
#define BYOC_EXPORT
#endif
#define BYOC_LOCAL BYOC_EXPORT

#define byoc_fail(...) (-1)

/* Callers always pass a workspace. */
#define byoc_new_workspace(nbytes) ((void)(nbytes), NULL)
#define byoc_free_workspace(workspace) ((void)(workspace))

static inline int32_t byoc_check_broadcast(const char *function, int64_t left, int64_t right) {
  (void)function;
  return left == right || left == 1 || right == 1 ? 0 : -1;
}

static inline int32_t byoc_check_operand(const char *function, const char *op, const char *operand, int32_t axis,
                                         int64_t size, int64_t expected) {
  (void)function, (void)op, (void)operand, (void)axis;
  return size == expected || size == 1 ? 0 : -1;
}

static inline int32_t byoc_check_equal(const char *function, const char *op, const char *operand, int32_t axis,
                                       int64_t size, int64_t expected) {
  (void)function, (void)op, (void)operand, (void)axis;
  return size == expected ? 0 : -1;
}

static inline int32_t byoc_check_least(const char *function, const char *op, const char *tensor, int32_t axis,
                                       int64_t size, int64_t least) {
  (void)function, (void)op, (void)tensor, (void)axis;
  return size >= least ? 0 : -1;
}

/* Declares the table of pointers to the constants of a source; the table is read-only data. */
#define BYOC_CONSTANT_TABLE(count) extern const void *const byoc_constants[count]

/* Exported functions report no parts. */
#define BYOC_MARK_PART(part, ops) ((void)0)

/* Precedes a loop with independent iterations; see the documentation of generated code. */
#if defined(__GNUC__) && !defined(__clang__)
#define BYOC_INDEPENDENT_ROUNDS _Pragma("GCC ivdep")
#else
#define BYOC_INDEPENDENT_ROUNDS
#endif

#endif /* BYOC_FFI_H_ */
