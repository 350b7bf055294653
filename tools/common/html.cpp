#include "tools/common/html.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "engine/core/error.h"

namespace taper {
namespace {

constexpr const char* kPalette = R"css(
:root{color-scheme:light dark;--text:#1c2024;--soft:#5b6570;--page:#fff;--card:#f6f7f9;--line:#d9dde2;--grid:#d9dde2;
--accent:#0b62c4;--series-1:#0b62c4;--series-2:#d1480f;--series-3:#1a8a4a;--series-4:#8a3fc0;--series-5:#b98900;
--series-6:#007f8c;--series-7:#c2257a;--series-8:#6b7280}
@media (prefers-color-scheme:dark){:root{--text:#e6e9ed;--soft:#9aa5b1;--page:#14171a;--card:#1d2125;--line:#363c43;
--grid:#3a4048;--accent:#6db3ff;--series-1:#6db3ff;--series-2:#ff9466;--series-3:#5fd38d;--series-4:#c99bf2;
--series-5:#e8c34a;--series-6:#4fcbd8;--series-7:#f57bb5;--series-8:#a3acb8}}
)css";

constexpr const char* kStyle = R"css(
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem 1rem 4rem;font:16px/1.5 system-ui,sans-serif;color:var(--text);
background:var(--page);overflow-wrap:break-word}
h1{font-size:1.7rem;line-height:1.2;margin:.2em 0}h2{font-size:1.3rem;margin:2.5rem 0 .5rem;padding-top:.8rem;
border-top:1px solid var(--line)}h3{font-size:1rem;margin:1.4rem 0 .4rem}
a{color:var(--accent)}nav ul{padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none}
.note,figcaption{color:var(--soft);font-size:.85rem;margin:.3rem 0 1rem}
.wide{overflow-x:auto;max-width:100%;border:1px solid var(--line);border-radius:6px;margin:.4rem 0}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
td.long{white-space:normal;min-width:14rem}
tr:last-child td{border-bottom:0}thead th{background:var(--card)}.number{text-align:right}
.published{border-left:4px solid var(--accent)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,21rem),1fr));gap:.8rem}
.plots figure{margin:0;padding:.4rem;border:1px solid var(--line);border-radius:6px;background:var(--card)}
.plots svg{display:block;width:100%;height:auto;color:var(--text)}
ul.legend{list-style:none;padding:0;margin:.4rem 0;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;font-size:.85rem}
ul.legend i{display:inline-block;width:1.4em;height:.25em;margin-right:.4em;vertical-align:middle}
.samples{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:.8rem}
.samples>div{border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;background:var(--card)}
.samples h4{margin:0 0 .3rem;font-size:.85rem}.sample{white-space:pre-wrap;font-size:.9rem;margin:0}
.sample b{color:var(--soft);font-weight:normal}
details{margin:.6rem 0}summary{cursor:pointer}
@media print{:root{color-scheme:light}body{max-width:none;padding:0;font-size:11pt}nav{display:none}
h2{break-after:avoid}figure,.samples>div,tr{break-inside:avoid}.wide{overflow:visible;border:0}
th,td{white-space:normal;padding:.15rem .35rem}table{font-size:8pt}}
)css";

bool is_number_column(const ResultTable& table, size_t column) {
  return std::none_of(table.rows.begin(), table.rows.end(),
                      [&](const std::vector<Cell>& row) { return row[column].value.is_string(); });
}

constexpr size_t kLongText = 40;

std::string cell_class(const Cell& cell, bool is_number) {
  if (is_number) return " class=\"number\"";
  return to_text(cell).size() > kLongText ? " class=\"long\"" : "";
}

// With an empty place, the texts stand without attributes.
std::string rows_of(const ResultTable& table, const std::string& place) {
  const auto from = [&](const std::string& pointer) {
    return place.empty() ? "" : " data-from=\"" + html_escaped(place + pointer) + "\"";
  };
  std::string html = "<table><thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    html += fmt::format("<th{}{}>{}</th>", is_number_column(table, i) ? " class=\"number\"" : "",
                        from(fmt::format("/columns/{}", i)), html_escaped(table.columns[i]));
  }
  html += "</tr></thead><tbody>\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    html += "<tr>";
    for (size_t i = 0; i < table.rows[r].size(); ++i) {
      const Cell& cell = table.rows[r][i];
      const std::string origin = cell.from.empty() ? "" : " title=\"" + html_escaped(cell.from) + "\"";
      html += fmt::format("<td{}{}{}>{}</td>", cell_class(cell, is_number_column(table, i)), origin,
                          from(fmt::format("/rows/{}/{}", r, i)), html_escaped(to_text(cell)));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>";
}

}  // namespace

std::string valid_utf8(const std::string& text) {
  const nlohmann::json json = text;
  return nlohmann::json::parse(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).get<std::string>();
}

std::string html_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (c == '\'') {
      escaped += "&#39;";
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      escaped += "\xEF\xBF\xBD";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string html_from(const std::string& element, const std::string& text, const std::string& from) {
  const std::string name = element.substr(0, element.find(' '));
  return fmt::format("<{} data-from=\"{}\">{}</{}>", element, html_escaped(from), html_escaped(text), name);
}

std::string html_table(const ResultTable& table, const std::string& place) {
  std::string html =
      html_from("h3", table.title, place + "/title") + "\n<div class=\"wide\">" + rows_of(table, place) + "</div>\n";
  if (!table.note.empty()) html += html_from("p class=\"note\"", table.note, place + "/note") + "\n";
  return html;
}

std::string html_published(const ResultTable& table) {
  return fmt::format(
      "<h3 class=\"is-published\">{}</h3>\n<div class=\"wide published\">{}</div>\n"
      "<p class=\"note is-published\">{}</p>\n",
      html_escaped(table.title), rows_of(table, ""), html_escaped(table.note));
}

std::string html_palette() { return kPalette; }

std::string html_page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}{}</style></head>\n<body>\n{}</body></html>\n",
      html_escaped(title), kPalette, kStyle, body);
}

}  // namespace taper
