/* Errors of the C runtime, which loads this library. */
#ifndef BYOC_DNNL_HOST_H_
#define BYOC_DNNL_HOST_H_

#include "byoc_rt.h"

/* byoc_rt_fail of the loaded C runtime. This library is not linked with the runtime: a process may hold the runtime
 * without offering its symbols to libraries loaded later. */
typedef int32_t (*HostFail)(int32_t status, const char *format, ...);
extern HostFail byoc_host_fail;

/* Finds byoc_rt_fail; returns 0 if the process holds no C runtime. */
int byoc_find_host(void);

#endif /* BYOC_DNNL_HOST_H_ */
