/* JSON text (RFC 8259), read into nodes of a pool in linear time.
 *
 * Strict: UTF-8 only, no NaN or Infinity, no byte after the value, no name twice in an object, nesting of at most
 * RT_JSON_MAX_DEPTH levels, and integers of 64 bits.
 */
#ifndef BYOC_RT_JSON_H_
#define BYOC_RT_JSON_H_

#include <stdint.h>

#include "memory.h"
#include "text.h"

enum { RT_JSON_MAX_DEPTH = 256 };

typedef enum {
  RT_JSON_NULL,
  RT_JSON_BOOL,
  RT_JSON_INTEGER, /* a number without fraction and exponent */
  RT_JSON_REAL,    /* any other number */
  RT_JSON_TEXT,
  RT_JSON_ARRAY,
  RT_JSON_OBJECT,
} rt_json_kind;

typedef struct rt_json rt_json;
struct rt_json {
  rt_json_kind kind;
  uint32_t count; /* of items or fields */
  union {
    int is_true;
    int64_t integer;
    double real;
    rt_text text;       /* with escapes replaced, and a NUL behind */
    rt_json *items;     /* of an array, one after the other */
    struct rt_json_member *fields;
  };
};

/* A field of an object; the fields are in the order of the text. */
typedef struct rt_json_member {
  rt_text name;
  rt_json value;
} rt_json_member;

/* Read a JSON value. Return NULL after setting an error of kind `status` that names `where` and the byte. The nodes may
 * point into `text`: keep the text as long as the nodes. */
const rt_json *rt_json_read(rt_pool *pool, rt_text text, int32_t status, const char *where);

/* Return a field of an object, or NULL: no object, or no such field. */
const rt_json *rt_json_field(const rt_json *object, const char *name);

/* Return an item of an array, or NULL: no array, or too few items. */
const rt_json *rt_json_item(const rt_json *array, uint32_t index);

/* Return whether a node exists and is of a kind; `node` may be NULL. */
int rt_json_is(const rt_json *node, rt_json_kind kind);

#endif /* BYOC_RT_JSON_H_ */
