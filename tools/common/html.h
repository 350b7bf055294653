// The page of a report: one file that needs nothing else, light or dark as the reader's system is, for screens of any
// width and for paper. Everything shown is escaped.
#pragma once

#include <string>
#include <vector>

#include "tools/common/result_table.h"

namespace taper {

// Each byte that belongs to no character replaced by U+FFFD.
std::string valid_utf8(const std::string& text);

// For text and for attributes in double quotes: markup escaped, what is not UTF-8 and control characters replaced.
std::string html_escaped(const std::string& text);

// A text that shows a value of a file, with where that is: FILE#JSON-POINTER in the attribute data-from.
std::string html_from(const std::string& element, const std::string& text, const std::string& from);

// `place` is the pointer's beginning: every cell says where in which file it stands. A published table has none.
std::string html_table(const ResultTable& table, const std::string& place);
std::string html_published(const ResultTable& table);

// The page's colours as CSS variables, light or dark as the reader's system is.
std::string html_palette();

// The whole page around a body.
std::string html_page(const std::string& title, const std::string& body);

}  // namespace taper
