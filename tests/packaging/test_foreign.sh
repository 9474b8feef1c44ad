#!/usr/bin/env bash
# test_foreign.sh — recipes of Windows lack nothing, and the reader of foreign programs sees what is wrong with one.
python3 "$ONQ_ROOT/tools/recipes.py" --lint

mkdir -p tree/tools tree/include/onq tree/packaging
cp "$ONQ_ROOT/tools/recipes.py" tree/tools/
cp "$ONQ_ROOT/include/onq/onq.h" tree/include/onq/
wrong() { # FILE, COMMAND OF SED, WHAT IT SAYS — one thing in a recipe is changed
    rm -rf tree/packaging/*
    cp -r "$ONQ_ROOT"/packaging/winget "$ONQ_ROOT"/packaging/scoop tree/packaging/
    sed -i "$2" "tree/packaging/$1"
    if python3 tree/tools/recipes.py --lint >said; then fail "recipes.py does not see: $1: $2"; fi
    says -F -- "$3" <said || { cat said; exit 1; }
}
wrong winget/onq.installer.yaml.in '/InstallerSha256/d' 'lacks InstallerSha256'
wrong winget/onq.installer.yaml.in 's/@SHA256@/0/' 'is not a sum'
wrong winget/onq.yaml.in 's/@VERSION@/@OTHER@/' 'is left over'
wrong winget/onq.locale.en-US.yaml.in 's/"//g' 'needs quotes'
wrong scoop/onq.json.in 's/"bin"/"bin" "x"/' 'delimiter'
wrong scoop/onq.json.in '/"license"/d' 'lacks license'

# A program of this system, one that is cut short, and nothing.
for file in "$ONQ" /dev/null; do
    if python3 "$ONQ_ROOT/tools/check-imports.py" "$file" >said; then fail "$file passes"; fi
done
printf 'MZ' >short
if python3 "$ONQ_ROOT/tools/check-imports.py" short >said; then fail "a cut program passes"; fi
says 'cut short' <said
