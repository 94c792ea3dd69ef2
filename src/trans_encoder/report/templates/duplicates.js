"use strict";
(() => {
  const theme = document.getElementById("theme");
  const root = document.documentElement;
  const dark = () => root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { theme.ariaLabel = theme.title = dark() ? "Light colours" : "Dark colours"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();

  const [controls, search, count, none] = ["controls", "search", "count", "none"].map((id) => document.getElementById(id));
  if (!controls) return;
  const plain = (text) => text.normalize("NFKC").toLocaleLowerCase();
  const groups = [...document.querySelectorAll("[data-group]")].map((row) => ({ row, text: plain(row.textContent) }));
  const show = () => {
    const words = plain(search.value).split(/\s+/).filter(Boolean);
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
