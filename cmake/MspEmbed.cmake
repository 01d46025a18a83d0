# cmake -DOUT=<file.c> -DINCLUDE=<header> -DNAMES=<symbol>,... -DFILES=<path>,... -P MspEmbed.cmake
#
# Turn files into C arrays <symbol>[] with <symbol>_size. For the page's bundle: nothing but CMake is needed.
string(REPLACE "," ";" NAMES "${NAMES}")
string(REPLACE "," ";" FILES "${FILES}")
set(text "/* made by cmake/MspEmbed.cmake */\n#include \"${INCLUDE}\"\n")
foreach(name path IN ZIP_LISTS NAMES FILES)
  file(READ ${path} hex HEX)
  file(SIZE ${path} size)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
  string(APPEND text "\nconst size_t ${name}_size = ${size};\nconst char ${name}[] = {\n${bytes}\n};\n")
endforeach()
file(WRITE ${OUT} "${text}")
