# ANTLR4: Debian's tool (4.7.2) writes a lexer with u8"" literals, which C++20 types differently: the generated files are
# a C++17 library of their own, without our warnings.
find_package(antlr4-runtime 4.9 REQUIRED)
find_program(ANTLR4_TOOL antlr4 REQUIRED)
set(gen ${CMAKE_BINARY_DIR}/grammar)
set(gen_sources ${gen}/TkLexer.cpp ${gen}/TkParser.cpp ${gen}/TkVisitor.cpp ${gen}/TkBaseVisitor.cpp)
add_custom_command(OUTPUT ${gen_sources} ${gen}/TkLexer.h ${gen}/TkParser.h ${gen}/TkVisitor.h ${gen}/TkBaseVisitor.h
  COMMAND ${ANTLR4_TOOL} -Dlanguage=Cpp -visitor -no-listener -package tkgrammar -Werror -Xexact-output-dir -o ${gen}
          ${CMAKE_SOURCE_DIR}/grammar/Tk.g4
  DEPENDS ${CMAKE_SOURCE_DIR}/grammar/Tk.g4 VERBATIM)
add_library(tkc_grammar STATIC ${gen_sources})
set_target_properties(tkc_grammar PROPERTIES CXX_STANDARD 17)
target_include_directories(tkc_grammar SYSTEM PUBLIC ${ANTLR4_INCLUDE_DIR} ${gen})
target_compile_options(tkc_grammar PRIVATE -w)
target_link_libraries(tkc_grammar PUBLIC antlr4_static)
