{% include "theme.js" %}

(() => {
  const [controls, search, count, none] = ["controls", "search", "count", "none"].map(element);
  if (!controls) return;
  const groups = [...document.querySelectorAll("[data-group]")].map((row) => ({ row, text: plain(row.textContent) }));
  const show = () => {
    const words = wordsOf(search);
    let shown = 0;
    for (const { row, text } of groups) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${groups.length} groups`;
    none.hidden = shown > 0;
  };
  controls.hidden = false;
  controls.addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", show);
  show();
})();
