/* Programs of the virtual machine, as in byoc_core/vm/program.py and instructions.py.
 *
 * A function's registers are numbered in six groups, one after the other: parameters, results, constants, planned
 * tensors, dynamic tensors, views.
 */
#ifndef BYOC_RT_PROGRAM_H_
#define BYOC_RT_PROGRAM_H_

#include "dims.h"

enum { RT_MAX_NDIM = 64 }; /* of a register */
enum { /* versions of the binary form */
  RT_PLAIN_PROGRAM = 1,
  RT_PROGRAM_WITH_VIEWS = 2,
  RT_PROGRAM_WITH_STATES = 3,
  RT_PROGRAM_WITH_DOMAINS = 4, /* the first version of programs of devices */
  RT_PROGRAM_WITH_POOLS = 6    /* the last version of programs of devices */
};

typedef enum {
  RT_PARAM,    /* an argument of the call; read-only */
  RT_RESULT,   /* the buffer of a result */
  RT_CONSTANT, /* read-only */
  RT_TENSOR,   /* an intermediate at a planned place in the arena */
  RT_DYNAMIC,  /* a tensor of a size only known while the function runs, or returned by an external function */
  RT_VIEW,     /* memory of another register of the first four groups */
} rt_register_kind;

typedef struct {
  rt_register_kind kind;
  rt_spec spec; /* dtype and shape; the name of a parameter, result or dynamic tensor */
  int64_t itemsize;
  int32_t owner;          /* the storage of a planned tensor, the base register of a view, or the program's constant */
  int64_t offset;         /* of a planned tensor: bytes from the start of the storage */
  int32_t view_offset;    /* of a view: bytes from the base's first element, a size */
  const int32_t *strides; /* of a view: sizes, in elements; NULL: row-major */
  const int32_t *binds;   /* of a dynamic tensor: the symbols learnt from the definition */
  int32_t num_binds;
  int needs_compact; /* a view with strides used by a callee without strides */
} rt_register;

/* The encodings of instructions, of kinds of calls, and of builtins. */
enum { RT_CALL = 1, RT_RET = 2, RT_GOTO = 3, RT_IF = 4 };
enum { RT_CALL_EXTERN, RT_CALL_PACKED, RT_CALL_FUNCTION, RT_CALL_BUILTIN, RT_NUM_CALL_KINDS };
enum { RT_COPY, RT_ALLOCATE, RT_ZERO, RT_INCREMENT, RT_LOOP_TEST, RT_CLONE, RT_NUM_BUILTINS };

typedef struct {
  int32_t opcode;
  int32_t call_kind, callee; /* of a call; callee: external symbol, function or builtin */
  const int32_t *args;       /* registers read: of a call, the values of a return, or a condition */
  const int32_t *results;    /* registers written or defined by a call */
  int32_t num_args, num_results;
  int32_t target; /* of a jump */
} rt_instruction;

/* A state: a parameter and a result in one buffer, the value before and after a call. */
typedef struct {
  int32_t param, result;
  int32_t initial; /* the program's constant before the first call; -1: zeros */
  int32_t axis;    /* of a moving length: the result may have more rows than the parameter, and the first call gets no
                    * rows; -1: equal shapes */
} rt_state_slot;

typedef struct {
  const char *name;
  rt_dims *dims;
  rt_register *registers;
  int32_t num_params, num_results, num_constants, num_tensors, num_dynamics, num_views;
  int32_t first_result, first_constant, first_tensor, first_dynamic, first_view, num_registers;
  const rt_spec *params, *results; /* the declarations of the first two groups, one after the other */
  const int32_t *storages;         /* bytes: sizes */
  int32_t num_storages;
  const rt_instruction *code;
  int32_t num_instructions;
  const rt_state_slot *states;
  int32_t num_states;
  const uint8_t *is_early; /* by result: whether the inputs determine the size */
  const uint8_t *is_known; /* by size: whether the inputs determine the symbol */
} rt_vm_function;

typedef struct {
  const char *digest;
  DLDataType dtype;
  int32_t ndim;
  const int64_t *shape;
} rt_constant_ref;

typedef struct {
  const char *const *externs;
  const rt_constant_ref *constants;
  rt_vm_function *functions;
  int32_t num_externs, num_constants, num_functions;
  int version;
} rt_program;

/* Append the name of a register in listings, such as `t3`. */
void rt_append_register(rt_line *line, const rt_vm_function *function, int32_t number);

/* Return the name of the callee of a call with a callee in range. */
const char *rt_callee_name(const rt_program *program, const rt_instruction *call);

/* Return the register owning the memory of a register: the base of a view, else the register itself. */
const rt_register *rt_owner(const rt_vm_function *function, int32_t number);

/* Return the kind of a call in listings. */
const char *rt_call_mnemonic(const rt_instruction *call);

/* Read a program in the binary form of byoc_core/vm/encoding.py, with the structure checked: all indices are in range.
 * Return nonzero after setting an error of kind BYOC_RT_ARTIFACT, or BYOC_RT_UNSUPPORTED for a program of a device. */
int32_t rt_decode_program(rt_pool *pool, const uint8_t *data, size_t nbytes, const char *where, rt_program *program);

/* Check the laws of a decoded program that the machine relies on; set `is_early` and `needs_compact` of functions. A
 * lawful program never makes the machine read or write outside of the memory of registers, if each callee writes inside
 * of the callee's arguments. Return nonzero after setting an error of kind BYOC_RT_ARTIFACT. */
int32_t rt_check_program(rt_pool *pool, rt_program *program, const char *where);

/* Check the laws of the states of a function with known `is_early`. Return nonzero after setting an error of kind
 * BYOC_RT_ARTIFACT. */
int32_t rt_check_states(rt_pool *pool, const rt_program *program, const rt_vm_function *function, const char *where);

#endif /* BYOC_RT_PROGRAM_H_ */
