// Before anything is drawn: the theme that was chosen last, if one was.
"use strict";
(() => {
  try {
    const chosen = localStorage.getItem("paramnoise-theme");
    if (chosen) document.documentElement.dataset.theme = chosen;
  } catch { /* a browser may keep nothing for pages that are files */ }
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const root = document.documentElement;
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("paramnoise-theme", root.dataset.theme); } catch { /* as above */ }
      dispatchEvent(new Event("themechange"));
    });
    const here = document.querySelector("nav [aria-current]"), bar = document.querySelector("nav");
    if (here) bar.scrollLeft = here.offsetLeft - bar.offsetLeft - (bar.clientWidth - here.offsetWidth) / 2;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!still) for (const video of document.querySelectorAll("video[data-autoplay]")) video.play().catch(() => {});
    for (const filters of document.querySelectorAll(".filters")) addFilters(filters);
  });

  // Buttons that show the claims of one verdict.
  function addFilters(filters) {
    const claims = [...filters.nextElementSibling.children];
    const counts = new Map([["all", claims.length]]);
    for (const claim of claims) counts.set(claim.dataset.verdict, (counts.get(claim.dataset.verdict) || 0) + 1);
    if (claims.length < 4 || counts.size < 3) return;
    for (const [verdict, count] of counts) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${verdict} (${count})`;
      button.setAttribute("aria-pressed", verdict === "all");
      button.addEventListener("click", () => {
        for (const other of filters.children) other.setAttribute("aria-pressed", other === button);
        for (const claim of claims) claim.hidden = verdict !== "all" && claim.dataset.verdict !== verdict;
      });
      filters.append(button);
    }
  }
})();
