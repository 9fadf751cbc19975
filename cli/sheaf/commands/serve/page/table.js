// A table whose columns sort by a click. Rows keep their elements from one update to the next, so that focus stays.

import { element } from "./view.js";

/**
 * `columns` are objects with `key`, `title`, `text` (whether it is aligned to the left), and `cell(row)`, which returns a
 * text or an element. `value(row)` is what to sort by. `key(row)` tells rows apart.
 */
export class Table {
  constructor(table, columns, key, sort) {
    this.columns = columns;
    this.key = key;
    this.sort = sort;
    this.descending = true;
    this.rows = [];
    this.shown = new Map();
    this.body = element("tbody");
    this.heads = columns.map((column) => {
      const button = element("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.title);
      return element("th", { scope: "col", class: column.text ? "text" : null, title: column.help ?? null }, button);
    });
    table.replaceChildren(element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.mark();
  }

  sortBy(key) {
    this.descending = this.sort === key ? !this.descending : !this.columns.find((column) => column.key === key).text;
    this.sort = key;
    this.mark();
    this.update(this.rows);
  }

  mark() {
    this.columns.forEach((column, i) => {
      if (column.key === this.sort) this.heads[i].setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else this.heads[i].removeAttribute("aria-sort");
    });
  }

  /** Show these rows; `chosen` is the key of the row that is marked. */
  update(rows, chosen = this.chosen) {
    this.rows = rows;
    this.chosen = chosen;
    const column = this.columns.find((one) => one.key === this.sort);
    const sign = this.descending ? -1 : 1;
    const order = [...rows].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return sign * (typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1));
    });
    const before = this.shown;
    this.shown = new Map();
    for (const row of order) {
      const key = this.key(row);
      const line = before.get(key) ?? element("tr", {}, ...this.columns.map((one) => this.empty(one)));
      line.className = key === chosen ? "chosen" : "";
      this.columns.forEach((one, i) => this.fill(line.children[i], one, row));
      this.shown.set(key, line);
    }
    const lines = [...this.shown.values()];
    const same = lines.length === this.body.children.length && lines.every((line, i) => line === this.body.children[i]);
    if (!same) {
      const focused = document.activeElement;
      this.body.replaceChildren(...lines);
      if (focused && this.body.contains(focused)) focused.focus({ preventScroll: true });
    }
  }

  empty(column) {
    return element("td", { class: [column.text && "text", column.name && "name"].filter(Boolean).join(" ") || null });
  }

  fill(cell, column, row) {
    if (column.once && cell.firstChild) return;
    const content = column.cell(row);
    if (typeof content !== "string") cell.replaceChildren(content);
    else if (cell.textContent !== content) {
      cell.textContent = content;
      if (column.name) cell.title = content;
    }
  }
}
