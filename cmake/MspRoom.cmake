# msp_room(<name> SOURCES <file>... [DEPENDS <room>...] [LIBS <target>...])
#
# One room of the house: an object library that sees the public headers, its own headers and those of the rooms it
# depends on, and nothing else. Headers are included as "<room>/<file>.h"; each room is reached through a directory of
# its own under rooms/, so that an include which the layering does not allow fails to compile.
set(MSP_ROOMS "" CACHE INTERNAL "")
set(MSP_ROOM_LIBS "" CACHE INTERNAL "")

function(msp_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;LIBS" ${ARGN})
  set(door ${CMAKE_BINARY_DIR}/rooms/${name})
  file(MAKE_DIRECTORY ${door})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${door}/${name} SYMBOLIC)

  add_library(msp_${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(msp_${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${door})
  foreach(dep IN LISTS ROOM_DEPENDS)
    target_include_directories(msp_${name} PRIVATE ${CMAKE_BINARY_DIR}/rooms/${dep})
  endforeach()
  if(ROOM_LIBS)
    target_link_libraries(msp_${name} PRIVATE ${ROOM_LIBS})
  endif()
  set(MSP_ROOMS ${MSP_ROOMS} ${name} CACHE INTERNAL "")
  set(MSP_ROOM_LIBS ${MSP_ROOM_LIBS} ${ROOM_LIBS} CACHE INTERNAL "")
endfunction()
