# Toolchain for `make check`: compiles (never links or runs) the library and the program for 64-bit Arm, so that
# no x86-only code comes in unnoticed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
