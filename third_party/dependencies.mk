# What the libraries of the system contribute to the build.
openmp_flags := $(if $(filter thread,$(sanitizers)),-Wno-unknown-pragmas -pthread,-fopenmp)
dependency_flags := -isystem /usr/include/eigen3
link_libraries := -lfmt -lzstd -lcpp-httplib
ifneq ($(filter -fopenmp,$(openmp_flags)),)
dependency_flags += -DTAPER_ONEDNN
link_libraries += -ldnnl
endif
ifeq ($(CUDA),1)
dependency_flags += -isystem $(CUDA_HOME)/include
link_libraries += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublasLt -lcudart_static -ldl -lrt -pthread
endif
