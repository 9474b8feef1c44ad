# The libraries onq is built on, as one interface library: onq_dependencies.
#
# With --as-needed the shared library asks at run time only for those that it really calls.
find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

set(ONQ_PKG_MODULES jansson libjpeg spng zlib)
pkg_check_modules(ONQ_DEPS REQUIRED ${ONQ_PKG_MODULES})

add_library(onq_dependencies INTERFACE)
target_include_directories(onq_dependencies SYSTEM INTERFACE ${ONQ_DEPS_INCLUDE_DIRS})
target_link_directories(onq_dependencies INTERFACE ${ONQ_DEPS_LIBRARY_DIRS})
target_link_libraries(onq_dependencies INTERFACE ${ONQ_DEPS_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS} m)
if(ONQ_BUNDLED_DEPENDENCIES) # archives: what their headers have to know
  target_compile_options(onq_dependencies INTERFACE ${ONQ_DEPS_CFLAGS_OTHER})
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Windows")
  target_link_libraries(onq_dependencies INTERFACE bcrypt psapi)
  target_link_libraries(onq_link_flags INTERFACE ssp)
endif()
