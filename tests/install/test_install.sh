#!/usr/bin/env bash
# test_install.sh — what is installed works from where it is, serves pkg-config and find_package users, and goes
# away again without a trace.
prefix=$PWD/prefix
mkdir -p "$prefix/share/man" "$prefix/lib" # folders that were there stay
echo keep >"$prefix/lib/other"
(cd "$prefix" && find . | sort) >before
bash "$ONQ_ROOT/tools/install.sh" install "$prefix"

for file in bin/onq lib/libonq.so lib/libonq.a include/onq/onq.h lib/pkgconfig/onq.pc \
    lib/cmake/onq/onqConfig.cmake; do
    test -e "$prefix/$file" || { echo "not installed: $file"; exit 1; }
done
version=$(env -i "$prefix/bin/onq" --version)
echo "installed: $version"

# Moved elsewhere it still works: nothing has the prefix inside.
mv "$prefix" "$PWD/moved"
[ "$(env -i "$PWD/moved/bin/onq" --version)" = "$version" ]
mv "$PWD/moved" "$prefix"

# A man page a command, and completions.
for command in $("$prefix/bin/onq" --list-commands); do
    grep -q '^\.TH ONQ' "$prefix/share/man/man1/onq-$command.1" ||
        { echo "no man page for $command"; exit 1; }
done
test -s "$prefix/share/man/man1/onq.1"
test -s "$prefix/share/bash-completion/completions/onq"
bash -n "$prefix/share/bash-completion/completions/onq"
test -s "$prefix/share/zsh/site-functions/_onq"
test -s "$prefix/share/fish/vendor_completions.d/onq.fish"

cat >user.c <<'C'
#include <onq/onq.h>
#include <stdio.h>

int main(void) {
    puts(onq_version());
    return 0;
}
C
wanted=$(pkg-config --with-path="$prefix/lib/pkgconfig" --modversion onq)

# pkg-config, shared and static
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# shellcheck disable=SC2046  # words
cc user.c $(pkg-config --cflags --libs onq) -Wl,-rpath,"$prefix/lib" -o user-shared
[ "$(./user-shared)" = "$wanted" ]
# shellcheck disable=SC2046
cc user.c $(pkg-config --static --cflags --libs onq) -Wl,-rpath,"$prefix/lib" -o user-private
[ "$(./user-private)" = "$wanted" ]
# shellcheck disable=SC2046
cc user.c $(pkg-config --cflags onq) "$prefix/lib/libonq.a" $(pkg-config --libs --static onq | sed 's/-lonq//') \
    -o user-static
[ "$(./user-static)" = "$wanted" ]

# find_package, shared and static
mkdir project
cat >project/CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(onq 0.1 REQUIRED COMPONENTS static)
add_executable(a ../user.c)
target_link_libraries(a PRIVATE onq::onq)
add_executable(b ../user.c)
target_link_libraries(b PRIVATE onq::static)
C
cmake -S project -B project/build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >cmake.log || { cat cmake.log; exit 1; }
cmake --build project/build >cmake.log || { cat cmake.log; exit 1; }
[ "$(project/build/a)" = "$wanted" ]
[ "$(project/build/b)" = "$wanted" ]

# Installing again is fine; uninstalling leaves what was there before, no more and no less.
bash "$ONQ_ROOT/tools/install.sh" install "$prefix"
bash "$ONQ_ROOT/tools/install.sh" uninstall "$prefix"
(cd "$prefix" && find . | sort) >after
diff before after
