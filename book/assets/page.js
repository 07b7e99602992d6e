// What every page needs before it is drawn.
"use strict";

{
  const root = document.documentElement;
  // Follow the system's colours until the reader chooses. (The theme's own default for this would name a colour
  // scheme that does not exist while scripts are off.)
  root.dataset.mode ||= "auto";
  root.dataset.theme ||= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

  // Paper is white.
  let onScreen = root.dataset.theme;
  addEventListener("beforeprint", () => { onScreen = root.dataset.theme; root.dataset.theme = "light"; });
  addEventListener("afterprint", () => { root.dataset.theme = onScreen; });

  // Search quotes the pages it found by fetching them, which no browser allows from a file.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
