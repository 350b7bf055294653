"""Writes data/bpe/unicode_ranges.inc: the ranges of letters and numbers among the code points, for the word splitter.

    python3 tools/scripts/unicode_ranges.py > data/bpe/unicode_ranges.inc

Letters are the general categories L*, numbers N* of the Unicode Character Database, as Python carries it. The package
unicodedata2, where installed, is newer than the interpreter's own table and goes first.
"""

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

CLASS_NAMES = {"L": "kLetter", "N": "kNumber"}


def ranges():
    first = kind = None
    for code in range(0x110000 + 1):
        major = unicodedata.category(chr(code))[0] if code < 0x110000 else None
        if major == kind:
            continue
        if kind in CLASS_NAMES:
            yield first, code - 1, CLASS_NAMES[kind]
        first, kind = code, major


print(f"// Unicode {unicodedata.unidata_version}: written by tools/scripts/unicode_ranges.py; not to be edited.")
print("// {first, last, class}, ascending; what lies between is neither letter nor number.")
print("// clang-format off")
row = ""
for first, last, name in ranges():
    entry = f"{{0x{first:X}, 0x{last:X}, {name}}},"
    if len(row) + 1 + len(entry) > 120:
        print(row)
        row = ""
    row += (" " if row else "") + entry
print(row)
print("// clang-format on")
