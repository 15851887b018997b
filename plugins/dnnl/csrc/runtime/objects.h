/* The descriptions and primitives of a stored plan: each line of the text makes an object, numbered in order. */
#ifndef BYOC_DNNL_STORED_OBJECTS_H_
#define BYOC_DNNL_STORED_OBJECTS_H_

#include "onednn.h"
#include "reader.h"

enum { MAX_POST_OPS = 32, MAX_SCALES = 8, MAX_SOURCES = 1024 };

/* A primitive, with the arguments required beside those of its kind. */
typedef struct {
  void *desc;      /* dnnl_primitive_desc_t */
  void *primitive; /* NULL until the first step */
  int32_t is_reorder, is_resampling, num_post_ops, num_scales, num_zero_points;
  Desc operands[MAX_POST_OPS]; /* of the post-ops; NULL: no operand */
  struct {
    int32_t argument, mask;
  } scales[MAX_SCALES];
  int32_t zero_points[MAX_SCALES]; /* arguments */
} StoredPrimitive;

typedef struct {
  const Onednn *onednn;
  void **descs;
  StoredPrimitive *primitives;
  int32_t num_descs, num_primitives;
} Objects;

/* Makes room for an item behind `count` items, and returns the items; NULL after setting an error. */
void *byoc_reserve(void *items, int32_t count, size_t nbytes);

/* Sets the error for a status of oneDNN; returns -1. */
int32_t byoc_refused(const Reader *reader, const char *function, int status);

/* Reads the rest of a line that makes a description, by the first word. Returns 1 if the word makes none, -1 after
 * setting an error. */
int32_t byoc_read_desc(Reader *reader, Objects *objects, const char *word);

/* Reads the number of a description; a negative number, if permitted, gives NULL. */
int32_t byoc_read_desc_number(Reader *reader, const Objects *objects, int is_optional, Desc *desc);

/* Reads the rest of a line that makes a primitive. */
int32_t byoc_read_primitive(Reader *reader, Objects *objects);

/* Creates the primitive behind a description, which generates the code. */
int32_t byoc_create_primitive(const Reader *reader, const Onednn *onednn, StoredPrimitive *primitive);

void byoc_free_objects(Objects *objects);

#endif /* BYOC_DNNL_STORED_OBJECTS_H_ */
