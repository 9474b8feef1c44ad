# Turns a file into a C array: cmake -DIN=FILE -DOUT=FILE.c -DNAME=symbol -DHEADER=H -P cmake/embed.cmake
file(READ "${IN}" bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
cmake_path(GET IN FILENAME file)
file(WRITE "${OUT}" "/* Made from ${file} by cmake/embed.cmake. */\n#include \"${HEADER}\"\n\n"
     "const unsigned char ${NAME}[] = {\n${bytes}0x00};\nconst size_t ${NAME}_size = ${size};\n")
