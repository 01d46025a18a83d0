# What `cmake --install` puts where: library, headers, pkg-config file, command, man page, completions. The Python side
# is a component of its own (python/CMakeLists.txt) that a plain install leaves out.
install(TARGETS msprobe_static msprobe_shared
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/msprobe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
configure_file(${CMAKE_SOURCE_DIR}/cmake/libmsprobe.pc.in ${CMAKE_BINARY_DIR}/libmsprobe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/libmsprobe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(MSP_BUILD_CLI)
  install(TARGETS msprobe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET msprobe_mpi) # where src/cli/launcher.c looks for it: beside bin
    install(TARGETS msprobe_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR}/../lib/msprobe)
  endif()
  install(FILES ${CMAKE_SOURCE_DIR}/man/msprobe.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_SOURCE_DIR}/completions/msprobe.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME msprobe)
  install(FILES ${CMAKE_SOURCE_DIR}/completions/_msprobe DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${CMAKE_SOURCE_DIR}/completions/msprobe.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
