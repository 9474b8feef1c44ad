# Toolchain for 64-bit Arm, with Debian's cross compiler. `tools/setup.sh aarch64` unpacks the libraries of that
# architecture into build/aarch64/root; tests run under qemu-user. Used by `tools/check.sh aarch64`.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
get_filename_component(CMAKE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64/root" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig")
# Programs name their own loader: qemu's -L would show them another / than there is.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--dynamic-linker=${CMAKE_SYSROOT}/lib/ld-linux-aarch64.so.1")
set(paths "${CMAKE_SYSROOT}/lib/aarch64-linux-gnu:${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu")
# The machine's qemu, or a newer one that was unpacked because that cannot run ONNX Runtime.
set(qemu "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64/qemu/usr/bin/qemu-aarch64")
if(NOT EXISTS "${qemu}")
  set(qemu qemu-aarch64)
endif()
set(CMAKE_CROSSCOMPILING_EMULATOR "${qemu};-E;LD_LIBRARY_PATH=${paths}")
