/* Modules of stored plans: regions, their plans by sizes, and the programs made of the plans by number of threads. */
#ifndef BYOC_DNNL_STORED_H_
#define BYOC_DNNL_STORED_H_

#include <pthread.h>

#include "byoc_rt.h"
#include "objects.h"
#include "packed_blocks.h"

enum { MAX_TENSOR_NDIM = 32, ALIGNMENT = 64 };

/* A constant cited by a plan. */
typedef struct CitedConstant {
  struct CitedConstant *next;
  const DLTensor *tensor;
  char digest[MAX_WORD_NBYTES];
} CitedConstant;

/* A constant in the layout of a primitive, shared by the programs of a module; modules share the bytes. */
typedef struct PackedConstant {
  struct PackedConstant *next;
  const void *source;              /* the address of the constant */
  void *source_desc, *target_desc; /* copies */
  void *memory;                    /* belongs to the block, once there is a block */
  int64_t nbytes;
  PackedBlock *block;
} PackedConstant;

/* A program made of a plan, for a number of threads. */
typedef struct StoredProgram {
  struct StoredProgram *next;
  int32_t num_threads;
  Program program;
  Objects objects;
} StoredProgram;

/* An argument of a region: an input or an output. */
typedef struct {
  DLDataType dtype;
  int32_t ndim;
  int64_t shape[MAX_TENSOR_NDIM];
  int64_t nbytes;
} Tensor;

/* A plan of a region for sizes. */
typedef struct Plan {
  struct Plan *next;
  int32_t num_threads; /* of the calls planned for */
  int32_t is_serial;   /* whether calls run in the calling thread alone */
  int64_t arena_nbytes;
  Tensor *tensors; /* inputs, then outputs */
  Reader body;     /* of the objects and steps */
  _Atomic(StoredProgram *) programs; /* grows with the mutex of the module held */
} Plan;

typedef struct Module Module;

typedef struct Region {
  struct Region *next;
  const Module *module;
  char name[MAX_WORD_NBYTES];
  int32_t num_inputs, num_outputs;
  Plan *plans; /* in the order of the text */
} Region;

struct Module {
  char *where;
  const Onednn *onednn;
  Region *regions;
  pthread_mutex_t *mutex; /* of the lists below, and of the programs of plans */
  CitedConstant *constants;
  PackedConstant *packed;
  /* While the module is loaded; constants cited by plans are found then. */
  const byoc_rt_payload *payload;
};

/* Reads the regions and plans of a text; makes no objects. */
int32_t byoc_read_regions(Module *module, Reader *reader);
void byoc_free_regions(Module *module);

/* Returns the program of a plan for the calls of a number of threads, made at the first request; NULL after setting an
 * error. */
StoredProgram *byoc_program_for(Module *module, const Region *region, Plan *plan, int32_t num_threads);

/* Makes a program of a plan, with the module's mutex held; the number of threads of the calling thread is set. */
int32_t byoc_build_program(Module *module, const Region *region, const Plan *plan, StoredProgram *stored);
void byoc_free_program(StoredProgram *stored);

/* Returns a constant by digest, or NULL after setting an error. */
const DLTensor *byoc_cite_constant(Module *module, const char *digest);

/* Returns a constant in the layout of a description, packed by a primitive at the first request; NULL after setting an
 * error. */
const PackedConstant *byoc_pack_constant(Module *module, const Reader *reader, StoredPrimitive *primitive,
                                         const void *source, Desc source_desc, Desc target_desc);
void byoc_free_constants(Module *module);

/* The memory behind a location: bytes from the address on, and whether steps may write. */
typedef struct {
  int64_t nbytes;
  int32_t alignment, is_writable;
} Memory;

/* Checks the operands of a step other than a primitive against their memory, one for each location. */
int32_t byoc_check_operands(const Reader *reader, const Program *program, const Step *step, const Memory *memories);

/* Reads the rest of a line with a step other than a primitive, by the first word. Returns 1 if the word names no step,
 * -1 after setting an error. */
int32_t byoc_read_core_step(Reader *reader, const char *word, Step *step);

#endif /* BYOC_DNNL_STORED_H_ */
