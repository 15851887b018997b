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
_Static_assert(sizeof(long) == 8 || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of a cpu_set_t are 64 bits long");

/* The number of the calling thread, for functions with the number of a thread. */
enum { THIS_THREAD = 0 };

static int restrict_to(int thread, const byoc_processors *processors) {
  cpu_set_t affinity;
  memcpy(&affinity, processors, sizeof(affinity));
  return sched_setaffinity(thread, sizeof(affinity), &affinity) == 0;
}

static int is_known(int processor) { return processor >= 0 && processor < CPU_SETSIZE; }

/* Mark a processor as taken; return whether another thread had taken the processor. */
static int take(byoc_places *places, int processor) {
  if (!is_known(processor)) {
    return 0;
  }
  const uint64_t bit = (uint64_t)1 << (processor % 64);
  return (atomic_fetch_or(&places->words[processor / 64], bit) & bit) != 0;
}

/* Restrict this thread to `own` and the allowed processors not taken by the team. Return 0 if no processor is left. */
static int avoid(byoc_places *places, int own, const byoc_processors *allowed) {
  byoc_processors remaining;
  uint64_t any = 0;
  for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
    const uint64_t own_bit = own >= 0 && own / 64 == word ? (uint64_t)1 << (own % 64) : 0;
    remaining.set[word] = allowed->set[word] & (~atomic_load(&places->words[word]) | own_bit);
    any |= remaining.set[word];
  }
  return any != 0 && restrict_to(THIS_THREAD, &remaining);
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

void byoc_open_places(byoc_places *places) {
  for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
    atomic_init(&places->words[word], 0);
  }
  places->home = sched_getcpu();
  places->opener = byoc_thread_id();
  (void)take(places, places->home);
}

/* Add the processors allowed for the opening thread: a worker may be limited by an earlier team. */
static void add_allowed_of_opener(const byoc_places *places, byoc_processors *allowed) {
  byoc_processors openers;
  if (read_allowed_of(places->opener, &openers)) {
    for (int word = 0; word < BYOC_PROCESSOR_WORDS; ++word) {
      allowed->set[word] |= openers.set[word];
    }
  }
}

void byoc_take_place(byoc_places *places) {
  enum { ROUNDS = 8 }; /* other threads may take a free processor first */
  byoc_processors allowed;
  if (!take(places, sched_getcpu()) || !byoc_read_allowed(&allowed)) {
    return;
  }
  add_allowed_of_opener(places, &allowed);
  for (int round = 0; round < ROUNDS && avoid(places, -1, &allowed) && take(places, sched_getcpu()); ++round) {
  }
}

int byoc_may_be_home(const byoc_places *places) {
  byoc_processors allowed;
  return !is_known(places->home) || !byoc_read_allowed(&allowed) ||
         (allowed.set[places->home / 64] >> (places->home % 64) & 1);
}

int byoc_keep_home(byoc_places *places, const byoc_processors *allowed) {
  return is_known(places->home) && avoid(places, places->home, allowed);
}

int byoc_bring(int thread) {
  const int here = sched_getcpu();
  byoc_processors here_only = {{0}};
  if (!is_known(here)) {
    return 0;
  }
  here_only.set[here / 64] = (uint64_t)1 << (here % 64);
  return restrict_to(thread, &here_only);
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

void byoc_lift_limits(const byoc_places *places, const byoc_processors *allowed) {
  byoc_processors all_allowed = *allowed;
  add_allowed_of_opener(places, &all_allowed);
  byoc_allow(&all_allowed);
}

void byoc_leave_processor(const byoc_processors *allowed) {
  byoc_places here;
  byoc_open_places(&here);
  if (!avoid(&here, -1, allowed)) {
    byoc_allow(allowed);
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

void byoc_take_place(byoc_places *places) { (void)places; }

int byoc_keep_home(byoc_places *places, const byoc_processors *allowed) {
  (void)places;
  (void)allowed;
  return 0;
}

int byoc_may_be_home(const byoc_places *places) {
  (void)places;
  return 1;
}

void byoc_lift_limits(const byoc_places *places, const byoc_processors *allowed) {
  (void)places;
  (void)allowed;
}

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
