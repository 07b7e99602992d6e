// Small models to play with: <div class="tlb-model" data-model="NAME"> holds a drawing of the state in which it begins, which stays
// without JavaScript. A model is a list of controls and a function from their values to {svg, says}; both are all that the page gets.
"use strict";

(() => {
  const times = (n, make) => Array.from({ length: n }, (_, k) => make(k)).join("");
  const text = (x, y, words, how = "") => `<text x="${x}" y="${y}" ${how}>${words}</text>`;
  const box = (x, y, w, h, how) => `<rect x="${x}" y="${y}" width="${w}" height="${h}" rx="3" ${how}/>`;
  const drawing = (height, label, body, width = 640) =>
    `<svg viewBox="0 0 ${width} ${height}" ${width < 640 ? 'style="min-width: 0" ' : ""}role="img" aria-label="${label}" font-size="14">${body}</svg>`;
  const NARROW = window.matchMedia("(max-width: 600px)"); // a telephone
  const DONE = 'class="tlb-hit"', MISS = 'class="tlb-miss"', EMPTY = 'class="tlb-empty"', SKIPPED = 'class="tlb-skipped"';

  // The same numbers in each browser and each time (mulberry32), so that a drawing can be compared with the one in the page.
  function random(seed) {
    return () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  // --- a TLB with sets and ways, and the pages that a loop visits

  // A number of visits to `pages` pages in an order: the page numbers.
  function visits(order, pages, count) {
    const draw = random(7);
    const stride = order === "stride" ? 4 : 1; // pages between pages: a power of two reaches one set in four
    return Array.from({ length: count }, (_, k) => stride * (order === "random" ? Math.floor(draw() * pages) : k % pages));
  }

  // The sets after these visits, and which of the visits missed.
  function simulate(sets, ways, policy, pages) {
    const held = Array.from({ length: sets }, () => []), draw = random(11);
    const missed = pages.map((page) => {
      const set = held[page % sets], place = set.indexOf(page);
      if (place >= 0) {
        if (policy === "lru") set.push(...set.splice(place, 1)); // the least recently used is first
        return false;
      }
      if (set.length < ways) set.push(page);
      else if (policy === "lru") { set.shift(); set.push(page); }
      else set[Math.floor(draw() * ways)] = page;
      return true;
    });
    return { held, missed };
  }

  function missShare(sets, ways, policy, order, pages) {
    const warm = 4 * pages, all = simulate(sets, ways, policy, visits(order, pages, warm + 400)).missed.slice(warm);
    return all.filter(Boolean).length / all.length;
  }

  const TLB = {
    controls: [
      ["sets", "Sets", [4, 1, 2, 8, 16]], ["ways", "Ways", [4, 1, 2, 8, 16]],
      ["policy", "Replacement", { lru: "least recently used", random: "random" }],
      ["order", "Order of visits", { cycle: "cycle", random: "random", stride: "every 4th page" }],
      ["pages", "Pages", { least: 1, most: 48, value: 18 }], ["step", "Visits made", { least: 0, most: 96, value: 60 }],
    ],
    show({ sets, ways, policy, order, pages, step }) {
      const all = visits(order, pages, step), { held, missed } = simulate(sets, ways, policy, all), last = all.at(-1);
      const wide = Math.min(40, 280 / ways), high = Math.min(30, 200 / sets);
      const cells = times(sets, (s) => text(20, 42 + s * high + high * 0.7, `set ${s}`, 'font-size="13"') + times(ways, (w) => {
        const page = held[s][w], now = page !== undefined && page === last;
        return box(66 + w * wide, 42 + s * high, wide - 2, high - 2, page === undefined ? EMPTY : now && missed.at(-1) ? MISS : now ? DONE : SKIPPED)
          + (page === undefined || wide < 26 || high < 15 ? "" : text(65 + w * wide + wide / 2, 42 + s * high + high * 0.68, page, 'text-anchor="middle" font-size="13"'));
      }));
      const entries = sets * ways, sizes = Array.from({ length: 24 }, (_, k) => 2 * (k + 1));
      const x = (n) => 400 + (n / 48) * 220, y = (share) => 240 - share * 190;
      const curve = sizes.map((n) => `${x(n).toFixed(1)},${y(missShare(sets, ways, policy, order, n)).toFixed(1)}`).join(" ");
      const share = missShare(sets, ways, policy, order, pages);
      const plot = `<path d="M400 50V240H620" class="tlb-axis"/><polyline points="${curve}" class="tlb-curve"/>`
        + `<path d="M${x(Math.min(entries, 48)).toFixed(1)} 50V240" class="tlb-mark"/>`
        + `<circle cx="${x(pages).toFixed(1)}" cy="${y(share).toFixed(1)}" r="6" ${MISS}/>`
        + text(392, 55, "100%", 'text-anchor="end"') + text(392, 244, "0", 'text-anchor="end"') + text(400, 34, "share of visits that miss")
        + text(510, 276, "pages visited", 'text-anchor="middle"') + text(400, 258, "0", 'text-anchor="middle"') + text(620, 258, "48", 'text-anchor="middle"');
      const recent = missed.slice(-16).map((miss, k) => box(66 + k * 17, 262, 14, 14, miss ? MISS : DONE)).join("");
      const label = `A TLB of ${sets} sets and ${ways} ways and the share of visits that miss by the number of pages`;
      const kept = text(66, 34, `${sets} × ${ways} = ${entries} entries`) + cells, visited = text(8, 274, "last 16", 'font-size="13"') + recent;
      const colour = (x, y) => text(x, y, "orange: a miss", 'font-size="13"');
      return {
        svg: NARROW.matches
          ? drawing(590, label, `${kept}${visited}${colour(66, 296)}<g transform="translate(-350 300)">${plot}</g>`, 360)
          : drawing(290, label, kept + plot + visited + colour(344, 274)),
        says: `${pages} pages in ${entries} entries: ${Math.round(100 * share)}% of visits miss once the loop has settled.`,
      };
    },
  };

  // --- a page walk, native or in a virtual machine, one memory reference after the other

  const LEVELS = { "4k": 4, "2m": 3, "1g": 2 };

  // The references of a walk in their order: [column, row, name]. In a virtual machine the address of each guest entry, and of the
  // data, is a guest-physical one, which takes a walk of the host's table first.
  function references(nested, guest, host) {
    const own = LEVELS[guest], theirs = LEVELS[host], made = [];
    for (let level = 0; level <= own; level++) {
      for (let h = 0; nested && h < theirs; h++) made.push([h, level, `h${4 - h}`, level]);
      if (level < own) made.push([4, level, `g${4 - level}`, level]);
    }
    return made;
  }

  const WALK = {
    controls: [
      ["kind", "Machine", { native: "bare metal", nested: "virtual machine" }],
      ["guest", "Page", { "4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB" }], ["host", "Host's page (virtual machine)", { "4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB" }],
      ["cached", "Paging-structure caches", { cold: "empty", warm: "hold the upper levels" }],
      ["step", "Step", { least: 0, most: 24, value: 1 }],
    ],
    show({ kind, guest, host, cached, step }) {
      const nested = kind === "nested", all = references(nested, guest, host), own = LEVELS[guest];
      // Warm caches hold all but the last entry of each table, and the translations of the guest's tables.
      const needed = all.map(([column, row], k) => cached === "cold" || (column === 4 ? row === own - 1 : row === own && all[k + 1]?.[1] !== row));
      let made = 0;
      const boxes = all.map(([column, row, name], k) => {
        const done = needed[k] && made++ < step, last = done && made === Math.min(step, needed.filter(Boolean).length);
        const x = nested ? 120 + column * 84 : 120, y = 36 + row * 44;
        return box(x, y, 66, 30, !needed[k] ? SKIPPED : last ? MISS : done ? DONE : EMPTY) + text(x + 33, y + 20, name, 'text-anchor="middle"');
      }).join("");
      const total = needed.filter(Boolean).length, rows = nested ? own + 1 : own;
      const names = times(rows, (row) => text(110, 56 + row * 44, row === own ? "data" : `level ${4 - row}`, 'text-anchor="end"'));
      const heads = nested ? text(120, 22, "host's table: where is the guest's entry?") + text(456, 22, "guest's entry") : text(120, 22, "entry of the page table");
      const where = nested ? text(540, 56 + own * 44, "") : text(120, 56 + own * 44, "then the data");
      const legend = [[120, MISS, "this read"], [230, DONE, "reads before it"], [380, SKIPPED, "skipped: cached"]]
        .map(([x, how, words]) => box(x, 260, 18, 18, how) + text(x + 26, 274, words)).join("");
      return {
        svg: drawing(288, `A page walk of ${total} memory references`, heads + names + boxes + where + legend),
        says: `${Math.min(step, total)} of ${total} memory references before the load itself.`,
      };
    },
  };

  // --- loads in flight: latency and throughput

  const LANES = {
    controls: [
      ["flight", "Independent loads in flight", { least: 1, most: 16, value: 4 }], ["walkers", "Page walkers", { least: 1, most: 6, value: 6 }],
      ["latency", "Latency of a load, ns", { least: 50, most: 400, value: 200 }], ["walk", "of which page walk, ns", { least: 0, most: 200, value: 100 }],
    ],
    show({ flight, walkers, latency, walk }) {
      const inside = Math.min(walk, latency), free = Array(walkers).fill(0), ready = Array(flight).fill(0), bars = [], SPAN = 1000;
      // A load waits for a walker, then for its data; its lane goes on when it is back.
      for (let done = 0; done < 400; done++) {
        const lane = ready.indexOf(Math.min(...ready)), walker = free.indexOf(Math.min(...free));
        const begin = Math.max(ready[lane], inside ? free[walker] : 0), end = begin + latency;
        free[walker] = begin + inside;
        ready[lane] = end;
        bars.push([lane, begin, begin + inside, end]);
      }
      const finished = bars.filter(([, , , end]) => end <= 20 * SPAN), each = Math.max(...finished.map((bar) => bar[3])) / finished.length;
      const high = Math.min(24, 240 / flight), x = (ns) => 20 + (Math.min(ns, SPAN) / SPAN) * 600;
      const drawn = bars.filter(([, begin]) => begin < SPAN).map(([lane, begin, middle, end]) => {
        const y = 30 + lane * high, width = (from, to) => Math.max(x(to) - x(from) - 1, 0).toFixed(1);
        return box(x(begin).toFixed(1), y, width(begin, middle), high - 3, MISS) + box(x(middle).toFixed(1), y, width(middle, end), high - 3, DONE);
      }).join("");
      const axis = `<path d="M20 ${34 + flight * high}H620" class="tlb-axis"/>` + text(20, 54 + flight * high, "0") + text(620, 54 + flight * high, "1,000 ns", 'text-anchor="end"');
      return {
        svg: drawing(64 + flight * high, `${flight} loads in flight, drawn as lanes over 1000 nanoseconds`, text(20, 20, "each lane: a page walk, then the data") + drawn + axis),
        says: `Each load takes ${latency} ns, and one finishes every ${each.toFixed(each < 20 ? 1 : 0)} ns: `
          + (each > (1.02 * latency) / flight ? `the ${walkers === 1 ? "walker is" : `${walkers} walkers are`} the limit.` : "the loads overlap fully."),
      };
    },
  };

  const MODELS = { tlb: TLB, walk: WALK, lanes: LANES };

  // --- controls

  function input([name, label, values], changed) {
    const field = document.createElement("label");
    field.append(`${label} `);
    const isRange = "least" in values, control = document.createElement(isRange ? "input" : "select"), shown = document.createElement("span");
    if (isRange) Object.assign(control, { type: "range", min: values.least, max: values.most, value: values.value });
    else for (const [value, words] of Array.isArray(values) ? [...values].sort((a, b) => a - b).map((n) => [n, n]) : Object.entries(values))
      control.append(new Option(words, value, false, Array.isArray(values) && value === values[0]));
    control.name = name;
    control.addEventListener("input", changed);
    field.append(control, " ", isRange ? shown : "");
    return { name, field, value: () => { shown.textContent = control.value; return isNaN(control.value) ? control.value : Number(control.value); } };
  }

  function enliven(place) {
    const model = MODELS[place.dataset.model], chart = document.createElement("div"), says = document.createElement("output");
    const draw = () => {
      const { svg, says: words } = model.show(Object.fromEntries(inputs.map(({ name, value }) => [name, value()])));
      chart.innerHTML = svg;
      says.textContent = words;
    };
    const inputs = model.controls.map((control) => input(control, draw)), controls = document.createElement("div");
    for (const [name, value] of Object.entries(place.dataset)) {
      const control = inputs.find((each) => each.name === name)?.field.querySelector("input, select");
      if (control) control.value = value; // a page may begin elsewhere: data-kind="nested"
    }
    controls.className = "tlb-controls";
    says.className = "tlb-answer";
    controls.append(...inputs.map(({ field }) => field), says);
    place.replaceChildren(controls, chart);
    draw();
  }

  document.querySelectorAll(".tlb-model").forEach(enliven);
})();
