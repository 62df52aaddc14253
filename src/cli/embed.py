"""Writes a text file as a C string. A tool of the build: embed.py FILE NAME OUTPUT."""

import sys

with open(sys.argv[1], encoding="ascii") as f:
    lines = f.read().splitlines(keepends=True)
with open(sys.argv[3], "w", encoding="ascii") as out:
    out.write(f"static const char {sys.argv[2]}[] =\n")
    for line in lines:
        text = line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
        out.write(f'\t"{text}"\n')
    out.write("\t;\n")
