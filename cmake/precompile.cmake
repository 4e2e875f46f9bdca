# Precompiled headers: half of the time of a build from nothing goes into reading headers. With ccache they are off, since ccache
# keeps objects already and sees fewer hits through precompiled headers; the sources include what they use either way.
#
#   tkc_precompile(TARGET KIND)   KIND: base (the C++ library, fmt), ir (tile IR besides), codegen (LLVM besides), cli (CLI11),
#   test (doctest, IR)
#
# Targets of one kind share one header, which the first of them compiles: they must have the same compile options.
if(CCACHE)
  option(TKC_PRECOMPILE "precompiled headers" OFF)
else()
  option(TKC_PRECOMPILE "precompiled headers" ON)
endif()
set(tkc_headers_base <algorithm> <array> <bit> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric> <optional> <set>
  <string> <string_view> <tuple> <unordered_map> <unordered_set> <utility> <variant> <vector> <fmt/format.h>)
set(tkc_headers_ir ${tkc_headers_base} "${CMAKE_SOURCE_DIR}/src/ir/ir.h" "${CMAKE_SOURCE_DIR}/src/support/diagnostics.h")
set(tkc_headers_codegen ${tkc_headers_ir} "${CMAKE_SOURCE_DIR}/src/codegen/lower_ctx.h" <llvm/IR/IRBuilder.h> <llvm/IR/IntrinsicsNVPTX.h>)
set(tkc_headers_cli "${CMAKE_SOURCE_DIR}/src/cli/cli.h")
set(tkc_headers_test ${tkc_headers_ir} <doctest/doctest.h> <filesystem> <fstream>)

function(tkc_precompile target kind)
  if(NOT TKC_PRECOMPILE)
    return()
  endif()
  get_property(leader GLOBAL PROPERTY tkc_precompiled_${kind})
  if(leader)
    target_precompile_headers(${target} REUSE_FROM ${leader})
  else()
    target_precompile_headers(${target} PRIVATE ${tkc_headers_${kind}})
    set_property(GLOBAL PROPERTY tkc_precompiled_${kind} ${target})
  endif()
endfunction()
