/* The error of each thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "byoc_rt.h"
#include "status.h"

enum { ERROR_NBYTES = 4096 };

static _Thread_local char last_error[ERROR_NBYTES];
static _Thread_local int32_t last_status = BYOC_RT_EXECUTION;

int32_t byoc_rt_abi_version(void) { return BYOC_RT_ABI_VERSION; }

const char *byoc_rt_last_error(void) { return last_error; }

int32_t rt_error_status(void) { return last_status; }

/* Replace characters that would change a terminal: names may come from a damaged file. */
static void make_printable(char *text) {
  for (; *text; ++text)
    if (((unsigned char)*text < ' ' && *text != '\n') || *text == 0x7f) *text = '?';
}

int32_t byoc_rt_fail(int32_t status, const char *format, ...) {
  char text[ERROR_NBYTES]; /* the arguments may point into last_error */
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) text[0] = '\0';
  if (length >= ERROR_NBYTES) memcpy(text + sizeof text - 4, "...", 4);
  make_printable(text);
  memcpy(last_error, text, sizeof last_error);
  last_status = status ? status : BYOC_RT_EXECUTION;
  return last_status;
}
