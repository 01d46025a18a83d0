# The page's style and program: the bundle in web/dist becomes two C arrays.
set(web ${CMAKE_SOURCE_DIR}/web/dist)
set(page_bundle ${CMAKE_CURRENT_BINARY_DIR}/page_bundle.c)
add_custom_command(
  OUTPUT ${page_bundle}
  COMMAND ${CMAKE_COMMAND} -DOUT=${page_bundle} -DINCLUDE=report/write/page_bundle.h
    -DNAMES=msp_page_style,msp_page_program -DFILES=${web}/page.css,${web}/page.js -P ${CMAKE_SOURCE_DIR}/cmake/MspEmbed.cmake
  DEPENDS ${web}/page.css ${web}/page.js ${CMAKE_SOURCE_DIR}/cmake/MspEmbed.cmake
  VERBATIM)

