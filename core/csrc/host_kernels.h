/* Kernels of the host's ops as functions of the extension module. */
#ifndef BYOC_HOST_KERNELS_H_
#define BYOC_HOST_KERNELS_H_

#include "objects.h"

extern PyMethodDef byoc_host_kernel_methods[];

#endif
