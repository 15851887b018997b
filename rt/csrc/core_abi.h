/* The headers of byoc-core shared by this library, joined with the types of byoc_rt.h.
 *
 * byoc_rt.h and byoc_ffi.h both define the structures of DLPack and of the TVM FFI ABI, each unless already defined.
 */
#ifndef BYOC_RT_CORE_ABI_H_
#define BYOC_RT_CORE_ABI_H_

#include "byoc_rt.h"

#ifndef TVM_FFI_C_API_H_
#define TVM_FFI_C_API_H_
/* The header of an object of the TVM FFI: only the size is used here. */
typedef struct {
  uint64_t combined_ref_count;
  int32_t type_index;
  uint32_t padding;
  void *deleter;
} TVMFFIObject;
#endif

#include "byoc_executor.h"
#include "sizes.h"

#endif /* BYOC_RT_CORE_ABI_H_ */
