/* Times of the instructions of a call, and of the parts of each instruction's function. */
#ifndef BYOC_RECORDER_H_
#define BYOC_RECORDER_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* A span of time: of an instruction (no part), or of a part of the instruction's function. */
typedef struct {
  int32_t index;       /* of the instruction */
  int64_t part, ops;   /* positions in the recorder's text; -1 for an instruction */
  int64_t start, stop; /* nanoseconds of the monotonic clock */
} byoc_event;

/* The events of a running call. Used by a single thread; no function but byoc_recorder_end needs the interpreter lock. */
typedef struct byoc_recorder {
  struct byoc_recorder *outer; /* the recorder of the surrounding call in this thread */
  byoc_event *events;
  char *text;
  int64_t num_events, max_events, num_bytes, max_bytes;
  int32_t index;    /* of the running instruction; -1 between instructions */
  int64_t position; /* of the running instruction's event */
  int64_t latest;   /* end of the latest part, or start of the running instruction */
  int is_out_of_memory;
} byoc_recorder;

/* Begin the record of a call in this thread. */
void byoc_recorder_begin(byoc_recorder *recorder);

/* Begin and end an instruction. */
void byoc_recorder_enter(byoc_recorder *recorder, int32_t index);
void byoc_recorder_leave(byoc_recorder *recorder);

/* End the record of a call; return the record, a capsule read by `events_of` of the module. A set exception stays set.
 * NULL with an exception if memory is missing. */
PyObject *byoc_recorder_end(byoc_recorder *recorder);

/* Record the end of a part of the running instruction's function: see byoc_ffi.h. Outside of recorded calls, nothing
 * happens. */
void byoc_mark_part(const char *part, const char *ops);

extern PyMethodDef byoc_recorder_methods[];

#endif /* BYOC_RECORDER_H_ */
