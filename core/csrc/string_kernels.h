/* Kernels of strings and n-grams as functions and types of the extension module. */
#ifndef BYOC_STRING_KERNELS_H_
#define BYOC_STRING_KERNELS_H_

#include "objects.h"
#include "strings.h"

extern PyMethodDef byoc_string_kernel_methods[], byoc_text_kernel_methods[], byoc_value_object_methods[];
extern PyType_Spec byoc_key_table_spec, byoc_gram_tree_spec;
extern PyTypeObject *byoc_key_table_type, *byoc_gram_tree_type;

/* A growing array of bytes. */
typedef struct {
  char *bytes;
  int64_t nbytes, capacity;
} byoc_byte_list;

/* Return the number of int64 of a buffer; -1, with an exception, for another size. */
int64_t byoc_count_integers(const Py_buffer *buffer);

/* Describe the strings of two buffers. Return 0, or -1 with an exception for other sizes than int64. */
int byoc_read_strings(byoc_strings *strings, const Py_buffer *data, const Py_buffer *lengths);

/* Fill a list with fitting strings in upper or lower case, by the rules of Python's strings, and write the lengths.
 *
 * Return 0, or -1 with an exception. The bytes of the list belong to the caller.
 */
int byoc_change_case(const byoc_strings *strings, int is_upper, byoc_byte_list *list, int64_t *new_lengths);

#endif
