# The standard library is embedded in the binary: stdlib/*.tk become one generated source file.
file(GLOB stdlib_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/stdlib/*.tk)
set(stdlib_cpp ${CMAKE_BINARY_DIR}/stdlib_embedded.cpp)
add_custom_command(OUTPUT ${stdlib_cpp}
  COMMAND ${CMAKE_COMMAND} -DOUT=${stdlib_cpp} "-DFILES=${stdlib_files}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${stdlib_files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
if(TARGET tkc_sema)
  target_sources(tkc_sema PRIVATE ${stdlib_cpp})
endif()
