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

/* Mark a processor as taken; return whether another thread had taken the processor. */
static int take(byoc_places *places, int processor) {
  if (processor < 0 || processor >= CPU_SETSIZE) {
    return 0;
  }
  const uint32_t bit = (uint32_t)1 << (processor % 32);
  return (atomic_fetch_or(&places->words[processor / 32], bit) & bit) != 0;
}

/* Restrict this thread to `own` and the allowed processors not taken by the team. Return 0 if no processor is left. */
static int avoid(byoc_places *places, int own, const byoc_processors *allowed) {
  cpu_set_t allowed_set, remaining;
  CPU_ZERO(&remaining);
  memcpy(&allowed_set, allowed, sizeof(allowed_set));
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    const uint32_t is_taken = atomic_load(&places->words[processor / 32]) >> (processor % 32) & 1;
    if (CPU_ISSET(processor, &allowed_set) && (!is_taken || processor == own)) {
      CPU_SET(processor, &remaining);
    }
  }
  return CPU_COUNT(&remaining) != 0 && sched_setaffinity(0, sizeof(remaining), &remaining) == 0;
}

int byoc_read_allowed(byoc_processors *allowed) {
  cpu_set_t affinity;
  if (sched_getaffinity(0, sizeof(affinity), &affinity) != 0) {
    return 0;
  }
  memcpy(allowed, &affinity, sizeof(*allowed));
  return 1;
}

void byoc_open_places(byoc_places *places) {
  for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
    atomic_init(&places->words[word], 0);
  }
  places->home = sched_getcpu();
  (void)take(places, places->home);
}

int byoc_take_place(byoc_places *places, const byoc_processors *allowed) {
  enum { ROUNDS = 8 }; /* other threads may take a free processor first */
  int has_moved = 0;
  for (int round = 0; round < ROUNDS && take(places, sched_getcpu()) && avoid(places, -1, allowed); ++round) {
    has_moved = 1;
  }
  return has_moved;
}

int byoc_keep_home(byoc_places *places, const byoc_processors *allowed) {
  return places->home >= 0 && avoid(places, places->home, allowed);
}

int byoc_bring(int thread) {
  const int here = sched_getcpu();
  cpu_set_t here_only;
  CPU_ZERO(&here_only);
  if (here < 0 || here >= CPU_SETSIZE) {
    return 0;
  }
  CPU_SET(here, &here_only);
  return sched_setaffinity(thread, sizeof(here_only), &here_only) == 0;
}

void byoc_leave_processor(const byoc_processors *allowed) {
  const int here = sched_getcpu();
  cpu_set_t others;
  memcpy(&others, allowed, sizeof(others));
  if (here >= 0 && here < CPU_SETSIZE) {
    CPU_CLR(here, &others);
  }
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0) {
    byoc_allow(allowed);
  }
}

void byoc_allow(const byoc_processors *allowed) {
  /* A thread with unrestricted processor affinity may also run on processors added later; a thread restricted to named
   * processors may not. */
  cpu_set_t allowed_set, affinity;
  memset(&affinity, 0xff, sizeof(affinity));
  (void)sched_setaffinity(0, sizeof(affinity), &affinity);
  memcpy(&allowed_set, allowed, sizeof(allowed_set));
  if (sched_getaffinity(0, sizeof(affinity), &affinity) != 0 || !CPU_EQUAL(&affinity, &allowed_set)) {
    (void)sched_setaffinity(0, sizeof(allowed_set), &allowed_set);
  }
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

int byoc_take_place(byoc_places *places, const byoc_processors *allowed) {
  (void)places;
  (void)allowed;
  return 0;
}

int byoc_keep_home(byoc_places *places, const byoc_processors *allowed) { return byoc_take_place(places, allowed); }

int byoc_bring(int thread) {
  (void)thread;
  return 0;
}

void byoc_leave_processor(const byoc_processors *allowed) { (void)allowed; }

void byoc_allow(const byoc_processors *allowed) { (void)allowed; }

int byoc_thread_id(void) { return 0; }

int64_t byoc_now_ns(void) { return -1; }

int64_t byoc_thread_ns(int thread) {
  (void)thread;
  return -1;
}

void byoc_wait_once(int round) { (void)round; }
void byoc_sleep_once(void) {}

#endif
