/* Objects of JSON with declared fields, as in byoc_core/runtime/json_records.py: every field is declared, and nothing
 * is converted. Errors have the kind BYOC_RT_ARTIFACT, and name `where`. */
#ifndef BYOC_RT_RECORDS_H_
#define BYOC_RT_RECORDS_H_

#include "byoc_rt.h"
#include "json.h"

/* Return nonzero after setting an error unless a value is an object with exactly these fields. `fields` are names with
 * spaces in between; a name behind a question mark may be missing: "name shape ?traits". */
int32_t rt_check_record(const rt_json *value, const char *fields, const char *where);

/* Return nonzero after setting an error unless a field of a record is of a kind. */
int32_t rt_check_kind(const rt_json *record, const char *name, rt_json_kind kind, const char *where);

/* Return a copy of a text, ended by a NUL; NULL after setting an error: no text, or a NUL inside. `name` is the name of
 * the text's field, for errors. */
const char *rt_read_string(rt_pool *pool, const rt_json *value, const char *name, const char *where);

/* Read a list of texts. Return nonzero after setting an error. */
int32_t rt_read_strings(rt_pool *pool, const rt_json *list, const char *name, const char *where,
                      const char *const **texts, int32_t *count);

/* Read a list of tensors: names, dtypes and shapes. Return nonzero after setting an error. */
int32_t rt_read_tensors(rt_pool *pool, const rt_json *list, const char *where, const byoc_rt_tensor_info **tensors,
                        int32_t *count);

/* Return whether two lists of tensors have equal names, dtypes and shapes. */
int rt_are_same_tensors(const byoc_rt_tensor_info *left, int32_t num_left, const byoc_rt_tensor_info *right,
                        int32_t num_right);

/* Read the size of an axis, or a dtype. Return nonzero after setting an error. */
int32_t rt_read_axis(const rt_json *value, const char *where, int64_t *size);
int32_t rt_read_dtype(const rt_json *value, const char *where, DLDataType *dtype);

#endif /* BYOC_RT_RECORDS_H_ */
