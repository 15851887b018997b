#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* cpu_set_t, sched_getcpu, syscall */
#endif
#include "byoc_places.h"

#if defined(__linux__)
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(byoc_processors) == sizeof(cpu_set_t), "a cpu_set_t has 1,024 processors");

/* The number of the calling thread, for functions with the number of a thread. */
enum { THIS_THREAD = 0 };

static int restrict_to(int thread, const byoc_processors *processors) {
  cpu_set_t affinity;
  memcpy(&affinity, processors, sizeof(affinity));
  return sched_setaffinity(thread, sizeof(affinity), &affinity) == 0;
}

static int read_allowed_of(int thread, byoc_processors *allowed) {
  cpu_set_t affinity;
  if (sched_getaffinity(thread, sizeof(affinity), &affinity) != 0) {
    return 0;
  }
  memcpy(allowed, &affinity, sizeof(*allowed));
  return 1;
}

int byoc_read_allowed(byoc_processors *allowed) { return read_allowed_of(THIS_THREAD, allowed); }

static int is_known(int processor) { return processor >= 0 && processor < CPU_SETSIZE; }

static unsigned long bit_of(int processor) { return 1ul << (processor % BYOC_WORD_BITS); }

/* Return a set of one processor, or an empty set for an unknown processor. */
static byoc_processors only(int processor) {
  byoc_processors set = {{0}};
  if (is_known(processor)) {
    set.words[processor / BYOC_WORD_BITS] = bit_of(processor);
  }
  return set;
}

/* Remove processors from a set; return whether any are left. */
static int remove_from(byoc_processors *set, const byoc_processors *removed) {
  unsigned long any = 0;
  for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
    set->words[word] &= ~removed->words[word];
    any |= set->words[word];
  }
  return any != 0;
}

/* Mark a processor as taken; return whether another thread had taken the processor. */
static int take(byoc_places *places, int processor) {
  if (!is_known(processor)) {
    return 0;
  }
  const unsigned long bit = bit_of(processor);
  return (atomic_fetch_or(&places->words[processor / BYOC_WORD_BITS], bit) & bit) != 0;
}

/* Limit this thread to the allowed processors not taken by the team, and `own`. Return 0 if there are none. */
static int avoid(byoc_places *places, int own, const byoc_processors *allowed) {
  byoc_processors taken, remaining = *allowed;
  const byoc_processors own_only = only(own);
  for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
    taken.words[word] = atomic_load(&places->words[word]);
  }
  (void)remove_from(&taken, &own_only);
  return remove_from(&remaining, &taken) && restrict_to(THIS_THREAD, &remaining);
}

/* Read the processors allowed for a worker without the limits of earlier teams. Without such limits, the worker is
 * allowed the processors of the opening thread, unless bound elsewhere by others. */
static int read_unlimited(const byoc_places *places, const byoc_processors *own, byoc_processors *allowed) {
  byoc_processors elsewhere = *own;
  if (!read_allowed_of(places->opener, allowed)) {
    return 0;
  }
  if (remove_from(&elsewhere, allowed)) {
    *allowed = *own;
  }
  return 1;
}

void byoc_open_places(byoc_places *places) {
  for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
    atomic_init(&places->words[word], 0);
  }
  places->opener = byoc_thread_id();
  places->home = sched_getcpu();
  (void)take(places, places->home);
}

/* A thread with unrestricted processor affinity may also run on processors added later; a thread restricted to named
 * processors may not. */
void byoc_allow(const byoc_processors *allowed) {
  byoc_processors all, affinity;
  memset(&all, 0xff, sizeof(all));
  (void)restrict_to(THIS_THREAD, &all);
  if (!byoc_read_allowed(&affinity) || memcmp(&affinity, allowed, sizeof(affinity)) != 0) {
    (void)restrict_to(THIS_THREAD, allowed);
  }
}

int byoc_take_place(byoc_places *places) {
  enum { ROUNDS = 8 }; /* other threads may take a free processor first */
  byoc_processors own, allowed;
  if (!take(places, sched_getcpu()) || !byoc_read_allowed(&own) || !read_unlimited(places, &own, &allowed)) {
    return 0;
  }
  int is_limited = 0;
  for (int round = 0; round < ROUNDS && avoid(places, -1, &allowed); ++round) {
    is_limited = 1;
    if (!take(places, sched_getcpu())) {
      break;
    }
  }
  if (!is_limited) {
    byoc_allow(&allowed); /* more threads than processors: limits of earlier teams would be in the way */
  }
  return is_limited;
}

void byoc_leave_place(const byoc_places *places) {
  byoc_processors own, allowed;
  const byoc_processors home = only(places->home);
  if (byoc_read_allowed(&own) && read_unlimited(places, &own, &allowed) && remove_from(&allowed, &home)) {
    (void)restrict_to(THIS_THREAD, &allowed);
  }
}

int byoc_may_be_home(const byoc_places *places) {
  byoc_processors allowed;
  return !is_known(places->home) || !byoc_read_allowed(&allowed) ||
         (allowed.words[places->home / BYOC_WORD_BITS] & bit_of(places->home)) != 0;
}

int byoc_keep_home(byoc_places *places, const byoc_processors *allowed) {
  return is_known(places->home) && avoid(places, places->home, allowed);
}

int byoc_bring(int thread) {
  const int here = sched_getcpu();
  const byoc_processors here_only = only(here);
  return is_known(here) && restrict_to(thread, &here_only);
}

void byoc_leave_processor(const byoc_processors *allowed) {
  byoc_processors others = *allowed;
  const byoc_processors here = only(sched_getcpu());
  if (!remove_from(&others, &here) || !restrict_to(THIS_THREAD, &others)) {
    byoc_allow(allowed);
  }
}

void byoc_free_worker(const byoc_places *places, const byoc_processors *allowed) {
  byoc_processors unlimited;
  byoc_allow(read_unlimited(places, allowed, &unlimited) ? &unlimited : allowed);
}

int byoc_thread_id(void) { return (int)syscall(SYS_gettid); }

static int64_t read_ns(clockid_t clock) {
  struct timespec time;
  return clock_gettime(clock, &time) == 0 ? (int64_t)time.tv_sec * 1000000000 + time.tv_nsec : -1;
}

int64_t byoc_now_ns(void) { return read_ns(CLOCK_MONOTONIC); }

/* The clock number of a thread is part of the kernel's interface (clock_getcpuclockid(3)): 6 is the thread's scheduler
 * time. */
int64_t byoc_thread_ns(int thread) { return read_ns((clockid_t)(~(unsigned)thread << 3 | 6)); }

void byoc_wait_once(int round) {
  if (round >= BYOC_SPINS) {
    (void)sched_yield();
    return;
  }
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void byoc_sleep_once(void) {
  const struct timespec duration = {0, 20000};
  (void)nanosleep(&duration, NULL);
}

#else /* other systems: teams have a single thread */

void byoc_open_places(byoc_places *places) { places->home = -1; }

int byoc_read_allowed(byoc_processors *allowed) {
  (void)allowed;
  return 0;
}

int byoc_take_place(byoc_places *places) {
  (void)places;
  return 0;
}

void byoc_leave_place(const byoc_places *places) { (void)places; }

int byoc_may_be_home(const byoc_places *places) {
  (void)places;
  return 1;
}

int byoc_keep_home(byoc_places *places, const byoc_processors *allowed) {
  (void)places;
  (void)allowed;
  return 0;
}

int byoc_bring(int thread) {
  (void)thread;
  return 0;
}

void byoc_allow(const byoc_processors *allowed) { (void)allowed; }

void byoc_leave_processor(const byoc_processors *allowed) { (void)allowed; }

void byoc_free_worker(const byoc_places *places, const byoc_processors *allowed) {
  (void)places;
  (void)allowed;
}

int byoc_thread_id(void) { return 0; }

int64_t byoc_now_ns(void) { return -1; }

int64_t byoc_thread_ns(int thread) {
  (void)thread;
  return -1;
}

void byoc_wait_once(int round) { (void)round; }
void byoc_sleep_once(void) {}

#endif
