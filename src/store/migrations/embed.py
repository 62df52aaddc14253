"""Writes the numbered SQL files, given in order, as one C table: embed.py OUT TABLE FILE.sql..."""

import os
import sys


def literal(text):
    lines = text.split("\n")
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") for line in lines]
    return "\n".join('\t        "%s\\n"' % line for line in escaped)


def main():
    out, table, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    entries = []
    for number, path in enumerate(files, start=1):
        name = os.path.basename(path)
        if not name.startswith("%04d_" % number):
            sys.exit("%s: number %04d is expected here" % (path, number))
        with open(path, encoding="ascii") as f:
            entries.append('\t{"%s",\n%s},\n' % (name, literal(f.read().rstrip("\n"))))
    with open(out, "w", encoding="ascii") as f:
        f.write('#include "store/backend.h"\n\n')
        f.write("const struct store_migration %s[] = {\n%s};\n" % (table, "".join(entries)))
        f.write("const unsigned %s_n = %d;\n" % (table, len(entries)))


main()
