// A table of results, and its forms: text for a terminal, Markdown, CSV, JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace taper {

struct Cell {
  nlohmann::ordered_json value;  // a number, a text, or null: there is none
  int digits = 0;                // of a number, after the point
  bool is_signed = false;        // "+0.72"
  std::string from;              // where a number comes from: "RUN/summary.json: valid_loss", or how it is computed
};

Cell text_cell(const std::string& text);
Cell number_cell(double value, int digits, const std::string& from, bool is_signed = false);  // not finite: none

struct ResultTable {
  std::string name;   // of its CSV file
  std::string title;  // with units
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
  std::string note;  // below it; may be empty
};

std::string to_text(const Cell& cell);  // "-" where there is none
std::string to_text(const ResultTable& table);
std::string to_markdown(const ResultTable& table);
std::string to_csv(const ResultTable& table);  // numbers in full precision
nlohmann::ordered_json to_json(const ResultTable& table);
// Error, beginning with `source`, where it is no table.
ResultTable table_from_json(const nlohmann::ordered_json& json, const std::string& source);

}  // namespace taper
