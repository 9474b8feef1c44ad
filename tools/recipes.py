#!/usr/bin/env python3
"""recipes.py [--lint | ZIP URL HOMEPAGE] — fills in the recipes of winget and scoop for an archive, in build/dist, and
checks them: each key that the package manager asks for is there, no mark is left over, and the archive's sum is a sum.
With --lint the archive is made up and nothing is written."""
import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WINGET = {
    "version": {"PackageIdentifier", "PackageVersion", "DefaultLocale", "ManifestType", "ManifestVersion"},
    "installer": {"PackageIdentifier", "PackageVersion", "InstallerType", "NestedInstallerType", "RelativeFilePath",
                  "Architecture", "InstallerUrl", "InstallerSha256", "ManifestType", "ManifestVersion"},
    "defaultLocale": {"PackageIdentifier", "PackageVersion", "PackageLocale", "Publisher", "PackageName", "License",
                      "ShortDescription", "ManifestType", "ManifestVersion"},
}
SCOOP = {"version", "description", "homepage", "license", "architecture", "bin"}


def lint_yaml(text):
    """The few forms of YAML that these files have: KEY: VALUE, lists of them, comments."""
    keys = {}
    for line in text.splitlines():
        row = re.fullmatch(r"(?:- |  )?([A-Za-z0-9]+):(?: (\S.*))?", line)
        if not row and not line.startswith("#"):
            return f"'{line}' is not KEY: VALUE"
        if row:
            if re.match(r"[^\"'].*: ", row[2] or ""):
                return f"'{line}' needs quotes"
            keys[row[1]] = row[2]
    missing = WINGET.get(keys.get("ManifestType"), {"ManifestType"}) - set(keys)
    if missing:
        return f"lacks {', '.join(sorted(missing))}"
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", keys.get("InstallerSha256") or "0" * 64):
        return "InstallerSha256 is not a sum"
    return None


def lint_json(text):
    try:
        recipe = json.loads(text)
    except ValueError as error:
        return str(error)
    missing = SCOOP - set(recipe)
    if missing:
        return f"lacks {', '.join(sorted(missing))}"
    one = recipe["architecture"].get("64bit", {})
    if not re.fullmatch(r"[0-9a-f]{64}", one.get("hash", "")) or not one.get("url"):
        return "64bit has no url or no sum"
    return None


def main(words):
    lint = words == ["--lint"]
    if not lint and len(words) != 3:
        sys.exit(__doc__.splitlines()[0])
    archive, url, home = (None, "https://example.org/onq.zip", "https://example.org") if lint else words
    header = (ROOT / "include/onq/onq.h").read_text()
    version = ".".join(re.search(rf"#define ONQ_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))
    total = hashlib.sha256(Path(archive).read_bytes() if archive else b"").hexdigest()
    marks = {"@VERSION@": version, "@URL@": url, "@HOMEPAGE@": home, "@SHA256@": total}
    bad = False
    for template in sorted([*ROOT.glob("packaging/winget/*.in"), *ROOT.glob("packaging/scoop/*.in")]):
        text = template.read_text()
        for mark, value in marks.items():
            text = text.replace(mark, value)
        left = re.search(r"@[A-Z0-9]+@", text)
        wrong = f"{left[0]} is left over" if left else (lint_json if ".json" in template.name else lint_yaml)(text)
        if wrong:
            print(f"{template.relative_to(ROOT)}: {wrong}")
            bad = True
        elif not lint:
            out = ROOT / "build/dist" / template.name.removesuffix(".in")
            out.write_text(text)
            print(out.relative_to(ROOT))
    sys.exit(bad)


if __name__ == "__main__":
    main(sys.argv[1:])
