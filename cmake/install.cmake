# What `make install` puts under the prefix. Everything is relocatable: the program finds the library by
# $ORIGIN, the pkg-config file by ${pcfiledir}, the CMake package by its own place.
if(NOT TARGET onq_shared)
  return()
endif()
include(CMakePackageConfigHelpers)

install(TARGETS onq_shared EXPORT onqTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(NOT ONQ_BUNDLED_DEPENDENCIES) # the static library would need archives that nobody has
  install(TARGETS onq_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES include/onq/onq.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onq)
foreach(program IN ITEMS onq onq-mpi)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# The runtime that set-up unpacked goes beside the library, out of the loader's way; its licences go with ours.
set(ONQ_RUNTIME_FOLDER "${ONQ_RUNTIME_HOME}" CACHE PATH "Where ONNX Runtime is taken from when installing")
set(ONQ_RUNTIME_FILE libonnxruntime.so.1.31.1)
install(FILES "${ONQ_RUNTIME_FOLDER}/${ONQ_RUNTIME_FILE}" OPTIONAL
        PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/onq)
install(FILES "${ONQ_RUNTIME_FOLDER}/LICENSE" "${ONQ_RUNTIME_FOLDER}/ThirdPartyNotices.txt" OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/onnxruntime)

# pkg-config
file(RELATIVE_PATH ONQ_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
list(TRANSFORM ONQ_DEPS_LIBRARY_DIRS PREPEND -L OUTPUT_VARIABLE dirs)
list(TRANSFORM ONQ_DEPS_LIBRARIES PREPEND -l OUTPUT_VARIABLE libs)
list(JOIN dirs " " dirs)
list(JOIN libs " " libs)
string(STRIP "${dirs} ${libs} -pthread -ldl -lm" ONQ_LIBS_PRIVATE)
if(ONQ_BUNDLED_DEPENDENCIES)
  set(ONQ_LIBS_PRIVATE "-pthread -ldl -lm")
endif()
configure_file(cmake/onq.pc.in onq.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/onq.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# find_package(onq): onq::onq, and onq::static with COMPONENTS static
set(ONQ_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/onq)
install(EXPORT onqTargets NAMESPACE onq:: DESTINATION ${ONQ_CMAKE_DIR})
set(ONQ_PATH_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(ONQ_PATH_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
configure_package_config_file(cmake/onqConfig.cmake.in onqConfig.cmake INSTALL_DESTINATION ${ONQ_CMAKE_DIR}
                              PATH_VARS ONQ_PATH_LIBDIR ONQ_PATH_INCLUDEDIR)
write_basic_package_version_file(onqConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/onqConfig.cmake" "${PROJECT_BINARY_DIR}/onqConfigVersion.cmake"
        DESTINATION ${ONQ_CMAKE_DIR})

# Man pages and completions, where the program made them.
set(GENERATED "${PROJECT_BINARY_DIR}/generated")
install(DIRECTORY "${GENERATED}/man/" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL
        FILES_MATCHING PATTERN "*.1")
if(TARGET onq-mpi)
  install(FILES cli-mpi/onq-mpi.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES "${GENERATED}/completion/onq.bash" RENAME onq OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES "${GENERATED}/completion/onq.zsh" RENAME _onq OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES "${GENERATED}/completion/onq.fish" OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
