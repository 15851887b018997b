/* Execution of frames: native instructions without the interpreter lock, with steps in Python in between. */
#include "objects.h"
#include "recorder.h"
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

/* Run a single instruction; an index other than `index` is the next instruction. */
static byoc_stop run_single(const byoc_frame *frame, int32_t index) {
  enum { NEXT = 1, TARGET = 2 };
  byoc_instruction code[] = {frame->code[index], {.op = BYOC_PYTHON}, {.op = BYOC_PYTHON}};
  code[0].target = TARGET;
  byoc_frame single = *frame;
  single.code = code;
  byoc_stop stop = byoc_run(&single, 0);
  stop.index = stop.index == NEXT ? index + 1 : stop.index == TARGET ? frame->code[index].target : index;
  return stop;
}

/* As run_native, with a record of each call and copy. */
static int32_t run_native_recorded(FrameObject *frame, int32_t index, byoc_recorder *recorder) {
  for (;;) {
    const int32_t op = frame->frame.code[index].op;
    if (op == BYOC_PYTHON || op == BYOC_RET) return index;
    const int does_work = op == BYOC_CALL || op == BYOC_COPY;
    byoc_stop stop;
    Py_BEGIN_ALLOW_THREADS;
    if (does_work) byoc_recorder_enter(recorder, index);
    stop = run_single(&frame->frame, index);
    if (does_work) byoc_recorder_leave(recorder);
    Py_END_ALLOW_THREADS;
    if (does_work && stop.index == index) {
      if (!stop.status) return index;
      raise_failure(frame->code, index, PyLong_FromLong(stop.status));
      return -1;
    }
    if (!does_work && PyErr_CheckSignals()) return -1;
    index = stop.index;
  }
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

/* Run instructions and steps; `recorder` may be NULL. */
static int32_t run_steps(FrameObject *frame, int32_t index, byoc_recorder *recorder) {
  for (;;) {
    index = recorder ? run_native_recorded(frame, index, recorder) : run_native(frame, index);
    PyObject *step = index < 0 ? NULL : frame->code->steps[index];
    if (!step) return index;
    if (recorder) byoc_recorder_enter(recorder, index);
    const int status = call_step(frame, index, step);
    if (recorder) byoc_recorder_leave(recorder);
    if (status || PyErr_CheckSignals()) return -1; /* steps in C do not check for signals */
    ++index;
  }
}

/* Run instructions and steps, and pass the record of a call without an error on. */
static int32_t run_recorded(FrameObject *frame, int32_t index) {
  byoc_recorder recorder;
  byoc_recorder_begin(&recorder);
  index = run_steps(frame, index, &recorder);
  PyObject *record = byoc_recorder_end(&recorder);
  PyObject *result = record && index >= 0 ? PyObject_CallFunctionObjArgs(frame->code->record, record, NULL) : NULL;
  Py_XDECREF(record);
  Py_XDECREF(result);
  return result ? index : -1;
}

static int32_t run_code(FrameObject *frame, int32_t index) {
  return frame->code->record ? run_recorded(frame, index) : run_steps(frame, index, NULL);
}

int32_t byoc_frame_run(FrameObject *frame, int32_t index) {
  const int num_threads = frame->code->num_threads;
  if (num_threads < 0) return run_code(frame, index);
  const byoc_call call = byoc_threads_enter(num_threads);
  index = run_code(frame, index);
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
