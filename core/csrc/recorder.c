#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local byoc_recorder *current;

static int64_t nanoseconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Return memory for at least `count` items, growing by doubling; NULL, with the old memory unchanged, without memory. */
static void *grow(void *memory, int64_t *max_count, int64_t count, size_t itemsize) {
  if (count <= *max_count) return memory;
  const int64_t wanted = 2 * count + 64;
  void *larger = realloc(memory, (size_t)wanted * itemsize);
  if (larger) *max_count = wanted;
  return larger;
}

/* Store a text and return its position; -1 without memory. */
static int64_t store_text(byoc_recorder *recorder, const char *text) {
  const int64_t count = (int64_t)strlen(text) + 1, position = recorder->num_bytes;
  char *memory = grow(recorder->text, &recorder->max_bytes, position + count, 1);
  if (!memory) return -1;
  recorder->text = memory;
  memcpy(memory + position, text, (size_t)count);
  recorder->num_bytes += count;
  return position;
}

static void add_event(byoc_recorder *recorder, byoc_event event) {
  byoc_event *events = grow(recorder->events, &recorder->max_events, recorder->num_events + 1, sizeof event);
  if (!events) {
    recorder->is_out_of_memory = 1;
    return;
  }
  recorder->events = events;
  events[recorder->num_events++] = event;
}

void byoc_recorder_begin(byoc_recorder *recorder) {
  *recorder = (byoc_recorder){.outer = current, .index = -1};
  current = recorder;
}

void byoc_recorder_enter(byoc_recorder *recorder, int32_t index) {
  recorder->index = index;
  recorder->position = recorder->num_events;
  add_event(recorder, (byoc_event){index, -1, -1, 0, 0});
  recorder->latest = nanoseconds();
  if (!recorder->is_out_of_memory) recorder->events[recorder->position].start = recorder->latest;
}

void byoc_recorder_leave(byoc_recorder *recorder) {
  const int64_t stop = nanoseconds();
  if (!recorder->is_out_of_memory) recorder->events[recorder->position].stop = stop;
  recorder->index = -1;
}

void byoc_mark_part(const char *part, const char *ops) {
  byoc_recorder *recorder = current;
  if (!recorder || recorder->index < 0) return;
  const int64_t stop = nanoseconds();
  const byoc_event event = {recorder->index, store_text(recorder, part), store_text(recorder, ops), recorder->latest,
                            stop};
  if (event.part < 0 || event.ops < 0)
    recorder->is_out_of_memory = 1;
  else
    add_event(recorder, event);
  recorder->latest = stop;
}

/* The events of a finished record. */
typedef struct {
  byoc_event *events;
  char *text;
  int64_t num_events;
} Record;

static const char record_name[] = "byoc_core._native.record";

static void free_record(PyObject *capsule) {
  Record *record = PyCapsule_GetPointer(capsule, record_name);
  free(record->events);
  free(record->text);
  free(record);
}

PyObject *byoc_recorder_end(byoc_recorder *recorder) {
  PyObject *type, *value, *traceback, *capsule = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  current = recorder->outer;
  Record *record = recorder->is_out_of_memory ? NULL : malloc(sizeof *record);
  if (record) {
    *record = (Record){recorder->events, recorder->text, recorder->num_events};
    capsule = PyCapsule_New(record, record_name, free_record);
  } else {
    (void)PyErr_NoMemory();
  }
  if (!capsule) {
    free(recorder->events);
    free(recorder->text);
    free(record);
  }
  if (type) PyErr_Restore(type, value, traceback);
  return capsule;
}

static PyObject *to_tuple(const Record *record, const byoc_event *event) {
  if (event->part < 0)
    return Py_BuildValue("iOOLL", (int)event->index, Py_None, Py_None, (long long)event->start, (long long)event->stop);
  return Py_BuildValue("issLL", (int)event->index, record->text + event->part, record->text + event->ops,
                       (long long)event->start, (long long)event->stop);
}

/* events_of(record): a list of (instruction, part, ops, start, stop). */
static PyObject *events_of(PyObject *module, PyObject *capsule) {
  const Record *record = PyCapsule_GetPointer(capsule, record_name);
  PyObject *list = record ? PyList_New((Py_ssize_t)record->num_events) : NULL;
  for (int64_t i = 0; list && i < record->num_events; ++i) {
    PyObject *event = to_tuple(record, &record->events[i]);
    if (!event || PyList_SetItem(list, (Py_ssize_t)i, event)) Py_CLEAR(list);
  }
  return list;
}

/* record_call(index, function, arguments): call a function as an instruction with a record. */
static PyObject *record_call(PyObject *module, PyObject *args) {
  int index;
  PyObject *function, *arguments;
  if (!PyArg_ParseTuple(args, "iOO!", &index, &function, &PyTuple_Type, &arguments)) return NULL;
  byoc_recorder recorder;
  byoc_recorder_begin(&recorder);
  byoc_recorder_enter(&recorder, (int32_t)index);
  PyObject *result = PyObject_Call(function, arguments, NULL);
  byoc_recorder_leave(&recorder);
  PyObject *record = byoc_recorder_end(&recorder);
  PyObject *pair = result && record ? PyTuple_Pack(2, result, record) : NULL;
  Py_XDECREF(result);
  Py_XDECREF(record);
  return pair;
}

static PyObject *mark_part(PyObject *module, PyObject *args) {
  const char *part, *ops;
  if (!PyArg_ParseTuple(args, "ss", &part, &ops)) return NULL;
  byoc_mark_part(part, ops);
  Py_RETURN_NONE;
}

PyMethodDef byoc_recorder_methods[] = {
    {"record_call", record_call, METH_VARARGS,
     "record_call(index, function, arguments)\n--\n\nCall a function as an instruction; return the result and the record."},
    {"events_of", events_of, METH_O,
     "events_of(record)\n--\n\nReturn the events of a record (instruction, part, ops, start, stop), with part and ops None "
     "for the instruction itself."},
    {"mark_part", mark_part, METH_VARARGS,
     "mark_part(part, ops)\n--\n\nRecord the end of a part of the running instruction, if the call is recorded."},
    {NULL, NULL, 0, NULL},
};
