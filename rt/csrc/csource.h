/* The native half of the runtime `csource`: modules of generated C, whose payload holds the compiled library. */
#ifndef BYOC_RT_CSOURCE_H_
#define BYOC_RT_CSOURCE_H_

#include "byoc_rt.h"

const byoc_rt_runtime *rt_csource_runtime(void);

/* Return whether a module has loops for several threads. */
int rt_csource_has_threads(const void *module);

#endif /* BYOC_RT_CSOURCE_H_ */
