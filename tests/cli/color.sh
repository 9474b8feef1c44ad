#!/usr/bin/env bash
# color.sh — colour on a terminal, and nowhere else.
script -qec true /dev/null </dev/null >/dev/null 2>&1 || { echo "no script(1) that makes a terminal"; exit 77; }
esc=$'\033'
terminal() { TERM=xterm script -qec "$*" /dev/null </dev/null || true; }
terminal onq inspect --jsn | says -F "$esc[1;31merror: $esc[0munknown" || fail "an error: $(terminal onq inspect --jsn)"
terminal onq static --help | says -F "$esc[1mExamples" || fail "headings of help"
terminal NO_COLOR=1 onq inspect --jsn | says -F "$esc" && fail "NO_COLOR"
terminal TERM=dumb onq inspect --jsn | says -F "$esc" && fail "TERM=dumb"
terminal NO_COLOR= onq inspect --jsn | says -F "$esc" || fail "NO_COLOR that is empty"
# Neither stream is coloured because the other is.
terminal "onq static --help >help; onq inspect --jsn 2>err" >/dev/null
cat help err | says -F "$esc" && fail "colour in a file"
exit 0
