/* The extension's types. A program's tables never change after it is made; what changes is protected by one lock. */
#ifndef BYOC_DNNL_OBJECTS_H_
#define BYOC_DNNL_OBJECTS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* dnnl_exec_arg_t. */
typedef struct {
  int32_t number;
  void *memory;
} Argument;

/* Functions of oneDNN, of the OpenMP library that it runs on, and of the core. The extension is linked with none. */
typedef struct {
  int (*execute)(void *primitive, void *stream, int count, const Argument *arguments);
  int (*create_memory)(void **memory, void *desc, void *engine, void *address);
  int (*destroy_memory)(void *memory);
  int (*set_address)(void *memory, void *address);
  int (*create_stream)(void **stream, void *engine, unsigned flags);
  int (*destroy_stream)(void *stream);
  int (*wait)(void *stream);
  int (*max_threads)(void); /* omp_get_max_threads; NULL where there is one thread */
  void (*parallel)(void (*function)(void *), void *data, unsigned num_threads, unsigned flags); /* GOMP_parallel */
  void (*set_num_threads)(int); /* omp_set_num_threads, of a program that runs in the calling thread alone; or NULL */
  int (*run_team)(int (*body)(void *data), void *data); /* byoc_core.runtime.threads.team_runner; or NULL */
} Api;

enum { NUM_REQUIRED = 7 }; /* of these: those of oneDNN */

/* Whose memory a place is in. */
enum { ARGUMENT, CONSTANT, ARENA, NUM_KINDS };

/* Where a tensor lies. */
typedef struct {
  void *desc; /* dnnl_memory_desc_t; NULL where no primitive reads or writes it */
  int32_t kind;
  int64_t value; /* an argument's number, a constant's address, bytes behind the start of the arena */
} Place;

/* What a step does. */
enum {
  EXECUTE, /* a primitive on its arguments */
  CHECK,   /* ends the run where an element is NaN, or of a larger magnitude than a limit */
  COMPUTE  /* a function of the core */
};

/* Computes numbers that lie next to each other: of byoc_core.runtime.vector_functions.vector_function. */
typedef void (*VectorFunction)(const float *restrict x, float *restrict y, int64_t count);

typedef struct {
  int32_t op;
  union {
    struct {
      int32_t first, count; /* of its arguments among those of all steps */
      void *primitive;
    } execute;
    struct {
      int32_t place, width; /* bytes of an element, 2 or 4 */
      int64_t count;
      int32_t limit; /* the bits of the largest magnitude that may go on */
    } check;
    struct {
      int32_t source, target;
      VectorFunction function;
      int64_t rows, columns; /* without gaps; no columns: of each number by itself */
    } compute;
  };
} Step;

/* What a program needs for one call at a time, but for its arena. */
typedef struct Frame {
  struct Frame *next; /* in the pool */
  const void *thread; /* where it was used last */
  void *stream;
  char **addresses;    /* by place: where it is, or was in the call before */
  void **memories;     /* by place */
  Argument *arguments; /* of all steps */
} Frame;

/* Memory for the intermediates of one call at a time, of whatever program. */
typedef struct Arena {
  struct Arena *next; /* in the pool */
  const void *thread; /* where it was used last */
  char *memory;
  int64_t nbytes;
} Arena;

/* A call under way: what it has taken out of the pools, or made. */
typedef struct {
  Frame *frame;
  Arena *arena;
} Call;

/* A plan with its primitives. */
typedef struct {
  PyObject_HEAD
  Api api;
  void *engine;
  Place *places;
  Step *steps;
  Argument *arguments; /* of all steps; in place of the memory: the number of its place */
  int32_t num_places, num_steps, num_arguments;
  int32_t num_tensors; /* that it needs; a call may bring more */
  int64_t arena_nbytes;
  PyObject *owner; /* holds what the tables point to */
  PyObject *error; /* error(what, step, status) gives an exception */
  /* Under the lock. */
  Frame *frames; /* the pool */
  int32_t num_frames, num_calls; /* in the pool; under way */
} ProgramObject;

extern PyTypeObject *byoc_program_type;
extern PyType_Spec byoc_program_spec, byoc_region_spec;

/* The lock of all that changes. Nothing else is waited for while it is held; a forked child finds it free. */
void byoc_lock(void);
void byoc_unlock(void);
int byoc_keep_lock_over_forks(void); /* once; not 0: failed */

/* How a run ended: with all steps done, at a check that does not hold, or with a failure. */
enum { DONE, STOPPED, FAILED };

/* What failed; Python knows these numbers. */
enum { IN_EXECUTE, IN_CREATE_MEMORY, IN_CREATE_STREAM, IN_SET_ADDRESS, IN_WAIT, IN_ALLOCATION };

typedef struct {
  int32_t what, step, status;
} Failure;

/* Under the lock: begins a call, which keeps the program from being thrown away. */
Call byoc_begin(ProgramObject *program);

/* Runs all steps of a call on the tensors' addresses; makes what it lacks. */
int byoc_run(ProgramObject *program, Call *call, void *const *tensors, Failure *failure);

/* Ends a call: what it had goes back into the pools. */
void byoc_end(ProgramObject *program, Call *call);

Frame *byoc_make_frame(const ProgramObject *program, Failure *failure);
void byoc_free_frame(const ProgramObject *program, Frame *frame);

/* Runs all steps on the tensors' addresses. */
int byoc_run_frame(const ProgramObject *program, Frame *frame, void *const *tensors, char *arena, Failure *failure);

/* Whether no element of 2 or 4 bytes is NaN or of a larger magnitude; `limit`: the bits of that. */
int byoc_check(const Api *api, const void *elements, int64_t count, int32_t width, int32_t limit);

/* Computes a function of rows in all threads of the call; `y` is memory of its own. No columns: of each number by itself. */
void byoc_compute(const Api *api, VectorFunction function, const float *x, float *y, int64_t rows, int64_t columns);

/* Has the threads of the call do work on `count` things, a chunk at a time; the calling thread alone where it is little. */
typedef void (*Body)(void *data, int64_t first, int64_t count);
void byoc_share(const Api *api, int64_t count, int64_t chunk, int is_much, Body body, void *data);

/* Under the lock: takes an arena out of the pool, that of this thread if it can be; NULL where it is empty. */
Arena *byoc_take_arena(const void *thread);

/* Under the lock: puts an arena into the pool, or gives it back where the pool is full: then byoc_free_arenas it. */
Arena *byoc_put_arena(Arena *arena);

/* Gives an arena of so many bytes or more, made in place of a smaller one; NULL where there is no memory. */
Arena *byoc_grow_arena(Arena *arena, int64_t nbytes);

/* Under the lock: empties the pool; then byoc_free_arenas them. */
Arena *byoc_take_all_arenas(void);
void byoc_free_arenas(Arena *arenas);

#endif /* BYOC_DNNL_OBJECTS_H_ */
