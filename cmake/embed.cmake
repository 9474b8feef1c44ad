# Turns a page into a C array: cmake -DIN=FILE.html -DOUT=FILE.c -DNAME=symbol -DHEADER=H -DROOT=src -P cmake/embed.cmake
#
# A line /*INCLUDE file*/ in it becomes that file, whose name begins in ROOT: what pages share has one home.
file(READ "${IN}" text)
while(text MATCHES "/\\*INCLUDE ([a-z_/.]+)\\*/")
  set(named "${CMAKE_MATCH_1}")
  file(READ "${ROOT}/${named}" included)
  string(REPLACE "/*INCLUDE ${named}*/" "${included}" text "${text}")
endwhile()
file(WRITE "${OUT}.html" "${text}")
file(READ "${OUT}.html" bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
cmake_path(GET IN FILENAME file)
file(WRITE "${OUT}" "/* Made from ${file} by cmake/embed.cmake. */\n#include \"${HEADER}\"\n\n"
     "const unsigned char ${NAME}[] = {\n${bytes}0x00};\nconst size_t ${NAME}_size = ${size};\n")
