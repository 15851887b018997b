/* Execution of frames: native instructions without the interpreter lock, with steps in Python in between. */
#include "objects.h"
#include "threads.h"

/* Make Python raise the error of an instruction. `reason` is the status returned by the instruction's function, or the
 * exception; the reference is taken over. */
static void raise_failure(const CodeObject *code, int32_t index, PyObject *reason) {
  PyObject *instruction = PyLong_FromLong(index);
  PyObject *result = instruction && reason ? PyObject_CallFunctionObjArgs(code->fail, instruction, reason, NULL) : NULL;
  Py_XDECREF(instruction);
  Py_XDECREF(reason);
  if (result) {
    Py_DECREF(result);
    PyErr_SetString(PyExc_RuntimeError, "`fail` returned without raising");
  }
}

/* Return the first instruction after the native instructions, or -1 with an exception. */
static int32_t run_native(FrameObject *frame, int32_t index) {
  int32_t op = frame->frame.code[index].op;
  if (op == BYOC_PYTHON || op == BYOC_RET) return index;
  byoc_stop stop = {index, 0};
  do {
    Py_BEGIN_ALLOW_THREADS;
    stop = byoc_run(&frame->frame, stop.index);
    Py_END_ALLOW_THREADS;
    op = frame->frame.code[stop.index].op;
    if ((op == BYOC_GOTO || op == BYOC_IF) && PyErr_CheckSignals()) return -1;
  } while (op == BYOC_GOTO || op == BYOC_IF);
  if (!stop.status) return stop.index;
  raise_failure(frame->code, stop.index, PyLong_FromLong(stop.status));
  return -1;
}

/* Return the current exception and clear the error indicator. */
static PyObject *take_exception(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) (void)PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

/* Call a step on the registers of the step's instruction. */
static int call_step(FrameObject *frame, int32_t index, PyObject *step) {
  const byoc_instruction *instruction = &frame->frame.code[index];
  PyObject *args = PyTuple_New(instruction->count);
  if (!args) return -1;
  for (int32_t i = 0; i < instruction->count; ++i) {
    PyObject *array = byoc_frame_array(frame, frame->code->operands[instruction->first + i]);
    if (!array || PyTuple_SetItem(args, i, array)) {
      Py_DECREF(args);
      return -1;
    }
  }
  PyObject *result = PyObject_Call(step, args, NULL);
  Py_DECREF(args);
  if (!result) {
    if (PyErr_ExceptionMatches(PyExc_Exception)) raise_failure(frame->code, index, take_exception());
    return -1;
  }
  Py_DECREF(result);
  return 0;
}

static int32_t run_steps(FrameObject *frame, int32_t index) {
  for (;;) {
    index = run_native(frame, index);
    PyObject *step = index < 0 ? NULL : frame->code->steps[index];
    if (!step) return index;
    if (call_step(frame, index, step) || PyErr_CheckSignals()) return -1; /* steps in C do not check for signals */
    ++index;
  }
}

int32_t byoc_frame_run(FrameObject *frame, int32_t index) {
  const int num_threads = frame->code->num_threads;
  if (num_threads < 0) return run_steps(frame, index);
  const byoc_call call = byoc_threads_enter(num_threads);
  index = run_steps(frame, index);
  byoc_threads_leave(call);
  return index;
}

int byoc_frame_run_to_end(FrameObject *frame) {
  const int32_t index = byoc_frame_run(frame, 0);
  if (index < 0) return -1;
  if (frame->frame.code[index].op == BYOC_RET) return 0;
  PyErr_SetString(PyExc_RuntimeError, "a function stopped before its end");
  return -1;
}
