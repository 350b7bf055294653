# How the kernels are compiled: the CPU's once for each instruction set, the choice among them made at run time.
#
#   engine/kernels/cpu/*.cpp        for every general instruction set below, as namespace taper::cpu::TAPER_ISA
#   engine/kernels/cpu/<isa>/*.cpp  for that one only
#   engine/kernels/cpu/onednn/*.cpp once: the library chooses for itself
#
# Inline functions and templates compiled here for AVX-512 must never serve the rest of the program: the linker keeps one
# copy of a weak symbol, whichever came first. So the group sections of each object are dissolved and every symbol outside
# taper::cpu::<isa> is made local to it. Eigen gets a namespace for each instruction set besides.
isas := base
isa_only :=
ifeq ($(machine),x86_64)
isas += avx2 avx512
isa_only := avx512bf16 amx
endif
# What few processors still run need not be optimised to the end.
isa_flags_base := $(baseline_flags) $(if $(filter release,$(BUILD)),$(if $(sanitizers),,-O2))
isa_flags_avx2 := -march=x86-64-v3
isa_flags_avx512 := -march=x86-64-v4 -mprefer-vector-width=512
isa_flags_avx512bf16 := $(isa_flags_avx512) -mavx512bf16
isa_flags_amx := $(isa_flags_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8

# No fast-math: only what changes no result but the rounding of a fused product. Versions 11 and 12 of g++ warn of their
# own AVX-512 headers (GCC bug 105593).
kernel_flags := -fno-trapping-math -fno-math-errno -ffp-contract=fast -fopenmp-simd \
  $(if $(findstring clang,$(compiler)),-Wno-pass-failed,-fno-gnu-unique -Wno-maybe-uninitialized -Wno-uninitialized)

cpu_folder := engine/kernels/cpu
kernel_objects := $(foreach isa,$(isas),$(patsubst $(cpu_folder)/%.cpp,$(objects)/$(cpu_folder)/$(isa)/%.o,$(wildcard $(cpu_folder)/*.cpp))) \
  $(foreach isa,$(isas) $(isa_only),$(patsubst %.cpp,$(objects)/%.o,$(wildcard $(cpu_folder)/$(isa)/*.cpp))) \
  $(patsubst %.cpp,$(objects)/%.o,$(wildcard $(cpu_folder)/onednn/*.cpp))

define compile_for_isa # (isa)
	$(call say,CXX,$< [$(1)])
	@mkdir -p $(@D)
	$(quiet)$(CXX) $(cxx_flags) $(isa_flags_$(1)) $(kernel_flags) -DTAPER_ISA=$(1) -DEigen=Eigen_$(1) -MT $@ -c $< -o $@.raw
	$(quiet)ld -r --force-group-allocation $@.raw -o $@.local
	$(quiet)objcopy --wildcard --keep-global-symbol='_ZN*5taper3cpu$(shell printf %s $(1) | wc -c | tr -d " ")$(1)*' $@.local
	@rm $@.raw && mv $@.local $@
endef

define isa_rules # (isa)
$$(objects)/$$(cpu_folder)/$(1)/%.o: $$(cpu_folder)/$(1)/%.cpp
	$$(call compile_for_isa,$(1))
$$(objects)/$$(cpu_folder)/$(1)/%.o: $$(cpu_folder)/%.cpp
	$$(call compile_for_isa,$(1))
endef
$(foreach isa,$(isas) $(isa_only),$(eval $(call isa_rules,$(isa))))

# CUDA: machine code for the architectures named, and intermediate code of the newest for those to come. The kernels are
# known to the rest by weak references (kernel.h), which draw nothing out of an archive: these objects are linked by name.
#
#   engine/kernels/cuda/*.cu         the kernels; for the tests also compiled for the emulated device (tests/emulation)
#   engine/kernels/cuda/native/*.cu  what only a real device has: its runtime, its libraries
CUDA_ARCHS ?= 80 90a
cuda_objects :=
ifeq ($(CUDA),1)
cuda_objects := $(patsubst %.cu,$(objects)/%.cu.o,$(wildcard engine/kernels/cuda/*.cu engine/kernels/cuda/native/*.cu))
endif
newest_arch := $(lastword $(CUDA_ARCHS:%a=%))
cuda_archs_in_words := $(subst $(space),$(comma)$(space),$(foreach arch,$(CUDA_ARCHS:%a=%),$(shell printf %s $(arch) | sed 's/.$$/.&/'))) and later
nvcc_flags := -std=c++20 -O3 -ccbin $(lastword $(CXX)) -I. -MMD -MP --expt-relaxed-constexpr -Werror all-warnings \
  -DTAPER_GPU_BACKEND='"engine/kernels/cuda/native/gpu_backend.h"' -DTAPER_CUDA_ARCHS='"$(cuda_archs_in_words)"' \
  $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
  -gencode arch=compute_$(newest_arch),code=compute_$(newest_arch) -Xcompiler=-Wall$(comma)-Wextra$(comma)-Werror$(comma)-fPIC

$(objects)/%.cu.o: %.cu
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(quiet)$(NVCC) $(nvcc_flags) -c $< -o $@

.PHONY: cuda-kernels
cuda-kernels: $(cuda_objects)

# The same text for the processor, for the tests. A store of one type is loaded as another, as device code may.
emulation_objects := $(patsubst %.cpp,$(objects)/%.o,$(wildcard tests/emulation/*.cpp)) \
  $(patsubst %.cu,$(objects)/%.emulated.o,$(wildcard engine/kernels/cuda/*.cu))
# Not beside the compiler's own sanitizers, and not with clang, whose copies of structures call no hook.
is_watched := $(if $(sanitizers)$(findstring clang,$(compiler)),,yes)
# Nor does the thread sanitizer look: the device's threads are one of the processor's, on stacks it would confuse.
emulation_flags := -DTAPER_GPU_BACKEND='"tests/emulation/gpu_backend.h"' -fno-strict-aliasing \
  $(if $(is_watched),-DTAPER_ACCESS_CHECKER) $(if $(filter thread,$(sanitizers)),-fno-sanitize=thread)
# Their accesses go through the hooks of tests/emulation/access_checker.cpp; lines are for its messages.
watched_flags := $(if $(is_watched),-fsanitize=thread -g1)
$(objects)/tests/emulation/test_emulation.o: emulation_flags += $(watched_flags)

$(objects)/tests/emulation/%.o: tests/emulation/%.cpp
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(quiet)$(CXX) $(cxx_flags) $(baseline_flags) $(emulation_flags) -c $< -o $@
$(objects)/%.emulated.o: %.cu
	$(call say,CXX,$< [emulated])
	@mkdir -p $(@D)
	$(quiet)$(CXX) $(cxx_flags) $(baseline_flags) $(emulation_flags) $(watched_flags) -x c++ -c $< -o $@
