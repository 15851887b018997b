/* The status of the last error of this thread, for functions that report an error by NULL. */
#ifndef BYOC_RT_STATUS_H_
#define BYOC_RT_STATUS_H_

#include <stdint.h>

int32_t rt_error_status(void);

#endif /* BYOC_RT_STATUS_H_ */
