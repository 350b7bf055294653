# The front door; the lines that begin with "#:" are what `make help` prints.
#:
#: make            build everything: the library, the programs in build/bin
#: make train      install what is missing, build, prepare data, train, remove the norms, compare   [SIZE DATA]
#: make infer      go on writing from a prompt with the model trained last, or MODEL                [MODEL PROMPT]
#: make finetune   remove the norms from a pretrained model                                         [MODEL DATA]
#: make data       fetch the TinyStories text (2.2 GB) into data/corpus, for DATA=data/corpus
#: make test       build and run the tests                                                          [FILTER SANITIZE]
#: make bench      speed of this machine, of training and of decoding                               [SIZE]
#: make experiments   the paper's experiments, all within BUDGET minutes                           [DATA BUDGET]
#: make report     one page about all runs: runs/report.html
#: make endure     faults in every system call, 200 kills at random moments, 10,000 steps            [KILLS STEPS]
#: make fuzz       feed the readers of strangers' files what libFuzzer invents                      [TIME TARGETS]
#: make mutate     plant faults in the GPU's kernels, one at a time; the tests on the emulated device must see each
#: make lint       formatting, include directions, house rules, clang-tidy;  make format repairs the first
#: make gpu-check  tests and a short training on the GPU;  make gpu-bench   its speed;  make gpu-pack   both, to take along
#: make clean      remove build/
#:
#: Variables, as in `make train SIZE=3M THREADS=4`:
#:   SIZE     1M (default), 3M, 9M, 30M or 17.7M parameters
#:   DATA     a text file, a folder of them, or a prepared folder
#:   MODEL    a model's folder or a run's
#:   BUDGET   minutes                      THREADS  threads; default: all there are
#:   DEVICE   auto (default), cpu, cuda    CUDA     1 or 0: with or without; default: whether it and a GPU are found
#:   FILTER   glob of test-case names      SANITIZE address,undefined or thread
#:   BUILD    release (default), debug     CXX      g++ (default) or clang++       V=1 shows whole commands

# ---- what is built ---------------------------------------------------------------------------------------------------
BUILD ?= release
ifeq ($(origin CXX),default)
CXX := g++
endif
SANITIZE ?=
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(CUDA_HOME)/bin/nvcc)
# An empty value means the default: 1 where the CUDA compiler is found and a GPU to run its programs, else 0.
CUDA ?=
override CUDA := $(or $(CUDA),$(if $(and $(wildcard $(NVCC)),$(wildcard /dev/nvidia0 /dev/dxg)),1,0))
ifneq ($(filter-out release debug,$(BUILD)),)
$(error BUILD: unknown configuration; got $(BUILD), want release or debug)
endif
ifneq ($(filter-out 0 1,$(CUDA)),)
$(error CUDA: got $(CUDA), want 0 or 1)
endif

comma := ,
sanitizers := $(subst $(comma), ,$(SANITIZE))
ifneq ($(filter-out address undefined thread leak,$(sanitizers)),)
$(error SANITIZE: got $(SANITIZE), want address$(comma)undefined or thread)
endif

# One folder for each set of flags, so that objects of two of them never meet.
compiler := $(notdir $(lastword $(CXX)))
empty :=
space := $(empty) $(empty)
configuration := $(subst $(space),-,$(strip $(BUILD) $(filter-out g++ c++,$(compiler)) $(sanitizers)))
base := build/$(configuration)
objects := $(base)/objects
# The same objects with and without CUDA; what is linked of them differs.
out := $(base)$(if $(filter 1,$(CUDA)),-cuda)

goals := $(or $(MAKECMDGOALS),all)
is_building := $(filter-out help clean format data,$(goals))

ifneq ($(is_building),)
include third_party/dependencies.mk
endif

# -O3 where the time of a run goes; the rest, mostly users of large header libraries, would only compile longer by it.
hot_folders := engine/% data/% infer/% tests/emulation/%
hot_level := $(if $(sanitizers),-O1,-O3)
other_level := $(if $(sanitizers),-O0,-O1)
optimisation = $(if $(filter debug,$(BUILD)),-O1 -g,$(if $(filter $(hot_folders),$<),$(hot_level),$(other_level)))
sanitizing := $(if $(sanitizers),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
# Two warnings of g++ 12 are wrong about the standard library's strings (GCC bug 105651) and about fmt.
# Sanitized code gives it more of them.
false_alarms := $(if $(findstring clang,$(compiler)),,-Wno-restrict -Wno-stringop-overflow \
  $(if $(sanitizers),-Wno-maybe-uninitialized -Wno-uninitialized))
CXXFLAGS ?=
cxx_flags = -std=c++20 $(optimisation) -Wall -Wextra -Werror $(false_alarms) $(openmp_flags) $(sanitizing) -I. $(dependency_flags) \
  -MMD -MP $(CXXFLAGS)
link_flags := $(openmp_flags) $(sanitizing) $(LDFLAGS)

# ---- sources: every file is found by its place -----------------------------------------------------------------------
sources := $(shell find engine model data train infer -name '*.cpp' -not -path 'engine/kernels/cpu/*' 2>/dev/null)
library_objects := $(sources:%.cpp=$(objects)/%.o)
common_objects := $(patsubst %.cpp,$(objects)/%.o,$(wildcard tools/common/*.cpp))
tools := $(patsubst tools/%.cpp,%,$(wildcard tools/*.cpp))
dashed = $(subst _,-,$(1))
test_objects := $(patsubst %.cpp,$(objects)/%.o,$(wildcard tests/*.cpp tests/support/*.cpp))

# Processors of one kind share a baseline; kernels chosen at run time go beyond it (engine/kernels/kernels.mk).
machine := $(shell uname -m)
baseline_flags := $(if $(filter x86_64,$(machine)),-march=x86-64-v2)

.DEFAULT_GOAL := all
include engine/kernels/kernels.mk

library := $(base)/libtaper.a
common_library := $(base)/libtools.a
binaries := $(foreach tool,$(tools),$(out)/bin/$(call dashed,$(tool)))
# The plain release binaries are what people call: they appear in build/bin as well.
is_plain_release := $(and $(filter release,$(BUILD)),$(if $(sanitizers),,yes),$(filter g++ c++,$(compiler)))
bin := $(if $(is_plain_release),build/bin,$(out)/bin)
export TAPER_BIN := $(CURDIR)/$(bin)

# ---- how: one line a file, the whole command with V=1 ----------------------------------------------------------------
# In parallel unless the caller chose.
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
MAKEFLAGS += --no-print-directory
V ?= 0
quiet := $(if $(filter 0,$(V)),@)
say = $(if $(filter 0,$(V)),@printf '  %-5s %s\n' '$(1)' '$(2)')

.PHONY: all check-build
all: $(binaries) install-binaries
check-build: $(binaries) install-binaries $(if $(test_objects),$(base)/tests $(if $(filter 1,$(CUDA)),$(out)/tests-on-gpu))

.PHONY: install-binaries
install-binaries: $(binaries)
ifneq ($(is_plain_release),)
	@mkdir -p build/bin
	@$(if $(binaries),ln -f $(binaries) build/bin/)
endif

$(objects)/%.o: %.cpp
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(quiet)$(CXX) $(cxx_flags) $(baseline_flags) -c $< -o $@

# Rebuilt as a whole: ar would replace members of the same file name by one another.
define archive
$(call say,AR,$@)
@rm -f $@
@mkdir -p $(@D)
$(quiet)ar qcs $@ $^
endef

# The installed httplib is a library whose classes depend on how it was configured; its users must say the same.
$(objects)/tools/common/live_page.o $(objects)/tests/test_live_page.o: \
  cxx_flags += $(shell pkg-config --cflags cpp-httplib 2>/dev/null)

$(library): $(library_objects) $(kernel_objects)
	$(archive)
$(common_library): $(common_objects)
	$(archive)

libraries := $(if $(common_objects),$(common_library)) $(if $(library_objects)$(kernel_objects),$(library))

# tools/train_bench.cpp is the program train-bench.
define tool_rule # (tool)
$(out)/bin/$(call dashed,$(1)): $(objects)/tools/$(1).o $(cuda_objects) $(libraries)
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$$(quiet)$$(CXX) $$(link_flags) $$< $(cuda_objects) $$(libraries) $$(link_libraries) $(cuda_libraries) -o $$@
endef
$(foreach tool,$(tools),$(eval $(call tool_rule,$(tool))))

# The tests run the device's kernels on an emulated device; with CUDA a second program runs them on a real one.
$(base)/tests: $(test_objects) $(emulation_objects) $(libraries)
$(out)/tests-on-gpu: $(test_objects) $(cuda_objects) $(libraries)
$(out)/tests-on-gpu: link_libraries += $(cuda_libraries)
$(base)/tests $(out)/tests-on-gpu:
	$(call say,LINK,$@)
	$(quiet)$(CXX) $(link_flags) $(filter-out $(libraries),$^) $(libraries) $(link_libraries) -o $@

# Objects stay for the next build.
.SECONDARY:

# ---- what to ask for -------------------------------------------------------------------------------------------------
export SIZE DATA MODEL BUDGET THREADS DEVICE PROMPT
scripts := tools/scripts

.PHONY: train infer finetune data bench experiments report gpu-check gpu-bench gpu-pack
train infer finetune bench experiments: all
	@$(scripts)/$(subst -,_,$@).sh
data:
	@$(scripts)/data.sh
report: all
	@third_party/install.sh report
	@$(scripts)/report.sh
ifeq ($(CUDA),1)
gpu-check gpu-bench gpu-pack: check-build
	@TAPER_TESTS=$(out)/tests-on-gpu TAPER_BIN=$(out)/bin $(scripts)/$(subst -,_,$@).sh
else
gpu-check gpu-bench gpu-pack:
	@$(MAKE) CUDA=1 $@
endif

.PHONY: test
FILTER ?= *
test: check-build
	@TAPER_BIN=$(CURDIR)/$(out)/bin $(base)/tests --test-case='$(FILTER)'

# Bugs planted in the kernels, to see that the tests see them.
.PHONY: mutate
mutate: export EMULATE = $(CXX) $(cxx_flags) $(baseline_flags) $(emulation_flags) $(watched_flags) -x c++
mutate: export LINK = $(CXX) $(link_flags)
mutate: export TEST_OBJECTS = $(test_objects) $(emulation_objects)
mutate: export LIBRARIES = $(libraries) $(link_libraries)
mutate: export OBJECTS = $(objects)
mutate: check-build
	@$(scripts)/mutate_kernels.sh

# The tests of what only long runs show, at full length: a fault in every call, kills at random moments, many steps.
.PHONY: endure
endure: check-build
	@TAPER_BIN=$(CURDIR)/$(out)/bin TAPER_FAULTS=all TAPER_KILLS=$(or $(KILLS),200) TAPER_SOAK_STEPS=$(or $(STEPS),10000) \
	  $(base)/tests --test-case='faults*,long runs*'

# Fuzzing: a program of libFuzzer's, which comes with clang, for each tests/fuzz/TARGET.cpp.
fuzz_targets := $(filter-out fuzz make_seeds,$(patsubst tests/fuzz/%.cpp,%,$(wildcard tests/fuzz/*.cpp)))
fuzz_sources := $(filter-out data/story_%,$(wildcard engine/core/*.cpp engine/io/*.cpp data/*.cpp data/bpe/*.cpp)) engine/kernels/kernel.cpp \
  $(addprefix model/,checkpoint_files.cpp config.cpp hf_config.cpp hf_config_keys.cpp weights_index.cpp) \
  train/checkpoint_manifest.cpp tools/common/cli.cpp tools/common/config_file.cpp \
  tools/common/messages.cpp tools/common/option_state.cpp tests/fuzz/fuzz.cpp tests/support/temp_dir.cpp
fuzz_base := build/fuzz
fuzz_objects := $(fuzz_sources:%.cpp=$(fuzz_base)/objects/%.o)
fuzz_flags := -std=c++20 -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow \
  -fno-sanitize-recover=all -Wno-unknown-pragmas -I. $(dependency_flags)
.PHONY: fuzz fuzz-programs
fuzz:
	@$(MAKE) CXX='$(or $(FUZZ_CXX),clang++)' CUDA=0 fuzz-programs
	@TARGETS='$(or $(TARGETS),$(fuzz_targets))' $(scripts)/fuzz.sh
fuzz-programs: $(fuzz_targets:%=$(fuzz_base)/%) $(fuzz_base)/make_seeds
$(fuzz_base)/objects/%.o: %.cpp
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(quiet)$(CXX) $(fuzz_flags) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
$(fuzz_base)/%: $(fuzz_base)/objects/tests/fuzz/%.o $(fuzz_objects)
	$(call say,LINK,$@)
	$(quiet)$(CXX) $(fuzz_flags) $(if $(filter %/make_seeds,$@),,-fsanitize=fuzzer) $^ $(link_libraries) -o $@

.PHONY: lint format
lint: check-build
	@third_party/install.sh lint
	@OBJECTS=$(objects) CXX='$(CXX)' LINT_FLAGS='$(filter-out -MMD -MP,$(cxx_flags)) $(baseline_flags)' $(scripts)/lint.sh
format:
	@third_party/install.sh lint
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

.PHONY: clean help
clean:
	rm -rf build
help:
	@sed -n 's/^#: \{0,1\}//p; s/^#:$$//p' Makefile

-include $(shell find $(objects) $(fuzz_base)/objects -name '*.d' 2>/dev/null)
