# The tests, all by wildcard:
#   tests/unit/<layer>/test_*.c   one cmocka program each, linked to the static library (hidden symbols seen) and to
#                                 tests/harness/*.c; src/ and include/ on its path      label quick
#   tests/fuzz/fuzz_*.c           with tests/fuzz/replay_main.c; replays tests/fuzz/corpus/<target>/ and the folders that
#                                 tests/fuzz/shared.txt adds, then mutates;
#                                 with ONQ_LIBFUZZER no tests, but programs for `make fuzz`  label quick
#   examples in C                 run by tests/cli/examples.sh and tests/examples       no test of their own
#   tests/tools/*.c               programs that other tests drive, in build/tests         no test of their own
#   tests/cli/*.sh                run by tests/harness/run_script.sh                    label quick
#   tests/header/*                onq.h alone as C11 and as C++11                       label quick
#   tests/<folder>/test_*.sh      other shell tests                                     label <folder>
#   tests/parity/test_*.py        pytest, one ctest test a file                         label parity
#   tests/python/test_*.py        the same for the Python package                       label parity
#   tests/hostile/*.c             every fault in every command; many models at once     label quick
#   tests/hostile/test_*.py       pytest: what crashes, signals and full disks leave    label parity
#   tests/hostile/campaign.py     hostile input for every command: with the address sanitizer only
# plus the layer check and the export check. In a variant build (asan, tsan, ...) only the programs and the shell
# tests of tests/cli are made, under the variant's name and label, so that ctest can run both builds at once.
enable_testing()
if(ONQ_TESTS STREQUAL "OFF")
  return()
endif()

pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(ONQ_TESTS STREQUAL "ON" AND NOT CMOCKA_FOUND)
  message(FATAL_ERROR "cmocka is needed for the tests (Debian: libcmocka-dev)")
endif()
# Worth a line only where tests were asked for.
set(SKIP_LEVEL VERBOSE)
if(ONQ_TESTS STREQUAL "ON")
  set(SKIP_LEVEL STATUS)
endif()

if(ONQ_TEST_VARIANT)
  set(TEST_PREFIX "${ONQ_TEST_VARIANT}.")
  set(TEST_QUICK "${ONQ_TEST_VARIANT}")
else()
  set(TEST_PREFIX "")
  set(TEST_QUICK quick)
endif()

# What every test finds in its environment; it runs in the project's root. ONNX Runtime is not compiled with the thread
# sanitizer, which does not see how its threads wait for one another: what it does to memory through the C library is left
# out. What code of ours does stays in, also when the runtime calls it.
set(TEST_ENVIRONMENT
  "ONQ_ROOT=${PROJECT_SOURCE_DIR}"
  "ONQ_BUILD=${PROJECT_BINARY_DIR}"
  "ORT_DISABLE_TELEMETRY=1" # programs that load the runtime set it themselves, as docs/C_INTERFACE.md says
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1"
  "LSAN_OPTIONS=suppressions='${PROJECT_SOURCE_DIR}/tests/harness/lsan.supp':print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1")
if(ONQ_SANITIZE MATCHES "thread")
  list(APPEND TEST_ENVIRONMENT "ONQ_TEST_LOOSE=1") # it multiplies what a process holds
endif()
if(TARGET onq)
  list(APPEND TEST_ENVIRONMENT "ONQ=$<TARGET_FILE:onq>")
endif()

function(onq_add_test name label timeout)
  add_test(NAME "${TEST_PREFIX}${name}" COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties("${TEST_PREFIX}${name}" PROPERTIES LABELS "${label}" TIMEOUT ${timeout}
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${TEST_ENVIRONMENT}")
endfunction()

# Tests keep their asserts in every build type.
add_library(onq_test_flags INTERFACE)
target_compile_options(onq_test_flags INTERFACE -UNDEBUG)
target_include_directories(onq_test_flags INTERFACE src include tests/harness)
target_link_libraries(onq_test_flags INTERFACE onq_flags onq_link_flags onq_static)

# A model as text, for whoever compares one.
add_library(onq_dump STATIC tests/harness/dump.c)
target_link_libraries(onq_dump PUBLIC onq_test_flags)

# ---- unit tests
if(ONQ_LIBFUZZER)
  message(STATUS "fuzz targets only")
elseif(CMOCKA_FOUND)
  target_link_libraries(onq_test_flags INTERFACE PkgConfig::CMOCKA)
  file(GLOB HARNESS_SOURCES CONFIGURE_DEPENDS tests/harness/*.c)
  list(FILTER HARNESS_SOURCES EXCLUDE REGEX "/dump\\.c$")
  file(GLOB UNIT_SOURCES CONFIGURE_DEPENDS tests/unit/*/test_*.c)
  if(CMAKE_SYSTEM_NAME STREQUAL "Windows")
    target_link_options(onq_test_flags INTERFACE -Wl,--wrap=pthread_create,--undefined=__wrap_pthread_create) # harness/no_threads.c
    target_compile_options(onq_test_flags INTERFACE -include ${PROJECT_SOURCE_DIR}/tests/windows/posix/posix.h)
    target_include_directories(onq_test_flags INTERFACE tests/windows/posix)
    # What needs POSIX, each with its reason there.
    file(STRINGS tests/windows/left_out.txt LEFT_OUT REGEX "^(unit|harness)\\.")
    foreach(line IN LISTS LEFT_OUT)
      string(REGEX REPLACE "^([a-z]+)\\.([a-z_.]+) .*$" "\\2" name "${line}")
      string(REPLACE "." "/test_" name "${name}")
      list(FILTER UNIT_SOURCES EXCLUDE REGEX "/unit/${name}\\.c$")
      list(FILTER HARNESS_SOURCES EXCLUDE REGEX "/harness/${name}\\.c$")
    endforeach()
  endif()
  add_library(onq_harness STATIC ${HARNESS_SOURCES})
  target_link_libraries(onq_harness PUBLIC onq_dump onq_test_flags)
  add_custom_target(unit_tests)
  foreach(source IN LISTS UNIT_SOURCES)
    cmake_path(GET source STEM stem)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME layer)
    set(program unit_${layer}_${stem})
    add_executable(${program} ${source})
    target_link_libraries(${program} PRIVATE onq_harness onq_test_flags)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
    add_dependencies(unit_tests ${program})
    string(REGEX REPLACE "^test_" "" short ${stem})
    onq_add_test(unit.${layer}.${short} "${TEST_QUICK};unit" 300 ${program})
  endforeach()

  # ---- tests/hostile/*.c: faults and load, one program each
  file(GLOB HOSTILE_SOURCES CONFIGURE_DEPENDS tests/hostile/*.c)
  foreach(source IN LISTS HOSTILE_SOURCES)
    cmake_path(GET source STEM stem)
    add_executable(hostile_${stem} ${source})
    target_link_libraries(hostile_${stem} PRIVATE onq_harness onq_test_flags)
    set_target_properties(hostile_${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
    onq_add_test(hostile.${stem} "${TEST_QUICK};hostile" 900 hostile_${stem})
  endforeach()
else()
  message(${SKIP_LEVEL} "unit tests are skipped: no cmocka (Debian: libcmocka-dev)")
endif()

# ---- programs that other tests drive: tests/tools/*.c, one program each, in build/tests
file(GLOB TOOL_SOURCES CONFIGURE_DEPENDS tests/tools/*.c)
foreach(source IN LISTS TOOL_SOURCES)
  cmake_path(GET source STEM program)
  if(program STREQUAL "state_models" AND NOT TARGET onq_harness)
    continue()
  endif()
  add_executable(${program} ${source})
  target_link_libraries(${program} PRIVATE $<TARGET_NAME_IF_EXISTS:onq_harness> onq_dump onq_test_flags)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endforeach()

# ---- the examples in C, as a user builds them, in build/tests: example_ and the name of the file in examples/c, or of the folder
file(GLOB EXAMPLE_SOURCES CONFIGURE_DEPENDS examples/c/*.c examples/*/run.c)
foreach(source IN LISTS EXAMPLE_SOURCES)
  cmake_path(GET source STEM stem)
  if(stem STREQUAL "run")
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME stem)
  endif()
  add_executable(example_${stem} ${source})
  target_link_libraries(example_${stem} PRIVATE onq_flags onq_link_flags onq_static)
  set_target_properties(example_${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endforeach()

# ---- fuzz targets
file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
file(STRINGS tests/fuzz/shared.txt FUZZ_SHARED REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/fuzz/shared.txt)
foreach(source IN LISTS FUZZ_SOURCES)
  cmake_path(GET source STEM program)
  string(REGEX REPLACE "^fuzz_" "" target ${program})
  add_executable(${program} ${source})
  target_link_libraries(${program} PRIVATE onq_dump onq_test_flags)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(ONQ_LIBFUZZER)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer) # tools/fuzz.sh runs them
  else()
    target_sources(${program} PRIVATE tests/fuzz/replay_main.c)
    set(folders "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${target}")
    if(NOT EXISTS ${folders})
      set(folders "")
    endif()
    foreach(line IN LISTS FUZZ_SHARED)
      if(line MATCHES "^${target} +([^ ]+)$")
        list(APPEND folders "${PROJECT_SOURCE_DIR}/tests/${CMAKE_MATCH_1}")
      endif()
    endforeach()
    onq_add_test(fuzz.${target} "${TEST_QUICK};fuzz" 300 ${program} ${folders})
  endif()
endforeach()

# ---- shell tests
function(onq_add_script script label timeout)
  cmake_path(GET script STEM LAST_ONLY stem)
  cmake_path(GET script PARENT_PATH folder)
  cmake_path(GET folder FILENAME group)
  string(REGEX REPLACE "^test_" "" short ${stem})
  onq_add_test(${group}.${short} "${label};${group}" ${timeout}
               bash "${PROJECT_SOURCE_DIR}/tests/harness/run_script.sh" "${script}")
endfunction()
if(NOT ONQ_LIBFUZZER)
  file(GLOB CLI_SCRIPTS CONFIGURE_DEPENDS tests/cli/*.sh)
  foreach(script IN LISTS CLI_SCRIPTS)
    onq_add_script("${script}" "${TEST_QUICK}" 300)
  endforeach()
endif()

set(ONQ_VENV_PYTHON "${PROJECT_SOURCE_DIR}/build/venv/bin/python" CACHE FILEPATH "Python of the parity tests")
if(ONQ_TEST_VARIANT STREQUAL "asan" AND TARGET onq)
  onq_add_test(hostile.inputs "asan;hostile" 1500 "${ONQ_VENV_PYTHON}" tests/hostile/campaign.py --each 1)
  set_property(TEST asan.hostile.inputs PROPERTY COST 100)
  set_property(TEST asan.hostile.inputs APPEND PROPERTY ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()
if(ONQ_TEST_VARIANT)
  return()
endif()

file(GLOB OTHER_SCRIPTS CONFIGURE_DEPENDS tests/*/test_*.sh)
list(FILTER OTHER_SCRIPTS EXCLUDE REGEX "/tests/cli/")
if(TARGET onq)
  foreach(script IN LISTS OTHER_SCRIPTS)
    onq_add_script("${script}" script 900)
  endforeach()
endif()

# ---- the header alone, the layers, the exports
set(HEADER_FLAGS -pedantic -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only -I include)
onq_add_test(header.c11 "quick;header" 60 ${CMAKE_C_COMPILER} -std=c11 ${HEADER_FLAGS} tests/header/header_c11.c)
find_program(ONQ_CXX NAMES g++ c++ clang++)
if(ONQ_CXX)
  onq_add_test(header.cxx11 "quick;header" 60 ${ONQ_CXX} -std=c++11 ${HEADER_FLAGS} tests/header/header_cxx11.cpp)
else()
  message(${SKIP_LEVEL} "header.cxx11 is skipped: no C++ compiler")
endif()
onq_add_test(layers "quick;structure" 60 bash tools/check-layers.sh)
onq_add_test(systems "quick;structure" 60 bash tools/check-systems.sh)
onq_add_test(unused "quick;structure" 60 bash tools/check-unused.sh)
onq_add_test(errors "quick;structure" 60 bash tools/check-errors.sh)
onq_add_test(operators "quick;structure" 60 bash tools/check-operators.sh)
onq_add_test(options "quick;structure" 60 bash tools/check-options.sh)
onq_add_test(comments "quick;structure" 60 bash tools/check-comments.sh)
onq_add_test(words "quick;structure" 60 bash tools/check-words.sh)
onq_add_test(links "quick;structure" 60 bash tools/check-links.sh)
onq_add_test(state "quick;structure" 60 bash tools/check-state.sh $<TARGET_FILE:onq_shared>)
onq_add_test(exports "quick;structure" 60 bash tools/check-exports.sh $<TARGET_FILE:onq_shared>)

# ---- Python: against the live reference
file(GLOB PYTEST_FILES CONFIGURE_DEPENDS tests/parity/test_*.py tests/python/test_*.py tests/hostile/test_*.py)
foreach(file IN LISTS PYTEST_FILES)
  cmake_path(GET file STEM stem)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET folder FILENAME group)
  string(REGEX REPLACE "^test_" "" short ${stem})
  onq_add_test(${group}.${short} "parity" 1500 "${ONQ_VENV_PYTHON}" -m pytest "${file}")
  set_property(TEST "${group}.${short}" PROPERTY COST 100) # the long ones first
  set_property(TEST "${group}.${short}" APPEND PROPERTY ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endforeach()

# One ctest run over this build and the sanitizer build: ctest --test-dir build/all.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/all")
file(WRITE "${PROJECT_BINARY_DIR}/all/CTestTestfile.cmake"
     "subdirs(\"${PROJECT_BINARY_DIR}\" \"${PROJECT_SOURCE_DIR}/build/asan\")\n")
