/* The functions of vector_functions.h, for any processor of the family. */
#define BYOC_VECTOR_TABLE byoc_vector_any
#define BYOC_VECTOR_NBYTES 16
#include "vector_bodies.h"
