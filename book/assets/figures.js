// Turns each static figure into an interactive one. Without this file, or if a chart fails, the static SVG stays.
"use strict";

(() => {
  const COMPOSED = ["concat", "hconcat", "vconcat", "facet", "repeat"];

  // A chart brings its data with it. Whatever else it asks for is a mistake, or not ours.
  const refuse = (uri) => Promise.reject(new Error(`a figure may not load ${uri}`));
  const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

  // vega-tooltip's own formatter turns a field named "image" into a picture from anywhere.
  function tooltipRows(value, sanitize) {
    if (value === null || typeof value !== "object") return sanitize(value);
    const rows = Object.entries(value).map(([key, item]) =>
      `<tr><td class="key">${sanitize(key)}</td><td class="value">${sanitize(item)}</td></tr>`);
    return `<table>${rows.join("")}</table>`;
  }

  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    defaultStyle: false,
    ast: true, // expressions by interpreter: works where a content security policy forbids eval
    loader,
    tooltip: { disableDefaultStyle: true, formatTooltip: tooltipRows },
  };

  async function hydrate(figure) {
    const chart = figure.querySelector(".tlb-chart");
    const spec = JSON.parse(figure.querySelector("script.tlb-spec").textContent);
    const live = document.createElement("div");
    live.className = "tlb-live";
    // A single chart is laid out anew in the width there is; a composed one keeps its own and scrolls.
    if (!COMPOSED.some((key) => key in spec)) {
      spec.width = "container";
      live.classList.add("tlb-fluid");
    }
    chart.append(live);
    try {
      const { view } = await vegaEmbed(live, spec, options);
      await view.runAsync();
      chart.replaceChildren(live);
      figure.dataset.state = "interactive";
    } catch (error) {
      live.remove();
      figure.dataset.state = "static";
      console.error(`${figure.id} stays static:`, error);
    }
  }

  document.querySelectorAll(".tlb-figure").forEach(hydrate);
})();
