# LLVM 22, NVPTX only. find_package(LLVM 22) fails because the package says 22.1, and an older LLVM may be installed too,
# so the search path is fixed.
find_package(LLVM 22.1 REQUIRED CONFIG PATHS /usr/lib/llvm-22/lib/cmake/llvm NO_DEFAULT_PATH)
add_library(tkc_llvm INTERFACE)
target_include_directories(tkc_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
separate_arguments(llvm_defs NATIVE_COMMAND "${LLVM_DEFINITIONS}")
add_compile_options(${llvm_defs}) # everywhere: the targets with LLVM's headers share precompiled headers with those without
if(TKC_LLVM_SHARED)
  target_link_libraries(tkc_llvm INTERFACE LLVM)
else()
  llvm_map_components_to_libnames(llvm_libs nvptxcodegen nvptxdesc nvptxinfo passes core linker bitreader)
  target_link_libraries(tkc_llvm INTERFACE ${llvm_libs})
endif()
