# The front door. `make help` lists what there is to ask for.

# ---- what is built ---------------------------------------------------------------------------------------------------
BUILD ?= release
ifeq ($(origin CXX),default)
CXX := g++
endif
SANITIZE ?=
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(CUDA_HOME)/bin/nvcc)
# An empty value means the default: 1 where the CUDA compiler is found, else 0.
CUDA ?=
override CUDA := $(or $(CUDA),$(if $(and $(wildcard $(NVCC)),$(wildcard engine/kernels/cuda/*.cu)),1,0))
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
configuration := $(subst $(space),-,$(strip $(BUILD) $(filter-out g++ c++,$(compiler)) $(sanitizers) $(if $(filter 1,$(CUDA)),cuda)))
out := build/$(configuration)
objects := $(out)/objects

goals := $(or $(MAKECMDGOALS),all)
is_building := $(filter-out help clean format lint print-%,$(goals))

ifneq ($(is_building),)
include third_party/dependencies.mk
endif

optimisation := $(if $(filter debug,$(BUILD)),-O1 -g,-O3)
sanitizing := $(if $(sanitizers),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
# Two warnings of g++ 12 are wrong about the standard library's strings (GCC bug 105651) and about fmt.
false_alarms := $(if $(findstring clang,$(compiler)),,-Wno-restrict -Wno-stringop-overflow)
CXXFLAGS ?=
cxx_flags := -std=c++20 $(optimisation) -Wall -Wextra -Werror $(false_alarms) $(openmp_flags) $(sanitizing) -I. $(dependency_flags) \
  $(if $(filter 1,$(CUDA)),-DTAPER_CUDA) -MMD -MP $(CXXFLAGS)
link_flags := $(openmp_flags) $(sanitizing) $(LDFLAGS)

# ---- sources: every file is found by its place -----------------------------------------------------------------------
library_folders := engine engine/core engine/kernels engine/autograd engine/ops engine/optim engine/io model data data/bpe train infer
library_objects := $(patsubst %.cpp,$(objects)/%.o,$(wildcard $(addsuffix /*.cpp,$(library_folders))))
common_objects := $(patsubst %.cpp,$(objects)/%.o,$(wildcard tools/common/*.cpp))
tools := $(patsubst tools/%.cpp,%,$(wildcard tools/*.cpp))
test_objects := $(patsubst %.cpp,$(objects)/%.o,$(wildcard tests/*.cpp tests/support/*.cpp))

# Processors of one kind share a baseline; kernels chosen at run time go beyond it (engine/kernels/kernels.mk).
machine := $(shell uname -m)
baseline_flags := $(if $(filter x86_64,$(machine)),-march=x86-64-v2)

.DEFAULT_GOAL := all
include engine/kernels/kernels.mk

library := $(out)/libtaper.a
common_library := $(out)/libtools.a
binaries := $(tools:%=$(out)/bin/%)
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
check-build: $(binaries) install-binaries $(if $(test_objects),$(out)/tests)

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

$(library): $(library_objects) $(kernel_objects)
	$(archive)
$(common_library): $(common_objects)
	$(archive)

libraries := $(if $(common_objects),$(common_library)) $(if $(library_objects)$(kernel_objects),$(library))

$(out)/bin/%: $(objects)/tools/%.o $(libraries)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(quiet)$(CXX) $(link_flags) $< $(libraries) $(link_libraries) -o $@

$(out)/tests: $(test_objects) $(libraries)
	$(call say,LINK,$@)
	$(quiet)$(CXX) $(link_flags) $(test_objects) $(libraries) $(link_libraries) -o $@

# Objects stay for the next build.
.SECONDARY:

# ---- what to ask for -------------------------------------------------------------------------------------------------
.PHONY: test clean help
FILTER ?= *
test: check-build
	@if [ -x $(out)/tests ]; then TAPER_BIN=$(CURDIR)/$(out)/bin $(out)/tests --test-case='$(FILTER)'; \
	else echo '0 passed, 0 failed, 0 skipped'; fi

clean:
	rm -rf build

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

-include $(shell find $(objects) -name '*.d' 2>/dev/null)
