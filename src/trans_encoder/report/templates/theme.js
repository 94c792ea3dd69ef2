"use strict";
const element = (id) => document.getElementById(id);
const plain = (text) => text.normalize("NFKC").toLocaleLowerCase();
const wordsOf = (search) => plain(search.value).split(/\s+/).filter(Boolean);

(() => {
  const theme = element("theme");
  const root = document.documentElement;
  const dark = () => root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { theme.ariaLabel = theme.title = dark() ? "Light colours" : "Dark colours"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();
})();
