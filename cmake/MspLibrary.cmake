# The rooms as one library: static for the command, the extension and the tests (which reach into the rooms), shared for
# other programs. Only what carries MSP_API leaves the shared one.
set(objects)
foreach(room IN LISTS MSP_ROOMS)
  list(APPEND objects $<TARGET_OBJECTS:msp_${room}>)
endforeach()
set(libs ${MSP_ROOM_LIBS} Threads::Threads m ${CMAKE_DL_LIBS})
list(REMOVE_DUPLICATES libs)

add_library(msprobe_static STATIC ${objects})
set_target_properties(msprobe_static PROPERTIES OUTPUT_NAME msprobe)
target_include_directories(msprobe_static PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_link_libraries(msprobe_static PUBLIC ${libs})

add_library(msprobe_shared SHARED ${objects})
set_target_properties(msprobe_shared PROPERTIES OUTPUT_NAME msprobe VERSION ${PROJECT_VERSION} SOVERSION 0)
target_include_directories(msprobe_shared PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_link_libraries(msprobe_shared PRIVATE ${libs})
