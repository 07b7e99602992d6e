// The search quotes the text of an article: no code, no menus.
"use strict";

{
  const textOf = Search.htmlToText;
  Search.htmlToText = (page, anchor) => {
    const parsed = new DOMParser().parseFromString(page, "text/html");
    const article = parsed.querySelector("article");
    if (article) parsed.querySelector('[role="main"]').replaceChildren(article);
    parsed.querySelectorAll("pre, svg, summary, .cell_input, .tlb-listing, .tlb-controls, .tlb-files").forEach((part) => part.remove());
    return textOf(parsed.documentElement.outerHTML, anchor);
  };
}
