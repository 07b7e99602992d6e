// Turns each static figure into an interactive one. Without this file, or if a chart fails, the static SVG stays.
"use strict";

(() => {
  const NARROW_PX = 600;
  const COMPOSED = ["concat", "hconcat", "vconcat", "facet", "repeat"];

  // A chart brings its data with it. Whatever else it asks for is a mistake, or not ours; `refused` lists it,
  // because Vega only warns and draws on without.
  function noLoader(refused) {
    const refuse = (uri) => {
      refused.push(uri);
      return Promise.reject(new Error(`a figure may not load ${uri}`));
    };
    return { load: refuse, sanitize: refuse, http: refuse, file: refuse };
  }

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
    tooltip: { disableDefaultStyle: true, formatTooltip: tooltipRows },
  };

  function element(kind, className) {
    const made = document.createElement(kind);
    made.className = className;
    return made;
  }

  // A chart that is asked something answers in words too: beside it, since the chart itself is one image to a screen reader.
  function showAnswer(controls, view) {
    const answer = element("output", "tlb-answer");
    const write = (_, text) => {
      answer.textContent = text;
      for (const slider of controls.querySelectorAll("input[type=range]")) slider.setAttribute("aria-valuetext", text);
    };
    write("", view.signal("readout"));
    view.addSignalListener("readout", write);
    controls.append(answer);
  }

  // What tlb/report/render.py packs: the theme (theme.js) is the same for all, and a table names its columns once.
  function unpacked(spec) {
    const rows = (table) => table.rows.map((row) => Object.fromEntries(row.map((value, k) => [table.columns[k], value])));
    const datasets = Object.fromEntries(Object.entries(spec.datasets || {}).map(([name, table]) => [name, rows(table)]));
    return { ...spec, config: TLB_THEME, datasets };
  }

  async function hydrate(figure) {
    const chart = figure.querySelector(".tlb-chart");
    const live = element("div", "tlb-live");
    const controls = element("div", "tlb-controls");
    try {
      const text = figure.querySelector("script.tlb-spec").textContent;
      // On a telephone a legend has one entry to a row; else its end would be cut off.
      const stacked = window.innerWidth < NARROW_PX; // a figure in a closed fold has no width
      const spec = unpacked(JSON.parse(text, (key, value) => (stacked && key === "columns" && Number.isInteger(value) ? 1 : value)));
      if (stacked) spec.config = { ...spec.config, legend: { ...spec.config.legend, columns: 1 } };
      // A single chart is laid out anew where there is less width than it asks for; a composed one scrolls.
      if (!COMPOSED.some((key) => key in spec)) {
        live.style.maxWidth = `${spec.width}px`;
        spec.width = "container";
        live.classList.add("tlb-fluid");
      }
      chart.append(live);
      chart.before(controls);
      const refused = [];
      const { view } = await vegaEmbed(live, spec, { ...options, bind: controls, loader: noLoader(refused) });
      await view.runAsync();
      if (refused.length) throw new Error(`it asks for ${refused}`);
      chart.replaceChildren(live);
      // A composed chart may be narrower than it was drawn, with fewer columns.
      live.style.setProperty("--tlb-width", `${live.querySelector("svg").getAttribute("width")}px`);
      if ((spec.params || []).some((param) => param.name === "readout")) showAnswer(controls, view);
      if (!controls.hasChildNodes()) controls.remove();
      figure.dataset.state = "interactive";
    } catch (error) {
      live.remove();
      controls.remove();
      figure.dataset.state = "static";
      console.error(`${figure.id} stays static:`, error);
    }
  }

  document.querySelectorAll(".tlb-figure").forEach(hydrate);
  // A chart fits the width it has when the window changes. In a closed fold it has none.
  for (const fold of document.querySelectorAll("details:has(.tlb-figure)"))
    fold.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")));
})();
