#include "infer/huge_memory.h"

#include <sys/mman.h>

#include "engine/core/error.h"

namespace taper {

HugeMemory::HugeMemory(int64_t bytes, const char* what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(data != MAP_FAILED, "{}: out of memory; wanted {} bytes", what, bytes);
#ifdef MADV_HUGEPAGE
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish: small pages work as well
#endif
  data_ = {static_cast<std::byte*>(data), Unmap{bytes}};
}

void HugeMemory::Unmap::operator()(std::byte* data) const { munmap(data, static_cast<size_t>(bytes)); }

}  // namespace taper
