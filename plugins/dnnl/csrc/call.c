/* Calls: pools lend the resources of a call. No Python here. */
#include "program.h"

enum { MAX_POOLED_FRAMES = 16 };

/* Its address identifies the thread. */
static _Thread_local char thread;

static Frame *take_frame(Program *program) {
  Frame **link = &program->frames;
  for (Frame **candidate = &program->frames; *candidate; candidate = &(*candidate)->next) {
    if ((*candidate)->thread != &thread) continue;
    link = candidate;
    break;
  }
  Frame *frame = *link;
  if (frame) {
    *link = frame->next;
    --program->num_frames;
  }
  return frame;
}

Call byoc_begin(Program *program) {
  ++program->num_calls;
  return (Call){take_frame(program), byoc_take_arena(&thread)};
}

static int run_inside(Program *program, Call *call, void *const *tensors, Failure *failure) {
  *failure = (Failure){IN_ALLOCATION, 0, 0};
  if (!call->frame && !(call->frame = byoc_make_frame(program, failure))) return FAILED;
  if (!(call->arena = byoc_grow_arena(call->arena, program->arena_nbytes))) return FAILED;
  call->frame->thread = call->arena->thread = &thread;
  return byoc_run_frame(program, call->frame, tensors, call->arena->memory, failure);
}

int byoc_run(Program *program, Call *call, void *const *tensors, Failure *failure) {
  byoc_enter_onednn();
  const int outcome = run_inside(program, call, tensors, failure);
  byoc_leave_onednn();
  return outcome;
}

void byoc_end(Program *program, Call *call) {
  Frame *frame = call->frame;
  Arena *arena = call->arena;
  byoc_lock();
  if (frame && program->num_frames < MAX_POOLED_FRAMES) {
    frame->next = program->frames;
    program->frames = frame;
    ++program->num_frames;
    frame = NULL;
  }
  if (arena) arena = byoc_put_arena(arena);
  if (frame) { /* before the end of the last reference to the program */
    byoc_unlock();
    byoc_enter_onednn();
    byoc_free_frame(program, frame);
    byoc_leave_onednn();
    byoc_lock();
  }
  --program->num_calls;
  byoc_unlock();
  byoc_free_arenas(arena);
}
