# What the libraries of the system contribute to the build: found once for each compiler, installed where missing, and
# found again when a file it relied on is gone, as after moving the folder to another machine.
found := build/dependencies-$(compiler).mk
-include $(found)
ifneq ($(words $(wildcard $(dependency_files))),$(words $(dependency_files)))
.PHONY: $(found)
endif
$(found): third_party/dependencies.txt third_party/install.sh
	@CXX='$(CXX)' CUDA_HOME='$(CUDA_HOME)' third_party/install.sh build $@

# The thread sanitizer cannot see into OpenMP's runtime. oneDNN brings OpenMP's threads with it: without them in the
# program it would run a second pool against ours.
openmp_flags := $(if $(filter thread,$(sanitizers)),,$(found_openmp))
dependency_flags := $(system_flags)
link_libraries := $(system_libraries) -pthread
ifeq ($(openmp_flags),)
dependency_flags += -Wno-unknown-pragmas
else ifeq ($(found_onednn),1)
dependency_flags += -DTAPER_ONEDNN
link_libraries += -ldnnl
endif
ifeq ($(CUDA),1)
cuda_libraries := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublasLt -lcudart_static -ldl -lrt
endif
