# Compiler and linker flags, as interface libraries: onq_flags (how every file of ours is compiled), onq_hardening (what
# is shipped: not the tests, which stand in for C library functions) and onq_link_flags (how programs and the
# shared library are linked).
add_library(onq_flags INTERFACE)
target_compile_options(onq_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -Wwrite-strings -Wformat=2 -Wcast-qual -Wundef
  $<$<BOOL:${ONQ_WERROR}>:-Werror>
  # Results are bit-exact: no fused multiply-add unless the source says fma().
  -ffp-contract=off
  -fno-strict-aliasing
  # `#pragma omp simd` says which loops to vectorise; no OpenMP at run time.
  -fopenmp-simd
  # clang warns where it does not (-O0, sanitizers).
  $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>
  -fstack-protector-strong)
# POSIX and GNU interfaces (mmap, openat, copy_file_range) under -std=c17.
target_compile_definitions(onq_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)

add_library(onq_hardening INTERFACE)
add_library(onq_link_flags INTERFACE)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_options(onq_link_flags INTERFACE
    -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Windows")
  # Windows 10 and later; printf of C instead of that of the system; the compiler's libraries are linked in.
  target_compile_definitions(onq_flags INTERFACE _WIN32_WINNT=0x0A00 __USE_MINGW_ANSI_STDIO=1)
  target_compile_options(onq_flags INTERFACE -Wno-format -Wno-format-extra-args -Wno-conversion)
  target_link_options(onq_link_flags INTERFACE -static -static-libgcc
    -Wl,--dynamicbase -Wl,--high-entropy-va -Wl,--nxcompat -Wl,--no-insert-timestamp)
endif()

if(ONQ_SANITIZE)
  target_compile_options(onq_flags INTERFACE -fsanitize=${ONQ_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(onq_link_flags INTERFACE -fsanitize=${ONQ_SANITIZE})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # Fortification needs the optimiser; some distributions predefine a lower level.
  target_compile_options(onq_hardening INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
                         -fstack-clash-protection)
endif()

if(ONQ_COVERAGE)
  target_compile_options(onq_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(onq_link_flags INTERFACE --coverage)
endif()

if(ONQ_LIBFUZZER)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ONQ_LIBFUZZER needs clang: configure with -DCMAKE_C_COMPILER=clang")
  endif()
  target_compile_options(onq_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(onq_link_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
