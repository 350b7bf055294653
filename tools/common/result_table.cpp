#include "tools/common/result_table.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace taper {
namespace {

using Json = nlohmann::ordered_json;

std::string markdown_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '<' || c == '*' || c == '_' || c == '`') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_text(const Cell& cell) {
  if (cell.value.is_null()) return "";
  return cell.value.is_string() ? csv_text(cell.value.get<std::string>()) : cell.value.dump();
}

// Characters of a UTF-8 text.
size_t length(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool is_left) {
  const std::string space(width - std::min(width, length(text)), ' ');
  return is_left ? text + space : space + text;
}

Cell cell_from_json(const Json& json, const std::string& source) {
  const bool is_cell = json.is_object() && json.contains("value") && !json["value"].is_structured();
  require(is_cell, "{}: a cell of a table is damaged", source);
  Cell cell;
  cell.value = json["value"];
  cell.digits = std::clamp(json.value("digits", 0), 0, 12);
  cell.is_signed = json.value("signed", false);
  cell.from = json.value("from", "");
  return cell;
}

}  // namespace

Cell text_cell(const std::string& text) { return {text, 0, false, ""}; }

Cell number_cell(double value, int digits, const std::string& from, bool is_signed) {
  return {std::isfinite(value) ? Json(value) : Json(), digits, is_signed, from};
}

std::string to_text(const Cell& cell) {
  if (cell.value.is_string()) return cell.value.get<std::string>();
  if (!cell.value.is_number()) return "-";
  const double value = cell.value.get<double>();
  return cell.is_signed ? fmt::format("{:+.{}f}", value, cell.digits) : fmt::format("{:.{}f}", value, cell.digits);
}

std::string to_text(const ResultTable& table) {
  std::vector<size_t> widths;
  std::vector<bool> is_text;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    widths.push_back(length(table.columns[i]));
    is_text.push_back(false);
    for (const auto& row : table.rows) {
      widths[i] = std::max(widths[i], length(to_text(row[i])));
      if (row[i].value.is_string()) is_text[i] = true;
    }
  }
  std::string text = table.title + "\n";
  const auto add_line = [&](const auto& word) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) line += (i > 0 ? "  " : "") + padded(word(i), widths[i], is_text[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line([&](size_t i) { return table.columns[i]; });
  for (const auto& row : table.rows) add_line([&](size_t i) { return to_text(row[i]); });
  return text + (table.note.empty() ? "" : table.note + "\n");
}

std::string to_markdown(const ResultTable& table) {
  std::string text = "**" + markdown_text(table.title) + "**\n\n|";
  for (const std::string& column : table.columns) text += " " + markdown_text(column) + " |";
  text += "\n|";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const bool is_left = std::any_of(table.rows.begin(), table.rows.end(),
                                     [&](const std::vector<Cell>& row) { return row[i].value.is_string(); });
    text += is_left ? " --- |" : " ---: |";
  }
  text += "\n";
  for (const auto& row : table.rows) {
    text += "|";
    for (const Cell& cell : row) text += " " + markdown_text(to_text(cell)) + " |";
    text += "\n";
  }
  return text + (table.note.empty() ? "" : "\n" + markdown_text(table.note) + "\n");
}

std::string to_csv(const ResultTable& table) {
  std::string text;
  for (size_t i = 0; i < table.columns.size(); ++i) text += (i > 0 ? "," : "") + csv_text(table.columns[i]);
  text += "\n";
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + csv_text(row[i]);
    text += "\n";
  }
  return text;
}

Json to_json(const ResultTable& table) {
  Json json;
  json["name"] = table.name;
  json["title"] = table.title;
  json["columns"] = table.columns;
  json["rows"] = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) {
      Json entry;
      entry["value"] = cell.value;
      if (cell.value.is_number()) {
        entry["digits"] = cell.digits;
        if (cell.is_signed) entry["signed"] = true;
        entry["from"] = cell.from;
      }
      cells.push_back(entry);
    }
    json["rows"].push_back(cells);
  }
  if (!table.note.empty()) json["note"] = table.note;
  return json;
}

ResultTable table_from_json(const Json& json, const std::string& source) {
  ResultTable table;
  try {
    table.name = json.at("name").get<std::string>();
    table.title = json.at("title").get<std::string>();
    table.columns = json.at("columns").get<std::vector<std::string>>();
    table.note = json.value("note", "");
    for (const Json& row : json.at("rows")) {
      table.rows.emplace_back();
      for (const Json& cell : row) table.rows.back().push_back(cell_from_json(cell, source));
      require(table.rows.back().size() == table.columns.size(), "{}: a row of a table has {} cells, want {}", source,
              table.rows.back().size(), table.columns.size());
    }
  } catch (const nlohmann::json::exception& error) {
    fail("{}: holds a table that is damaged: {}", source, error.what());
  }
  return table;
}

}  // namespace taper
