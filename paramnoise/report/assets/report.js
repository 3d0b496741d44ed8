// Charts of a page, drawn by uPlot from the data that the page brings along.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const keys = new Map(page.keys.map((key) => [key.name, key]));
  const shown = { centre: "median", traces: null, bands: true, hidden: new Set() };
  const plots = [];
  const number = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 });
  const rough = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

  const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ink = (colour) => (colour === "#000000" && isDark() ? "#F2F2F2" : colour);
  const faded = (colour, alpha) => colour + Math.round(alpha * 255).toString(16).padStart(2, "0");

  // Until someone chooses: every seed where seeds are points, as a line through them says little.
  const showsTraces = (panel) => shown.traces ?? panel.lines.some((line) => line.traces.some((trace) => trace.mark));

  // What uPlot takes for a panel: its columns, their series, the bands between them, and which key each belongs to.
  function columns(panel) {
    const data = [panel.x], series = [{}], bands = [], owners = [null];
    const add = (values, options, owner) => {
      data.push(values);
      series.push({ spanGaps: true, show: !shown.hidden.has(owner.key), points: { show: false }, ...options });
      owners.push(owner);
      return data.length - 1;
    };
    for (const line of panel.lines) {
      const key = keys.get(line.key), colour = ink(key.colour);
      const centre = line.centres[shown.centre] || line.centres.median;
      if (shown.bands && centre.low.some((value) => value !== null)) {
        const edge = { stroke: "transparent", width: 0 };
        const high = add(centre.high, edge, { key: line.key }), low = add(centre.low, edge, { key: line.key });
        bands.push({ series: [high, low], fill: faded(colour, 0.17) });
      }
      if (showsTraces(panel)) {
        for (const trace of line.traces) {
          const points = { show: true, size: 6, width: 1.4, stroke: colour, fill: trace.mark === "full" ? colour : css("--paper") };
          add(trace.values, trace.mark ? { stroke: colour, width: 0, paths: () => null, points }
            : { stroke: faded(colour, 0.45), width: 1, dash: key.dash }, { key: line.key, trace: trace.name });
        }
      }
      const alone = centre.value.filter((value) => value !== null).length === 1;
      const points = alone ? { show: true, size: 7, fill: colour } : { show: false };
      add(centre.value, { stroke: colour, width: 2.2, dash: key.dash, points }, { key: line.key, line, centre });
    }
    return { data, series, bands, owners };
  }

  const smallest = (panel) => Math.min(...panel.lines.flatMap((line) => [
    ...Object.values(line.centres).flatMap((centre) => [...centre.value, ...centre.low]), ...line.traces.flatMap((trace) => trace.values),
  ]).filter((value) => value !== null));

  // A logarithm where all values are above 0; else one that is linear around it.
  function yScale(panel, log) {
    if (!log) return { distr: 1 };
    return smallest(panel) > 0 ? { distr: 3 } : { distr: 4, asinh: 1 };
  }

  function options(plot) {
    const { panel } = plot, stroke = css("--soft"), grid = { stroke: css("--grid"), width: 1 };
    const axis = { stroke, grid, ticks: grid, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const { series, bands } = plot.columns;
    const tick = (self, values) => values.map((value) => (value === null ? "" : short.format(value)));
    return {
      width: plot.place.clientWidth,
      height: plot.place.closest(".single") ? 420 : 300,
      legend: { show: false },
      cursor: { drag: { x: true, y: true, uni: 30 }, focus: { prox: 20 }, points: { size: 7 } },
      focus: { alpha: 1 },
      scales: { x: { time: false, distr: plot.log_x ? 3 : 1 }, y: yScale(panel, plot.log_y) },
      axes: [
        { ...axis, label: panel.x_label, labelSize: 18, size: 34, values: tick },
        { ...axis, label: panel.y_label || undefined, labelSize: 18, size: 52, values: tick },
      ],
      series, bands,
      hooks: { setCursor: [() => read(plot)], setSeries: [(self, place, change) => { if (change && "focus" in change) { plot.focus = change.focus ? place : null; read(plot); } }] },
    };
  }

  function draw(plot) {
    if (plot.chart) plot.chart.destroy();
    plot.columns = columns(plot.panel);
    plot.focus = null;
    plot.chart = new uPlot(options(plot), plot.columns.data, plot.place);
    read(plot);
  }

  // The value of a column at a place, or the last before it, with the place where it is.
  function before(values, place) {
    for (let i = place; i >= 0; i--) if (values[i] !== null) return i;
    return values.findIndex((value) => value !== null);
  }

  const interval = (centre, i) => (shown.bands && centre.low[i] !== null ? `(${rough.format(centre.low[i])} to ${rough.format(centre.high[i])})` : "");

  // Shows the values at the cursor, or the last ones.
  function read(plot) {
    const { panel, chart, columns: { owners, data } } = plot;
    if (!chart) return;
    const place = chart.cursor.idx ?? panel.x.length - 1;
    let words = `${number.format(panel.x[place])} ${panel.x_label}`;
    for (const owner of owners) {
      if (!owner || !owner.line) continue;
      const i = before(owner.centre.value, place), row = plot.rows.get(owner.key);
      const others = i === place || i < 0 ? "" : `, at ${number.format(panel.x[i])}`;
      const counts = owner.line.seeds, fewer = i >= 0 && counts.length && counts[i] < Math.max(...counts) ? `, ${counts[i]} ${counts[i] === 1 ? "seed" : "seeds"}` : "";
      row.value.textContent = i < 0 ? "" : number.format(owner.centre.value[i]);
      row.band.textContent = i < 0 ? "" : ` ${interval(owner.centre, i)}${others}${fewer}`;
    }
    const owner = plot.focus && owners[plot.focus];
    if (owner && owner.trace) {
      const values = data[plot.focus], i = before(values, place);
      if (i >= 0) words += ` · ${keys.get(owner.key).label}, ${owner.trace}: ${number.format(values[i])}`;
    }
    plot.at.textContent = words;
  }

  function addLegend(plot, legend) {
    for (const line of plot.panel.lines) {
      const key = keys.get(line.key), button = document.createElement("button");
      button.type = "button";
      button.dataset.key = key.name;
      button.setAttribute("aria-pressed", "true");
      button.innerHTML = '<svg viewBox="0 0 34 14" aria-hidden="true"><line x1="1" x2="33" y1="7" y2="7" stroke-width="3"/></svg><span class="name"></span><span class="value"><b></b><span class="band"></span></span>';
      button.querySelector("line").setAttribute("stroke-dasharray", key.dash.join(" "));
      button.querySelector(".name").textContent = key.label;
      button.addEventListener("click", () => toggle(key.name));
      legend.append(button);
      plot.rows.set(key.name, { button, value: button.querySelector("b"), band: button.querySelector(".band"), swatch: button.querySelector("line") });
    }
  }

  // Hides a line in every panel, or shows it again.
  function toggle(name) {
    if (!shown.hidden.delete(name)) shown.hidden.add(name);
    for (const plot of plots) {
      const row = plot.rows.get(name);
      if (!row) continue;
      row.button.setAttribute("aria-pressed", !shown.hidden.has(name));
      plot.columns.owners.forEach((owner, i) => { if (owner && owner.key === name) plot.chart.setSeries(i, { show: !shown.hidden.has(name) }); });
    }
  }

  function zoom(plot, how) {
    const { chart, panel } = plot, scale = chart.scales.x, all = [panel.x[0], panel.x[panel.x.length - 1]];
    if (how === "all") { chart.setData(plot.columns.data); return; }
    const to = plot.log_x ? Math.log : (value) => value, from = plot.log_x ? Math.exp : (value) => value;
    const centre = to(chart.cursor.idx == null ? from((to(scale.min) + to(scale.max)) / 2) : panel.x[chart.cursor.idx]);
    const factor = how === "in" ? 0.5 : 2;
    const [min, max] = [scale.min, scale.max].map((end) => from(centre + (to(end) - centre) * factor));
    if (max > min) chart.setScale("x", { min: Math.max(min, all[0]), max: Math.min(max, all[1]) });
  }

  function move(plot, place) {
    const { chart, panel } = plot, i = Math.max(0, Math.min(panel.x.length - 1, place));
    chart.setCursor({ left: chart.valToPos(panel.x[i], "x"), top: chart.over.clientHeight / 2 });
  }

  function addKeys(plot) {
    plot.place.addEventListener("keydown", (event) => {
      const last = plot.panel.x.length - 1, at = plot.chart.cursor.idx ?? last;
      const acts = {
        ArrowLeft: () => move(plot, at - 1), ArrowRight: () => move(plot, at + 1), Home: () => move(plot, 0), End: () => move(plot, last),
        "+": () => zoom(plot, "in"), "=": () => zoom(plot, "in"), "-": () => zoom(plot, "out"), 0: () => zoom(plot, "all"), Escape: () => zoom(plot, "all"),
      };
      if (event.key in acts && !event.ctrlKey && !event.metaKey) { acts[event.key](); event.preventDefault(); }
    });
  }

  const recolour = (plot) => { for (const [name, row] of plot.rows) row.swatch.setAttribute("stroke", ink(keys.get(name).colour)); };
  const redraw = () => plots.forEach((plot) => { draw(plot); recolour(plot); });

  for (const figure of document.querySelectorAll(".panel")) {
    const panel = page.panels[figure.dataset.panel];
    const plot = { panel, place: figure.querySelector(".plot"), at: figure.querySelector(".at"), rows: new Map(), log_x: panel.log_x, log_y: panel.log_y };
    addLegend(plot, figure.querySelector(".legend"));
    addKeys(plot);
    for (const button of figure.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(plot, button.dataset.zoom));
    new ResizeObserver(() => { if (plot.chart && plot.place.clientWidth !== plot.chart.width) plot.chart.setSize({ width: plot.place.clientWidth, height: plot.chart.height }); }).observe(plot.place);
    plots.push(plot);
  }
  for (const input of document.querySelectorAll(".toolbar input")) {
    if (input.name.startsWith("log_")) input.checked = page.panels.some((panel) => panel[input.name]);
    if (input.name === "traces") input.checked = page.panels.some(showsTraces);
    const lines = page.panels.flatMap((panel) => panel.lines);
    if (input.name === "centre") input.closest("fieldset").hidden = !lines.some((line) => line.centres.iqm);
    if (input.name === "bands") input.closest("label").hidden = !lines.some((line) => line.centres.median.low.some((value) => value !== null));
    input.addEventListener("change", () => {
      if (input.type === "radio") shown[input.name] = input.value;
      else if (input.name.startsWith("log_")) for (const plot of plots) plot[input.name] = input.checked;
      else shown[input.name] = input.checked;
      redraw();
    });
  }
  redraw();
  addEventListener("themechange", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.paramnoiseReport = { page, plots };
})();
