"use strict";
// Charts: Plotly with our look, drawn when they are seen, with labels at the ends of their lines.
(function (D) {
  const NARROW = 560; // pixels: below, labels move into a legend above the chart
  const charts = new Set();
  const probe = D.h("span", { hidden: true });
  document.documentElement.append(probe);

  // A color of the look, as the browser resolves it for the theme of this moment. Each answer makes it compute the
  // styles of the page, so they are kept until the theme changes.
  const resolved = new Map();
  D.color = function (name, alpha) {
    if (!resolved.has(name)) {
      probe.style.color = `var(--${name})`;
      resolved.set(name, getComputedStyle(probe).color.match(/[\d.]+/g) || ["0", "0", "0"]);
    }
    const parts = resolved.get(name);
    return alpha === undefined ? `rgb(${parts.slice(0, 3)})` : `rgba(${parts.slice(0, 3)},${alpha})`;
  };
  D.seriesColor = (place, alpha) => D.color("series-" + ((place % 7) + 1), alpha);
  D.seriesText = (place) => D.color("series-" + ((place % 7) + 1) + "-text");
  D.dash = (place) => ["solid", "dash", "dot"][Math.floor(place / 7) % 3];

  // Plotly reads some tags and entities in its texts: a name must not be one.
  D.plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  D.wrap = function (text, width) {
    const lines = [""];
    for (const word of String(text).split(" ")) {
      if ((lines[lines.length - 1] + " " + word).length > width) lines.push(word);
      else lines[lines.length - 1] += (lines[lines.length - 1] ? " " : "") + word;
    }
    return lines.map(D.plain).join("<br>");
  };

  const extremes = function (every) {
    let low = Infinity;
    let high = -Infinity;
    for (const values of every) {
      for (const value of values) {
        if (value !== null && value < low) low = value;
        if (value !== null && value > high) high = value;
      }
    }
    if (low > high) return [0, 1];
    const room = Math.abs(low) * 0.1 || 0.5; // of a curve that is level
    if (low === high) return [low - room, high + room];
    return [low - 0.06 * (high - low), high + 0.06 * (high - low)];
  };

  // Labels beside each other become unreadable: push them apart, in pixels, as little as possible.
  const spread = function (labels, range, pixels) {
    const scale = pixels / (range[1] - range[0]);
    const sorted = labels.map((label) => ({ label, at: (label.y - range[0]) * scale })).sort((a, b) => a.at - b.at);
    for (let round = 0; round < 30; round++) {
      for (let i = 1; i < sorted.length; i++) {
        const missing = 17 - (sorted[i].at - sorted[i - 1].at);
        if (missing > 0) {
          sorted[i].at += missing / 2;
          sorted[i - 1].at -= missing / 2;
        }
      }
    }
    sorted.forEach((each, i) => (each.at = Math.max(each.at, i ? sorted[i - 1].at + 15 : 4)));
    for (let i = sorted.length - 1, top = pixels - 4; i >= 0; i--, top -= 15) sorted[i].at = Math.min(sorted[i].at, top);
    sorted.forEach((each) => (each.label.place = range[0] + each.at / scale));
  };

  class Chart {
    // `make()` returns {traces, labels, marks, lines, small, unit, percent, alt}; it is called for each drawing.
    constructor(make, height) {
      this.make = make;
      this.height = height;
      this.plot = D.h("div", { class: "plot", role: "img", "aria-label": "A chart without values yet" });
      this.plot.style.height = height + "px";
      this.legend = D.h("ul", { class: "legend", "aria-hidden": "true" });
      this.node = D.h("div", { class: "chart" }, this.legend, this.plot);
      this.isSeen = false;
      this.isStale = true;
      this.observer = new IntersectionObserver((entries) => {
        this.isSeen = entries[entries.length - 1].isIntersecting;
        if (this.isSeen && this.isStale) this.draw();
      }, { rootMargin: "200px" });
      this.observer.observe(this.node);
      charts.add(this);
    }

    refresh() {
      this.isStale = true;
      if (this.isSeen) this.draw();
      else this.plot.setAttribute("aria-label", this.make().alt); // words need not be seen
    }

    draw() {
      if (!window.Plotly || !this.node.isConnected) return;
      this.isStale = false;
      const spec = this.make();
      if (!spec.traces.length) return;
      const width = this.plot.clientWidth;
      const narrow = width < NARROW;
      const range = spec.percent ? [0, 1] : extremes(spec.traces.filter((trace) => !trace.unbounded).map((trace) => trace.y));
      const labels = spec.small ? [] : spec.labels || [];
      const longest = Math.max(0, ...labels.map((label) => label.text.length));
      const right = spec.small || narrow ? 12 : Math.min(260, 26 + 6.9 * longest);
      const margin = spec.small ? { l: 58, r: 18, t: 8, b: 22 } : { l: 58, r: right, t: 12, b: 44 };
      if (!narrow) spread(labels, range, this.height - margin.t - margin.b);
      const ink = D.color("ink-soft");
      const axis = { gridcolor: D.color("grid"), zeroline: false, linecolor: D.color("line-strong"), tickcolor: D.color("line-strong"), tickfont: { size: spec.small ? 10.5 : 12, color: ink }, fixedrange: spec.small || narrow };
      const layout = {
        height: this.height,
        margin,
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: D.color("ink") },
        showlegend: false,
        hovermode: spec.small ? "x" : "closest",
        hoverlabel: { bgcolor: D.color("card"), bordercolor: D.color("line-strong"), font: { color: D.color("ink"), size: 12.5 }, align: "left" },
        dragmode: spec.small || narrow ? false : "zoom",
        xaxis: { ...axis, title: spec.small ? undefined : { text: "env steps", font: { size: 12.5, color: ink } }, tickformat: "~s", nticks: spec.small || narrow ? 4 : 8, showgrid: false, showline: true, rangemode: "tozero" },
        yaxis: { ...axis, title: spec.small || narrow || !spec.unit ? undefined : { text: D.plain(spec.unit), font: { size: 12.5, color: ink } }, nticks: spec.small ? 4 : 6, range, tickformat: spec.percent ? ".0%" : undefined, exponentformat: spec.small ? "e" : "power" },
        shapes: (spec.lines || []).map((line) => ({ type: "line", xref: "x", yref: "paper", x0: line.x, x1: line.x, y0: 0, y1: 1, line: { color: D.color("ink-soft"), width: 1, dash: "dot" } })),
        annotations: [
          ...(narrow ? [] : labels).map((label) => ({ x: 1, xref: "paper", xanchor: "left", xshift: 8, y: label.place, yref: "y", text: D.plain(label.text), font: { size: 12.5, color: label.color }, showarrow: false })),
          ...(spec.lines || []).map((line) => ({ x: line.x, xref: "x", y: 1, yref: "paper", yanchor: "bottom", text: D.plain(line.text), font: { size: 11.5, color: ink }, showarrow: false })),
        ],
      };
      this.plot.setAttribute("aria-label", spec.alt);
      D.replace(this.legend, labels.map((label) => {
        const swatch = D.h("i");
        swatch.style.background = label.line;
        return D.h("li", null, swatch, label.text);
      }));
      window.Plotly.react(this.plot, spec.traces.map(({ unbounded, ...trace }) => trace), layout, { displayModeBar: false, responsive: true, showTips: false, doubleClick: "reset" });
      this.plot.dataset.drawn = String(Number(this.plot.dataset.drawn || 0) + 1);
    }

    stop() {
      this.observer.disconnect();
      charts.delete(this);
      if (window.Plotly && this.plot.classList.contains("js-plotly-plot")) window.Plotly.purge(this.plot);
    }
  }

  D.chart = (make, height) => new Chart(make, height);
  D.redrawAll = function () {
    resolved.clear();
    charts.forEach((chart) => chart.refresh());
  };
  window.addEventListener("beforeprint", () => charts.forEach((chart) => chart.isStale && chart.draw()));
  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(D.redrawAll, 150);
  });

  const STEP = "step %{x:,}<br>";

  D.lineTrace = function (points, properties) {
    const alone = points.x.length === 1; // a line of one point would not be seen
    return { type: "scatter", mode: alone ? "lines+markers" : "lines", cliponaxis: !alone, x: points.x, y: points.y, connectgaps: false, hovertemplate: STEP + "%{y:.5~g}<extra></extra>", ...properties };
  };

  D.bandTraces = function (x, low, high, color) {
    const edge = { type: "scatter", mode: "lines", x, line: { width: 0, color }, hoverinfo: "skip" };
    return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: color }];
  };

  // Add the new points of an answer to the curves of a page; a restart replaces them.
  D.merge = function (series, answer, most) {
    if (answer.restart) for (const name of Object.keys(series)) delete series[name];
    for (const [name, points] of Object.entries(answer.series)) {
      if (!Object.hasOwn(series, name)) {
        series[name] = { ...points, x: [], y: [] };
      }
      const own = series[name];
      own.x = own.x.concat(points.x);
      own.y = own.y.concat(points.y);
      if (own.x.length > most) D.thin(own, most / 2);
    }
  };

  // The same rule as on the server: the first, the last, and the lowest and highest value of each bin.
  D.thin = function (points, most) {
    const last = points.x.length - 1;
    const bins = Math.max(1, Math.floor((most - 2) / 2));
    const kept = new Set([0, last]);
    for (let bin = 0; bin < bins; bin++) {
      const start = 1 + Math.floor((bin * (last - 1)) / bins);
      const stop = 1 + Math.floor(((bin + 1) * (last - 1)) / bins);
      let low = start;
      let high = start;
      for (let i = start; i < stop; i++) {
        if (points.y[i] === null) continue;
        if (points.y[low] === null || points.y[i] < points.y[low]) low = i;
        if (points.y[high] === null || points.y[i] > points.y[high]) high = i;
      }
      if (stop > start) kept.add(low).add(high);
    }
    const places = [...kept].sort((a, b) => a - b);
    points.x = places.map((place) => points.x[place]);
    points.y = places.map((place) => points.y[place]);
  };

  D.lastOf = function (points) {
    for (let i = points.y.length - 1; i >= 0; i--) if (points.y[i] !== null) return { x: points.x[i], y: points.y[i] };
    return null;
  };

  D.valueAt = function (points, step) {
    let found = null;
    for (let i = 0; i < points.x.length && (points.x[i] <= step || found === null); i++) if (points.y[i] !== null) found = points.y[i];
    return found;
  };

  // Return and evaluation in one chart, with the findings as numbered marks on the curve.
  D.returnSpec = function (series, findings, short) {
    const training = series.mean_return;
    const evaluation = series.eval_mean_return;
    const traces = [];
    const labels = [];
    const words = [];
    if (training) {
      traces.push(D.lineTrace(training, { name: "training", line: { color: D.seriesColor(1), width: 1.5 }, hovertemplate: STEP + "training: %{y:.5~g}<extra></extra>" }));
      const last = D.lastOf(training);
      if (last) labels.push({ text: "training " + D.score(last.y), y: last.y, color: D.seriesText(1), line: D.seriesColor(1) });
      if (last) words.push(`training return ${D.score(last.y)} at step ${D.count(last.x)}`);
    }
    if (evaluation) {
      const spread = series.eval_std_return;
      if (spread && spread.x.length === evaluation.x.length) {
        const shift = (sign) => evaluation.y.map((value, place) => (value === null || spread.y[place] === null ? value : value + sign * spread.y[place]));
        traces.unshift(...D.bandTraces(evaluation.x, shift(-1), shift(1), D.seriesColor(0, 0.14)));
      }
      const few = evaluation.x.length <= 60;
      traces.push(D.lineTrace(evaluation, { name: "evaluation", mode: few ? "lines+markers" : "lines", marker: { size: 5 }, line: { color: D.seriesColor(0), width: 2.4 }, hovertemplate: STEP + "evaluation: %{y:.5~g}<extra></extra>" }));
      const last = D.lastOf(evaluation);
      if (last) labels.push({ text: "evaluation " + D.score(last.y), y: last.y, color: D.seriesText(0), line: D.seriesColor(0) });
      if (last) words.push(`evaluation ${D.score(last.y)} at step ${D.count(last.x)}`);
    }
    const curveAt = (step) => [evaluation, training].find((curve) => curve && curve.x[0] <= step) || evaluation || training;
    if (findings.length && (evaluation || training)) {
      traces.push({
        type: "scatter", mode: "markers+text", name: "findings", x: findings.map((each) => each.env_steps), y: findings.map((each) => D.valueAt(curveAt(each.env_steps), each.env_steps)),
        text: findings.map((each, place) => String(place + 1)), textfont: { color: D.color("card"), size: 11 },
        marker: { size: 19, color: D.color("warn"), line: { color: D.color("card"), width: 2 } },
        customdata: findings.map((each) => `<b>${D.plain(each.title)}</b><br>${D.wrap(each.text, 60)}`), hovertemplate: STEP + "%{customdata}<extra></extra>",
      });
      words.push(findings.length + (findings.length === 1 ? " finding" : " findings"));
    }
    return { traces, labels, unit: "return", alt: "Return over env steps. " + (words.join("; ") || "No values yet") + "." };
  };
})(window.dashboard);
