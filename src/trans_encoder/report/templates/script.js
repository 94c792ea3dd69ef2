{% include "theme.js" %}

(() => {
  const table = element("table");
  if (!table) return;
  const PAGE = 25;
  const body = table.tBodies[0];
  const [controls, search, stage, count, none, more] = ["controls", "search", "stage", "count", "none", "more"].map(element);
  const rows = [...body.rows].map((row) => ({ row, text: plain(`${row.cells[0].textContent} ${row.cells[1].textContent}`) }));
  let order = rows;
  let limit = PAGE;

  const show = () => {
    const words = wordsOf(search);
    const found = order.filter(({ row, text }) => (!stage.value || row.dataset.stage === stage.value) && words.every((word) => text.includes(word)));
    const shown = new Set(found.slice(0, limit));
    for (const entry of rows) entry.row.hidden = !shown.has(entry);
    count.textContent = `${found.length} of ${rows.length} pairs`;
    none.hidden = found.length > 0;
    more.hidden = found.length <= limit;
    more.textContent = `Show more (${found.length - limit})`;
  };

  const value = (row, column, by) => {
    const cell = row.cells[column];
    return by === "number" ? Number(cell.dataset.value) : cell.textContent.trim();
  };
  const headers = [...table.tHead.rows[0].cells];
  const sort = (column, direction) => {
    const by = headers[column].dataset.by;
    const compare = by === "number" ? (a, b) => a - b : new Intl.Collator(undefined, { numeric: true }).compare;
    order = [...rows].sort((a, b) => direction * compare(value(a.row, column, by), value(b.row, column, by)));
    body.append(...order.map(({ row }) => row));
    for (const [place, header] of headers.entries()) {
      if (place === column) header.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else header.removeAttribute("aria-sort");
    }
    show();
  };
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => {
      const first = header.dataset.by === "number" ? -1 : 1;
      const sorted = header.getAttribute("aria-sort");
      sort(column, sorted ? (sorted === "ascending" ? -1 : 1) : first);
    });
    header.replaceChildren(button);
  });

  const restart = () => { limit = PAGE; show(); };
  search.addEventListener("input", restart);
  stage.addEventListener("change", restart);
  more.addEventListener("click", () => { limit += PAGE; show(); });
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.hidden = false;
  sort(headers.findIndex((header) => header.textContent === "gap"), -1);
})();
