// What every page does beside showing itself.
"use strict";

{
  const root = document.documentElement;

  // Paper is white.
  let onScreen = root.dataset.theme;
  addEventListener("beforeprint", () => { onScreen = root.dataset.theme; root.dataset.theme = "light"; });
  addEventListener("afterprint", () => { root.dataset.theme = onScreen; });

  // Search quotes the pages it found by fetching them, which no browser allows from a file.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

  // What scrolls in a box of its own can be reached by keyboard, and says what it is. (The theme sees to some boxes, without names.)
  const BOXES = {
    "pre": "Code", ".tlb-table, .pst-scrollable-table-container": "Table", ".cell_output > .output": "Output", "div.math": "Formula",
    ".tlb-model": "Model",
    ".tlb-chart": "", // which says what it is already
  };
  // On a telephone code waits to be opened, so that text and figures come first.
  if (matchMedia("(max-width: 600px)").matches)
    document.querySelectorAll("div.cell > .cell_input").forEach((code) => {
      const fold = document.createElement("details");
      fold.className = "admonition hide above-input";
      fold.innerHTML = '<summary><p class="admonition-title">Code</p></summary>';
      code.before(fold);
      fold.append(code);
    });

  const showsMore = (box) => box.classList.toggle("tlb-more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  const kinds = new Map();
  const follow = new ResizeObserver((changes) => changes.forEach(({ target: box }) => {
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    const said = kinds.get(box) && { role: "group", "aria-label": `${kinds.get(box)}, scrolls sideways` };
    for (const [name, value] of Object.entries({ tabindex: 0, ...said }))
      scrolls ? box.setAttribute(name, value) : box.removeAttribute(name);
    showsMore(box);
  }));
  for (const [boxes, kind] of Object.entries(BOXES))
    document.querySelectorAll(boxes).forEach((box) => {
      kinds.set(box, kind);
      follow.observe(box);
      box.addEventListener("scroll", () => showsMore(box), { passive: true });
    });
}
