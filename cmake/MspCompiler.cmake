# Compiler settings that every target shares.
#
# -ffp-contract=off: gcc fuses multiply-add inside functions with target("fma") only, and scalar and SIMD results would
# differ in their last bit. -fno-math-errno and -fno-trapping-math change no value; they let sqrt and comparisons inline.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-ffp-contract=off -fno-math-errno -fno-trapping-math
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-missing-field-initializers)
if(MSP_WERROR)
  add_compile_options(-Werror)
endif()
if(MSP_SANITIZE)
  add_compile_options(-fsanitize=${MSP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MSP_SANITIZE})
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # asserts state programmers' mistakes: they stay out of the release build
  add_compile_definitions(NDEBUG)
endif()
