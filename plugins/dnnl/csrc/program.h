/* Programs: plans with their primitives, and the functions that run them. No Python here: the extension and the native
 * half for C programs share these files.
 *
 * The tables of a program are constant; a single lock protects all mutable state.
 */
#ifndef BYOC_DNNL_PROGRAM_H_
#define BYOC_DNNL_PROGRAM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* dnnl_exec_arg_t. */
typedef struct {
  int32_t number;
  void *memory;
} Argument;

/* Functions of oneDNN, of the OpenMP library of oneDNN, and of the core. The extension links none of these. */
typedef struct {
  int (*execute)(void *primitive, void *stream, int count, const Argument *arguments);
  int (*create_memory)(void **memory, void *desc, void *engine, void *address);
  int (*destroy_memory)(void *memory);
  int (*set_address)(void *memory, void *address);
  int (*create_stream)(void **stream, void *engine, unsigned flags);
  int (*destroy_stream)(void *stream);
  int (*wait)(void *stream);
  int (*max_threads)(void); /* omp_get_max_threads; NULL for a single-threaded oneDNN */
  void (*parallel)(void (*function)(void *), void *data, unsigned num_threads, unsigned flags); /* GOMP_parallel */
  int (*thread_num)(void); /* omp_get_thread_num */
  void (*set_num_threads)(int); /* omp_set_num_threads for a program in the calling thread alone, else NULL */
  int (*run_team)(int (*body)(void *data), void *data); /* byoc_core.runtime.threads.team_runner, or NULL */
} Api;

enum { NUM_REQUIRED = 7 }; /* functions of oneDNN, the first in Api */

/* Kinds of memory of a tensor. */
enum { ARGUMENT, CONSTANT, ARENA, NUM_KINDS };

/* The location of a tensor. */
typedef struct {
  void *desc; /* dnnl_memory_desc_t; NULL if no primitive uses the tensor */
  int32_t kind;
  int64_t value; /* index of an argument, address of a constant, or offset in the arena in bytes */
} Location;

/* Operations of steps. */
enum {
  EXECUTE, /* a primitive on its arguments */
  CHECK,   /* ends the run if an element is NaN or exceeds a limit */
  COMPUTE, /* a function of the core */
  POOL,    /* the largest byte of each window */
  QUANTISE, /* floats to bytes, channels last */
  MULTIPLY  /* rows by weights of 4 or 8 bits with scales */
};

/* A function on contiguous numbers, from byoc_core.runtime.vector_functions.vector_function. */
typedef void (*VectorFunction)(const float *restrict x, float *restrict y, int64_t count);

/* An axis of an image in pooling. */
typedef struct {
  int64_t size, count; /* elements and windows; windows: of the result */
  int64_t window, stride, dilation, before; /* taps of a window, steps of windows and taps, padding in front */
} PoolAxis;

/* Pooling of images of bytes, with channels last. */
typedef struct {
  int64_t images, channels;
  PoolAxis axes[2];
  int32_t is_signed;
} Pooling;

/* Division of images with channels first by a scale; the bytes have channels last. */
typedef struct {
  int64_t images, channels, pixels;
  int32_t is_signed, zero_point;
  float scale;
} Quantisation;

enum { MIN_QUANTISED_CHANNELS = 2, MAX_QUANTISED_CHANNELS = 4 };

/* A product of rows by a matrix of weights, packed in panels of BYOC_PANEL_COLUMNS columns, the last filled up with zeros.
 * Weights have a sign. The number of step `s` of a block is in word `s / (32 / num_bits)`, lowest bits first. */
typedef struct {
  int64_t rows, depth, columns;
  int64_t block_size; /* steps sharing a scale and a zero point; the last block may be shorter */
  int32_t num_bits;   /* 4 or 8 */
  int32_t max_lanes;  /* the most floats of a vector */
  int32_t has_zeros;
} WeightProduct;

enum { BYOC_PANEL_COLUMNS = 32 };

typedef struct {
  const float *x;       /* (rows, depth) */
  const int32_t *words; /* (panels, blocks, words of a block, BYOC_PANEL_COLUMNS) */
  const float *scales;  /* (panels, blocks, BYOC_PANEL_COLUMNS) */
  const int8_t *zeros;  /* as scales; unused without zero points */
  float *y;             /* (rows, columns) */
} WeightOperands;

typedef struct {
  int32_t op;
  union {
    struct {
      int32_t first, count; /* range in the arguments of all steps */
      void *primitive;
    } execute;
    struct {
      int32_t location, width; /* width: bytes of an element, 2 or 4 */
      int64_t count;
      int32_t limit; /* bits of the largest permitted magnitude */
    } check;
    struct {
      int32_t source, target;
      VectorFunction function;
      int64_t rows, columns; /* contiguous; columns == 0: elementwise */
    } compute;
    struct {
      int32_t source, target;
      Pooling pooling;
    } pool;
    struct {
      int32_t source, target;
      Quantisation quantisation;
    } quantise;
    struct {
      int32_t source, words, scales, zeros, target;
      WeightProduct product;
    } multiply;
  };
} Step;

/* The resources of a single call of a program, without the arena. */
typedef struct Frame {
  struct Frame *next; /* in the pool */
  const void *thread; /* thread of the last use */
  void *stream;
  char **addresses;    /* by location: addresses in the latest call */
  void **memories;     /* by location */
  Argument *arguments; /* of all steps */
} Frame;

/* Memory for the intermediates of a single call, of any program. */
typedef struct Arena {
  struct Arena *next; /* in the pool */
  const void *thread; /* thread of the last use */
  char *memory;
  int64_t nbytes;
} Arena;

/* A running call: the resources taken from the pools, or created. */
typedef struct {
  Frame *frame;
  Arena *arena;
} Call;

/* Ends a part of a recorded call: byoc_core.runtime.parts.part_marker. */
typedef void (*PartMarker)(const char *part, const char *ops);

/* The reported parts of a program's calls. */
typedef struct {
  PartMarker marker;
  void *owner;         /* of the texts */
  const char *texts[]; /* of each step the part, then the ops */
} Parts;

/* A plan with its primitives. */
typedef struct {
  Api api;
  void *engine;
  Location *locations;
  Step *steps;
  Argument *arguments; /* of all steps; the member memory holds the index of a location */
  int32_t num_locations, num_steps, num_arguments;
  int32_t num_tensors; /* required by the program; a call may pass more */
  int64_t arena_nbytes;
  _Atomic(Parts *) parts; /* NULL until a machine records calls; never changed afterwards */
  /* Protected by the lock. */
  Frame *frames; /* the pool */
  int32_t num_frames, num_calls; /* frames in the pool; running calls */
} Program;

/* Returns the fault of a step whose numbers come from outside, or NULL; the locations and arguments are read before. */
const char *byoc_find_fault(const Program *program, const Step *step);

/* The lock of all mutable state. The holder waits for nothing else; in a forked child the lock is free. */
void byoc_lock(void);
void byoc_unlock(void);
int byoc_register_fork_handlers(void); /* call once; nonzero after a failure */

/* With the lock held: waits for a condition, without the lock. A condition with waiters at a fork is unusable in the child. */
void byoc_wait_for(pthread_cond_t *condition);

/* Calls of oneDNN are between these two, without Python's lock: a fork holds Python's lock and waits for all threads
 * inside. A long stay lets forks pass now and then. */
void byoc_enter_onednn(void);
void byoc_leave_onednn(void);
void byoc_let_forks_pass(void);

/* The end of a run: all steps are done, a check failed, or an operation failed. */
enum { DONE, STOPPED, FAILED };

/* The failed operation; Python uses the same numbers. */
enum { IN_EXECUTE, IN_CREATE_MEMORY, IN_CREATE_STREAM, IN_SET_ADDRESS, IN_WAIT, IN_ALLOCATION };

typedef struct {
  int32_t operation, step, status;
} Failure;

/* With the lock held: begins a call, and so protects the program from being dropped. */
Call byoc_begin(Program *program);

/* Runs all steps of a call on the tensors' addresses; creates missing resources. */
int byoc_run(Program *program, Call *call, void *const *tensors, Failure *failure);

/* Ends a call and returns its resources to the pools. */
void byoc_end(Program *program, Call *call);

Frame *byoc_make_frame(const Program *program, Failure *failure);
void byoc_free_frame(const Program *program, Frame *frame);

/* Runs all steps on the tensors' addresses. */
int byoc_run_frame(const Program *program, Frame *frame, void *const *tensors, char *arena, Failure *failure);

/* Returns whether all elements of 2 or 4 bytes are within a magnitude, and not NaN; `limit`: bits of the magnitude. */
int byoc_check(const Api *api, const void *elements, int64_t count, int32_t width, int32_t limit);

/* Computes a function of rows in all threads of the call; `y` does not overlap `x`. columns == 0: elementwise. */
void byoc_compute(const Api *api, VectorFunction function, const float *x, float *y, int64_t rows, int64_t columns);

/* Writes the largest byte of each window, in all threads of the call; `y` does not overlap `x`. */
void byoc_pool(const Api *api, const Pooling *pooling, const void *x, void *y);

/* Writes floats as bytes with channels last, in all threads of the call. */
void byoc_quantise(const Api *api, const Quantisation *quantisation, const float *x, void *y);

/* Multiplies rows by weights with scales, in all threads of the call. Magnitudes of `x` must leave room for the sums of
 * a block, which are multiplied by the scale at the end. */
void byoc_multiply(const Api *api, const WeightProduct *product, const WeightOperands *operands);

/* Divides work on `count` elements into chunks for the threads of the call; little work stays in the calling thread. */
typedef void (*Body)(void *data, int64_t first, int64_t count);
void byoc_share(const Api *api, int64_t count, int64_t chunk, int is_large, Body body, void *data);

/* Allocates memory aligned to 64 bytes, or to large pages if large; released by `free`. NULL if out of memory. */
char *byoc_allocate(int64_t nbytes);

/* With the lock held: takes an arena from the pool, preferably of this thread; NULL if the pool is empty. */
Arena *byoc_take_arena(const void *thread);

/* With the lock held: puts an arena into the pool; returns the arena if the pool is full, for byoc_free_arenas. */
Arena *byoc_put_arena(Arena *arena);

/* Returns an arena of at least `nbytes` bytes, a replacement if `arena` is smaller; NULL if out of memory. */
Arena *byoc_grow_arena(Arena *arena, int64_t nbytes);

/* With the lock held: empties the pool and returns all arenas, for byoc_free_arenas. */
Arena *byoc_take_all_arenas(void);
void byoc_free_arenas(Arena *arenas);

#endif /* BYOC_DNNL_PROGRAM_H_ */
