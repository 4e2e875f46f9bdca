# Writes OUT: a table name -> text of every file in FILES, as raw string literals.
set(body "#include \"sema/stdlib.h\"\nnamespace tkc {\nconst StdlibFile kStdlibFiles[] = {\n")
foreach(f ${FILES})
  get_filename_component(name ${f} NAME_WE)
  file(READ ${f} text)
  string(APPEND body "{\"${name}\", R\"TKSTD(${text})TKSTD\"},\n")
endforeach()
string(APPEND body "{nullptr, nullptr}};\n}\n")
file(WRITE ${OUT} "${body}")
